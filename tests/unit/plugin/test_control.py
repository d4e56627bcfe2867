"""What the controller of pytest-xdist says of workers that do not answer."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_intercode.plugin import control
from pytest_intercode.plugin.control import Control
from pytest_intercode.system.control import ControlSocket
from tests.support.backends import short_temporary_folder
from tests.support.live_status import EPISODE


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return where the sockets of the workers are."""
    monkeypatch.setattr(control, "_WORKER_TIMEOUT", 0.6)
    with short_temporary_folder(monkeypatch) as folder:
        yield folder


@pytest.fixture
def controller(folder: Path) -> Control:
    """Return what answers in the controller."""
    config: Any = SimpleNamespace(option=SimpleNamespace(dist="load"))
    progress: Any = SimpleNamespace(done=set())
    workers: Any = SimpleNamespace(folder=lambda: folder)
    return Control(config, SimpleNamespace(), workers, progress)  # type: ignore[arg-type]


def stop(controller: Control) -> str:
    return str(controller._answer({"request": "stop", "episode": "a.yaml::test_solves[one]"}))


def test_an_episode_of_a_silent_worker_is_not_said_to_be_over(
    controller: Control, folder: Path
) -> None:
    assert "it is no longer running" in stop(controller)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folder / "worker-gw0.sock"))
        silent.listen()
        assert "does not answer; try again, or stop the run" in stop(controller)


def test_a_worker_that_has_crashed_is_not_silent(controller: Control, folder: Path) -> None:
    for name in ("gw0", "gw1"):
        with socket.socket(socket.AF_UNIX) as crashed:
            crashed.bind(str(folder / f"worker-{name}.sock"))
    controller.pytest_testnodedown(SimpleNamespace(gateway=SimpleNamespace(id="gw0")))
    assert [path.name for path in folder.iterdir()] == ["worker-gw1.sock"]
    controller.pytest_testnodedown(SimpleNamespace(gateway=SimpleNamespace(id="gw0")))


def test_suspended_workers_are_waited_for_together(controller: Control, folder: Path) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(5):
            suspended = stack.enter_context(socket.socket(socket.AF_UNIX))
            suspended.bind(str(folder / f"worker-gw{number}.sock"))
            suspended.listen()
        answer = {"episodes": [asdict(EPISODE)], "problem": ""}
        worker = ControlSocket(folder / "worker-gw5.sock", lambda _: answer, name="worker")
        stack.callback(worker.close)
        began = time.monotonic()
        assert (controller._ask_workers(), controller._silent) == ([EPISODE], 5)
        assert stop(controller) == "{'problem': ''}"
        assert time.monotonic() - began < 3  # two questions, of 0.6 s each
