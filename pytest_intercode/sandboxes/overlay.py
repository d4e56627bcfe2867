"""What changed on disk, read from outside: the upper folder of a container's overlay.

This works only for root on the engine's own machine. It takes 2 ms, and nothing in the sandbox
takes part in it. Every folder is opened relative to its parent and never through a link, so that
nothing in the container can lead the walk out of it.

An overlay shows, for each path, the topmost layer that has it. In a layer, a character device 0/0
is a whiteout (the path is gone), and a folder with the attribute ``trusted.overlay.opaque`` hides
what the layers below hold under it.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
import tarfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from pytest_intercode.sandboxes.protocol import OUTSIDE, Changes, Entry, Stamps, is_folder
from pytest_intercode.sandboxes.reading import SETUP_LIMITS, Reading, path_parts
from pytest_intercode.sandboxes.walker import REPLACED, Walker, add_member, make_entry, read_entry
from pytest_intercode.system.platform import IS_LINUX

__all__ = ["OverlayProbe", "Unreadable"]

_COARSE_CLOCK = 5  # the clock CLOCK_REALTIME_COARSE
_FEATURES = ("redirect_dir", "metacopy")


class Unreadable(Exception):
    """The layers cannot be read here, or use features that this walk does not know."""


@dataclass(frozen=True)
class _Record:
    """One entry of the upper folder."""

    entry: Entry | None  # None for a whiteout
    stamp: tuple[int, ...]  # if it differs, the entry has changed
    opaque: bool = False  # a folder that hides the layers below
    reliable: bool = True  # if the stamp is equal, the entry has not changed


class OverlayProbe:
    """Reads the changes of one container.

    Args:
        upper: the overlay's upper folder, which holds everything written since the start.
        lower: the layers below, topmost first.
        merged: the mount that shows the container's whole root.
        mounted: files that the engine mounts over files of the container, by their paths in the
            container.
        volumes: folders that the engine mounts over folders of the container, likewise.
        timely: writing to a file through shared memory changes the file's times. It does not if
            the upper folder is in memory itself.

    Raises:
        Unreadable: the folders cannot be read, or the kernel's overlay uses redirects.
    """

    def __init__(
        self,
        upper: str,
        lower: Sequence[str],
        merged: str,
        *,
        mounted: Mapping[str, str] | None = None,
        volumes: Mapping[str, str] | None = None,
        outside: Iterable[str] = OUTSIDE,
        timely: bool = True,
    ) -> None:
        if not IS_LINUX:
            raise Unreadable("overlays are Linux's")
        if os.geteuid() != 0:
            raise Unreadable("only root may read the layers")
        self._volumes = dict(sorted((volumes or {}).items()))  # an inner one after its outer one
        for folder in (upper, merged, *lower, *self._volumes.values()):
            if not os.path.isdir(folder):  # noqa: PTH112 - for each sandbox
                raise Unreadable(f"{folder} is not on this machine")
        if feature := _unknown_feature():
            raise Unreadable(f"the kernel's overlay uses {feature}")
        self._upper, self._lower, self._merged = upper, tuple(lower), merged
        self._mounted = dict(mounted or {})
        self._skipped = {*outside, *self._mounted}
        self._timely = timely
        self._base: dict[str, _Record] = {}
        self._names = 0  # characters of the base's paths

    def mark(self, reading: Reading | None = None) -> None:
        """Remember the state of the upper folder."""
        self._base = self._walk({}, reading or Reading(SETUP_LIMITS))
        self._names = sum(map(len, self._base))

    def changes(self, reading: Reading | None = None) -> Changes:
        """Compare the container with its state at the mark."""
        reading = reading or Reading()
        reading.spare(len(self._base), self._names)
        current = self._walk(self._base, reading)
        touched: dict[str, Entry | None] = {}
        for path, record in current.items():
            old = self._base.get(path)
            if old is None or old.stamp != record.stamp or old.entry != record.entry:
                touched[path] = record.entry
            # A folder that was removed and made again: its old entries are only in lower layers.
            if record.opaque and not (old and old.opaque):
                touched.update(dict.fromkeys(self._find_hidden(path, current, reading)))
        for path in self._base:
            if path not in current:
                touched[path] = None
        entries: dict[str, Entry | None] = {}
        old_entries: dict[str, Entry | None] = {}
        fresh: set[str] = set()  # paths below which nothing was
        for path, entry in touched.items():
            parent = os.path.dirname(path)
            # Nothing was below it then, so no layer has to be read. A path of the base is known.
            if parent in fresh and path not in self._base:
                old_entry = None
            else:
                old_entry = self._entry_at_mark(path, reading)
            if not is_folder(old_entry):
                fresh.add(path)
            if entry == old_entry:
                continue
            if entry is None and parent in touched and not is_folder(touched[parent]):
                continue  # it went with the folder that it was in
            entries[path] = entry
            old_entries[path] = old_entry
        return Changes(entries, old_entries)

    def stamps(self, reading: Reading) -> Stamps:
        """Return what identifies this state of the upper folder; no content is read."""
        tick = time.clock_gettime_ns(_COARSE_CLOCK)
        stamps: Stamps = {}
        with contextlib.closing(self._written_entries(reading)) as entries:
            for path, _, status, _ in entries:
                stamp = _stamp(status)
                # An entry that changed in this very tick may change again in it and look the same,
                # so its stamp is equal to no later one.
                stamps[path] = stamp if status.st_ctime_ns < tick else (*stamp, tick)
        return stamps

    def entries(
        self, paths: Iterable[str], reading: Reading | None = None
    ) -> dict[str, Entry | None]:
        """Read the current entries at ``paths``."""
        reading = reading or Reading()
        return {path: self._current_entry(path, reading) for path in paths}

    def archive(self, paths: Iterable[str], reading: Reading) -> bytes:
        """Return a tar archive of the entries at ``paths`` now."""
        buffer = io.BytesIO()
        with (
            tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive,
            contextlib.ExitStack() as stack,
        ):
            # If the root of a sandbox is gone, its files must not look as if they did not exist.
            roots: dict[str, Walker] = {}
            for path in paths:
                reading.entry(len(path))
                folder, inner = self._locate(path)
                *folders, name = path_parts(inner) or ["."]
                if path in self._mounted:
                    add_member(archive, None, self._mounted[path], path, reading)
                    continue
                if folder not in roots:
                    roots[folder] = stack.enter_context(Walker(folder))
                try:
                    with Walker(".", roots[folder].here()) as walker:
                        add_member(archive, walker.go("/".join(folders)), name, path, reading)
                except OSError as error:
                    if error.errno not in REPLACED:
                        raise
        return buffer.getvalue()

    def below(self, tops: Iterable[str], reading: Reading) -> list[str]:
        """Return those of ``tops`` that exist now, and the paths of everything in these folders."""
        paths: list[str] = []
        for top in tops:
            if self._current_entry(top, reading) is None:
                continue
            paths.append(top)
            within = top.rstrip("/")
            inner = [mount for mount in self._volumes if mount.startswith(f"{within}/")]
            try:
                for mount in (within, *inner):
                    folder, path_in_it = self._locate(f"{mount}/")
                    hidden = frozenset(volume[len(mount) :] for volume in inner)
                    with Walker(folder) as walker:
                        walker.go(path_in_it)
                        paths += [mount] * (mount in inner)
                        paths += (f"{mount}{path}" for path, *_ in walker.entries(hidden, reading))
            except OSError as error:
                if error.errno not in REPLACED:
                    raise
        return paths

    def _locate(self, path: str) -> tuple[str, str]:
        """Return the folder that shows a path, and the path within that folder."""
        if not self._volumes:
            return self._merged, path
        path = "/".join(["", *path_parts(path)]) + "/" * path.endswith("/")
        for volume in reversed(self._volumes):
            if path.startswith(f"{volume}/"):
                return self._volumes[volume], path[len(volume) :]
        return self._merged, path

    def _written_entries(
        self, reading: Reading
    ) -> Generator[tuple[str, str, os.stat_result, Walker], None, None]:
        """Yield what is in the upper folder and in the volumes, which are entries themselves.

        For each entry, yield its path, its name, its status, and a walker at the entry (a folder)
        or at its folder. Close this if it is not read to its end, as it holds folders open.
        """
        for mount, top in (("", self._upper), *self._volumes.items()):
            with Walker(top) as walker:
                if mount:
                    yield mount, "", os.fstat(walker.here()), walker
                for path, name, status in walker.entries(self._skipped_below(mount), reading):
                    yield mount + path, name, status, walker

    def _skipped_below(self, at: str) -> Set[str]:
        """Return what is hidden, or not a part, in the folder that is mounted at a path."""
        skipped = (*self._skipped, *self._volumes)
        return {path[len(at) :] for path in skipped if path.startswith(f"{at}/")}

    def _current_entry(self, path: str, reading: Reading) -> Entry | None:
        reading.check()
        if path in self._mounted:
            host_path = self._mounted[path]
            return read_entry(None, host_path, os.lstat(host_path), reading)
        if path in self._volumes:
            return make_entry(os.lstat(self._volumes[path]))
        return _find_in_layer(*self._locate(path), reading)[0]

    # -- the upper folder

    def _walk(self, previous: dict[str, _Record], reading: Reading) -> dict[str, _Record]:
        """Return every entry by its path; unchanged ones are taken from an earlier walk."""
        # Use the clock that files get their times from: a change at a later tick shows in them.
        tick = time.clock_gettime_ns(_COARSE_CLOCK)
        records: dict[str, _Record] = {}
        # A file that the engine keeps elsewhere is found by its own path, not in a folder.
        mounted = (
            (path, host_path, os.lstat(host_path), None)
            for path, host_path in self._mounted.items()
        )
        with contextlib.closing(self._written_entries(reading)) as entries:
            for path, name, status, walker in chain(mounted, entries):
                stamp, old = _stamp(status), previous.get(path)
                if old is not None and old.stamp == stamp and old.reliable:
                    records[path] = old
                    continue
                try:
                    folder = None if walker is None else walker.here()
                    records[path] = self._make_record(folder, name, status, stamp, tick, reading)
                except OSError as error:
                    if error.errno not in REPLACED:
                        raise
        return records

    def _make_record(
        self,
        folder: int | None,
        name: str,
        status: os.stat_result,
        stamp: tuple[int, ...],
        tick: int,
        reading: Reading,
    ) -> _Record:
        if stat.S_ISDIR(status.st_mode):
            assert folder is not None, "only files are mounted one by one"
            return _Record(make_entry(status), stamp, _is_opaque(folder))
        if _is_whiteout(status):
            return _Record(None, stamp)
        reliable = status.st_ctime_ns < tick and (
            self._timely or not stat.S_ISREG(status.st_mode) or status.st_size == 0
        )
        return _Record(read_entry(folder, name, status, reading), stamp, reliable=reliable)

    # -- the layers below

    def _entry_at_mark(self, path: str, reading: Reading) -> Entry | None:
        """Return the entry that was at ``path`` at the mark."""
        reading.check()
        if path in self._base:
            return self._base[path].entry
        if self._locate(path)[0] != self._merged:  # no layer is below a volume
            return None
        parent = os.path.dirname(path)
        # What had been written by then hides the layers below it, unless it is a folder that is
        # merged with theirs.
        while parent != "/":
            ancestor = self._base.get(parent)
            if ancestor is not None and (
                ancestor.opaque or ancestor.entry is None or ancestor.entry.type != "d"
            ):
                return None
            parent = os.path.dirname(parent)
        for layer in self._lower:
            entry, final = _find_in_layer(layer, path, reading)
            if entry is not None or final:
                return entry
        return None

    def _find_hidden(
        self, path: str, current: dict[str, _Record], reading: Reading
    ) -> Iterator[str]:
        """Yield what was below the folder ``path`` at the mark and is hidden by the new folder."""
        names: set[str] = set()
        for layer in self._lower:
            try:
                with Walker(layer) as walker:
                    names.update(os.listdir(walker.go(path)))  # noqa: PTH208
            except OSError as error:
                if error.errno not in REPLACED:
                    raise
        for name in sorted(names):
            child = f"{path}/{name}"
            reading.entry(len(child))
            if self._entry_at_mark(child, reading) is None:
                continue
            if child not in current:
                yield child
            elif is_folder(current[child].entry):
                yield from self._find_hidden(child, current, reading)


@cache
def _unknown_feature() -> str:
    """Return the feature of the kernel's overlay that this walk does not know, or nothing."""
    for feature in _FEATURES:
        setting = Path("/sys/module/overlay/parameters", feature)
        if setting.exists() and setting.read_text().strip() not in ("N", "off", "0"):
            return feature
    return ""


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    owner = status.st_uid, status.st_gid
    times = status.st_mtime_ns, status.st_ctime_ns
    return status.st_ino, status.st_mode, *owner, status.st_size, *times


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _is_opaque(folder: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return os.getxattr(folder, "trusted.overlay.opaque") == b"y"
    except OSError:
        return False


def _find_in_layer(layer: str, path: str, reading: Reading) -> tuple[Entry | None, bool]:
    """Look ``path`` up in one layer.

    Returns:
        The entry, or None, and whether the layers below this one need not be read.
    """
    *folders, name = path_parts(path) or ["."]
    final = False
    with Walker(layer) as walker:
        try:
            for part in folders:
                status = os.stat(part, dir_fd=walker.here(), follow_symlinks=False)
                # Anything else hides what the layers below have at this path.
                if not stat.S_ISDIR(status.st_mode):
                    return None, True
                final = _is_opaque(walker.enter(part)) or final
            status = os.stat(name, dir_fd=walker.here(), follow_symlinks=False)
            if _is_whiteout(status):
                return None, True
            return read_entry(walker.here(), name, status, reading), True
        except OSError as error:
            if error.errno not in REPLACED:
                raise
            return None, final
