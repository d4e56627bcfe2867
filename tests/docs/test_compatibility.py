"""docs/compatibility.md: what it promises is what the package declares."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from pytest_intercode import cli
from pytest_intercode.core.record import FORMAT_VERSION
from pytest_intercode.environments import registry as environments
from pytest_intercode.plugin import fixtures, hookspecs
from pytest_intercode.rewards.test_logs import registry as log_parsers
from pytest_intercode.sandboxes import choice
from pytest_intercode.suites import formats
from tests.supply.locks import project

PAGE = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text(encoding="utf-8")


def row(name: str) -> set[str]:
    """Return what is in code in the row of a table."""
    (line,) = re.findall(rf"^\| {name} \|(.*)$", PAGE, re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", line))


def test_fixtures_hooks_and_entry_points() -> None:
    public = {name for name in vars(fixtures) if name.startswith("intercode_")}
    assert row("fixtures") == public
    hooks = {name for name in vars(hookspecs) if name.startswith("pytest_intercode_")}
    assert row("hooks") == hooks
    groups = {module.GROUP for module in (environments, choice, formats, log_parsers)}
    assert row("entry points") == groups


def test_pythons_and_pytests() -> None:
    about = project()
    prefix = "Programming Language :: Python :: 3."
    pythons = [line.rpartition(" :: ")[2] for line in about["classifiers"] if prefix in line]
    assert f"| Python | {', '.join(pythons)} |" in PAGE
    assert about["requires-python"] == f">={pythons[0]}"
    (requirement,) = (line for line in about["dependencies"] if line.startswith("pytest"))
    assert f"| pytest | {requirement.partition('>=')[2]} and newer |" in PAGE


def test_the_version_of_results() -> None:
    assert f"version {FORMAT_VERSION} is written; version {FORMAT_VERSION - 1}," in PAGE


def test_exit_codes_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    table = PAGE.partition("| `pytest-intercode` | |")[2].partition("\n\n")[0]
    codes = re.findall(r"^\| (\d+) \| ([\w ]+)", table, re.MULTILINE)
    (documented,) = re.findall(r"Exit status:\n(.*)\.$", inspect.getdoc(cli) or "", re.MULTILINE)
    assert dict(codes).keys() == set(re.findall(r"\d+", documented))
    with pytest.raises(SystemExit, match="2"):
        cli.main(["gate", "--no-such-option"])
    assert "usage" in capsys.readouterr().err
    assert cli.main(["gate", "no-such-file.jsonl"]) == 1


def test_the_warnings_are_as_the_page_says(pytester: pytest.Pytester) -> None:
    """The page's pytest.ini makes either warning an error."""
    (ini,) = re.findall(r"^```ini pytest.ini\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    pytester.makeini(ini)
    pytester.makepyfile(
        """
        import warnings

        import pytest

        @pytest.mark.parametrize("kind", [pytest.PytestDeprecationWarning, DeprecationWarning])
        def test_old(kind):
            warnings.warn("use the other one", kind)
        """
    )
    pytester.runpytest().assert_outcomes(failed=2)
