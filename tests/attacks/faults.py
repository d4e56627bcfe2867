"""Faults that are made from the outside while an episode runs; cases name them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.errors import DockerException

from pytest_intercode.environments.base import Environment
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.bubblewrap.sandbox import BubblewrapSandbox
from pytest_intercode.sandboxes.docker.container import Container
from pytest_intercode.sandboxes.docker.engine import DockerEngine

if TYPE_CHECKING:
    from tests.attacks.runner import Scene

__all__ = ["FAULTS", "RUN_FAULTS"]

Fault = Callable[["Scene"], None]
FAULTS: dict[str, Fault] = {}


def _fault(function: Fault) -> Fault:
    FAULTS[function.__name__.replace("_", "-")] = function
    return function


def _agents_sandbox(scene: Scene) -> Any:
    return _of(scene.environment)


def _of(environment: Environment | None) -> Any:
    sandbox = getattr(environment, "_sandbox", None)
    assert sandbox is not None, "there is no sandbox yet"
    return sandbox


def _kill(scene: Scene, sandbox: Any) -> None:
    if isinstance(sandbox, Container):
        _docker(scene).api.kill(sandbox.name)
    else:
        assert isinstance(sandbox, BubblewrapSandbox)
        sandbox.kill()


def _docker(scene: Scene) -> DockerEngine:
    engine = scene.provider._engine
    assert isinstance(engine, DockerEngine)
    return engine


@_fault
def kill_sandbox(scene: Scene) -> None:
    """SIGKILL to everything in the agent's sandbox."""
    _kill(scene, _agents_sandbox(scene))


@_fault
def remove_container(scene: Scene) -> None:
    """``docker rm -f`` of the agent's container."""
    _docker(scene).api.remove_container(_agents_sandbox(scene).name, force=True)


@_fault
def pause_container(scene: Scene) -> None:
    """``docker pause`` of the agent's container; its removal ends that."""
    with contextlib.suppress(DockerException):
        _docker(scene).api.pause(_agents_sandbox(scene).name)


@_fault
def kill_gold(scene: Scene) -> None:
    """SIGKILL to everything in gold's sandbox."""
    gold = getattr(scene.environment, "_gold", None)
    assert gold is not None
    _kill(scene, gold.result().sandbox)


@_fault
def kill_guard(scene: Scene) -> None:
    """SIGKILL to what ends sandboxes after us: Docker's reaper, bubblewrap's starter."""
    engine = scene.provider._engine
    process = (
        engine._starter._process
        if isinstance(engine, Bubblewrap)
        else _docker(scene)._reaper._process
    )
    os.kill(process.pid, signal.SIGKILL)


@_fault
def kill_sql_process(scene: Scene) -> None:
    """SIGKILL to the process of the agent's SQLite session."""
    session = getattr(scene.environment, "_session", None)
    assert session is not None
    os.kill(session._live().pid, signal.SIGKILL)


@_fault
def kill_sql_forker(scene: Scene) -> None:
    """SIGKILL to the process that SQLite's sessions are forked from."""
    engine: Any = scene.provider._shared["sqlite"]
    os.kill(engine._forks._forker.pid, signal.SIGKILL)


@_fault
def kill_judge(scene: Scene) -> None:
    """SIGKILL to the sandbox of the judge of Python's tests."""
    for name, shared in scene.provider._shared.items():
        sandbox = getattr(shared, "_sandbox", None)
        if "judge" in name and sandbox is not None:
            _kill(scene, sandbox)
            return
    raise AssertionError(f"no judge among {list(scene.provider._shared)}")


# -- of a whole run, with its process and its folder

RunFault = Callable[["subprocess.Popen[bytes]", Path], None]
RUN_FAULTS: dict[str, RunFault] = {}


def _run_fault(function: RunFault) -> RunFault:
    RUN_FAULTS[function.__name__.replace("_", "-")] = function
    return function


@_run_fault
def remove_results(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Remove the results file."""
    (folder / "results.jsonl").unlink()


@_run_fault
def replace_results(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Put another file in the place of the results file."""
    (folder / "results.jsonl").rename(folder / "moved.jsonl")
    (folder / "results.jsonl").write_text("")
