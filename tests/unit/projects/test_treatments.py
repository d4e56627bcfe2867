"""Treatments: which folders are one, and for which agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.projects.treatments import Treatment, find_treatments


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of treatments, one of them for an agent alone."""
    for name in ("skill", "skill__claude", "rules__codex", "__pycache__", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "README.md").write_text("x")
    return tmp_path


def test_an_agent_gets_its_own_over_those_of_all(folder: Path) -> None:
    assert find_treatments(folder, ["claude"]) == [
        Treatment("control"),
        Treatment("skill", (folder / "skill", folder / "skill__claude")),
    ]
    assert find_treatments(folder, ["codex"]) == [
        Treatment("control"),
        Treatment("rules", (folder / "rules__codex",)),
        Treatment("skill", (folder / "skill",)),
    ]


def test_selected(folder: Path) -> None:
    names = [treatment.name for treatment in find_treatments(folder, ["codex"], ["rules"])]
    assert names == ["rules"]
    message = "--intercode-treatment=rule: .* has rules, skill, and .* Did you mean 'rules'"
    with pytest.raises(ConfigurationError, match=message):
        find_treatments(folder, ["codex"], ["rule"])


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        find_treatments(tmp_path / "none", ["codex"])
    with pytest.raises(ConfigurationError, match="contains no folders"):
        find_treatments(tmp_path, ["codex"])
    (tmp_path / "control").mkdir()
    with pytest.raises(ConfigurationError, match="'control' is the project without a treatment"):
        find_treatments(tmp_path, ["codex"])
