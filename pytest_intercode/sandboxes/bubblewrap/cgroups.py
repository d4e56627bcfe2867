"""Control groups, where we may make some: memory, processes and processor time of a sandbox.

With the first version, each kind of limit has a hierarchy of its own; with the second there is one,
in which a group has either processes or groups below it, so that ours are made beside our own.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import time
from pathlib import Path

from pytest_intercode.core.task import Limits

__all__ = ["ControlGroup", "ControlGroups", "remove_all"]

_PREFIX = "pytest-intercode"
_PERIOD = 100_000
_MOUNTS = "/proc/self/mountinfo"
_OWN = "/proc/self/cgroup"


class ControlGroup:
    """One sandbox's group, in each hierarchy."""

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}  # by what is limited there; "" for everything

    def open_procs(self) -> list[int]:
        """Open the files that a process writes to in order to enter."""
        paths = [f"{folder}/cgroup.procs" for folder in self.folders.values()]
        return [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in paths]

    def open_count(self) -> int:
        """Open the file that says how many processes there are."""
        folder = self.folders.get("pids") or self.folders[""]
        return os.open(f"{folder}/pids.current", os.O_RDONLY | os.O_CLOEXEC)

    def limit(self, limits: Limits, memory: int) -> None:
        """Set the limits; ``memory`` is in bytes, and includes files in memory."""
        pids, quota = limits.pids, int(limits.cpus * _PERIOD)
        for kind, folder in self.folders.items():
            if kind == "memory":
                _set(folder, "memory.limit_in_bytes", memory)
                _set(folder, "memory.memsw.limit_in_bytes", memory, needed=False)
            elif kind == "pids":
                _set(folder, "pids.max", pids)
            elif kind == "cpu":
                _set(folder, "cpu.cfs_period_us", _PERIOD)
                _set(folder, "cpu.cfs_quota_us", quota)
            else:
                _set(folder, "memory.max", memory)
                _set(folder, "memory.swap.max", 0, needed=False)
                _set(folder, "pids.max", pids)
                _set(folder, "cpu.max", f"{quota} {_PERIOD}", needed=False)

    def remove(self) -> bool:
        """Remove it; return whether it is gone, which takes the end of all its processes."""
        for kind, folder in list(self.folders.items()):
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return False
            del self.folders[kind]
        return True


class ControlGroups:
    """Makes groups.

    Args:
        mounts: the list of mounts, as ``/proc/self/mountinfo`` has it.
        own: the groups of this process, as ``/proc/self/cgroup`` has them.
    """

    def __init__(self, mounts: str | None = None, own: str | None = None) -> None:
        mounts = Path(_MOUNTS).read_text() if mounts is None else mounts
        own = Path(_OWN).read_text() if own is None else own
        self._run = secrets.token_hex(4)
        self._count = 0
        self._names: dict[int, str] = {}
        self._space = _space()
        self._first = _first_version(mounts, own)
        self._second = None if self._first else _second_version(mounts, own)

    @property
    def usable(self) -> bool:
        """Whether memory and processes can be limited."""
        return bool(self._first or self._second)

    def patterns(self, owner: int) -> list[str]:
        """Return patterns of the folders of all the groups that were made for a process here."""
        mine = f"{self._name(owner)}.*"
        return [f"{glob.escape(str(each))}/{mine}" for each in self._above().values()]

    def make(self, owner: int) -> ControlGroup:
        """Make a group without limits, for a process that :meth:`sweep` asks for."""
        self._count += 1
        if owner not in self._names:
            self._names[owner] = self._name(owner)
        name = f"{self._names[owner]}.{self._count}"
        group = ControlGroup()
        try:
            for kind, above in self._above().items():
                folder = above / name
                folder.mkdir()
                group.folders[kind] = folder
        except OSError:
            group.remove()
            raise
        return group

    def _above(self) -> dict[str, Path]:
        return {"": self._second} if self._second is not None else self._first

    def _name(self, owner: int) -> str:
        """Return how the names of this run's groups begin."""
        return f"{_PREFIX}.{self._space}.{owner}.{_started(owner)}.{self._run}"

    def sweep(self) -> int:
        """Remove the groups of processes that are gone; return how many there were.

        Those of another namespace of processes, of a container say, are left alone: the number of
        a process says nothing here.
        """
        removed = 0
        for above in self._above().values():
            for folder in above.glob(f"{_PREFIX}.{self._space}.*.*.*.*"):
                owner, started = folder.name.split(".")[2:4]
                if _started(owner) != started:
                    with contextlib.suppress(OSError):
                        folder.rmdir()
                        removed += 1
        return removed


def remove_all(groups: list[ControlGroup], seconds: float) -> list[ControlGroup]:
    """Remove groups whose processes are about to end; return those that stay."""
    limit = time.monotonic() + seconds
    while (groups := [each for each in groups if not each.remove()]) and time.monotonic() < limit:
        time.sleep(0.005)
    return groups


def _set(folder: Path, name: str, value: object, needed: bool = True) -> None:
    try:
        file = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(file, str(value).encode())
        finally:
            os.close(file)
    except OSError:
        if needed:
            raise


def _space() -> str:
    """Return the number of the namespace that the numbers of processes belong to."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""


def _started(process: int | str) -> str:
    """Return when a process started, which tells it from a later one with its number."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _first_version(mounts: str, own: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for line in mounts.splitlines():
        words, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind != "cgroup":
            continue
        for name in ("memory", "pids", "cpu"):
            if name in options.split(","):
                _, _, _, root, place, *_ = words.split()
                found[name] = _within(place, root, _own_path(own, name))
    writable = {name: path for name, path in found.items() if os.access(path, os.W_OK)}
    return writable if {"memory", "pids"} <= writable.keys() else {}


def _second_version(mounts: str, own: str) -> Path | None:
    for line in mounts.splitlines():
        words, _, rest = line.partition(" - ")
        if not rest.startswith("cgroup2 "):
            continue
        _, _, _, root, place, *_ = words.split()
        mine = _within(place, root, _own_path(own, ""))
        # Beside us, or below us where we are in the topmost group, which may have both.
        above = mine if mine == Path(place) else mine.parent
        control = above / "cgroup.subtree_control"
        if not all(os.access(each, os.W_OK) for each in (above, control, above / "cgroup.procs")):
            continue
        if above == Path(place):
            for kind in ("memory", "pids", "cpu"):  # one that is refused refuses the others, too
                _set(above, control.name, f"+{kind}", needed=False)
        with contextlib.suppress(OSError):
            if {"memory", "pids"} <= set(control.read_text().split()):
                return above
    return None


def _own_path(own: str, controller: str) -> str:
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    return "/"


def _within(place: str, root: str, path: str) -> Path:
    """Return where a group is; what is mounted may be a part of the hierarchy only."""
    inner = path.removeprefix(root.rstrip("/")) if path.startswith(root) else "/"
    return Path(place, inner.lstrip("/"))
