"""Faults that are made from the outside while an episode runs; cases name them."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from docker.errors import DockerException

from pytest_intercode.environments.base import Environment
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.bubblewrap.sandbox import BubblewrapSandbox
from pytest_intercode.sandboxes.docker.container import Container
from pytest_intercode.sandboxes.docker.engine import DockerEngine, connect
from pytest_intercode.sandboxes.docker.images import DockerImages
from tests.support.backends import SOURCE

if TYPE_CHECKING:
    from tests.attacks.runner import Scene
    from tests.support.second_engine import SecondEngine

__all__ = ["FAULTS", "RUN_FAULTS", "bash_image"]

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
    engine = getattr(scene.provider.backend, "engine", None)
    assert isinstance(engine, DockerEngine)
    return engine


@_fault
def kill_sandbox(scene: Scene) -> None:
    """SIGKILL to everything in the agent's sandbox."""
    _kill(scene, _agents_sandbox(scene))


@_fault
def kill_sandbox_in_grading(scene: Scene) -> None:
    """SIGKILL to everything in the agent's sandbox, as soon as its end state is read."""
    sandbox = _agents_sandbox(scene)
    changes = sandbox.changes

    def killed_changes() -> Any:
        _kill(scene, sandbox)
        return changes()

    sandbox.changes = killed_changes


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
    engine = getattr(scene.provider.backend, "engine", None)
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


def _mysql(scene: Scene) -> Any:
    """Return the server of the agent's session."""
    session = getattr(scene.environment, "_session", None)
    assert session is not None
    return session._server


def _signal_mysql(scene: Scene, name: str, then: str = "") -> None:
    command = f"kill -{name} $(pidof mariadbd mysqld){then}"
    status, output = _mysql(scene)._sandbox.admin(command, 10)
    assert status == 0, output


@_fault
def kill_mysql(scene: Scene) -> None:
    """SIGKILL to the server of the agent's session."""
    _signal_mysql(scene, "KILL")


@_fault
def pause_mysql(scene: Scene) -> None:
    """SIGSTOP to it, and SIGCONT after three seconds."""
    suffix = "; (sleep 3; kill -CONT $(pidof mariadbd mysqld)) </dev/null >/dev/null 2>&1 &"
    _signal_mysql(scene, "STOP", suffix)


@_fault
def stop_mysql(scene: Scene) -> None:
    """SIGSTOP to it, for good."""
    _signal_mysql(scene, "STOP")


@_fault
def kill_mysql_sandbox(scene: Scene) -> None:
    """SIGKILL to everything in its sandbox."""
    _kill(scene, _mysql(scene)._sandbox)


def _engine(scene: Scene) -> SecondEngine:
    """Return the engine that may be broken."""
    assert scene.engine is not None
    return scene.engine


@_fault
def restart_engine(scene: Scene) -> None:
    """SIGTERM to the engine's daemon, as a package's upgrade sends it, and another one."""
    _engine(scene).end(signal.SIGTERM)
    _engine(scene).start()


@_fault
def crash_engine(scene: Scene) -> None:
    """SIGKILL to the engine's daemon, and another one."""
    _engine(scene).end()
    _engine(scene).start()


@_fault
def end_engine(scene: Scene) -> None:
    """SIGKILL to the engine's daemon, for good."""
    _engine(scene).end()


@_fault
def stop_engine(scene: Scene) -> None:
    """SIGSTOP to the engine's daemon, and SIGCONT after twenty seconds."""
    _engine(scene).send(signal.SIGSTOP)
    time.sleep(20)
    _engine(scene).send(signal.SIGCONT)


@_fault
def lose_socket(scene: Scene) -> None:
    """Remove the engine's socket."""
    _engine(scene).lose_socket()


@_fault
def lose_socket_and_sandbox(scene: Scene) -> None:
    """Remove the engine's socket, after the agent's sandbox was killed."""
    _kill(scene, _agents_sandbox(scene))
    _engine(scene).lose_socket()


@_fault
def fill_engine(scene: Scene) -> None:
    """Fill the engine's disk."""
    _engine(scene).fill()


@_fault
def move_tag(scene: Scene) -> None:
    """Move the tag of the agent's image to another one, and kill the agent's sandbox."""
    _engine(scene).move_tag(bash_image())
    _kill(scene, _agents_sandbox(scene))


@_fault
def remove_image(scene: Scene) -> None:
    """Remove the agent's image, and kill the agent's sandbox."""
    _engine(scene).remove_image(bash_image())
    _kill(scene, _agents_sandbox(scene))


@functools.cache
def bash_image() -> str:
    """Return the name of the image that sandboxes of the bash environment have."""
    with contextlib.closing(connect()) as link:
        return DockerImages(link.api).resolve(SOURCE)


@_fault
def kill_judge(scene: Scene) -> None:
    """SIGKILL to the sandbox of the judge of Python's tests."""
    judge: Any = scene.provider._shared["python-judge"]
    _kill(scene, judge._program.result().sandbox)


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


def _worker(process: subprocess.Popen[bytes]) -> psutil.Process:
    """Return the worker of pytest-xdist that waits for an action; the one with a starter."""
    for child in psutil.Process(process.pid).children():
        if any("exec(eval(sys.stdin.readline()))" in word for word in child.cmdline()):
            return child
    raise AssertionError("there is no worker")


@_run_fault
def kill_worker(process: subprocess.Popen[bytes], folder: Path) -> None:
    """SIGKILL to a worker of pytest-xdist."""
    _worker(process).kill()


@_run_fault
def stop_worker(process: subprocess.Popen[bytes], folder: Path) -> None:
    """SIGSTOP to a worker of pytest-xdist, and SIGCONT after two seconds."""
    worker = _worker(process)
    worker.suspend()
    time.sleep(2)
    worker.resume()


@_run_fault
def forbid_namespaces(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Forbid user namespaces within the one that the run is in."""
    inside = ["nsenter", "--user", "--preserve-credentials", "--target", str(process.pid)]
    command = "echo 0 > /proc/sys/user/max_user_namespaces"
    subprocess.run([*inside, "sh", "-c", command], check=True)
