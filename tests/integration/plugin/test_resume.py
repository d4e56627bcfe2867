"""``--intercode-resume``: an interrupted run goes on, and what it had earned is not run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import PRETEND, results

AGENT = "--intercode-agent=agents.py:Counting"
RESULTS = "--intercode-results=r.jsonl"
RESUME = "--intercode-resume"
BUDGET = "--intercode-run-max-tokens=1000000"
COUNTING = '''
import pathlib

class Counting(OnlyPrints):
    """Notes each episode in a file."""

    def __init__(self, word="a"):
        pass

    def reset(self, task):
        super().reset(task)
        with open("played", "a") as file:
            file.write(f"{task.id}\\n")
'''


@pytest.fixture
def played(pytester: pytest.Pytester, pretend: object) -> Path:
    """The file in which the agent notes what it played; emptied by who reads it."""
    with (pytester.path / "agents.py").open("a") as file:
        file.write(COUNTING)
    return pytester.path / "played"


def _taken(played: Path) -> list[str]:
    names = played.read_text().split() if played.exists() else []
    played.unlink(missing_ok=True)
    return sorted(names)


def _cut(path: Path, rows: int, torn: str = "") -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:rows]) + torn)


@pytest.mark.parametrize(
    "options",
    [(), ("-n", "2"), pytest.param(("--intercode-concurrency=3",), marks=pytest.mark.slow)],
)
def test_only_what_is_missing_is_run(
    pytester: pytest.Pytester, played: Path, options: tuple[str, ...]
) -> None:
    first = pytester.runpytest("suite.yaml", AGENT, RESULTS)
    whole = results(pytester.path / "r.jsonl")
    assert _taken(played) == ["both", "prints", "writes"]
    _cut(pytester.path / "r.jsonl", 2)
    second = pytester.runpytest_subprocess("suite.yaml", AGENT, RESULTS, RESUME, *options)
    assert _taken(played) == ["both"]
    for result in (first, second):
        result.assert_outcomes(passed=1, failed=2)
        assert result.ret == 1
    rows = results(pytester.path / "r.jsonl")
    assert [row["task_id"] for row in rows] == [row["task_id"] for row in whole]
    assert rows[:2] == whole[:2]
    second.stdout.fnmatch_lines(
        [
            "intercode: * resuming 2 episodes of *r.jsonl*",
            "all *3 *1 *33.3%*",
            "2 episodes reused from the resumed run",
            "3 episodes in *r.jsonl",
        ]
    )


@pytest.mark.parametrize("options", [(), ("--intercode-concurrency=2",)])
def test_where_no_sandbox_can_be_named_the_item_says_why(
    pytester: pytest.Pytester, played: Path, options: tuple[str, ...]
) -> None:
    pytester.runpytest("suite.yaml", AGENT, RESULTS)
    hook = (
        "\n\ndef pytest_intercode_make_environment(config, task):\n    raise OSError('not mine')\n"
    )
    pytester.makeconftest(PRETEND + hook)
    result = pytester.runpytest("suite.yaml", AGENT, RESULTS, RESUME, *options)
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(["the hook pytest_intercode_make_environment at *: not mine*"])


def test_an_agent_with_a_key_is_the_same_again(
    pytester: pytest.Pytester, pretend: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its results the key is masked."""
    key = "my-own-secret-key-0123456789"
    monkeypatch.setenv("MY_API_KEY", key)
    pytester.makepyfile(program='import sys\nopen("played", "a").write("x")\n')
    agent = f"--intercode-agent=command:{sys.executable} program.py {key}"
    for _ in range(2):
        pytester.runpytest("suite.yaml", agent, RESULTS, RESUME)
    assert (pytester.path / "played").read_text() == "xxx"
    assert len(results(pytester.path / "r.jsonl")) == 3


def test_environments_of_a_hook_are_closed(pytester: pytest.Pytester, played: Path) -> None:
    environment_code = """

class Counted(Pretend):
    def close(self):
        super().close()
        note("closed")


def note(text):
    with open("environments", "a") as file:
        print(text, file=file)


def pytest_intercode_make_environment(config, task):
    note("made")
    return Counted(None)
"""
    pytester.makeconftest(PRETEND + environment_code)
    pytester.runpytest("suite.yaml", AGENT, RESULTS)
    assert len(_taken(played)) == 3
    (pytester.path / "environments").unlink()
    pytester.runpytest("suite.yaml", AGENT, RESULTS, RESUME)
    assert _taken(played) == []
    notes = (pytester.path / "environments").read_text().split()
    assert notes == ["made", "closed"] * 3


def test_everything_is_there(pytester: pytest.Pytester, played: Path) -> None:
    pytester.runpytest("suite.yaml", AGENT, RESULTS)
    before = (pytester.path / "r.jsonl").read_bytes()
    _taken(played)
    result = pytester.runpytest("suite.yaml", AGENT, RESULTS, RESUME, "--junitxml=j.xml")
    result.assert_outcomes(passed=1, failed=2)
    assert _taken(played) == []
    assert (pytester.path / "r.jsonl").read_bytes() == before
    result.stdout.fnmatch_lines(
        ["*failed, reward 0.00 after 1 turn: * (reused from the resumed run)*"]
    )
    assert 'failures="2"' in (pytester.path / "j.xml").read_text()


def test_a_run_that_was_never_begun(pytester: pytest.Pytester, played: Path) -> None:
    result = pytester.runpytest("suite.yaml", AGENT, RESULTS, RESUME)
    result.assert_outcomes(passed=1, failed=2)
    assert len(results(pytester.path / "r.jsonl")) == 3


def test_a_torn_line_is_recovered(pytester: pytest.Pytester, played: Path) -> None:
    pytester.runpytest("suite.yaml", AGENT, RESULTS)
    _cut(pytester.path / "r.jsonl", 1, torn='{"environment": "ic_bash", "task_id": "wri')
    _taken(played)
    result = pytester.runpytest("suite.yaml", AGENT, RESULTS, RESUME)
    assert _taken(played) == ["both", "writes"]
    result.stdout.fnmatch_lines(
        ["*TruncatedResultsWarning: *r.jsonl:2: the last line is truncated*"]
    )
    rows = results(pytester.path / "r.jsonl")
    assert [row["task_id"] for row in rows] == ["prints", "writes", "both"]


def test_a_last_line_without_its_end(pytester: pytest.Pytester, played: Path) -> None:
    pytester.runpytest("suite.yaml", AGENT, RESULTS)
    path = pytester.path / "r.jsonl"
    _cut(path, 2)
    path.write_text(path.read_text().rstrip("\n"))
    pytester.runpytest("suite.yaml", AGENT, RESULTS, RESUME)
    assert [row["task_id"] for row in results(path)] == ["prints", "writes", "both"]


def test_no_results_file(pytester: pytest.Pytester, played: Path) -> None:
    result = pytester.runpytest("suite.yaml", AGENT, RESUME)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--intercode-resume: needs --intercode-results=FILE.jsonl*"])


def test_what_is_no_results_file_is_left_alone(pytester: pytest.Pytester, played: Path) -> None:
    path = pytester.path / "r.jsonl"
    path.write_text("my diary\nof today\n")
    result = pytester.runpytest("suite.yaml", AGENT, RESULTS, RESUME)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert path.read_text() == "my diary\nof today\n"


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ("argument", ["both", "prints", "writes"]),
        ("profile", ["both", "prints", "writes"]),
        ("image", ["both", "prints", "writes"]),
        ("task", ["writes"]),
        ("infrastructure", ["prints"]),
        ("nothing", []),
    ],
)
def test_a_result_of_something_else_is_not_taken(
    pytester: pytest.Pytester, played: Path, change: str, again: list[str]
) -> None:
    pytester.runpytest("suite.yaml", AGENT, RESULTS)
    _taken(played)
    more = {
        "argument": ("--intercode-agent-arg", "word=b"),
        "profile": ("--intercode-profile=paper",),
    }.get(change, ())
    path = pytester.path / "r.jsonl"
    rows = results(path)
    if change == "image":
        rows = [{**row, "image": "another"} for row in rows]
    if change == "infrastructure":
        rows[0]["outcome"] = "infrastructure-error"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if change == "task":
        suite = pytester.path / "suite.yaml"
        suite.write_text(suite.read_text().replace("Write the word hi to out.txt.", "Write hi."))
    pytester.runpytest("suite.yaml", AGENT, RESULTS, RESUME, *more)
    assert _taken(played) == again


def test_a_test_of_ones_own_is_run_again(pytester: pytest.Pytester, played: Path) -> None:
    """It may ask for more than that the task be solved."""
    pytester.makepyfile(
        test_own="import pytest\n"
        "@pytest.mark.intercode(suite='suite.yaml', ids='prints')\n"
        "def test_own(intercode_episode): assert intercode_episode.reward == 1\n"
    )
    for resume in ((), (RESUME,)):
        result = pytester.runpytest("test_own.py", AGENT, RESULTS, *resume)
        result.assert_outcomes(passed=1)
        assert _taken(played) == ["prints"]


def test_with_a_baseline(pytester: pytest.Pytester, played: Path) -> None:
    """What may fail may do so in a result that is taken, too."""
    pytester.runpytest("suite.yaml", AGENT, "--intercode-results=base.jsonl")
    pytester.runpytest("suite.yaml", AGENT, RESULTS)
    _taken(played)
    options = (RESUME, "--intercode-baseline=base.jsonl")
    result = pytester.runpytest("suite.yaml", AGENT, RESULTS, *options)
    result.assert_outcomes(passed=1, xfailed=2)
    assert result.ret == 0
    assert _taken(played) == []


@pytest.mark.parametrize("options", [("--intercode-concurrency=2",), ("-n2", BUDGET)])
def test_a_killed_run_loses_what_was_running(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makeconftest(PRETEND)
    rows = [{"query": f"Print {n}.", "gold": f"echo {n}"} for n in range(40)]
    (pytester.path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pytester.makefile(".yaml", many="env: bash\nrows: {path: rows.jsonl}\n")
    pytester.makepyfile(
        slow="import time\n"
        "class Slow:\n"
        "    def act(self, observation):\n"
        "        time.sleep(0.05)\n"
        "        return 'submit'\n"
    )
    command = [sys.executable, "-m", "pytest", "many.yaml", "--intercode-agent=slow.py:Slow"]
    command += [RESULTS, *options]
    path = pytester.path / "r.jsonl"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    temporary = pytester.mkdir("temporary")
    environment["TMPDIR"] = str(temporary)
    with subprocess.Popen(
        command, cwd=pytester.path, env=environment, stdout=subprocess.DEVNULL
    ) as running:
        deadline = time.monotonic() + 60
        while not path.exists() or path.read_bytes().count(b"\n") < 5:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        running.send_signal(signal.SIGKILL)
    earned = path.read_bytes().count(b"\n")
    assert 5 <= earned < 40
    while ours := list(temporary.glob("pytest-intercode*")):
        assert time.monotonic() < deadline, ours
        time.sleep(0.02)
    result = pytester.runpytest_subprocess(*command[3:], RESUME)
    result.assert_outcomes(failed=40)
    assert len({row["task_id"] for row in results(path)}) == 40
    result.stdout.fnmatch_lines([f"{earned} episodes reused from the resumed run*"])
