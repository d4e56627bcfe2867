"""The human's terminal, as far as one can be had without a human: a pty, and keys that are sent.

The line editor alone is in tests/unit/test_human_console.py.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.conftest import PRETEND, results
from tests.integration.plugin.test_bad_input import assert_usage_error

_PATIENCE = 60  # seconds for whatever comes next, on a machine that is busy
_PASTES = r"\x1b\[\?2004h"  # bracketed paste is on: the line editor reads keys
CLEAR, END, UP = "\x03", "\x04", "\x1b[A"

# Prints what a sandbox of bad intent would, and acts until it is let go.
HOSTILE = PRETEND.replace(
    'return Observation("")',
    """\
if action == "hostile":
            return Observation("\\x1b]0;owned\\x07\\x1b[2J\\x9b6n\\n")
        if action == "slow":
            print("began", file=open("began", "w"))
            while not os.path.exists("go"):
                time.sleep(0.02)
            return Observation("ended\\n")
        return Observation("")""",
).replace("import pytest\n", "import os\nimport pytest\nimport time\n", 1)


class Terminal:
    """A run of pytest in a terminal of its own."""

    def __init__(self, child: Any) -> None:
        self.child = child
        self.seen = b""

    def expect(self, pattern: str) -> None:
        """Wait until something is on the screen."""
        self.child.expect(pattern)
        self.seen += self.child.before + self.child.after

    def prompt(self, turns_left: int) -> None:
        """Wait for a new prompt with so many turns left; an old one is painted again at times."""
        self.expect(rf"{_PASTES}.*?\({turns_left} left\)>")

    def send(self, keys: str) -> None:
        """Press keys."""
        self.child.send(keys)

    def type(self, text: str) -> None:
        """Type a text and press Enter."""
        self.child.send(text + "\r")

    def finish(self) -> int:
        """Wait for the end of the run; return its exit code."""
        self.expect_end()
        self.child.wait()
        assert isinstance(self.child.exitstatus, int)
        return self.child.exitstatus

    def expect_end(self) -> None:
        """Wait for the last words."""
        self.child.expect(pexpect.EOF)
        self.seen += self.child.before


Start = Callable[..., Terminal]


@pytest.fixture
def start(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start pytest in a terminal: its output in a pipe, a command after it, a shell with jobs."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("XDG_STATE_HOME", str(pytester.path / "state"))
    monkeypatch.setenv("PROMPT_TOOLKIT_NO_CPR", "1")  # nobody says where the cursor is
    started: list[Terminal] = []

    def start(
        *arguments: str, agent: str = "human", pipe: str = "", then: str = "", jobs: bool = False
    ) -> Terminal:
        words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        words += [f"--intercode-agent={agent}", "--intercode-results=r.jsonl", *arguments]
        line = shlex.join(words) + (f" | {pipe}" if pipe else "") + (f"; {then}" if then else "")
        shell = ["--norc", "-i"] if jobs else ["-c", line]
        child = pexpect.spawn("/bin/bash", shell, timeout=_PATIENCE, dimensions=(40, 200))
        started.append(Terminal(child))
        if jobs:
            child.sendline(line)
        return started[-1]

    yield start
    for terminal in started:
        terminal.child.close(force=True)


def wait_for(path: Path) -> None:
    """Wait until somebody makes a file."""
    deadline = time.monotonic() + _PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} has not been made"
        time.sleep(0.02)


def rows() -> list[dict[str, Any]]:
    """Return what is in the results file."""
    return results(Path("r.jsonl"))


def only_row() -> dict[str, Any]:
    """Return the one row of the results file."""
    (row,) = rows()
    return row


# -- episodes


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize(
    "capture",
    ["fd", pytest.param("sys", marks=pytest.mark.slow), pytest.param("no", marks=pytest.mark.slow)],
)
def test_an_episode_is_solved(start: Start, capture: str) -> None:
    run = start("suite.yaml", "-k", "prints", f"--capture={capture}")
    run.expect("== prints \\(bash, easy, text\\)")
    run.expect("Print the word hello.")
    run.prompt(10)
    run.type("echo hello")
    run.prompt(9)
    run.type("submit")
    run.expect("reward 1.00 after 2/10 turns")
    assert run.finish() == 0
    assert b"1 passed" in run.seen
    row = only_row()
    assert row["turn_history"]["actions"] == ["echo hello", "submit"]
    assert (row["agent"], row["outcome"], row["reward"]) == ("human", "solved", 1.0)
    assert all(seconds > 0 for seconds in row["turn_agent_seconds"])


@pytest.mark.slow
def test_a_bundled_task_and_several_lines(start: Start) -> None:
    tasks = load_suite(bundled_folder("tasks") / "sql.yaml").tasks
    task = next(task for task in tasks if "\n" in task.gold[0])
    run = start(f"intercode/sql::test_solves[{task.id}]")
    run.expect(r"database \w+ \(sqlite\)")
    run.prompt(15)
    for line in task.gold[0].split("\n"):
        run.type(line)
    run.type(";")
    run.expect(r"\(\d+ rows?\)")
    run.prompt(14)
    run.type("submit")
    assert run.finish() == 0
    assert only_row()["turn_history"]["actions"] == [f"{task.gold[0]}\n;", "submit"]


@pytest.mark.usefixtures("pretend")
def test_history_of_the_run_before(start: Start, pytester: pytest.Pytester) -> None:
    run = start("suite.yaml", "-k", "prints")
    run.prompt(10)
    run.type("echo hello")
    run.prompt(9)
    run.type(":quit")
    run.finish()
    assert "echo hello" in (pytester.path / "state/pytest-intercode/history-bash").read_text()
    run = start("suite.yaml", "-k", "prints")
    run.prompt(10)
    run.send(UP + "\r")
    run.prompt(9)
    run.type("submit")
    assert run.finish() == 0
    assert only_row()["turn_history"]["actions"] == ["echo hello", "submit"]


@pytest.mark.slow
@pytest.mark.usefixtures("pretend")
def test_clearing_a_line_and_giving_up(start: Start) -> None:
    run = start("suite.yaml", "-k", "prints")
    run.prompt(10)
    run.send("rm -rf /" + CLEAR)
    run.prompt(10)
    run.send(END)
    run.expect(r"Give up\?.*\[y/N\]")
    run.type("")
    run.prompt(10)
    run.send(END)
    run.expect(r"Give up\?.*\[y/N\]")
    run.type("y")
    assert run.finish() == 1
    row = only_row()
    assert (row["outcome"], row["turn_history"]["actions"]) == ("failed", [])


@pytest.mark.usefixtures("pretend")
def test_quitting_keeps_what_was_earned(start: Start) -> None:
    run = start("suite.yaml")
    run.prompt(10)
    run.type("echo hello")
    run.prompt(9)
    run.type("submit")
    run.expect("== writes")
    run.prompt(10)
    run.type(":quit")
    assert run.finish() == pytest.ExitCode.INTERRUPTED
    assert b"the human ended the run with :quit" in run.seen
    assert b"1 passed" in run.seen
    assert only_row()["task_id"] == "prints"


@pytest.mark.slow
@pytest.mark.usefixtures("pretend")
def test_the_toolbar_of_a_terminal_that_knows_its_cursor(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROMPT_TOOLKIT_NO_CPR")
    run = start("suite.yaml", "-k", "prints")
    run.expect(r"\x1b\[6n")
    run.send("\x1b[5;1R")
    run.expect("Alt-Enter begins a new line")
    run.type("echo 'hello")
    run.send("\x0c")  # Ctrl-L paints all of it anew
    run.expect(r"\x1b\[6n")
    run.send("\x1b[1;1R")
    run.expect("Still to come: the closing '")
    run.send(CLEAR)
    run.expect(r"\x1b\[6n")
    run.send("\x1b[3;1R")
    run.type(":quit")
    run.finish()


# -- what must not happen to the terminal


@pytest.fixture
def hostile(pretend: Path) -> Path:
    """The small suite in an environment with bad intent."""
    (pretend.parent / "conftest.py").write_text(HOSTILE)
    return pretend


@pytest.mark.usefixtures("hostile")
def test_observations_do_not_drive_the_terminal(start: Start) -> None:
    run = start("suite.yaml", "-k", "prints")
    run.prompt(10)
    run.type("hostile")
    run.prompt(9)
    assert b"\x1b]0;" not in run.seen
    assert b"\x1b[2J" not in run.seen
    seen = re.sub(rb"\x1b\[[\d;]*m", b"", run.seen)
    assert rb"\x1b]0;owned\x07\x1b[2J\x9b6n" in seen
    run.type(":quit")
    run.finish()


@pytest.mark.slow
@pytest.mark.usefixtures("pretend")
def test_stopping_the_job_and_going_on(start: Start) -> None:
    run = start("suite.yaml", "-k", "prints", jobs=True)
    run.prompt(10)
    run.send("echo hel")
    run.expect("hel")
    run.send("\x1a")
    run.expect("[Ss]topped")
    run.type("fg")
    run.prompt(10)
    run.type("lo")
    run.prompt(9)
    run.type("submit")
    run.expect("1 passed")
    run.type("stty -a; exit")
    run.finish()
    assert_cooked(run)


def assert_cooked(run: Terminal) -> None:
    """Check what ``stty`` said of the terminal."""
    words = run.seen.decode("utf-8", "replace").replace(";", " ").split()
    assert {"isig", "icanon", "echo", "icrnl"} <= set(words)


@pytest.mark.slow
@pytest.mark.usefixtures("pretend")
def test_time_that_is_up_ends_the_prompt(start: Start) -> None:
    run = start("suite.yaml", "-k", "prints", "--intercode-timeout=3", then="stty -a")
    run.prompt(10)
    run.send("half a li")
    run.expect("the episode was stopped")
    run.expect("timed out after")
    run.finish()
    assert only_row()["outcome"] == "timed-out"
    assert_cooked(run)


@pytest.mark.slow
@pytest.mark.usefixtures("pretend")
def test_a_signal_at_the_prompt_ends_the_run(start: Start, pytester: pytest.Pytester) -> None:
    with (pytester.path / "conftest.py").open("a") as conftest:
        conftest.write("\nimport os\nprint(os.getpid(), file=open('pid', 'w'))\n")
    run = start("suite.yaml", "-k", "prints", then="stty -a")
    run.prompt(10)
    os.kill(int(Path("pid").read_text()), signal.SIGINT)
    run.expect("KeyboardInterrupt")
    run.finish()
    assert_cooked(run)


@pytest.mark.usefixtures("hostile")
def test_one_interrupt_passes_while_an_action_runs(start: Start) -> None:
    run = start("suite.yaml", "-k", "prints")
    run.prompt(10)
    run.type("slow")
    wait_for(Path("began"))
    run.send(CLEAR)
    run.expect("ends by itself after 10 s; Ctrl-C twice ends the run")
    Path("go").touch()
    run.expect("ended")
    run.prompt(9)
    run.type(":quit")
    run.finish()


# -- where there is no terminal


@pytest.mark.usefixtures("pretend")
def test_without_a_terminal(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("suite.yaml", "--intercode-agent=human")
    assert_usage_error(
        result,
        "--intercode-agent=human: it uses your terminal, but standard input is not a terminal; *",
    )


@pytest.mark.usefixtures("pretend")
def test_with_its_output_in_a_pipe(start: Start) -> None:
    run = start("suite.yaml", pipe="cat")
    run.expect("it uses your terminal, but standard output is not a terminal; run pytest in a")
    run.finish()


@pytest.mark.usefixtures("pretend")
def test_under_xdist(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("suite.yaml", "--intercode-agent=human", "-n2")
    assert_usage_error(
        result,
        "--intercode-agent=human: it uses your terminal, which workers of pytest-xdist do not "
        "have; run without -n (or with -n 0)",
    )


# -- from the debugger


@pytest.mark.slow
@pytest.mark.usefixtures("pretend")
def test_playing_the_task_of_a_failing_test(start: Start) -> None:
    run = start("suite.yaml", "-k", "prints", "--pdb", agent="agents.py:Idle")
    run.expect(r"test_solves\(\)")  # the frame in which the names are
    run.expect(r"\(Pdb\) ")
    run.type("intercode_episode.play()")
    run.prompt(10)
    run.type("echo hello")
    run.prompt(9)
    run.type("submit")
    run.expect(r"reward 1.00 after 2/10 turns \(your own; the test's result stays\)")
    run.expect(r"<EpisodeRecord of prints: reward 1.00 after 2/10 turns>")
    run.expect(r"\(Pdb\) ")
    run.type("intercode_episode.play()")  # once more, from the beginning
    run.prompt(10)
    run.type(":quit")
    run.expect("QuitRun: you quit; nothing was graded")
    run.expect(r"\(Pdb\) ")
    run.type("continue")
    assert run.finish() == 1
    row = only_row()
    assert (row["agent"], row["outcome"]) == ("agents.py:Idle", "failed")
