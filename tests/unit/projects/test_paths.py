"""What a test asks of the files that an agent left."""

from __future__ import annotations

import pytest

from pytest_intercode.environments.project.environment import ProjectState
from pytest_intercode.projects.paths import ChangedPaths, ask_unchanged

STATE = ProjectState(("docs/new.md",), ("pyproject.toml", "src/a/b.py"), ("old.txt",))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("pyproject.toml", True),
        ("./pyproject.toml", True),
        ("src/", True),
        ("src/a", True),
        ("sr", False),
        ("*.py", True),
        ("*.rs", False),
        (".", True),
        ("docs/new.md", False),
    ],
)
def test_changed(path: str, expected: bool) -> None:
    changed = ChangedPaths.of("changed", STATE)
    assert bool(changed(path)) is expected
    assert changed == ("pyproject.toml", "src/a/b.py")


def test_unchanged_is_about_all_that_can_happen() -> None:
    for path in ("docs/", "src/", "old.txt", "."):
        assert not ask_unchanged(STATE, path)
    assert ask_unchanged(STATE, "legacy/")


def test_a_path_outside_of_the_project_is_refused() -> None:
    """No file of a project has one, so that ``unchanged`` would hold whatever the agent did."""
    message = (
        r"run.unchanged\('/project/src'\): the path has to be relative to the project's folder"
    )
    with pytest.raises(ValueError, match=message):
        ask_unchanged(STATE, "/project/src")
    with pytest.raises(ValueError, match="has to be relative"):
        ChangedPaths.of("created", STATE)("/docs")
    for path in ("..", "../src", "src/../../src"):
        with pytest.raises(ValueError, match="the path leads out of the project's folder"):
            ask_unchanged(STATE, path)
    assert ask_unchanged(STATE, "..legacy/")


def test_an_explanation_has_what_was_asked_first() -> None:
    answer = ask_unchanged(STATE, "src")
    assert answer.question == "unchanged('src')"
    assert answer.explanation.splitlines() == [
        "the agent",
        "  created docs/new.md",
        "  changed src/a/b.py <-, pyproject.toml",
        "  deleted old.txt",
    ]
    assert ask_unchanged(ProjectState(), "src").explanation == "the agent changed no file"


def test_a_state_survives_json() -> None:
    assert ProjectState.from_json(STATE.to_json()) == STATE
    assert ProjectState.from_json({}) == ProjectState()
