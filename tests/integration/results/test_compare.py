"""``pytest-intercode compare`` on results files that runs wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_intercode.cli import main
from pytest_intercode.results.files import to_text
from tests.support.cell_records import tries_of

_SUITE = "env: bash\ntasks:\n" + "".join(
    f"  - {{id: print-{n}, query: Print {n}., gold: echo {n}}}\n" for n in range(12)
)
_AGENT = """
class Agent:
    def __init__(self, wrong="0"):
        self.wrong = int(wrong)

    def reset(self, task):
        number = int(task.query.split()[1].rstrip("."))
        self.plan = ["echo no" if number < self.wrong else f"echo {number}", "submit"]

    def act(self, observation):
        return self.plan.pop(0)
"""


@pytest.fixture
def played(bubblewrap: object, pytester: pytest.Pytester) -> Callable[[str, int], Path]:
    """Play twelve tasks, of which the first few go wrong, and return the results file."""
    Path("suite.yaml").write_text(_SUITE)
    Path("agent.py").write_text(_AGENT)

    def play(name: str, wrong: int) -> Path:
        pytester.runpytest_inprocess(
            "suite.yaml",
            "--intercode-agent=agent.py:Agent",
            f"--intercode-agent-arg=wrong={wrong}",
            "--intercode-sandbox=bubblewrap",
            f"--intercode-results={name}",
        )
        return Path(name)

    return play


def test_two_runs(played: Callable[[str, int], Path], capsys: pytest.CaptureFixture[str]) -> None:
    old, new = played("old.jsonl", 0), played("new.jsonl", 8)
    capsys.readouterr()
    assert main(["compare", str(old), str(new), "--output", "out/it.json"]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        "pytest-intercode: warning: the runs differ in agent argument wrong: 0 before, 8 after"
    ]
    lines = told.out.splitlines()
    assert lines[0].startswith("before: old.jsonl: 12 tasks, 12 tries, agent agent.py:Agent")
    assert "broke (solved before, in no try now): 8" in lines
    at = next(at for at, line in enumerate(lines) if "print-3 " in line)
    assert lines[at].endswith("1/1 -> 0/1  turn 1: another action")
    assert lines[at + 1 : at + 3] == ["      before: echo 3", "      after:  echo no"]
    assert "as before: 4" in lines
    assert lines[-2].startswith("regressed: -66.7 points (95% interval ")
    assert lines[-1] == "written: out/it.json"
    data = json.loads(Path("out/it.json").read_text())
    assert data["verdict"]["kind"] == "regressed"
    assert data["before"]["file"] == "old.jsonl"
    assert data["before"]["solved"] == 12
    assert [each["kind"] for each in data["changes"]].count("broke") == 8
    assert data["changes"][3]["parting"]["before"] == "echo 3"
    gate = ["compare", str(old), str(new), "--fail-on-regression"]
    assert main(gate) == 1
    assert main([*gate, "--level=0.001"]) == 0
    assert main(["compare", str(new), str(old), "--fail-on-regression"]) == 0
    assert main(["compare", str(old), str(new), "--all"]) == 0


def test_a_torn_line_is_left_out_and_told(
    played: Callable[[str, int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = played("old.jsonl", 1), played("new.jsonl", 1)
    with new.open("a") as file:
        file.write('{"environment": "ic_bash", "task')
    capsys.readouterr()
    assert main(["compare", str(old), str(new)]) == 0
    told = capsys.readouterr()
    assert told.err.startswith(
        "pytest-intercode: warning: new.jsonl:13: the last line is truncated"
    )
    assert told.err.count("\n") == 1
    assert "as before: 12" in told.out
    assert "too few samples: a drop of 10 points is not excluded; about " in told.out


def test_nothing_in_common_does_not_pass_a_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for name in "ab":
        row = {"task_id": name, "turn_history": {"actions": []}, "outcome": "solved", "reward": 1}
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text(json.dumps(row) + "\n")
    arguments = ["compare", *map(str, files)]
    assert main(arguments) == 0
    assert main([*arguments, "--fail-on-regression"]) == 1
    assert "no task has a graded try in both runs" in capsys.readouterr().out


def test_one_of_several_agents_got_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [f"t{number}" for number in range(10)]
    for name, claude in (("before", tasks), ("after", [])):
        lost = [task for task in tasks if task not in claude]
        records = [*tries_of(tasks), *tries_of(claude, lost, agent="claude")]
        (tmp_path / f"{name}.jsonl").write_text(to_text(records), encoding="utf-8")
    files = [str(tmp_path / f"{name}.jsonl") for name in ("before", "after")]
    output = tmp_path / "out.json"
    assert main(["compare", *files, "--fail-on-regression", f"--output={output}"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("==")] == ["== codex ==", "== claude =="]
    assert lines[-2].startswith(
        "regressed: of 2 cells, with Holm's correction: 1 regressed (claude)"
    )
    data = json.loads(output.read_text(encoding="utf-8"))
    assert [cell["verdict"]["kind"] for cell in data["cells"]] == ["too few samples", "regressed"]
    assert main(["compare", *reversed(files), "--fail-on-regression"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a.jsonl", "no.jsonl"], "no.jsonl: there is no such results file"),
        (["a.jsonl", "empty.jsonl"], "empty.jsonl: contains no recorded episodes"),
        (["a.jsonl", "bad.jsonl"], "bad.jsonl:1: not a recorded episode: "),
        (
            ["a.jsonl", "words.jsonl"],
            "words.jsonl:1: not JSON: Expecting value; a results file is n",
        ),
        (["a.jsonl", "log.jsonl"], "log.jsonl: is not UTF-8 text; a results file is needed, as "),
        (["a.jsonl", "./a.jsonl"], "a.jsonl: this is the same file; name the results of two runs"),
        (["a.jsonl", "b.jsonl", "--output=b.jsonl"], "--output=b.jsonl: this is one of the runs"),
        (["a.jsonl", "b.jsonl", "--output=a.jsonl/x"], "--output=a.jsonl/x: cannot be written: "),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    row = '{"task_id": "t", "turn_history": {"actions": []}, "outcome": "solved", "reward": 1}\n'
    for name, text in {"a": row, "b": row, "empty": "", "bad": "{}\n{}\n"}.items():
        Path(f"{name}.jsonl").write_text(text)
    Path("words.jsonl").write_text("hello\n")
    Path("log.jsonl").write_bytes(b"PK\x03\x04\x84")  # of inspect_ai, say
    assert main(["compare", *arguments]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"pytest-intercode: {said}")
    assert told.count("\n") == 1


def test_levels_are_shares(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["compare", "a", "b", "--smallest=10"])
    assert caught.value.code == 2
    said = "argument --smallest: 10: a number between 0 and 1 is needed, as 0.05"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("count", [2, 2000])
def test_a_reader_that_has_enough_ends_it_without_a_word(tmp_path: Path, count: int) -> None:
    """As ``head`` has; of few tasks all is written at the end, of many on the way."""
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    tasks = [f"t{number}" for number in range(count)]
    old.write_text(to_text(list(tries_of(tasks))))
    new.write_text(to_text(list(tries_of([], tasks))))
    command = [sys.executable, "-m", "pytest_intercode", "compare", str(old), str(new), "--all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_a_terminal_that_lacks_a_letter_shows_an_escape(tmp_path: Path) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    for path in (old, new):
        path.write_text(to_text(list(tries_of(["t"], agent="\u4e16"))))
    result = subprocess.run(
        [sys.executable, "-m", "pytest_intercode", "compare", str(old), str(new)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert r"1 try, agent \u4e16, profile strict" in result.stdout
