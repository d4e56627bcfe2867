"""What a results file says drives neither the terminal nor the CI server of who reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import main
from tests.support.ci_log import HOSTILE, commands


def _row(reward: float, number: int) -> dict[str, Any]:
    said = f"{HOSTILE}\n{number}"
    return {
        "environment": "ic_bash",
        "dataset": said,
        "task_id": said,
        "query": said,
        "hardness": said,
        "tags": [said],
        "suite": said,
        "agent": said,
        "profile": "strict",
        "outcome": "solved" if reward == 1.0 else "failed",
        "reward": reward,
        "reason": said,
        "turn_history": {
            "actions": [said, f"{said} {reward}"],
            "observations": [said, said],
            "valid_action": [True, True],
        },
    }


def _write(path: Path, reward: float) -> str:
    lines = [json.dumps(_row(reward, number)) for number in range(3)]
    path.write_text("".join(f"{line}\n" for line in lines) + '{"environment": "ic_b')
    return str(path)


@pytest.mark.parametrize(
    "words",
    [("compare", "--all"), ("merge", "--last"), ("rescore",), ("view", "--output=page.html")],
    ids=lambda words: words[0],
)
def test_no_line_that_a_command_prints_is_a_command(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    command, *options = words
    one, two = _write(tmp_path / "one.jsonl", 1.0), _write(tmp_path / "##[error]two.jsonl", 0.0)
    files = {"merge": ["out.jsonl", one, two], "rescore": [one]}.get(command, [one, two])
    main([command, *files, *options])
    told = capsys.readouterr()
    assert commands(told.out + told.err) == []
    assert "the last line is truncated" in told.err
    assert len(told.out.splitlines()) >= 1
    if command == "view":
        page = (tmp_path / "page.html").read_text()
        assert all(each.isprintable() or each in "\n\t" for each in page)
        assert "</script><b>" not in page
    if command == "compare":
        assert r"##\x5berror" in told.out
        lines = [line for line in told.out.splitlines() if line.startswith("broke ")]
        assert len(lines) == 3  # each row is of an agent of its own
        assert all(line.endswith(": 1") for line in lines)


@pytest.mark.parametrize("command", ["history", "lint"])
def test_json_stays_json_and_commands_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "##[error]a ##vso[task.x]"
    if command == "history":
        Path(f"{name}.jsonl").write_text(f"{json.dumps(_row(1.0, 1))}\n")
    else:
        Path(f"{name}.yaml").write_text("env: bash\ntasks: []\n")
    main([command, "--json", f"{name}.{'jsonl' if command == 'history' else 'yaml'}"])
    output = capsys.readouterr().out
    assert commands(output) == []
    content = json.loads(output)
    if command == "history":
        (series,) = content["series"]
        assert series["runs"][0]["name"] == name
        assert HOSTILE[:200] in series["runs"][0]["agent"]
    else:
        assert content["findings"][0]["path"] == f"{name}.yaml"
