"""What the README shows is what is in examples/, and it works."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.docker.engine import connect

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def body(name: str, start: str) -> str:
    """Return an example from its first line of interest on."""
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    return text[text.index(start) :]


@pytest.mark.parametrize(
    ("name", "start"),
    [("my_agent.py", "COMMANDS"), ("notes.yaml", "env:"), ("test_my_agent.py", "@pytest")],
)
def test_shows_the_example_as_it_is(name: str, start: str) -> None:
    assert body(name, start).strip() in README


def test_names_every_option(pytester: pytest.Pytester) -> None:
    from pytest_intercode.plugin import _OPTIONS

    for name, *_ in _OPTIONS:
        assert f"--intercode-{name}" in README


def test_the_examples_work(pytester: pytest.Pytester) -> None:
    try:
        connect().close()
    except EngineUnavailable as error:
        pytest.skip(str(error))
    for path in (ROOT / "examples").iterdir():
        if path.is_file():
            shutil.copy(path, pytester.path)
    result = pytester.runpytest_subprocess(
        "--intercode-agent=my_agent.py:Agent", "notes.yaml", "test_my_agent.py", "-v"
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["notes.yaml::test_solves?count-notes? PASSED*"])
