"""How far a run is: on a terminal, in a log, and when it is interrupted."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest

from pytest_intercode.plugin.progress import Progress
from tests.conftest import results
from tests.integration.plugin.test_concurrency import rendered
from tests.support.gated_run import GatedRun

# Agents that wait until the test lets them go on, one file for each, and spend something.
WAITING = """
import time
from pathlib import Path
import pytest_intercode
from agents import Solver

class Waiting(Solver):
    def act(self, observation):
        while not Path("go-on").exists() and not self.id == "prints":
            time.sleep(0.01)
        pytest_intercode.spend(input_tokens=600, output_tokens=0, cost=0.125)
        return super().act(observation)

    def reset(self, task):
        super().reset(task)
        self.id = task.id
"""
COUNTED = (
    r"intercode: (1 running, )?1 of {} done, 1 solved, \S+/min, \d+ s remaining, "
    r"1,200 tokens, cost 0\.25"
)


@pytest.fixture
def project(pytester: pytest.Pytester, pretend: Path) -> Path:
    pytester.makepyfile(waiting=WAITING)
    return pytester.path


@pytest.mark.parametrize("options", ["", "-q", "-v", "--intercode-concurrency=2 -k 'not both'"])
def test_a_terminal_shows_how_far_a_run_is(project: Path, options: str) -> None:
    terminal = pexpect.spawn(
        f"{sys.executable} -m pytest suite.yaml --intercode-agent=waiting:Waiting {options} "
        "-p no:cacheprovider",
        encoding="utf-8",
        timeout=30,
        dimensions=(24, 120),
    )
    terminal.expect(COUNTED.format(2 if "not both" in options else 3))
    Path("go-on").touch()
    terminal.expect(pexpect.EOF)
    output = terminal.before or ""
    assert "passed" in output
    screen = rendered(output)
    assert not any("remaining" in line for line in screen), screen


@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("-q",), marks=pytest.mark.slow),
        ("-n1",),
        pytest.param(("--intercode-concurrency=3",), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_a_log_says_how_far_a_run_is(
    pytester: pytest.Pytester, project: Path, options: tuple[str, ...]
) -> None:
    (project / "go-on").touch()
    (project / "test_mine.py").write_text("def test_ordinary(): pass\n")
    command = ("suite.yaml", "test_mine.py", "--intercode-agent=waiting:Waiting")
    often = "--intercode-progress=1e-9"
    result = pytester.runpytest_subprocess(*command, *options, often)
    result.assert_outcomes(passed=4)
    said = [line for line in result.outlines if re.match(r"intercode: .*\d+ of \d done", line)]
    last = said[-1].partition("running, ")[2] or said[-1].removeprefix("intercode: ")
    assert last.startswith("3 of 3 done, 3 solved, ")
    assert last.endswith(" 4,200 tokens, cost 0.875")
    quiet = pytester.runpytest_subprocess(*command, *options, often, "-qq")
    quiet.stdout.no_fnmatch_line("*of 3 done*")


@pytest.mark.parametrize(
    "options",
    [
        *((), ("-v",), ("-n1",)),
        pytest.param(("-q",), marks=pytest.mark.slow),
        pytest.param(("-s",), marks=pytest.mark.slow),
        pytest.param(("--intercode-concurrency=3",), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_a_log_gets_a_line_while_an_episode_runs(
    pretend: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("MY_API_KEY", "my-own-secret-key-0123456789")
    with contextlib.closing(
        GatedRun(pretend.parent, "--intercode-progress=0.05", "--color=no", *options)
    ) as run:
        run.wait_for_turns(1)
        stdout = run.process.stdout
        assert stdout is not None
        lines = [""]
        while not re.match(r"intercode: [1-3] running, 0 of 3 done, .* tokens", lines[-1]):
            lines.append(stdout.readline().rstrip("\n"))
            assert run.process.poll() is None, lines
        run.let_go()
        lines += run.finish().splitlines()
    assert "3 passed" in lines[-1]
    assert not [line for line in lines if "intercode: " in line.lstrip()[1:]], lines
    ends = [line for line in lines if line.endswith("%]")]  # the columns of pytest's own progress
    assert all(len(line) == 79 for line in ends), lines
    assert any(line.endswith("[100%]") for line in ends) == ("-s" not in options)


@pytest.mark.parametrize("options", [(), ("--intercode-progress=0",)], ids=" ".join)
def test_a_short_run_says_nothing(
    pytester: pytest.Pytester, pretend: Path, options: tuple[str, ...]
) -> None:
    result = pytester.runpytest("suite.yaml", "--intercode-agent=agents:Solver", *options)
    result.stdout.no_fnmatch_line("* done, *")


@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("--intercode-concurrency=2",), marks=pytest.mark.slow)],
    ids=" ".join,
)
def test_an_interrupted_run_names_the_command_that_goes_on(
    project: Path, options: tuple[str, ...]
) -> None:
    words = ["suite.yaml", "--intercode-agent=waiting:Waiting", "--intercode-results=r 1.jsonl"]
    words += ["-p", "no:cacheprovider", *options]
    command = [sys.executable, "-m", "pytest", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        path, deadline = project / "r 1.jsonl", time.monotonic() + 30
        while not path.exists() or not path.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        if not options:
            time.sleep(0.3)  # until the next item's turn
        running.send_signal(signal.SIGINT)
        output = running.communicate(timeout=30)[0]
    assert running.returncode == pytest.ExitCode.INTERRUPTED
    last = output.splitlines()[-1]
    resumed = shlex.join(["pytest", *words, "--intercode-resume"])
    assert last == f"intercode: to continue this run: {resumed}"
    (project / "go-on").touch()
    bin_folder = Path(sys.executable).parent
    done = subprocess.run(
        last.partition("this run: ")[2],
        shell=True,
        env={**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert "3 passed" in done.stdout, done.stdout
    assert "to continue" not in done.stdout
    assert sorted(row["task_id"] for row in results(path)) == ["both", "prints", "writes"]


@pytest.mark.slow
def test_a_run_that_has_earned_nothing_names_no_command(
    pytester: pytest.Pytester, pretend: Path
) -> None:
    with (pytester.path / "conftest.py").open("a") as file:
        file.write("\ndef pytest_collection_modifyitems(): raise KeyboardInterrupt\n")
    result = pytester.runpytest_subprocess(
        "suite.yaml", "--intercode-agent=agents:Solver", "--intercode-results=r.jsonl"
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.no_fnmatch_line("*to go on*")


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (9999, "9,999"),
        (12_345, "12.3k"),
        (999_400, "999k"),
        (1_234_567, "1.23M"),
        (2 * 10**9, "2G"),
    ],
)
def test_tokens_take_little_room(pytester: pytest.Pytester, tokens: int, said: str) -> None:
    progress = Progress(pytester.parseconfig())
    progress._tokens = tokens
    assert str(progress) == f"intercode: 0 of 0 done, 0 solved, {said} tokens"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (3, "20/min, 3 s"),
        (89.6, "40.2/h, 90 s"),
        (300, "12/h, 5 min"),
        (7200, "0.5/h, 2.0 h"),
    ],
)
def test_the_remaining_time(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, seconds: float, said: str
) -> None:
    progress = Progress(pytester.parseconfig())
    progress._expect(["a", "b"])
    progress.done.add("a")
    monkeypatch.setattr(progress, "_began", time.monotonic() - seconds)
    assert str(progress) == f"intercode: 1 of 2 done, 0 solved, {said} remaining"
