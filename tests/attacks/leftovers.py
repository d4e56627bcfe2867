"""What a case has left behind: sandboxes, processes, mounts, control groups, threads, files."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from docker import APIClient
from docker.errors import DockerException
from requests.exceptions import RequestException

from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.docker.engine import RUN_LABEL, DockerEngine
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.support.backends import mounts, processes_with
from tests.support.second_engine import existing

__all__ = ["GONE", "Leftovers", "looking_for_leftovers", "new_mounts"]

GONE = 10.0
"""Seconds in which everything has to be gone."""

_GROUPS = Path("/sys/fs/cgroup")


class Leftovers:
    """Looks for what was not there before.

    Attributes:
        words: arguments or variables that processes of the case have.
        found: what is left, once the case is over.
    """

    def __init__(self, folder: Path) -> None:
        self.words: set[str] = set()
        self.found: list[str] = []
        self._folder = folder
        self._runs: list[tuple[APIClient, str]] = []
        self._children = _descendants()
        self._threads = set(threading.enumerate())
        self._mounts = mounts()
        self._groups = _groups()
        self._shared = _shared()

    def watch(self, provider: SandboxProvider) -> None:
        """Note what a provider has started, which is to be called before it is closed."""
        engine = getattr(provider.backend, "engine", None)
        if isinstance(engine, DockerEngine):
            self._runs.append((engine.api, f"{RUN_LABEL}={engine.run}"))
        elif isinstance(engine, Bubblewrap):
            self.words.update(sandbox.name for sandbox in engine.sandboxes())

    def _look(self) -> list[str]:
        threads = set(threading.enumerate()) - self._threads
        lines = [f"the thread {item.name}" for item in threads if not item.name.startswith("ray")]
        lines += [f"the process {item}" for item in _descendants() - self._children]
        lines += [f"a process of {word}" for word in self.words if processes_with(word)]
        lines += [f"the mount {line}" for line in new_mounts(self._mounts, self._folder)]
        lines += [f"the control group {item}" for item in _groups() - self._groups]
        lines += [f"the file {item}" for item in self._folder.iterdir()]
        lines += [f"the file {item}" for item in _shared() - self._shared]
        for api, label in self._runs:
            with contextlib.suppress(DockerException, RequestException):
                rows = existing(api, label)
                lines += [f"the container {row['Id'][:12]} ({row['Status']})" for row in rows]
                filters = {"label": label}
                lines += [f"the network {row['Name']}" for row in api.networks(filters=filters)]
                volumes = api.volumes(filters=filters)["Volumes"] or ()
                lines += [f"the volume {row['Name']}" for row in volumes]
        return lines

    def wait(self, seconds: float = GONE) -> None:
        """Wait until nothing is left, and note what stays."""
        deadline = time.monotonic() + seconds
        while (leftovers := self._look()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.found = leftovers


@contextlib.contextmanager
def looking_for_leftovers() -> Iterator[tuple[Leftovers, Path]]:
    """Give temporary files a folder of their own, and look for what is left in the end."""
    temporary_folder = tempfile.tempdir
    folder = Path(tempfile.mkdtemp(prefix="attack-", dir="/tmp"))
    tempfile.tempdir = str(folder)
    try:
        leftovers = Leftovers(folder)
        yield leftovers, folder
        leftovers.wait()
    finally:
        tempfile.tempdir = temporary_folder
        shutil.rmtree(folder, ignore_errors=True)


def new_mounts(before: set[str], folder: Path) -> list[str]:
    """Return the mounts that were made since, of a case with this folder; others have theirs."""
    words = ("intercode", "bwrap", str(folder))
    return [line for line in mounts() - before if any(word in line for word in words)]


def _descendants() -> set[str]:
    """Return our children, theirs and so on, each with its name."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().rpartition(")")
            state, parent = rest.split()[:2]
            if state != "Z":
                pid = int(path.parent.name)
                parents[pid], names[pid] = int(parent), name.partition("(")[2]
    family = {os.getpid()}
    while children := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= children
    return {f"{pid} {names[pid]}{_module(pid)}" for pid in family if pid != os.getpid()}


def _module(pid: int) -> str:
    """Return what a Python runs with -m."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return ""
    return f" -m {words[words.index('-m') + 1]}" if "-m" in words[:-1] else ""


def _groups() -> set[str]:
    """Return the control groups that this process has made."""
    suffix = f".{os.getpid()}."
    return {
        f"{parent}/{name}"
        for parent, names, _ in os.walk(_GROUPS)  # others' come and go meanwhile
        for name in names
        if name.startswith("pytest-intercode.") and suffix in name
    }


def _shared() -> set[str]:
    """Return the files in shared memory that are ours."""
    folder = Path("/dev/shm")
    user = os.geteuid()
    paths = set()
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(OSError):
            if path.stat().st_uid == user and "intercode" in path.name:
                paths.add(str(path))
    return paths
