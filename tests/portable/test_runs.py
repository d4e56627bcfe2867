"""Runs of pytest on a simulated Mac: several at a time, disturbed, and looked at afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import AGENTS, SUITE, results
from tests.support.backends import processes_with
from tests.support.portable.mac import Mac
from tests.support.portable.machine import Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GONE = 15.0  # seconds in which everything of a run has to be gone

TASKS = """\
env: bash
defaults: {workdir: /w}
tasks:
""" + "".join(
    f"  - {{id: t{number}, query: Write it., gold: echo {number} > out.txt}}\n"
    for number in range(12)
)
WRITER = """\
import pathlib, time


def agent(task, env):
    env.step(f"echo {task.id[1:]} > out.txt")
    pathlib.Path(f"begun-{task.id}").touch()
    while pathlib.Path("wait").exists():
        time.sleep(0.05)
"""
PROGRAM = """\
import json, subprocess, sys, time

subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
task = json.loads(input())["task"]
open(f"begun-{task['id']}", "w").close()
print(json.dumps({"action": "sleep 600 & sleep 600"}), flush=True)
time.sleep(600)
"""


@pytest.fixture
def tasks(project: Path) -> Path:
    (project / "suite.yaml").write_text(TASKS)
    (project / "writer.py").write_text(WRITER)
    (project / "program.py").write_text(PROGRAM)
    return project


@contextlib.contextmanager
def running(mac: Mac, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Start a run, and give it when three of its episodes have begun."""
    words = ("-m", "pytest", "suite.yaml", "--intercode-results=r.jsonl", *options)
    with mac.start(mac.python, *words, folder=folder) as process:
        try:
            limit = time.monotonic() + 120
            while len(list(folder.glob("begun-*"))) < 3:
                assert process.poll() is None, process.communicate()[0]
                assert time.monotonic() < limit
                time.sleep(0.05)
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def command_of(pid: int) -> list[str]:
    """Return a process's command; nothing, if it has ended."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).cmdline()
    return []


def assert_nothing_is_left(mac: Mac, machine: Machine) -> None:
    assert machine.engine.containers(GONE) == []
    limit = time.monotonic() + GONE
    while processes := processes_with(str(mac.python.parent)):
        assert time.monotonic() < limit, [command_of(pid) for pid in processes]
        time.sleep(0.1)


@pytest.mark.parametrize(
    "options", [["--intercode-concurrency=4"], ["-n2"], ["-n2", "--intercode-concurrency=4"]]
)
def test_several_at_a_time(mac: Mac, machine: Machine, tasks: Path, options: list[str]) -> None:
    result = mac.pytest(
        *("suite.yaml", "--intercode-agent=writer:agent", "--intercode-results=r.jsonl"),
        *options,
        folder=tasks,
    )
    assert result.returncode == 0, result.stdout
    assert [row["outcome"] for row in results(tasks / "r.jsonl")] == ["solved"] * 12
    assert_nothing_is_left(mac, machine)


BOTH_AGENTS = pytest.mark.parametrize(
    "agent",
    ["--intercode-agent=writer:agent", "--intercode-agent=command:python3 program.py"],
    ids=["class", "command"],
)


@BOTH_AGENTS
@pytest.mark.parametrize("options", [[], ["-n2"]], ids=["one process", "xdist"])
def test_ctrl_c(mac: Mac, machine: Machine, tasks: Path, options: list[str], agent: str) -> None:
    """A terminal sends it to all processes of the group."""
    (tasks / "wait").touch()
    with running(mac, tasks, agent, "--intercode-concurrency=4", *options) as process:
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "INTERNALERROR" not in output
    assert_nothing_is_left(mac, machine)


@BOTH_AGENTS
def test_a_killed_run(mac: Mac, machine: Machine, tasks: Path, agent: str) -> None:
    (tasks / "wait").touch()
    with running(mac, tasks, agent, "--intercode-concurrency=4") as process:
        process.kill()
        process.communicate(timeout=60)
        assert_nothing_is_left(mac, machine)
    (tasks / "wait").unlink()
    result = mac.pytest(
        *("suite.yaml", "--intercode-agent=writer:agent", "--intercode-results=r.jsonl"),
        *("--intercode-resume", "--intercode-concurrency=4"),
        folder=tasks,
    )
    assert result.returncode == 0, result.stdout
    assert len(results(tasks / "r.jsonl")) == 12


def test_results_are_looked_at(mac: Mac, machine: Machine, project: Path) -> None:
    (project / "suite.yaml").write_text(SUITE)
    (project / "agents.py").write_text(AGENTS)
    for name, agent in (("a", "OnlyPrints"), ("b", "Solver")):
        result = mac.pytest(
            *("suite.yaml", f"--intercode-agent=agents:{agent}"),
            *(f"--intercode-results={name}.jsonl", f"--intercode-html={name}.html"),
            folder=project,
        )
        assert f"{name}.html" in result.stdout
        assert "<html" in (project / f"{name}.html").read_text()
    for words, printed in (
        (["view", "a.jsonl", "b.jsonl", "--output", "both.html"], "both.html"),
        (["compare", "a.jsonl", "b.jsonl"], "2 better"),
        (["merge", "all.jsonl", "b.jsonl"], "all.jsonl"),
        (["export", "b.jsonl", "--format", "jsonl"], ""),
    ):
        result = mac.run(mac.python, "-m", "pytest_intercode", *words, folder=project)
        assert result.returncode == 0, result.stdout
        assert printed in result.stdout
    assert_nothing_is_left(mac, machine)


def test_bubblewrap_is_refused_in_one_line(alone: Mac, project: Path) -> None:
    result = alone.pytest(
        *("--intercode-env=bash", "--intercode-agent=oracle", "--intercode-sandbox=bubblewrap"),
        folder=project,
    )
    assert "infrastructure error: bubblewrap runs on Linux only; use Docker here\n" in result.stdout
    assert "Traceback" not in result.stdout
    assert result.returncode == pytest.ExitCode.INTERRUPTED


def test_the_engine_of_the_current_context(mac: Mac, machine: Machine, project: Path) -> None:
    """As Docker Desktop sets it up: a socket of the user's, which leads into the machine."""
    name = "desktop-linux"
    context = project / ".docker/contexts/meta" / hashlib.sha256(name.encode()).hexdigest()
    context.mkdir(parents=True)
    (project / ".docker/config.json").write_text(json.dumps({"currentContext": name}))
    endpoint = {"Host": machine.engine.url, "SkipTLSVerify": False}
    (context / "meta.json").write_text(
        json.dumps({"Name": name, "Metadata": {}, "Endpoints": {"docker": endpoint}})
    )
    result = mac.pytest(
        *("--intercode-env=bash", "--intercode-agent=oracle", "--intercode-limit=3"),
        *("--intercode-results=r.jsonl", "--intercode-concurrency=2"),
        folder=project,
        DOCKER_HOST="",
        HOME=str(project),
    )
    assert result.returncode == 0, result.stdout
    assert name in result.stdout
    assert len(results(project / "r.jsonl")) == 3
