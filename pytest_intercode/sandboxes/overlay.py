"""What changed on disk, read from the outside: the upper folder of a container's overlay.

Only for root on the engine's own machine, where it takes 2 ms instead of 100 and cannot be fooled
by an agent that replaces ``find``. Every folder is opened relative to its parent and never through
a link, so that nothing in the container can lead the walk out of it.

An overlay shows, for each path, the topmost layer that has it. In a layer, a character device 0/0
is a whiteout (the path is gone), and a folder with the attribute ``trusted.overlay.opaque`` hides
what the layers below hold under it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pytest_intercode.sandboxes.protocol import DEPTH, Changes, Entry

__all__ = ["OUTSIDE", "OverlayProbe", "Unreadable"]

OUTSIDE = frozenset({"/proc", "/sys", "/dev", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf"})
"""What the engine mounts or writes; never an effect of an action."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What comes of an entry that is taken away, or becomes of another type, after it was looked at.
_REPLACED = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP),
    *(errno.EINVAL, errno.ENXIO, errno.EAGAIN),
)
_FEATURES = ("redirect_dir", "metacopy")


class Unreadable(Exception):
    """The layers cannot be read here, or are kept in a way that this walk does not know."""


@dataclass(frozen=True)
class _Seen:
    """One entry of the upper folder."""

    entry: Entry | None  # None for a whiteout
    stamp: tuple[int, ...]  # equal stamps mean an unchanged entry
    opaque: bool = False  # a folder that hides the layers below


class OverlayProbe:
    """Reads the changes of one container.

    Args:
        upper: the overlay's upper folder, which holds all that was written since the start.
        lower: the layers below, topmost first.
        merged: the mount that shows the container's whole root.

    Raises:
        Unreadable: the folders may not be read, or the kernel's overlay uses redirects.
    """

    def __init__(self, upper: str, lower: Sequence[str], merged: str) -> None:
        if os.geteuid() != 0:
            raise Unreadable("only root may read the layers")
        for folder in (upper, merged, *lower):
            if not Path(folder).is_dir():
                raise Unreadable(f"{folder} is not on this machine")
        for feature in _FEATURES:
            setting = Path("/sys/module/overlay/parameters", feature)
            if setting.exists() and setting.read_text().strip() not in ("N", "off", "0"):
                raise Unreadable(f"the kernel's overlay uses {feature}")
        self._upper, self._lower, self._merged = upper, tuple(lower), merged
        self._base: dict[str, _Seen] = {}

    def mark(self) -> None:
        """Remember the upper folder as it is."""
        self._base = self._walk({})

    def changes(self) -> Changes:
        """Compare the container with how it was at the mark."""
        now = self._walk(self._base)
        touched: dict[str, Entry | None] = {}
        for path, seen in now.items():
            old = self._base.get(path)
            if old is None or old.stamp != seen.stamp:
                touched[path] = seen.entry
            if seen.opaque and not (old and old.opaque):
                touched.update(dict.fromkeys(self._hidden(path, now)))
        for path in self._base:
            if path not in now:
                touched[path] = None
        entries: dict[str, Entry | None] = {}
        before: dict[str, Entry | None] = {}
        for path, entry in touched.items():
            old_entry = self._before(path)
            if entry == old_entry:
                continue
            above = os.path.dirname(path)
            if entry is None and above in touched and not _is_folder(touched[above]):
                continue  # it went with the folder that it was in
            entries[path] = entry
            before[path] = old_entry
        return Changes(entries, before)

    def entries(self, paths: Iterable[str]) -> dict[str, Entry | None]:
        """Read the entries that stand at ``paths`` now."""
        return {path: _find(self._merged, path)[0] for path in paths}

    # -- the upper folder

    def _walk(self, known: dict[str, _Seen]) -> dict[str, _Seen]:
        found: dict[str, _Seen] = {}
        with _folder(self._upper) as top:
            self._walk_folder(top, "", known, found)
        return found

    def _walk_folder(
        self, folder: int, path: str, known: dict[str, _Seen], found: dict[str, _Seen]
    ) -> None:
        for name in os.listdir(folder):
            child = f"{path}/{name}"
            if child in OUTSIDE:
                continue
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                stamp = _stamp(status)
                old = known.get(child)
                if old is not None and old.stamp == stamp and not stat.S_ISDIR(status.st_mode):
                    found[child] = old
                    continue
                if _is_whiteout(status):
                    found[child] = _Seen(None, stamp)
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    found[child] = _Seen(_entry(folder, name, status), stamp)
                    continue
                with _folder(name, folder) as inner:
                    found[child] = _Seen(_entry(folder, name, status), stamp, _is_opaque(inner))
                    if child.count("/") < DEPTH:
                        self._walk_folder(inner, child, known, found)
            except OSError as error:
                if error.errno not in _REPLACED:
                    raise
                continue  # a process in the container changes it now

    # -- the layers below

    def _before(self, path: str) -> Entry | None:
        """Return the entry that stood at ``path`` at the mark."""
        if path in self._base:
            return self._base[path].entry
        above = os.path.dirname(path)
        while above != "/":
            seen = self._base.get(above)
            if seen is not None and (seen.opaque or seen.entry is None or seen.entry.type != "d"):
                return None
            above = os.path.dirname(above)
        for layer in self._lower:
            entry, final = _find(layer, path)
            if entry is not None or final:
                return entry
        return None

    def _hidden(self, path: str, now: dict[str, _Seen]) -> Iterator[str]:
        """Name what lay below the folder ``path`` at the mark and is hidden by its new self."""
        names: set[str] = set()
        for layer in self._lower:
            try:
                with _folder(layer) as top, _descend(top, path) as folder:
                    names.update(os.listdir(folder))  # noqa: PTH208
            except OSError:
                continue
        for name in sorted(names):
            child = f"{path}/{name}"
            if self._before(child) is None:
                continue
            if child not in now:
                yield child
            elif _is_folder(now[child].entry):
                yield from self._hidden(child, now)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    owner = status.st_uid, status.st_gid
    times = status.st_mtime_ns, status.st_ctime_ns
    return status.st_ino, status.st_mode, *owner, status.st_size, *times


def _is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.type == "d"


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _is_opaque(folder: int) -> bool:
    try:
        return os.getxattr(folder, "trusted.overlay.opaque") == b"y"
    except OSError:
        return False


@contextmanager
def _folder(name: str, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, _FOLDER, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _descend(top: int, path: str) -> Iterator[int]:
    """Open the folder ``path`` below ``top``, part by part and through no link."""
    current = os.dup(top)
    try:
        for part in path.split("/"):
            if part:
                inner = os.open(part, _FOLDER, dir_fd=current)
                os.close(current)
                current = inner
        yield current
    finally:
        os.close(current)


def _entry(folder: int, name: str, status: os.stat_result) -> Entry:
    kind = stat.filemode(status.st_mode)[0].replace("-", "f")
    content = ""
    if kind == "l":
        content = os.readlink(name, dir_fd=folder)
    elif kind == "f":
        descriptor = os.open(name, _FILE, dir_fd=folder)
        try:
            digest = hashlib.sha256()
            while block := os.read(descriptor, 1 << 20):
                digest.update(block)
            content = digest.hexdigest()
        finally:
            os.close(descriptor)
    elif kind in "bc":
        content = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return Entry(kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, content)


def _find(layer: str, path: str) -> tuple[Entry | None, bool]:
    """Look ``path`` up in one layer.

    Returns:
        The entry, or None, and whether the layers below this one need not be asked.
    """
    parts = [part for part in path.split("/") if part]
    final = False
    current = os.open(layer, _FOLDER)
    try:
        for part in parts[:-1]:
            status = os.stat(part, dir_fd=current, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                return None, True
            inner = os.open(part, _FOLDER, dir_fd=current)
            os.close(current)
            current = inner
            final = final or _is_opaque(current)
        status = os.stat(parts[-1], dir_fd=current, follow_symlinks=False)
        if _is_whiteout(status):
            return None, True
        return _entry(current, parts[-1], status), True
    except OSError as error:
        if error.errno not in _REPLACED:
            raise
        return None, final
    finally:
        os.close(current)
