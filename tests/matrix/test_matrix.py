"""The cells, what the table says of them, and that its page and pyproject.toml say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.matrix import run
from tests.matrix.cells import (
    LOWEST,
    PYTHONS,
    Cell,
    Count,
    Result,
    cells,
    newest_pytest,
    oldest_pytest,
    read_results,
    write_results,
)
from tests.matrix.table import BEGIN, END, PAGE, table, with_table
from tests.supply.locks import FOLDER, project

GOOD = {"unit": Count(1000, 0, 3), "bubblewrap": Count(100, 0, 0), "docker": Count(10, 0, 0)}
BAD = {**GOOD, "unit": Count(990, 2, 11)}
RESULTS = {
    "py3.10-pytest8.3": Result("py3.10-pytest8.3", "3.10.13", "8.3.0", "Linux x86_64", GOOD),
    "py3.12-pytest9.1": Result("py3.12-pytest9.1", "3.12.1", "9.1.1", "Linux x86_64", BAD),
    "py3.10-lowest": Result("py3.10-lowest", "3.10.13", "8.3.0", "Linux x86_64", GOOD),
}
TABLE = """\
Each was tried on Linux x86_64, with at least 992 unit tests, 100 tasks of all suites by the \
oracle in bubblewrap, 10 in Docker.

| | pytest 8.3.0, all dependencies in their lowest versions | pytest 8.3.0 | pytest 9.1.1 |
| --- | --- | --- | --- |
| Python 3.10.13 | passes | passes |  |
| Python 3.12.1 |  |  | **fails**: 2 of 992 unit tests |"""


def test_the_cells() -> None:
    names = [cell.name for cell in cells()]
    assert len(set(names)) == len(names) == 2 * len(PYTHONS) + 3 + 1
    assert {f"py3.13-pytest{oldest_pytest()}", f"py3.10-pytest{newest_pytest()}"} <= set(names)
    assert names[-1] == "py3.10-lowest"
    assert Cell("3.10", oldest_pytest()).requirement == f"pytest=={oldest_pytest()}.0"
    assert Cell("3.12", "9.0").requirement == "pytest==9.0.*"
    pytests = [cell.pytest for cell in cells() if cell.pytest != LOWEST]
    versions = [tuple(map(int, version.split("."))) for version in pytests]
    ends = [tuple(map(int, version.split("."))) for version in (oldest_pytest(), newest_pytest())]
    assert [min(versions), max(versions)] == ends


def test_results_are_kept_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert read_results(path) == {}
    former = Result("py2.7-pytest4.6", "2.7.18", "4.6.11", "Linux x86_64", GOOD)
    write_results([*RESULTS.values(), former], path)
    assert read_results(path) == RESULTS
    changed = Result("py3.12-pytest9.1", "3.12.2", "9.1.1", "Linux x86_64", GOOD)
    write_results([*read_results(path).values(), changed], path)
    assert read_results(path) == {**RESULTS, "py3.12-pytest9.1": changed}
    assert not changed.failed
    assert RESULTS["py3.12-pytest9.1"].failed == {"unit": BAD["unit"]}


def test_a_check_in_which_nothing_passed_has_failed() -> None:
    result = Result("py3.10-lowest", "3.10.13", "8.3.0", "Linux x86_64", {"unit": Count(0, 0, 9)})
    assert list(result.failed) == ["unit"]


def test_the_table() -> None:
    assert table(RESULTS) == TABLE
    changed = with_table(f"before\n{BEGIN}\nold{END}\nafter\n", RESULTS)
    assert changed == with_table(changed, RESULTS)
    assert changed == f"before\n{BEGIN}\n\n{TABLE}\n\n{END}\nafter\n"
    with pytest.raises(ValueError, match="are missing"):
        with_table("before", RESULTS)


def test_the_page_has_the_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    current = with_table(page, read_results())
    assert current == page, "it is out of date: run python -m tests.matrix.table"


def test_what_is_promised_was_tried() -> None:
    """What was tried passes, and pyproject.toml names the Pythons that were."""
    results = read_results()
    assert not {name: result.failed for name, result in results.items() if result.failed}
    classifiers = "\n".join(project()["classifiers"])
    pythons = re.findall(r"Python :: (3\.\d+)$", classifiers, re.MULTILINE)
    assert {cell.python for cell in cells() if cell.name in results} == set(pythons) <= set(PYTHONS)
    versions = {result.pytest.rpartition(".")[0] for result in results.values()}
    assert {oldest_pytest(), newest_pytest()} <= versions
    assert f"pytest=={oldest_pytest()}.0" in (FOLDER / "oldest.in").read_text()


def test_a_cell_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["py3.10-pytest1.0"]) == 2
    assert "unknown cell py3.10-pytest1.0; cells are py3.10-pytest" in capsys.readouterr().err


def test_a_python_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert run.find_python("3.10") is None
    for version in ("3.1.14", "3.10.9", "3.10.13"):
        installed = tmp_path / "versions" / version / "bin" / "python"
        installed.parent.mkdir(parents=True)
        installed.touch()
    assert run.find_python("3.10") == installed
    shim = tmp_path / "python3.10"
    shim.write_text("#!/bin/sh\nexit 127\n")  # as pyenv's are, for what is installed and not chosen
    shim.chmod(0o755)
    assert run.find_python("3.10") == installed
    shim.write_text("#!/bin/sh\nexit 0\n")
    assert run.find_python("3.10") == shim
