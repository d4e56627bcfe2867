"""--intercode-concurrency: episodes run ahead, and nothing of it shows in what is reported."""

from __future__ import annotations

import difflib
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pexpect
import pytest

from pytest_intercode.results.files import read_records
from pytest_intercode.results.tries import in_order_of_items
from tests.conftest import PRETEND, results

# Agents whose episodes meet: each waits until as many as are to run at a time have begun.
MEETING = """
import logging, os, sys, threading, time, warnings
from pathlib import Path

lock = threading.Lock()
running, most = 0, 0


class Meeting:
    def __init__(self, size="1"):
        self.size = int(size)

    def run(self, task, env):
        global running, most
        with lock:
            running += 1
            most = max(most, running)
            Path("most").write_text(str(most))
        print("printed by", task.id)
        print("complained by", task.id, file=sys.stderr)
        logging.getLogger("mine").warning("logged by %s", task.id)
        helper = threading.Thread(target=print, args=("a thread of", task.id))
        helper.start()
        helper.join()
        group = int(task.id[1:]) // self.size
        Path(f"begun-{task.id}").touch()
        names = [f"begun-t{group * self.size + n}" for n in range(self.size)]
        while not all(map(os.path.exists, names)):
            time.sleep(0.002)
        with lock:
            running -= 1
        env.submit() if task.id in failing() else env.step("true")


def failing():
    return Path("failing").read_text().split() if Path("failing").exists() else ()
"""


# An agent that counts how many of it run in a process. It solves a task, unless all are to fail.
COUNTING = """
import os, threading, time
from pathlib import Path

lock, running, most = threading.Lock(), 0, 0
name = f"most{os.environ.get('PYTEST_XDIST_WORKER', '')}"


def agent(task, env):
    global running, most
    with lock:
        running += 1
        most = max(most, running)
        Path(name).write_text(str(most))
    time.sleep(0.1)
    with lock:
        running -= 1
    print("printed by", task.id)
    env.step("false" if Path("failing").exists() else "true")
"""


def tasks(number: int) -> str:
    """Return a suite of tasks ``t0``, ``t1`` and so on, which are solved by ``true``."""
    rows = "".join(f"  - {{id: t{n}, query: Do it., gold: 'true'}}\n" for n in range(number))
    return f"env: bash\ntasks:\n{rows}"


@pytest.fixture
def suite(pytester: pytest.Pytester) -> Path:
    """Twelve tasks that need no sandbox, and an agent whose episodes wait for one another."""
    (pytester.path / "conftest.py").write_text(PRETEND)
    (pytester.path / "meeting.py").write_text(MEETING)
    path = pytester.path / "suite.yaml"
    path.write_text(tasks(12))
    return path


def run(pytester: pytest.Pytester, at_a_time: int, *options: str) -> pytest.RunResult:
    """Run the suite with so many episodes at a time, which wait for each other."""
    for old in pytester.path.glob("begun-*"):
        old.unlink()
    return pytester.runpytest(
        *("suite.yaml", "--intercode-agent=meeting:Meeting", "-p", "no:randomly"),
        *(f"--intercode-concurrency={at_a_time}", f"--intercode-agent-arg=size={at_a_time}"),
        *("--intercode-results=r.jsonl", *options),
    )


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    different = ("seconds", "agent_arguments", "phases")
    return {name: row[name] for name in row if not any(each in name for each in different)}


@pytest.mark.usefixtures("suite")
def test_as_many_run_at_a_time_as_were_asked_for(pytester: pytest.Pytester) -> None:
    result = run(pytester, 4)
    result.assert_outcomes(passed=12)
    result.stdout.fnmatch_lines(["intercode: *, concurrency 4*", "outcomes: 12 solved"])
    assert Path("most").read_text() == "4"


@pytest.mark.usefixtures("suite")
def test_the_report_is_the_same_as_one_at_a_time(pytester: pytest.Pytester) -> None:
    Path("failing").write_text("t1 t6 t11")
    reports = []
    rows = []
    for at_a_time in (1, 6):
        result = run(pytester, at_a_time, "-v", "-rA")
        result.assert_outcomes(passed=9, failed=3)
        lines = result.outlines[7:]  # the header names options
        reports.append([re.sub(r"[\d.]+s?\b", "", line) for line in lines])
        rows.append({row["task_id"]: timeless(row) for row in results(Path("r.jsonl"))})
        Path("r.jsonl").unlink()  # else the next run says that it was there
    one, six = reports
    assert not list(difflib.unified_diff(one, six))
    assert rows[0] == rows[1]
    for said in ("printed by", "complained by", "logged by", "a thread of"):
        [section] = re.findall(rf"___ test_solves\[t\] ___.*?{said} t", "\n".join(six), re.S)[:1]
        assert section


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize("capture", ["fd", "sys", "tee-sys", "no"])
def test_output_is_under_the_item_that_made_it(pytester: pytest.Pytester, capture: str) -> None:
    Path("failing").write_text(" ".join(f"t{n}" for n in range(12)))
    result = run(pytester, 6, f"--capture={capture}")
    result.assert_outcomes(failed=12)
    text = result.stdout.str()
    failures = text.partition("= FAILURES =")[2].partition("= short test summary info =")[0]
    parts = re.split(r"_+ test_solves\[(t\d+)\] _+\n", failures)[1:]
    assert len(parts) == 24
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        for said in ("printed by", "complained by", "a thread of"):
            assert re.findall(rf"{said} (\w+)", part) == ([] if capture == "no" else [name])
        assert re.findall(r"logged by (\w+)", part) == [name]
    if capture == "no":  # in the order of the items, though they ran side by side
        assert re.findall(r"printed by (\w+)", text) == [f"t{n}" for n in range(12)]


@pytest.mark.usefixtures("suite")
def test_durations_are_those_of_the_episodes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(slow="import time\n\ndef agent(observation):\n    time.sleep(0.5)\n")
    began = time.monotonic()
    result = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=slow:agent", "--intercode-concurrency=12"),
        *("--durations=0", "-vv", "--junitxml=junit.xml"),
    )
    wall = time.monotonic() - began
    calls = [line for line in result.outlines if re.match(r"\S+s call ", line)]
    seconds = [float(line.split("s ")[0]) for line in calls]
    assert len(seconds) == 12
    assert min(seconds) >= 0.5
    assert wall < sum(seconds)
    assert 'time="0.0' not in (pytester.path / "junit.xml").read_text()


@pytest.mark.usefixtures("suite")
def test_what_ran_ahead_is_in_the_results_before_its_turn(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        late="""
        import time
        from pathlib import Path

        def agent(task, env):
            while task.id == "t0" and "t11" not in Path("r.jsonl").read_text():
                time.sleep(0.01)
            env.step("true")
        """
    )
    result = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=late:agent", "--intercode-concurrency=2"),
        "--intercode-results=r.jsonl",
    )
    result.assert_outcomes(passed=12)
    rows = [row["task_id"] for row in results(Path("r.jsonl"))]
    assert rows == [*(f"t{n}" for n in range(1, 12)), "t0"]
    tries = in_order_of_items(read_records(Path("r.jsonl")))
    assert [each.task.id for each in tries] == [f"t{n}" for n in range(12)]


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize("workers", [[], ["-n2"]])
def test_the_first_failure_stops_what_has_not_begun(
    pytester: pytest.Pytester, workers: list[str]
) -> None:
    Path("suite.yaml").write_text(tasks(60))
    pytester.makepyfile(
        failing="""
        import time
        from pathlib import Path

        begun = []

        def agent(task, env):
            mine = int(task.id[1:])
            Path(f"begun-{task.id}").touch()
            begun.append(mine)  # after the file: whoever is in it may be the one that waits
            while len(begun) < 2:
                time.sleep(0.01)
            while mine == max(begun[:2]):  # until it is ended
                time.sleep(0.01)
            env.step("false")
        """
    )
    result = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=failing:agent", "--intercode-concurrency=4", "-x"),
        *("--intercode-results=r.jsonl", *workers),
    )
    code = pytest.ExitCode.INTERRUPTED if workers else pytest.ExitCode.TESTS_FAILED
    assert result.ret == code
    begun = len(list(pytester.path.glob("begun-*")))
    assert 2 <= begun <= 8
    written = len(results(Path("r.jsonl")))
    reported = result.parseoutcomes()["failed"]
    output = result.stdout.str()
    unreported = re.search(r"(\d+) episodes? had ended without being reported", output)
    ended = re.search(r"(\d+) episodes? (?:was|were) running and ended", output)
    assert written == reported + int(unreported[1] if unreported else 0)
    assert ended
    assert written < begun <= written + int(ended[1])  # some may only have had a sandbox


# A plugin that keeps pytest from ending fixtures, and environments that say when they are closed.
RUDE = """
from pathlib import Path


def start(self, task):
    self.last, self.of = None, task.id


def stop(self):  # before a start, too
    Path(f"closed-{vars(self).get('of')}").touch()


def pytest_runtest_teardown():
    raise ValueError("not mine")


Pretend.start, Pretend.stop = start, stop
"""


@pytest.mark.usefixtures("suite")
def test_a_plugin_that_keeps_fixtures_from_ending(pytester: pytest.Pytester) -> None:
    """The items after it fail in their setup: what runs of them is ended, and closed."""
    (pytester.path / "conftest.py").write_text(PRETEND + RUDE)
    Path("suite.yaml").write_text(tasks(3))
    pytester.makepyfile(
        waiting="""
        import os, time
        from pathlib import Path

        def agent(task, env):
            Path(f"begun-{task.id}").touch()
            while task.id == "t1" or not os.path.exists("begun-t1"):  # t1 until it is ended
                time.sleep(0.01)
            env.step("true")
        """
    )
    result = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=waiting:agent", "--intercode-concurrency=2"),
        "--intercode-results=r.jsonl",
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=5)
    result.stdout.no_fnmatch_line("*KeyError*")
    assert {row["task_id"] for row in results(Path("r.jsonl"))} == {"t0", "t2"}
    assert [path.name for path in sorted(pytester.path.glob("closed-t*"))] == [
        f"closed-t{number}" for number in range(3)
    ]


UNWANTED = """
import time
from pathlib import Path
import pytest


def wait_for_t1():
    while not Path("begun-t1").exists():
        time.sleep(0.002)


def agent(task, env):
    if task.id == "t1":
        Path("begun-t1").touch()
        while True:
            time.sleep(0.002)
    wait_for_t1()
    env.step("true")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if "t1" in item.name:
        wait_for_t1()
        pytest.skip("not wanted any more")
"""


def test_nothing_is_kept_of_a_rollout_that_ends_after_its_turn(
    suite: Path, pytester: pytest.Pytester
) -> None:
    """Its environment and its output would stay for the whole run."""
    remaining_names: list[str] = []

    class Watch:
        @pytest.hookimpl(trylast=True)
        def pytest_sessionfinish(self, session: pytest.Session) -> None:
            execution: Any = session.config.pluginmanager.get_plugin("intercode-execution")
            remaining_names.extend(running.item.name for running in execution._of.values())

    pytester.syspathinsert()
    (pytester.path / "unwanted.py").write_text(UNWANTED)
    suite.write_text(tasks(3))
    result = pytester.inline_run(
        *("suite.yaml", "--intercode-agent=unwanted:agent", "--intercode-concurrency=2"),
        *("-p", "unwanted"),
        plugins=[Watch()],
    )
    result.assertoutcome(passed=2, skipped=1)
    assert remaining_names == []


@pytest.mark.usefixtures("suite")
def test_ctrl_c_ends_at_once_and_keeps_what_was_over(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        half="""
        import time
        from pathlib import Path

        def agent(task, env):
            env.step("half-way")
            Path(f"begun-{task.id}").touch()
            if task.id != "t1":
                time.sleep(600)
            env.step("true")
        """
    )
    command = [
        *(sys.executable, "-m", "pytest", "suite.yaml", "--intercode-agent=half:agent"),
        *("--intercode-concurrency=4", "--intercode-results=r.jsonl"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while len(list(pytester.path.glob("begun-*"))) < 5:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        said, _ = process.communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert [row["task_id"] for row in results(Path("r.jsonl"))] == ["t1"]
    assert "1 episode had ended without being reported, with results in" in said
    assert "4 episodes were running and ended without a result" in said


@pytest.mark.usefixtures("suite")
def test_ctrl_c_after_a_report_writes_its_episode_once(pytester: pytest.Pytester) -> None:
    Path("suite.yaml").write_text(tasks(3))
    code = """

@pytest.hookimpl(wrapper=True)
def pytest_runtest_logreport(report):
    yield
    if report.when == "call":
        raise KeyboardInterrupt
"""
    pytester.makeconftest(PRETEND + code)
    result = pytester.runpytest_subprocess(
        *("suite.yaml", "--intercode-agent=meeting:Meeting", "--intercode-agent-arg=size=3"),
        *("--intercode-concurrency=3", "--intercode-results=r.jsonl"),
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["intercode: 2 episodes had ended without being reported, with *"])
    assert sorted(row["task_id"] for row in results(Path("r.jsonl"))) == ["t0", "t1", "t2"]


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize(
    "dist",
    ["load", *(pytest.param(name, marks=pytest.mark.slow) for name in ("worksteal", "loadfile"))],
)
def test_with_xdist_the_workers_share_it_out(pytester: pytest.Pytester, dist: str) -> None:
    Path("suite.yaml").write_text(tasks(24))
    pytester.makepyfile(counting=COUNTING)
    Path("failing").touch()
    result = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=counting:agent", "--intercode-concurrency=5", "-n2"),
        *("--intercode-results=r.jsonl", f"--dist={dist}"),
    )
    result.assert_outcomes(failed=24)
    assert len({row["task_id"] for row in results(Path("r.jsonl"))}) == 24
    assert len(results(Path("r.jsonl"))) == 24
    most = sorted(path.read_text() for path in pytester.path.glob("mostgw*"))
    # one file goes to one worker, whichever is there first; workers have 3 and 2 of the 5
    assert most in ([["2"], ["3"]] if dist == "loadfile" else [["2", "3"]])
    for name, part in re.findall(r"_ test_solves\[(t\d+)\] _+\n(.*?)reward 0", result.stdout.str()):
        assert re.findall(r"printed by (\w+)", part) == [name]


# -- what goes wrong


@pytest.mark.usefixtures("suite")
def test_a_change_of_the_process_is_named_and_set_back_when_none_runs(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        careless="""
        import os, threading, time
        from pathlib import Path

        home = Path.cwd()

        def agent(task, env):
            (home / f"begun-{task.id}").touch()
            if task.id == "t0":
                os.chdir("/")
                os.environ["LEFT"] = "x"
                threading.Thread(target=time.sleep, args=(3,), name="sleeper", daemon=True).start()
            while not (home / "begun-t1").exists():
                time.sleep(0.01)
            if task.id == "t1":
                while "t0" not in (home / "r.jsonl").read_text():
                    time.sleep(0.01)
            env.step("true")
        """
    )
    result = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=careless:agent", "--intercode-concurrency=2"),
        *("--intercode-results=r.jsonl", "-Wdefault", "-p", "no:threadexception"),
        "--intercode-limit=2",
    )
    result.assert_outcomes(passed=2, warnings=1)
    first, second = results(Path("r.jsonl"))
    assert first["task_id"] == "t0"
    assert first["left_behind"] == [
        "the working directory / (seen with 1 other episode running)",
        "environment variables: LEFT (seen with 1 other episode running)",
        "threads that still run: sleeper",
    ]
    assert second["left_behind"] == []
    assert Path.cwd() == pytester.path


@pytest.mark.usefixtures("suite")
def test_faults_of_the_infrastructure_are_errors_of_their_items(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(
        PRETEND
        + """
from pytest_intercode.errors import SandboxError


def reset(self, *, task):
    if task.id in ("t3", "t7"):
        raise SandboxError("the machine broke")
    return Environment.reset(self, task=task)


Pretend.reset = reset
"""
    )
    result = run(pytester, 1, "--intercode-concurrency=4")
    result.assert_outcomes(passed=10, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at setup of test_solves[[]t3[]]*",
            "infrastructure error: the machine broke",
            "outcomes: 10 solved, 2 infrastructure-error",
        ]
    )


@pytest.mark.usefixtures("suite")
def test_a_second_try_has_its_own_turn(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS")
    pytester.makepyfile(
        flaky="""
        seen = set()

        def agent(task, env):
            env.step("false" if task.id not in seen else "true")
            seen.add(task.id)
        """
    )
    result = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=flaky:agent", "--intercode-concurrency=3"),
        *("--reruns=1", "--intercode-results=r.jsonl", "-x"),
    )
    assert result.parseoutcomes() == {"passed": 12, "rerun": 12}
    rows = [(row["task_id"], row.get("superseded", False)) for row in results(Path("r.jsonl"))]
    assert rows == [(f"t{n}", again) for n in range(12) for again in (True, False)]


@pytest.mark.usefixtures("suite")
def test_a_second_try_asked_for_in_the_ini_file(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS")
    pytester.makeini("[pytest]\nreruns = 1\n")
    Path("failing").write_text("t2")
    result = run(pytester, 4)
    assert result.parseoutcomes() == {"passed": 11, "failed": 1, "rerun": 1}
    rows = [(r["task_id"], r.get("superseded", False)) for r in results(Path("r.jsonl"))]
    assert sorted(rows) == sorted([*((f"t{n}", False) for n in range(12)), ("t2", True)])


@pytest.mark.usefixtures("suite")
def test_what_is_logged_is_as_it_was_when_it_was_logged(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        growing="""
        import logging

        def agent(task, env):
            messages = []
            for n in range(3):
                messages.append(n)
                logging.getLogger("mine").warning("sending %s", messages)
            env.step("false")
        """
    )
    result = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=growing:agent", "--intercode-concurrency=4"),
        "--intercode-limit=4",
    )
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        ["*sending [[]0[]]", "*sending [[]0, 1[]]", "*sending [[]0, 1, 2[]]"] * 4
    )


@pytest.mark.usefixtures("suite")
def test_a_spent_budget_lets_nothing_begin_and_loses_nothing(pytester: pytest.Pytester) -> None:
    result = run(pytester, 1, "--intercode-concurrency=4", "--intercode-run-max-turns=5")
    counts = result.parseoutcomes()
    rows = results(Path("r.jsonl"))
    assert sum(row["summary"]["turns_taken"] for row in rows) == 5
    assert 5 <= len(rows) <= 8  # those that had begun have no turn
    assert counts["passed"] + counts.get("failed", 0) == len(rows)
    result.stdout.fnmatch_lines(["*the run's 5 turns are used up*"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--intercode-concurrency=0"], "a whole number above 0 is needed, found '0'"),
        (["--intercode-concurrency=many"], "a whole number above 0 is needed, found 'many'"),
    ],
)
@pytest.mark.usefixtures("suite")
def test_wrong_values(pytester: pytest.Pytester, options: list[str], said: str) -> None:
    result = pytester.runpytest("suite.yaml", "--intercode-agent=oracle", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {options[0].replace('=', '=')}: {said}"])


@pytest.mark.usefixtures("suite")
def test_a_live_line_shows_what_runs_and_leaves_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        waiting="""
        import time
        from pathlib import Path

        def agent(task, env):
            Path(f"begun-{task.id}").touch()
            while not Path("seen").exists():
                time.sleep(0.01)
            env.step("true")
        """
    )
    command = (
        f"{sys.executable} -m pytest suite.yaml --intercode-agent=waiting:agent -p no:cacheprovider"
    )
    for options, shown in (("", True), (" -q", True), (" -qq", False), (" -s", False)):
        Path("seen").unlink(missing_ok=True)
        terminal = pexpect.spawn(
            f"{command} --intercode-concurrency=4{options}", encoding="utf-8", timeout=60
        )
        if shown:
            terminal.expect_exact("intercode: 4 running, 0 of 12 done, 0 solved")
        Path("seen").touch()
        terminal.expect(pexpect.EOF)
        assert "12 passed" in (terminal.before or "") or "-qq" in options
        assert shown or "running" not in (terminal.before or "")
        screen = rendered(terminal.before or "")
        assert not any("running" in line for line in screen), screen
        terminal.close()


def rendered(text: str) -> list[str]:
    """Return the lines that a terminal ends up with, as far as our own sequences go."""
    lines: list[list[str]] = [[]]
    row = column = 0
    for token in re.findall(r"\x1b\[\d*[A-Za-z]|\x1b\[[\d;]*m|\r|\n|[^\x1b\r\n]", text):
        if token == "\r":
            column = 0
        elif token == "\n":
            row += 1
            if row == len(lines):
                lines.append([])
        elif token == "\x1b[2K":
            lines[row] = []
        elif token == "\x1b[A":
            row -= 1
        elif token.endswith("G"):
            column = int(token[2:-1]) - 1
        elif len(token) == 1:
            lines[row] += " " * (column + 1 - len(lines[row]))
            lines[row][column] = token
            column += 1
    return ["".join(line) for line in lines]


@pytest.mark.usefixtures("suite")
def test_who_plays_in_the_terminal_plays_one_at_a_time(pytester: pytest.Pytester) -> None:
    command = f"{sys.executable} -m pytest suite.yaml --intercode-agent=human"
    terminal = pexpect.spawn(f"{command} --intercode-concurrency=2", encoding="utf-8", timeout=60)
    terminal.expect_exact("--intercode-concurrency=2: the agent human uses your terminal")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == pytest.ExitCode.USAGE_ERROR
