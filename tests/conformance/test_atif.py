"""ATIF: our verdicts on its documents are those of Harbor's own validator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.export import export
from pytest_intercode.results.files import read_records
from tests.support.atif_schema import problems


@pytest.fixture(scope="module", autouse=True)
def docker_answers() -> None:
    """Nothing here needs Docker."""


@pytest.fixture(scope="module")
def cases(samples: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((samples / "atif" / "cases.json").read_text())
    return found


def test_verdicts_are_harbors(cases: list[dict[str, Any]]) -> None:
    ours = {case["case"]: not problems(case["trajectory"]) for case in cases}
    assert ours == {case["case"]: case["valid"] for case in cases}
    assert len(ours) == len(cases) >= 30
    assert 10 < sum(ours.values()) < 20


def test_a_problem_names_its_place(cases: list[dict[str, Any]]) -> None:
    documents = {case["case"]: case["trajectory"] for case in cases}
    (line,) = problems(documents["unknown key in a step"])
    assert line.startswith("steps.0.reward: ")
    (line,) = problems(documents["agent version as number"])
    assert line.startswith("agent.version: ")
    assert problems([]) == [
        "trajectory: Input should be a valid dictionary or instance of Trajectory"
    ]


def test_a_small_published_document_is_valid(samples: Path) -> None:
    assert problems(json.loads((samples / "atif" / "valid-small.json").read_text())) == []


@pytest.mark.parametrize("name", ["bash_fs1_gpt-3.5_react", "ctf_gpt-4", "python_mbpp_gpt-3.5"])
def test_recordings_of_intercode_are_valid(recordings: Path, tmp_path: Path, name: str) -> None:
    file = recordings / f"{name}.json.gz"
    written = export(file, "atif", tmp_path / "out")
    records = {f"{record.task.id}.json": record for record in read_records(file)}
    assert written == len(records)
    for path in (tmp_path / "out").iterdir():
        document = json.loads(path.read_text())
        assert problems(document) == [], path.name
        turns = records[path.name].turns
        assert len(document["steps"]) == 1 + len(turns)
        assert document["extra"]["reward"] == records[path.name].reward
        sent = [
            call["arguments"].get("command", call["arguments"].get("code"))
            for step in document["steps"][1:]
            for call in step["tool_calls"]
            if call["function_name"] != "submit"
        ]
        assert sent == [t.action for t in turns if not t.action.strip().startswith("submit")]
