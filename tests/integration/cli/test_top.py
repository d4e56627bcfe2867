"""``pytest-intercode top``: a run in another process, seen from this one."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pexpect
import pytest

from pytest_intercode.cli import main
from tests.conftest import results
from tests.integration.cli.conftest import Start

pytestmark = pytest.mark.timeout(120)

# Appended to a conftest: a sandbox that never starts, until its start is cancelled.
SLOW_START = """
import threading
from pytest_intercode.errors import SandboxError


class Slow(Pretend):
    def start(self, task):
        self.gone = threading.Event()
        with open("acted", "w") as file:
            print(task.id, file=file)
        self.gone.wait()
        raise SandboxError("it was ended")

    def abandon(self):
        self.gone.set()


def pytest_intercode_make_environment(task):
    return Slow(None)
"""


class Top:
    """The command, run in this process."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]
    ) -> None:
        self._monkeypatch = monkeypatch
        self._captured = captured

    def __call__(self, *arguments: str, columns: int = 80, status: int = 0) -> str:
        """Return what it prints; with a status other than 0, what it prints on stderr."""
        self._monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["top", *arguments]) == status
        output, errors = self._captured.readouterr()
        assert not (output if status else errors)
        return errors if status else output

    def statuses(self, *arguments: str) -> list[dict[str, Any]]:
        """Return what it prints as JSON."""
        statuses: list[dict[str, Any]] = json.loads(self("--json", *arguments))
        return statuses


@pytest.fixture
def top(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Top:
    """Return the command."""
    return Top(monkeypatch, capsys)


def watch(columns: int, *arguments: str) -> Any:
    """Return a terminal in which the command runs."""
    return pexpect.spawn(
        sys.executable,
        ["-m", "pytest_intercode", "top", *arguments],
        encoding="utf-8",
        timeout=60,
        dimensions=(24, columns),
    )


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ((), 1),
        pytest.param(("--intercode-concurrency=2",), 2, marks=pytest.mark.slow),
        pytest.param(("-n2",), 2, marks=pytest.mark.slow),
        (("-n2", "--intercode-concurrency=4"), 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_the_episodes_of_a_run(
    start: Start, top: Top, temporary: Path, options: tuple[str, ...], count: int
) -> None:
    run = start(*options)
    acted = run.wait_for_turns(count)
    (status,) = top.statuses()
    assert status["pid"] == run.process.pid
    assert status["folder"] == str(Path.cwd())
    assert (status["done"], status["total"], status["silent"]) == (0, 3, 0)
    tasks = {episode["task"]: episode for episode in status["episodes"]}
    assert set(acted) <= set(tasks)
    for name in acted:
        episode = tasks[name]
        assert episode["item"] == f"gated.yaml::test_solves[{name}]"
        assert episode["agent"] == "gated:Gated"
        assert (episode["turns"], episode["max_turns"], episode["repeat"]) == (1, 10, 1)
        assert (episode["tokens"], episode["cost"], episode["phase"]) == (600, 0.125, "agent")
        assert episode["action"] == f"echo \\x1b]0;mine\\x07 intercode-masked-key {name}"
        assert 0 <= episode["seconds"] < episode["timeout"] == 600
        assert episode["worker"].startswith("gw") == ("-n2" in options)
    run.let_go()
    assert "3 passed" in run.finish()
    assert top.statuses() == []
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_people_watch_a_run(start: Start, top: Top, temporary: Path) -> None:
    run = start("--intercode-concurrency=2", "--intercode-run-name=nightly")
    run.wait_for_turns(2)
    wide = top(columns=200).splitlines()
    assert wide[0] == f"nightly in {Path.cwd()}"
    assert wide[1] == (
        f"run {run.process.pid}: 2 running, 0 of 3 done, 0 solved, 1,200 tokens, cost 0.25"
    )
    assert re.fullmatch(r"EPISODE +TURNS +TIME  TOKENS   COST  LAST ACTION", wide[2])
    assert re.fullmatch(
        r"gated.yaml::test_solves\[one\]   1/10  \d:\d\d/10:00     600  0\.125  "
        r"echo \\x1b\]0;mine\\x07 intercode-masked-key one",
        wide[3],
    )
    narrow = top(columns=40).splitlines()
    assert all(len(line) <= 40 for line in narrow), narrow
    assert re.fullmatch(r"\.\.\._solves\[one\]   1/10  echo .*\.\.\.", narrow[-2]), narrow

    (socket,) = temporary.glob("*/*/*/run.sock")  # which nobody else can reach
    modes = [path.stat().st_mode & 0o777 for path in (socket, *socket.parents[1:3])]
    assert modes == [0o600, 0o700, 0o700]

    terminals = [watch(40, str(run.process.pid)), watch(200)]
    for terminal in terminals:
        terminal.expect(r"\x1b\[\?1049h")
        terminal.expect("0 of 3 done")
        terminal.expect(r"\[one\]")
    terminals[1].sendintr()
    terminals[1].expect(r"\x1b\[\?1049l")
    terminals[1].expect(pexpect.EOF)
    terminals[1].close()
    assert terminals[1].exitstatus == 0
    run.let_go(2)
    run.wait_for_turns(1)
    terminals[0].expect("2 of 3 done")
    terminals[0].expect(r"\[three\]")
    assert "\x07" not in terminals[0].before
    run.let_go(1)
    terminals[0].expect(r"\x1b\[\?1049l")
    terminals[0].expect("the run is over")
    terminals[0].expect(pexpect.EOF)
    assert "3 passed" in run.finish()
    assert top() == "you have no runs on this machine\n"


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--intercode-concurrency=3",),
        pytest.param(("-n3",), marks=pytest.mark.slow),
        pytest.param(("-n2", "--intercode-concurrency=4"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_an_episode_is_stopped_and_the_run_goes_on(
    start: Start, top: Top, options: tuple[str, ...]
) -> None:
    run = start("--intercode-results=r.jsonl", *options)
    run.wait_for_turns(3 if options else 1)
    for name in ("nothing", ""):
        assert re.fullmatch(
            rf"pytest-intercode: --stop={name}: no running episode has this name; there are: .+\n",
            top("--stop", name, status=1),
        )
    output = top("--stop", "one")
    assert re.fullmatch(
        r"gated.yaml::test_solves\[one\]: stopped after 1/10 turns and \d:\d\d\n", output
    )
    run.let_go(3)  # the agent's thread waits, too, and is left behind
    printed = run.finish()
    assert run.process.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 passed, 1 error" in printed
    reason = "stopped after 1/10 turns: by the user"
    assert f"ERROR gated.yaml::test_solves[one] - {reason}" in printed
    assert "outcomes: 2 solved, 1 stopped" in printed
    rows = {row["task_id"]: row for row in results(Path("r.jsonl"))}
    row = rows["one"]
    assert (row["outcome"], row["reason"]) == ("stopped", "by the user")
    assert len(row["turn_history"]["actions"]) == 1
    assert (row["usage"]["input_tokens"], row["usage"]["cost"]) == (600, 0.125)
    assert {name: rows[name]["outcome"] for name in ("two", "three")} == {
        "two": "solved",
        "three": "solved",
    }


def test_an_episode_is_stopped_while_its_sandbox_starts(
    start: Start, top: Top, pretend: Path
) -> None:
    with (pretend.parent / "conftest.py").open("a") as file:
        file.write(SLOW_START)
    run = start("--intercode-results=r.jsonl", "-x")
    run.wait_for_turns(1)  # the sandbox says so
    (status,) = top.statuses()
    (episode,) = status["episodes"]
    assert (episode["phase"], episode["turns"], episode["action"]) == ("start", 0, "")
    assert "stopped after 0/10 turns" in top("--stop", episode["item"])
    printed = run.finish()
    assert "ERROR gated.yaml::test_solves[one] - stopped after 0/10 turns: by the user" in printed
    (row,) = results(Path("r.jsonl"))
    assert (row["outcome"], row["turn_history"]["actions"]) == ("stopped", [])


@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("--intercode-concurrency=2",), marks=pytest.mark.slow), ("-n1",)],
    ids=" ".join,
)
def test_a_run_is_stopped_as_by_ctrl_c(start: Start, top: Top, options: tuple[str, ...]) -> None:
    run = start(*options)
    run.wait_for_turns(1)
    pid = run.process.pid
    assert top("--stop", "run") == f"run {pid}: interrupted, as by Ctrl-C\n"
    run.let_go()
    printed = run.finish()
    assert run.process.returncode == pytest.ExitCode.INTERRUPTED, printed
    assert "KeyboardInterrupt" in printed
    assert top("--stop", "run", status=1) == (
        "pytest-intercode: --stop=run: you have no runs on this machine\n"
    )


@pytest.mark.slow
def test_runs_are_known_by_their_numbers(start: Start, top: Top) -> None:
    runs = []
    for _ in range(2):
        runs.append(start())
        runs[-1].wait_for_turns(1)
    assert {status["pid"] for status in top.statuses()} == {run.process.pid for run in runs}
    assert re.fullmatch(
        r"pytest-intercode: --stop=run: you have several runs, \d+, \d+; give one of these numbers "
        r"as PID\n",
        top("--stop", "run", status=1),
    )
    assert re.fullmatch(
        r"pytest-intercode: --stop=one: several running episodes have this name; there are: "
        r"(gated.yaml::test_solves\[one\](, )?){2}\n",
        top("--stop", "one", status=1),
    )
    (status,) = top.statuses(str(runs[1].process.pid))
    assert status["pid"] == runs[1].process.pid
    assert re.fullmatch(
        r"pytest-intercode: 1: you have no run with this process id on this machine; your runs: "
        r"\d+, \d+\n",
        top("1", status=1),
    )


@pytest.mark.slow
def test_a_worker_that_crashed_is_not_waited_for(start: Start, top: Top) -> None:
    run = start("-n2")
    run.wait_for_turns(2)
    pid = run.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    workers = [
        int(child)
        for child in children
        if b"stdin.readline" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    first_names = {episode["worker"] for status in top.statuses() for episode in status["episodes"]}
    os.kill(workers[0], signal.SIGKILL)
    names = first_names
    while names == first_names:  # it may have had the last task, and then nobody is in its place
        (status,) = top.statuses()
        names = {episode["worker"] for episode in status["episodes"]}
    while status["silent"]:
        (status,) = top.statuses()
    run.let_go()
    assert "1 failed, 2 passed" in run.finish()


@pytest.mark.slow
def test_a_killed_run_is_not_shown_and_its_folder_goes(
    start: Start, top: Top, temporary: Path
) -> None:
    run = start("-n1")
    run.wait_for_turns(1)
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    assert top.statuses() == []
    run.let_go()  # the worker, which ends with its episode
    while list(temporary.iterdir()):
        time.sleep(0.05)
