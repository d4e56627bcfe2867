"""How the processes of a program are found where no process can adopt orphans."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from pytest_intercode.agents.program.process_tree import ProcessTree

MARK = "INTERCODE_TEST_MARK=0123456789abcdef"


@pytest.fixture
def root() -> Iterator[int]:
    """The process id of a supervisor that has no program any more."""
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    ) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has only the mark in common with the program that started it."""
    name, _, value = MARK.partition("=")
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, name: value},
        start_new_session=True,
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("looks", [0, 1, 5])
def test_a_process_that_is_just_executing_a_program_is_looked_at_again(
    daemon: subprocess.Popen[bytes], root: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its old program and the new one it has neither arguments nor an environment."""
    count = 0
    environ, cmdline = psutil.Process.environ, psutil.Process.cmdline

    def read_environ(process: psutil.Process) -> dict[str, str]:
        nonlocal count
        if process.pid != daemon.pid:
            return environ(process)
        count += 1
        return environ(process) if count > looks else {}

    def read_cmdline(process: psutil.Process) -> list[str]:
        is_executing = process.pid == daemon.pid and count <= looks
        return [] if is_executing else cmdline(process)

    monkeypatch.setattr(psutil.Process, "environ", read_environ)
    monkeypatch.setattr(psutil.Process, "cmdline", read_cmdline)
    assert ProcessTree(root, MARK.encode()).end(60) == 0
    assert daemon.wait(30) == -9


def test_what_has_no_environment_at_all_delays_nothing(
    root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel's own processes, and programs that were started by ``env -i``."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, env={}, start_new_session=True) as process:
        while not psutil.Process(process.pid).cmdline():
            pass
        tree = ProcessTree(root, MARK.encode())
        monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it waits"))
        assert tree.end(60) == 0
        assert process.poll() is None
        process.kill()
