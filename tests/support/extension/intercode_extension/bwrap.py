"""A backend of one command: ``bwrap`` with this machine's /usr, and a disk in memory."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_intercode import (
    AttachedSandbox,
    BackendEvents,
    ImageSource,
    Sandbox,
    SandboxSettings,
    SandboxSpec,
)
from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.attached import CAPABILITIES, KEEPER_CAPABILITY
from pytest_intercode.sandboxes.pipes import PipeStreams

_ROOT = ("usr", "bin", "lib", "lib64", "sbin", "etc")


class _MachineImages:
    """This machine in place of every image."""

    def resolve(self, source: ImageSource, purpose: str = "") -> str:
        return "machine"

    def pinned(self, name: str) -> str:
        return ""

    def identity(self, name: str) -> str:
        return ""

    def stop_builds(self) -> None:
        pass


class BwrapBackend:
    """See :class:`pytest_intercode.Backend`."""

    name = "bwrap"
    takes: frozenset[str] = frozenset()
    builds_images = False
    shares_network = True
    starters = 2
    images = _MachineImages()

    def __init__(self, settings: SandboxSettings) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def __str__(self) -> str:
        return "bwrap, by its command"

    def requested(self) -> str | None:
        """Return None: only its name asks for it."""
        return None

    def problem(self) -> str:
        """Return that it is not installed."""
        return "" if shutil.which("bwrap") else "bwrap is not installed"

    def check(self, options: Mapping[str, str]) -> None:
        """Take no settings."""

    def start(self, events: BackendEvents) -> None:
        """See that the command is there."""
        if self.problem():
            raise EngineUnavailable(self.problem())

    def launch(self, spec: SandboxSpec) -> Sandbox:
        """Start a sandbox, which ends when its input does."""
        streams = PipeStreams.create()
        try:
            stdin, stdout, stderr = streams.inside
            command = ["bwrap", *_arguments(spec), "bash"]
            process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr)
            self._processes.append(process)
            streams.close_inside()
            return AttachedSandbox(f"bwrap-{uuid.uuid4().hex[:8]}", streams, spec, lowered=True)
        except BaseException:
            streams.close()
            raise

    def close(self) -> None:
        """End every sandbox."""
        for process in self._processes:
            process.kill()
            process.wait()


def _arguments(spec: SandboxSpec) -> Iterator[str]:
    yield from ("--unshare-all", "--as-pid-1", "--die-with-parent", "--uid", "0", "--gid", "0")
    for capability in (*CAPABILITIES, KEEPER_CAPABILITY):
        yield from ("--cap-add", f"CAP_{capability}")
    for name in _ROOT:
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.exists():
            yield from ("--ro-bind", str(path), str(path))
    yield from ("--dev", "/dev", "--proc", "/proc", "--dir", "/tmp", "--dir", "/root")
    for outside, inside in spec.readonly:
        yield from ("--ro-bind", outside, inside)
    for path_in_memory in spec.scratch:
        yield from ("--tmpfs", path_in_memory)
    for key, value in spec.variables:
        yield from ("--setenv", key, value)
