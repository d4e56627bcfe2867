"""tests/thinned.txt names tests that there are, and what it names is slow."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.support.thinning import THINNED, ThinnedTests

TABLE = """
# a reason
unit/test_a.py::test_one
unit/test_a.py::test_two[docker*
unit/test_b.py::*
"""


@pytest.mark.parametrize(
    ("test", "line"),
    [
        ("unit/test_a.py::test_one", "unit/test_a.py::test_one"),
        ("unit/test_a.py::test_one[a case]", "unit/test_a.py::test_one"),
        ("unit/test_a.py::test_one_more", None),
        ("unit/test_a.py::test_two[docker-a\nb]", "unit/test_a.py::test_two[docker*"),
        ("unit/test_a.py::test_two[bubblewrap-docker]", None),
        ("unit/test_b.py::TestAll::test_three", "unit/test_b.py::*"),
        ("unit/test_c.py::test_one", None),
    ],
)
def test_a_line_names_tests(test: str, line: str | None) -> None:
    assert ThinnedTests(TABLE).line_of(f"tests/{test}") == line


def test_a_line_without_a_test_is_told() -> None:
    tests = ["tests/unit/test_a.py::test_one", "tests/unit/test_a.py::test_two[bubblewrap]"]
    assert ThinnedTests(TABLE).unmatched(tests) == ["unit/test_a.py::test_two[docker*"]


def test_each_line_is_of_a_test_that_there_is() -> None:
    table = ThinnedTests(THINNED.read_text("utf-8"))
    assert len(table.lines) == len(set(table.lines))
    for line in table.lines:
        file, _, rest = line.partition("::")
        tree = ast.parse((THINNED.parent / file).read_text("utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        name = rest.partition("[")[0].split("::")[-1]
        assert name in names or "*" in name, line


def test_what_it_names_is_slow() -> None:
    file = "unit/results/test_files.py"
    names = {
        line for line in ThinnedTests(THINNED.read_text("utf-8")).lines if line.startswith(file)
    }
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "slow"]
    output = subprocess.run(
        [*command, f"tests/{file}"], cwd=THINNED.parents[1], capture_output=True, text=True
    ).stdout
    assert names
    assert names <= {line.removeprefix("tests/") for line in output.splitlines()}, output
