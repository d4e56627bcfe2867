"""The backends that the tests of the sandbox's contract run on, each with what is its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import psutil
import pytest
from docker.errors import APIError, NotFound

from pytest_intercode.core.task import ImageSource
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.bubblewrap.engine import NAME_VARIABLE, Bubblewrap
from pytest_intercode.sandboxes.bubblewrap.sandbox import BubblewrapSandbox
from pytest_intercode.sandboxes.docker.engine import RUN_LABEL, DockerEngine
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.protocol import HOST, SandboxSpec
from pytest_intercode.system.files import bundled_folder

SOURCE = ImageSource(dockerfile=bundled_folder("dockerfiles") / "bash.Dockerfile")


class Engine(Protocol):
    """A launcher that can be swept."""

    starters: int

    def launch(self, spec: SandboxSpec) -> AttachedSandbox: ...
    def sweep(self) -> int: ...
    def close(self) -> None: ...


class Backend(Protocol):
    """A backend to be tested.

    Attributes:
        name: what ``--intercode-sandbox`` calls it.
        runtime: what ``--intercode-runtime`` calls it, if it is Docker with another runtime.
        engine: one for all tests.
        image: the bash image.
        bad_image: an image that there is not.
        client: the beginning of a script that is a process with an engine of its own; its first
            line names the process that ends or removes what is left.
    """

    name: str
    runtime: str | None
    engine: Engine
    image: str
    bad_image: str
    client: str

    def new_engine(self) -> Engine: ...
    def image_of(self, source: ImageSource) -> str:
        """Return the name of an image."""

    def exists(self, name: str) -> bool:
        """Whether anything of a sandbox is there."""

    def running(self, engine: Engine) -> list[str]:
        """Name what an engine of ours has started and is still there."""

    def kill(self, sandbox: AttachedSandbox) -> None:
        """End a sandbox from outside, all at once."""


class DockerBackend:
    name = "docker"
    bad_image = "no-such-image"

    def __init__(self, engine: DockerEngine) -> None:
        self.engine: Engine = engine
        self.runtime = engine.runtime
        self.client = f"""
        import sys, threading
        from pytest_intercode.sandboxes.docker.engine import DockerEngine
        from pytest_intercode.sandboxes.protocol import HOST, SandboxSpec
        engine = DockerEngine(runtime={self.runtime!r})
        print(engine._reaper._process.pid)
    """
        self.api = engine.api
        self.image = self.image_of(SOURCE)

    def new_engine(self) -> Engine:
        return DockerEngine(runtime=self.runtime)

    def image_of(self, source: ImageSource) -> str:
        return DockerImages(self.api).resolve(source)

    def exists(self, name: str) -> bool:
        try:
            state: dict[str, str] = self.api.inspect_container(name)["State"]
        except APIError as error:
            if isinstance(error, NotFound) or "no such container" in str(error):  # Podman's 500
                return False
            raise
        return state["Status"] != "removing"

    def running(self, engine: Engine) -> list[str]:
        assert isinstance(engine, DockerEngine)
        rows = self.api.containers(all=True, filters={"label": f"{RUN_LABEL}={engine.run}"})
        return sorted(row["Id"][:12] for row in rows if row["State"] != "removing")

    def kill(self, sandbox: AttachedSandbox) -> None:
        self.api.kill(sandbox.name)


class BubblewrapBackend:
    name = "bubblewrap"
    runtime: str | None = None
    image = HOST
    bad_image = "/no-such-image"
    client = """
        import sys, threading
        from pytest_intercode.sandboxes.bubblewrap.engine import NAME_VARIABLE, Bubblewrap
        from pytest_intercode.sandboxes.protocol import HOST, SandboxSpec
        engine = Bubblewrap()
        print(engine._starter._process.pid)
    """

    def __init__(self, engine: Bubblewrap) -> None:
        self.engine: Engine = engine

    def new_engine(self) -> Engine:
        return Bubblewrap()

    def image_of(self, source: ImageSource) -> str:
        return HOST

    def exists(self, name: str) -> bool:
        return bool(processes_with(name))

    def running(self, engine: Engine) -> list[str]:
        assert isinstance(engine, Bubblewrap)
        return sorted(box.name for box in engine.sandboxes() if self.exists(box.name))

    def kill(self, sandbox: AttachedSandbox) -> None:
        assert isinstance(sandbox, BubblewrapSandbox)
        sandbox.kill()


def mounts() -> set[str]:
    """Return what is mounted here, but for what engines mount meanwhile for others' containers."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    of_engines = ("docker", "containerd", "/overlay2/")  # the last one: a second engine's data
    return {line for line in lines if not any(name in line for name in of_engines)}


def is_keeper(process: psutil.Process) -> bool:
    """Whether a process is the first one of a bubblewrap's sandbox, which its forks are like."""
    try:
        parent = process.parent()
        has_name = NAME_VARIABLE in process.environ()
        return has_name and (parent is None or NAME_VARIABLE not in parent.environ())
    except psutil.Error:
        return False


def processes_with(word: str) -> list[int]:
    """Return the processes that have a word among their arguments or variables."""
    pids = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                content = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if word.encode() in content:
                pids.append(int(folder.name))
    return pids


@contextlib.contextmanager
def short_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Have a temporary directory of its own, whose path is short: it may hold sockets."""
    folder = tempfile.mkdtemp(dir="/tmp")
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield Path(folder)
    remove_watched(folder)


def remove_watched(folder: str | Path) -> None:
    """Remove a temporary directory, when the watchers of private folders in it have ended."""
    common = Path(folder) / f"pytest-intercode-{os.getuid()}"
    while processes_with(str(common)):
        time.sleep(0.01)
    shutil.rmtree(folder)
