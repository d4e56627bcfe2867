"""Command agents: the protocol, every way to break it, and what a program leaves behind."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import results
from tests.support.portable_ways import PRELUDE, ROOT, WAYS, use_portable_ways

_EXAMPLES = Path(__file__).parents[3] / "examples"

# Writes down what it reads, and sends what SENDS says, a line for each line that it reads.
_SCRIPTED = """
import os, sys
sends = os.environ["SENDS"].split("|")
with open("heard.jsonl", "a") as heard:
    for line in sys.stdin:
        heard.write(line)
        heard.flush()
        if sends:
            print(sends.pop(0))
"""


@pytest.fixture
def play(
    pytester: pytest.Pytester, pretend: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Runs one task with a command agent, and returns its row of the results."""

    def play_one(command: str, *more: str, sends: str = "") -> dict[str, Any]:
        (pytester.path / "scripted.py").write_text(_SCRIPTED)
        monkeypatch.setenv("SENDS", sends)
        pytester.runpytest(
            "suite.yaml",
            "-k=prints",
            f"--intercode-agent=command:{command}",
            "--intercode-results=r.jsonl",
            "--intercode-timeout=60",
            *more,
        )
        (row,) = results(pytester.path / "r.jsonl")
        return row

    return play_one


Play = Callable[..., "dict[str, Any]"]

_SCRIPT = f"{sys.executable} -S scripted.py"


def heard() -> list[dict[str, Any]]:
    """Return what the program has read."""
    return results(Path("heard.jsonl"))


def change(pytester: pytest.Pytester, old: str, new: str) -> None:
    """Change the pretended environment."""
    conftest = pytester.path / "conftest.py"
    assert old in conftest.read_text()
    conftest.write_text(conftest.read_text().replace(old, new))


def sh(script: str) -> str:
    """Return the command line of a shell that reads its first line, and goes on with a script."""
    return f"sh -c 'read line; {script}'"


# -- the protocol


def test_the_lines_that_a_program_reads(play: Play) -> None:
    row = play(
        _SCRIPT,
        "--intercode-agent-arg=effort=high",
        sends='{"action": "ls"}|{"action": "echo hello"}|{"submit": ""}',
    )
    assert row["outcome"] == "solved"
    assert row["turn_history"]["actions"] == ["ls", "echo hello", "submit"]
    task, first, second, end = heard()
    assert task == {
        "type": "task",
        "version": 1,
        "task": {
            "id": "prints",
            "query": "Print the word hello.",
            "env": "bash",
            "suite": "suite",
            "dataset": "suite",
            "hardness": "easy",
            "tags": ["text"],
            "workdir": "/work",
            "max_turns": 10,
            "engine": "",
            "database": "",
        },
        "arguments": {"effort": "high"},
    }
    assert first == {
        "type": "observation",
        "observation": "",
        "executed": True,
        "status": None,
        "reward": None,
        "turns_left": 9,
    }
    assert second["turns_left"] == 8
    assert end == {"type": "end", "reason": "submitted"}


@pytest.mark.parametrize(
    ("options", "sends", "outcome", "end"),
    [
        ([], '{"action": "submit"}', "failed", "submitted"),
        ([], '{"submit": "42"}', "failed", "submitted"),
        (["--intercode-max-turns=1"], '{"action": "ls"}', "out-of-budget", "budget"),
        (["--intercode-max-turns=1"], '{"action": "echo hello"}', "solved", "budget"),
        (["--intercode-feedback=reward"], '{"action": "echo hello"}', "solved", "solved"),
        (
            ["--intercode-max-tokens=10"],
            '{"action": "ls", "usage": {"input_tokens": 9, "output_tokens": 3}}',
            "out-of-budget",
            "budget",
        ),
    ],
)
def test_how_an_episode_ends(
    play: Play, pytester: pytest.Pytester, options: list[str], sends: str, outcome: str, end: str
) -> None:
    if "--intercode-feedback=reward" in options:
        change(pytester, "Pretend(None, ", "Pretend(None, feedback='reward', ")
    assert play(_SCRIPT, *options, sends=sends)["outcome"] == outcome
    assert heard()[-1] == {"type": "end", "reason": end}


@pytest.mark.parametrize(("profile", "action"), [("strict", "submit;"), ("paper", "skip")])
def test_other_words_for_the_end(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, profile: str, action: str
) -> None:
    (pytester.path / "scripted.py").write_text(_SCRIPTED)
    monkeypatch.setenv("SENDS", json.dumps({"action": action}))
    pytester.runpytest(
        "--intercode-env=sql",
        "--intercode-limit=1",
        f"--intercode-profile={profile}",
        f"--intercode-agent=command:{_SCRIPT}",
    ).assert_outcomes(failed=1)
    assert heard()[-1] == {"type": "end", "reason": "submitted"}


def test_rewards_as_feedback(play: Play, pytester: pytest.Pytester) -> None:
    change(pytester, "Pretend(None, ", "Pretend(None, feedback='reward', ")
    play(_SCRIPT, "--intercode-feedback=reward", sends='{"action": "ls"}|{"submit": ""}')
    assert heard()[1]["reward"] == 0.0


def test_thoughts_usage_and_standard_error_land_in_the_trajectory(play: Play) -> None:
    sends = (
        '{"thought": "Hm.", "action": "ls", "usage": {"input_tokens": 5, "output_tokens": 2.0}}',
        '{"thought": null, "usage": null, "submit": null, "action": "echo hello"}',
        '{"usage": {"requests": 3, "input_tokens": 1, "cost": 0.5}, "submit": ""}',
    )
    script = "".join(
        f"echo turn {number} >&2; echo '\\''{line}'\\''; read line; "
        for number, line in enumerate(sends)
    )
    row = play(sh(script + "echo bye >&2"))
    history = row["turn_history"]
    assert row["outcome"] == "solved"
    assert history["thoughts"] == ["Hm.", "", ""]
    assert row["turn_logs"] == ["turn 0\n", "turn 1\n", "turn 2\n"]
    assert row["log"] == "bye\n"
    assert row["usage"] == {"requests": 4, "input_tokens": 6, "output_tokens": 2, "cost": 0.5}


def test_texts_of_all_kinds_go_there_and_back(play: Play, pytester: pytest.Pytester) -> None:
    change(pytester, 'Observation("")', "Observation(action)")
    action = 'two\nlines, "quoted" \\ \t\0 é 漢 \N{PILE OF POO}'
    for escaped in (True, False):
        sends = json.dumps({"action": action}, ensure_ascii=escaped).replace("|", "")
        row = play(_SCRIPT, sends=sends + '|{"submit": ""}')
        assert row["turn_history"]["actions"] == [action, "submit"]
        assert heard()[1]["observation"] == action
        Path("heard.jsonl").unlink()
        Path("r.jsonl").unlink()


def test_half_a_character_is_not_sent(play: Play, pytester: pytest.Pytester) -> None:
    change(pytester, 'Observation("")', r'Observation("a\ud83d")')
    assert play(_SCRIPT, sends='{"action": "ls"}|{"submit": ""}')["outcome"] == "failed"
    assert heard()[1]["observation"] == "a\N{REPLACEMENT CHARACTER}"


def test_lines_sent_ahead_and_empty_lines(play: Play) -> None:
    row = play(sh(r"""printf "{\"action\": \"ls\"}\r\n\n{\"action\": \"echo hello\"}" """))
    assert row["outcome"] == "solved"
    assert row["turn_history"]["actions"] == ["ls", "echo hello"]


def test_neither_side_waits_for_the_other_when_both_write_much(
    play: Play, pytester: pytest.Pytester
) -> None:
    change(pytester, '("")', '("x" * 100_000)')
    script = """
import json
for number in range(20):
    print(json.dumps({"action": "y" * 100_000}))
print(json.dumps({"action": "echo hello"}))
print(json.dumps({"submit": ""}))
"""
    (pytester.path / "ahead.py").write_text(script)
    row = play(f"{sys.executable} ahead.py", "--intercode-max-turns=30")
    assert (row["outcome"], len(row["turn_history"]["actions"])) == ("solved", 22)


# -- what breaks it


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo Thinking...",
            "line 1 of the program's standard output is not JSON: 'Thinking...'; ",
        ),
        ('echo "{\\"action\\": "', "is not JSON: '{\"action\":'; standard output is for the"),
        (r'printf "\377\n"', "is not UTF-8: "),
        ("echo [1]", 'is not an object, as {"action": "ls"} is: \'[1]\''),
        ('head -c 100000 /dev/zero | tr "\\0" "["', "is not JSON: "),
        ('echo "{}"', 'has neither "action" nor "submit"; it has one of them: '),
        ('echo "{\\"submit\\": null}"', 'has neither "action" nor "submit"'),
        (
            'echo "{\\"action\\": \\"ls\\", \\"submit\\": \\"\\"}"',
            'has both "action" and "submit"; it has one of them: ',
        ),
        (
            'echo "{\\"acton\\": \\"ls\\"}"',
            "has the key 'acton'; allowed are action, submit, thought, usage. Did you mean "
            "'action'?",
        ),
        ('echo "{\\"action\\": 3}"', '"action" is a string, not 3'),
        ('echo "{\\"submit\\": true}"', '"submit" is a string, not true'),
        ('echo "{\\"submit\\": \\"\\", \\"thought\\": []}"', '"thought" is a string, not []'),
        ('echo "{\\"action\\": \\"\\\\ud83d\\"}"', '"action" has half of a surrogate pair'),
        ('echo "{\\"submit\\": \\"\\", \\"usage\\": 5}"', '"usage" is an object, not 5'),
        (
            'echo "{\\"submit\\": \\"\\", \\"usage\\": {\\"tokens\\": 5}}"',
            "\"usage\" has the key 'tokens'; allowed are requests, input_tokens, output_tokens, "
            "cost, cached_tokens, cache_write_tokens, reasoning_tokens.",
        ),
        (
            'echo "{\\"submit\\": \\"\\", \\"usage\\": {\\"input_tokens\\": -5}}"',
            "input_tokens=-5",
        ),
        ("head -c 5000000 /dev/zero", "the program wrote a line of more than 4 MiB: b'"),
        ("exit 3", "the program exited with status 3"),
        (
            "echo one >&2; echo; echo two >&2; echo three >&2; echo four >&2; exit 1",
            "the program exited with status 1: two / three / four",
        ),
        ("kill -SEGV $$", "the program was killed by SIGSEGV"),
        (
            "exec 1>&-; sleep 100",
            "the program closed its standard output, and neither submitted nor exited",
        ),
        ("exec no-such-command", "the program exited with status 127: "),
    ],
)
def test_a_program_that_breaks_the_protocol(play: Play, script: str, reason: str) -> None:
    row = play(sh(script))
    assert row["outcome"] == "agent-error"
    assert reason in row["reason"]
    assert "\n" not in row["reason"]
    assert row["detail"] == ""


def test_a_program_that_returns_has_submitted(play: Play) -> None:
    row = play(sh('echo "{\\"action\\": \\"echo hello\\"}"; read line'))
    assert (row["outcome"], row["turn_history"]["actions"]) == ("solved", ["echo hello"])


def test_a_program_that_says_nothing_fails(play: Play) -> None:
    assert play("true")["outcome"] == "failed"


def test_a_status_after_the_end_is_only_noted(play: Play) -> None:
    row = play(
        sh('echo "{\\"action\\": \\"echo hello\\"}"; read l; echo "{\\"submit\\": \\"\\"}"; exit 9')
    )
    assert row["outcome"] == "solved"
    assert row["log"] == "[it exited with status 9 after the episode]\n"


def test_a_program_that_does_not_end_is_killed_soon(play: Play) -> None:
    began = time.monotonic()
    row = play(sh('echo "{\\"submit\\": \\"\\"}"; sleep 1000'))
    assert row["log"] == "[killed: it still ran 2 s after the end of its input]\n"
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("script", ["sleep 1000", 'trap "" TERM INT; while :; do sleep 1; done'])
def test_a_program_that_never_answers(play: Play, script: str) -> None:
    row = play(sh(script), "--intercode-timeout=0.5")
    assert row["outcome"] == "timed-out"
    assert row["log"] == "[the program wrote no line; does it flush its standard output?]\n"


def test_a_program_that_keeps_its_lines_back_in_python(
    play: Play, pytester: pytest.Pytester
) -> None:
    script = (
        'input(); print(\'{"action": "echo hello"}\'); input(); print(\'{"submit": ""}\'); input()'
    )
    (pytester.path / "kept.py").write_text(script)
    assert play(f"{sys.executable} kept.py", "--intercode-timeout=30")["outcome"] == "solved"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("nothing-such", "there is no program 'nothing-such' on the PATH"),
        ("./suite.yaml", "suite.yaml is not executable; run chmod +x on it"),
        ("python3 'a", "this is not a command line: No closing quotation"),
        ("''", "no program is given"),
        ("", "expected command:CMDLINE"),
    ],
)
def test_a_command_line_that_cannot_be_used(
    pytester: pytest.Pytester, pretend: Path, command: str, message: str
) -> None:
    done = pytester.runpytest("suite.yaml", f"--intercode-agent=command:{command}")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in done.errlines if line]
    assert line.startswith(f"ERROR: --intercode-agent=command:{command}: ")
    assert line.endswith(message)


# -- what is left


def alive(mark: str) -> bool:
    """Return whether any process has the mark on its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                return True
        except (FileNotFoundError, ProcessLookupError):
            pass
    return False


@pytest.mark.parametrize(
    "end", ['echo "{\\"submit\\": \\"\\"}"; exit', "echo nonsense", "exit 1", "cat"]
)
@pytest.mark.parametrize("way", WAYS)
def test_what_it_started_ends_with_the_episode(
    play: Play, monkeypatch: pytest.MonkeyPatch, way: str, end: str
) -> None:
    if way == "portable":
        use_portable_ways(monkeypatch)
    mark = f"{10**6 + secrets.randbelow(10**9)}"
    play(sh(f"(setsid sleep {mark} &); nohup sleep {mark} & {end}"), "--intercode-timeout=1")
    assert not alive(mark)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGINT],
)
def test_a_run_that_is_killed_leaves_no_program(
    pytester: pytest.Pytester,
    pretend: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    way: str,
) -> None:
    if way == "portable":
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        conftest = pytester.path / "conftest.py"
        conftest.write_text(conftest.read_text() + PRELUDE)
    mark = f"{10**6 + secrets.randbelow(10**9)}"
    command = sh(f"(setsid sleep {mark} &); echo > there; sleep {mark}")
    run = pytester.popen(
        [sys.executable, "-mpytest", "suite.yaml", f"--intercode-agent=command:{command}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not Path("there").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert alive(mark)
    os.kill(run.pid, number)
    run.wait()
    while alive(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(mark)


_HELD = """
import os, threading


def pytest_runtest_logfinish():
    with open("held", "a") as file:
        print(len(os.listdir("/proc/self/fd")), threading.active_count(), file=file)
"""


def test_many_episodes_leave_no_file_and_no_thread(
    pytester: pytest.Pytester, pretend: Path
) -> None:
    conftest = pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text() + _HELD)
    tasks = "".join(f"  - {{id: t{n}, query: Print it., gold: echo {n}}}\n" for n in range(25))
    pretend.write_text(f"env: bash\ntasks:\n{tasks}")
    script = 'echo "{\\"action\\": \\"ls\\"}"; read line; (sleep 100 &)'
    pytester.runpytest("suite.yaml", f"--intercode-agent=command:{sh(script)}")
    held = (pytester.path / "held").read_text().splitlines()
    assert len(held) == 25
    assert set(held[10:]) == {held[-1]}


# -- the examples


@pytest.mark.parametrize("example", ["python3 {}/agent_command.py", "perl {}/agent_command.pl"])
def test_the_examples_play_the_bundled_sql_tasks(pytester: pytest.Pytester, example: str) -> None:
    done = pytester.runpytest(
        "--intercode-env=sql",
        "--intercode-limit=4",
        f"--intercode-agent=command:{example.format(_EXAMPLES)}",
        "--intercode-results=r.jsonl",
    )
    rows = results(pytester.path / "r.jsonl")
    assert [row["outcome"] for row in rows] == ["failed"] * 4, done.outlines
    first = rows[0]["turn_history"]
    assert first["actions"] == [
        "SELECT name FROM sqlite_master ORDER BY name",
        "SELECT * FROM branch",
        "submit",
    ]
    assert first["thoughts"][0] == "What is there?"


def test_the_examples_do_the_same(pytester: pytest.Pytester, small_suite: Path) -> None:
    """On all environments, as far as two programs can be told apart without running anything."""
    for query, env, engine, observation in (
        ("Count the lines of notes.txt.", "bash", "", "a.txt\nnotes.txt"),
        ("Which branch?", "sql", "sqlite", "author\nbranch"),
        ("Which branch?", "sql", "mysql", "branch é"),
        ("Write f.", "python", "", "['f']"),
        ("Find the flag.", "ctf", "", "so: flag{it is here} flag{or}"),
        ("Nothing.", "bash", "", "x y z"),
    ):
        task = {"query": query, "env": env, "engine": engine}
        lines = [{"type": "task", "task": task}]
        lines += [{"type": "observation", "observation": observation}] * 2
        typed = "".join(json.dumps(line) + "\n" for line in lines)
        said = []
        for command in (
            [sys.executable, str(_EXAMPLES / "agent_command.py")],
            ["perl", str(_EXAMPLES / "agent_command.pl")],
        ):
            done = subprocess.run(command, input=typed, capture_output=True, text=True, check=True)
            assert done.stderr == ""
            said.append([json.loads(line) for line in done.stdout.splitlines()])
        assert said[0] == said[1]
        assert "submit" in said[0][-1]
        assert len(said[0]) == (2 if query == "Nothing." else 3)
