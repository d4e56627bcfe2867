"""Agents share a process: what one does to it is shown under its own item and set back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import results

PRELUDE = """
import logging, os, subprocess, sys, threading, time, warnings
from pathlib import Path
from agents import COMMANDS
from pytest_intercode import BudgetExhausted


def solve(task, env):
    for action in COMMANDS[task.id]:
        env.step(action)

"""


@pytest.fixture
def play(pytester: pytest.Pytester, pretend: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the small suite with a loop-style agent of the given source."""
    monkeypatch.setattr("pytest_intercode.rollouts.turn_loop._AGENT_EXIT_TIMEOUT", 0.3)

    def run(source: str, *options: str) -> pytest.RunResult:
        Path("mine.py").write_text(PRELUDE + source)
        return pytester.runpytest(
            *("suite.yaml", "--intercode-agent=mine:agent", "--intercode-results=r.jsonl"),
            *("-p", "no:threadexception", "-Wdefault", *options),
        )

    return run


def rows() -> dict[str, Any]:
    """Return the rows of the results file by task."""
    return {row["task_id"]: row for row in results(Path("r.jsonl"))}


def test_output_logging_and_warnings_belong_to_the_item(play: Any) -> None:
    result = play(
        """
def agent(task, env):
    print("printed by", task.id)
    print("complained by", task.id, file=sys.stderr)
    subprocess.run(["echo", "a child of " + task.id], check=True)
    logging.getLogger("mine").warning("logged by %s", task.id)
    warnings.warn("warned by " + task.id)
    env.step("nothing")
"""
    )
    result.assert_outcomes(failed=3, warnings=3)
    text = result.stdout.str()
    failures = text.partition("= FAILURES =")[2].partition("= warnings summary =")[0]
    parts = failures.split("___ test_solves")[1:]
    assert len(parts) == 3
    for part in parts:
        [name] = [name for name in ("prints", "writes", "both") if part.startswith(f"[{name}]")]
        for said in ("printed by", "complained by", "a child of", "logged by"):
            assert part.count(f"{said} ") == part.count(f"{said} {name}") > 0, said
    for name in ("prints", "writes", "both"):
        result.stdout.fnmatch_lines([f"*UserWarning: warned by {name}"])


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ("os.chdir('/')", "the working directory / (set back)"),
        ("os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')", "the working directory a fo*"),
        (
            "os.environ['NEW'] = 'x'; del os.environ['PATH']; os.environ['HOME'] = '/'",
            "environment variables: HOME, NEW, PATH (set back)",
        ),
        ("sys.path.insert(0, '/x')", "another sys.path or sys.argv (set back)"),
        ("sys.argv.clear()", "another sys.path or sys.argv (set back)"),
        ("sys.stdout = sys.stderr", "another sys.stdout (set back)"),
        ("os.umask(0o777)", "the umask 0777 (set back)"),
        ("logging.disable(50)", "another set-up of the root logger (set back)"),
        ("logging.getLogger().setLevel(50)", "another set-up of the root logger (set back)"),
        (
            "threading.Thread(target=time.sleep, args=(3,), name='mine', daemon=True).start()",
            "threads that still run: mine",
        ),
    ],
)
def test_what_an_agent_changes_is_set_back(play: Any, source: str, left: str) -> None:
    """The first task's agent changes something; the others look whether they can tell."""
    result = play(
        f"""
def state():
    return (
        os.getcwd(), dict(os.environ, PYTEST_CURRENT_TEST=""), sys.path[:], sys.argv[:],
        [type(s) for s in (sys.stdin, sys.stdout, sys.stderr)],
        sys.stdout is sys.stderr,
        Path("/proc/self/status").read_text().partition("Umask:")[2].split()[0],
        logging.getLogger().level, logging.getLogger().manager.disable,
    )

before = []

def agent(task, env):
    if task.id == "prints":
        before.append(state())
        {source}
    else:
        assert state() == before[0], (state(), before[0])
    solve(task, env)
"""
    )
    result.assert_outcomes(passed=3, warnings=1)
    found = rows()
    [line] = found["prints"]["left_behind"]
    assert line == left or (left.endswith("*") and line.startswith(left[:-1]))
    assert found["both"]["left_behind"] == found["writes"]["left_behind"] == []
    result.stdout.fnmatch_lines(["*LeftBehindWarning: the agent left things behind: *"])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("raise MemoryError('no more')", "MemoryError: no more"),
        ("(lambda f: f(f))(lambda f: f(f))", "RecursionError: maximum recursion*"),
        ("import pytest; pytest.exit('all of it')", "Exit: all of it"),
        ("import pytest; pytest.skip('this one')", "Skipped: this one"),
    ],
)
def test_what_an_agent_raises_is_its_own(play: Any, source: str, reason: str) -> None:
    result = play(
        f"""
def agent(task, env):
    if task.id == "prints":
        {source}
    solve(task, env)
"""
    )
    result.assert_outcomes(passed=2, failed=1)
    row = rows()["prints"]
    assert row["outcome"] == "agent-error"
    assert row["reason"].startswith(reason.rstrip("*"))


@pytest.mark.parametrize(
    ("source", "stays"),
    [
        ("while True: pass", False),
        ("while True: time.sleep(0.01)", False),
        (
            """
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                pass
""",
            False,
        ),
        ("threading.Event().wait(8)", True),
    ],
)
def test_one_that_hangs_is_ended_where_python_can(play: Any, source: str, stays: bool) -> None:
    result = play(
        f"""
threads = []

def agent(task, env):
    if task.id == "prints":
        threads.append(threading.current_thread())
        {source}
    solve(task, env)
    if task.id == "both":
        env.log(str(threads[0].is_alive()))
""",
        "--intercode-timeout=2",
    )
    result.assert_outcomes(passed=2, failed=1)
    found = rows()
    assert found["prints"]["outcome"] == "timed-out"
    left = ["the agent's own thread, which still runs"] if stays else []
    assert found["prints"]["left_behind"] == left
    assert found["both"]["log"] == str(stays)


def test_an_async_one_that_hangs_is_cancelled(play: Any) -> None:
    result = play(
        """
import asyncio

class agent:
    async def run(self, task, env):
        if task.id == "prints":
            try:
                await asyncio.sleep(1000)
            finally:
                env.log("cancelled\\n")
        solve(task, env)

    async def close(self):
        print("closed")
""",
        "--intercode-timeout=2",
    )
    result.assert_outcomes(passed=2, failed=1)
    row = rows()["prints"]
    assert (row["outcome"], row["left_behind"], row["log"]) == ("timed-out", [], "cancelled\n")
    result.stdout.fnmatch_lines(["    closed"])


def test_abort_ends_what_an_agent_waits_for(play: Any) -> None:
    result = play(
        """
class agent:
    def __init__(self):
        self.end = threading.Event()

    def run(self, task, env):
        if task.id == "prints":
            assert self.end.wait(60)
        solve(task, env)

    def abort(self):
        self.end.set()
""",
        "--intercode-timeout=2",
    )
    result.assert_outcomes(passed=2, failed=1)
    row = rows()["prints"]
    assert (row["outcome"], row["left_behind"]) == ("timed-out", [])
    assert row["turn_history"]["actions"] == []  # it went on, and nothing was run


def test_an_instance_for_each_episode(play: Any) -> None:
    play(
        """
class agent:
    seen = []

    def run(self, task, env):
        assert not hasattr(self, "used") and self not in agent.seen
        self.used = True
        agent.seen.append(self)
        solve(task, env)
"""
    ).assert_outcomes(passed=3)


def test_threads_of_an_agent_take_turns(play: Any) -> None:
    """Each turn is counted and written down once, whichever thread took it."""
    play(
        """
def agent(task, env):
    def act():
        env.spend(output_tokens=1)
        env.step("look")

    threads = [threading.Thread(target=act) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    env.step(COMMANDS[task.id][-1])
""",
        "--intercode-run-max-turns=100",
    ).assert_outcomes(passed=3)
    row = rows()["prints"]
    assert row["turn_history"]["actions"] == ["look"] * 8 + ["echo hello"]
    assert sum(used["output_tokens"] for used in row["turn_usage"]) == 8
