"""A backend of one command: ``bwrap`` with this machine's programs, and a disk in memory."""

from __future__ import annotations

import shutil
import subprocess
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
from pytest_intercode.sandboxes.attached import CAPABILITIES, KEEPER_CAPABILITY
from pytest_intercode.sandboxes.pipes import PipeStreams


class NoImages:
    """Every image is this machine."""

    def resolve(self, source: ImageSource, purpose: str = "") -> str:
        return "machine"

    def pinned(self, name: str) -> str:
        return ""

    def identity(self, name: str) -> str:
        return ""

    def stop_builds(self) -> None:
        pass


class BwrapBackend:
    name = "bwrap"
    takes: frozenset[str] = frozenset()
    builds_images = False
    shares_network = False
    starters = 2
    images = NoImages()

    def __init__(self, settings: SandboxSettings) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def __str__(self) -> str:
        return self.name

    def requested(self) -> str | None:
        return None

    def problem(self) -> str:
        return "" if shutil.which("bwrap") else "bwrap is not installed"

    def check(self, options: Mapping[str, str]) -> None:
        pass

    def start(self, events: BackendEvents) -> None:
        pass

    def launch(self, spec: SandboxSpec) -> Sandbox:
        streams = PipeStreams.create()
        stdin, stdout, stderr = streams.inside
        command = ["bwrap", *_arguments(spec), "bash"]
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr)
        self._processes.append(process)
        streams.close_inside()
        return AttachedSandbox(f"bwrap-{process.pid}", streams, spec, lowered=True)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def _arguments(spec: SandboxSpec) -> Iterator[str]:
    yield from ("--unshare-all", "--as-pid-1", "--die-with-parent", "--uid", "0", "--gid", "0")
    for capability in (*CAPABILITIES, KEEPER_CAPABILITY):
        yield from ("--cap-add", f"CAP_{capability}")
    for path in map(Path, ("/usr", "/bin", "/lib", "/lib64", "/sbin", "/etc")):
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.exists():
            yield from ("--ro-bind", str(path), str(path))
    yield from ("--dev", "/dev", "--proc", "/proc", "--dir", "/tmp", "--dir", "/root")
    for outside, inside in spec.readonly:
        yield from ("--ro-bind", outside, inside)
    for folder in spec.scratch:
        yield from ("--tmpfs", folder)
    for key, value in spec.variables:
        yield from ("--setenv", key, value)
