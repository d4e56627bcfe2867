"""Control groups, where we may make them, for a sandbox's memory, processes and processor time.

In version 1, each kind of limit has a hierarchy of its own. In version 2, there is one hierarchy,
in which a group has either processes or groups below it, so ours are made next to our own group.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import sys
import time
from pathlib import Path

if sys.platform != "linux":
    raise ImportError("bubblewrap runs on Linux only")

from pytest_intercode.core.task import Limits
from pytest_intercode.system.platform import process_identity

__all__ = ["ControlGroup", "ControlGroups", "remove_all"]

_PREFIX = "pytest-intercode"
_PERIOD = 100_000  # microseconds; a quota of processor time is for this period
_MOUNTS = "/proc/self/mountinfo"
_OWN_GROUPS = "/proc/self/cgroup"


class ControlGroup:
    """One sandbox's group, in each hierarchy."""

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}  # by the kind of limit; "" for all kinds

    def open_procs(self) -> list[int]:
        """Open the files that a process writes to in order to enter the group."""
        paths = [f"{folder}/cgroup.procs" for folder in self.folders.values()]
        return [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in paths]

    def open_count(self) -> int:
        """Open the file with the current number of processes."""
        folder = self.folders.get("pids") or self.folders[""]
        return os.open(f"{folder}/pids.current", os.O_RDONLY | os.O_CLOEXEC)

    def limit(self, limits: Limits, memory: int) -> None:
        """Set the limits; ``memory`` is in bytes, and includes files in memory."""
        pids, quota = limits.pids, int(limits.cpus * _PERIOD)
        for kind, folder in self.folders.items():
            if kind == "memory":
                # In this order, as the limit of memory with swap may not be below that of memory.
                _write_setting(folder, "memory.limit_in_bytes", memory)
                _write_setting(folder, "memory.memsw.limit_in_bytes", memory, required=False)
            elif kind == "pids":
                _write_setting(folder, "pids.max", pids)
            elif kind == "cpu":
                _write_setting(folder, "cpu.cfs_period_us", _PERIOD)
                _write_setting(folder, "cpu.cfs_quota_us", quota)
            else:
                _write_setting(folder, "memory.max", memory)
                _write_setting(folder, "memory.swap.max", 0, required=False)
                _write_setting(folder, "pids.max", pids)
                _write_setting(folder, "cpu.max", f"{quota} {_PERIOD}", required=False)

    def remove(self) -> bool:
        """Remove it; return whether it is gone, which requires the end of all its processes."""
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
    """Makes control groups.

    Args:
        mounts: the list of mounts, in the format of ``/proc/self/mountinfo``.
        own_groups: the groups of this process, in the format of ``/proc/self/cgroup``.
    """

    def __init__(self, mounts: str | None = None, own_groups: str | None = None) -> None:
        mounts = Path(_MOUNTS).read_text() if mounts is None else mounts
        own_groups = Path(_OWN_GROUPS).read_text() if own_groups is None else own_groups
        self._run_id = secrets.token_hex(4)
        self._count = 0
        self._names: dict[int, str] = {}
        self._process_namespace = _process_namespace()
        self._first_hierarchies = _find_first_version(mounts, own_groups)
        self._second_folder = (
            None if self._first_hierarchies else _find_second_version(mounts, own_groups)
        )

    @property
    def usable(self) -> bool:
        """Whether memory and processes can be limited."""
        return bool(self._first_hierarchies or self._second_folder)

    def patterns(self, owner: int) -> list[str]:
        """Return patterns for the folders of all groups that were made here for a process."""
        pattern = f"{self._name(owner)}.*"
        return [f"{glob.escape(str(parent))}/{pattern}" for parent in self._parents().values()]

    def make(self, owner: int) -> ControlGroup:
        """Make a group without limits, on behalf of a process that :meth:`sweep` checks for."""
        self._count += 1
        if owner not in self._names:
            self._names[owner] = self._name(owner)
        name = f"{self._names[owner]}.{self._count}"
        group = ControlGroup()
        try:
            for kind, parent in self._parents().items():
                folder = parent / name
                folder.mkdir()
                group.folders[kind] = folder
        except OSError:
            group.remove()
            raise
        return group

    def _parents(self) -> dict[str, Path]:
        return (
            {"": self._second_folder}
            if self._second_folder is not None
            else self._first_hierarchies
        )

    def _name(self, owner: int) -> str:
        """Return the prefix of the names of this run's groups."""
        started = process_identity(owner)
        return f"{_PREFIX}.{self._process_namespace}.{owner}.{started}.{self._run_id}"

    def sweep(self) -> int:
        """Remove the groups of processes that are gone; return how many there were.

        Groups from another PID namespace, such as a container's, are left alone: the number of a
        process means nothing here.
        """
        removed = 0
        for parent in self._parents().values():
            for folder in parent.glob(f"{_PREFIX}.{self._process_namespace}.[0-9]*.*.*.*"):
                owner, started = folder.name.split(".")[2:4]
                # The number alone is not enough: another process may have it by now.
                if process_identity(int(owner)) != started:
                    with contextlib.suppress(OSError):
                        folder.rmdir()
                        removed += 1
        return removed


def remove_all(groups: list[ControlGroup], seconds: float) -> list[ControlGroup]:
    """Remove groups whose processes are about to end; return those that remain."""
    limit = time.monotonic() + seconds
    while (
        groups := [group for group in groups if not group.remove()]
    ) and time.monotonic() < limit:
        time.sleep(0.005)
    return groups


def _write_setting(folder: Path, name: str, value: object, required: bool = True) -> None:
    try:
        file = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(file, str(value).encode())
        finally:
            os.close(file)
    except OSError:
        if required:
            raise


def _process_namespace() -> str:
    """Return the number of our PID namespace, to which the numbers of processes belong."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""


def _find_first_version(mounts: str, own_groups: str) -> dict[str, Path]:
    hierarchies: dict[str, Path] = {}
    for line in mounts.splitlines():
        words, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind != "cgroup":
            continue
        for name in ("memory", "pids", "cpu"):
            if name in options.split(","):
                _, _, _, root, mount_point, *_ = words.split()
                hierarchies[name] = _locate(mount_point, root, _find_own_path(own_groups, name))
    writable = {name: path for name, path in hierarchies.items() if os.access(path, os.W_OK)}
    return writable if {"memory", "pids"} <= writable.keys() else {}


def _find_second_version(mounts: str, own_groups: str) -> Path | None:
    for line in mounts.splitlines():
        words, _, rest = line.partition(" - ")
        if not rest.startswith("cgroup2 "):
            continue
        _, _, _, root, mount_point, *_ = words.split()
        own_group = _locate(mount_point, root, _find_own_path(own_groups, ""))
        # Next to us; or below us if we are in the topmost group, which may have both.
        parent = own_group if own_group == Path(mount_point) else own_group.parent
        control = parent / "cgroup.subtree_control"
        if not all(os.access(path, os.W_OK) for path in (parent, control, parent / "cgroup.procs")):
            continue
        if parent == Path(mount_point):
            for kind in ("memory", "pids", "cpu"):  # separately: one refusal would fail all
                _write_setting(parent, control.name, f"+{kind}", required=False)
        with contextlib.suppress(OSError):
            if {"memory", "pids"} <= set(control.read_text().split()):
                return parent
    return None


def _find_own_path(own_groups: str, controller: str) -> str:
    for line in own_groups.splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    return "/"


def _locate(mount_point: str, root: str, path: str) -> Path:
    """Return the folder of a group; only a part of the hierarchy may be mounted."""
    inner = path.removeprefix(root.rstrip("/")) if path.startswith(root) else "/"
    return Path(mount_point, inner.lstrip("/"))
