"""What changed on disk, read from the outside: the upper folder of a container's overlay.

Only for root on the engine's own machine. It takes 2 ms, and nothing in the sandbox has a part in
it. Every folder is opened relative to its parent and never through a link, so that nothing in the
container can lead the walk out of it.

An overlay shows, for each path, the topmost layer that has it. In a layer, a character device 0/0
is a whiteout (the path is gone), and a folder with the attribute ``trusted.overlay.opaque`` hides
what the layers below hold under it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from pytest_intercode.errors import UngradableState
from pytest_intercode.sandboxes.protocol import OUTSIDE, Changes, Entry, Stamps
from pytest_intercode.sandboxes.reading import SETUP_LIMITS, Reading, digest_of, path_parts

__all__ = ["OverlayProbe", "Unreadable"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What comes of an entry that is taken away, or becomes of another type, after it was looked at.
_REPLACED = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP),
    *(errno.EINVAL, errno.ENXIO, errno.EAGAIN, errno.ESTALE, errno.ESPIPE),
)
_MAX_OPEN_FOLDERS = 32  # folders above the present one that a walk keeps open
_COARSE_CLOCK = 5  # the clock CLOCK_REALTIME_COARSE
_FEATURES = ("redirect_dir", "metacopy")


class Unreadable(Exception):
    """The layers cannot be read here, or are kept in a way that this walk does not know."""


@dataclass(frozen=True)
class _Record:
    """One entry of the upper folder."""

    entry: Entry | None  # None for a whiteout
    stamp: tuple[int, ...]  # unequal stamps mean a changed entry
    opaque: bool = False  # a folder that hides the layers below
    reliable: bool = True  # and equal stamps mean an unchanged one


class OverlayProbe:
    """Reads the changes of one container.

    Args:
        upper: the overlay's upper folder, which holds all that was written since the start.
        lower: the layers below, topmost first.
        merged: the mount that shows the container's whole root.
        mounted: files of the engine's that it mounts over some of the container's, by their paths
            in the container.
        volumes: folders of the engine's that it mounts over some of the container's, likewise.
        timely: writing to a file through memory that is shared with it changes the file's times.
            It does not where the upper folder is in memory itself.

    Raises:
        Unreadable: the folders may not be read, or the kernel's overlay uses redirects.
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
        """Remember the upper folder as it is."""
        self._base = self._walk({}, reading or Reading(SETUP_LIMITS))
        self._names = sum(map(len, self._base))

    def changes(self, reading: Reading | None = None) -> Changes:
        """Compare the container with how it was at the mark."""
        reading = reading or Reading()
        reading.spare(len(self._base), self._names)
        current = self._walk(self._base, reading)
        touched: dict[str, Entry | None] = {}
        for path, record in current.items():
            old = self._base.get(path)
            if old is None or old.stamp != record.stamp or old.entry != record.entry:
                touched[path] = record.entry
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
            if parent in fresh and path not in self._base:
                old_entry = None
            else:
                old_entry = self._entry_at_mark(path, reading)
            if not _is_folder(old_entry):
                fresh.add(path)
            if entry == old_entry:
                continue
            if entry is None and parent in touched and not _is_folder(touched[parent]):
                continue  # it went with the folder that it was in
            entries[path] = entry
            old_entries[path] = old_entry
        return Changes(entries, old_entries)

    def stamps(self, reading: Reading) -> Stamps:
        """Return what distinguishes this state of the upper folder; no content is read."""
        tick = time.clock_gettime_ns(_COARSE_CLOCK)
        stamps: Stamps = {}
        for mount, top in self._mounts():
            with _Walker(top) as walker:
                itself = [("", "", os.fstat(walker.here()))] if mount else []
                entries = walker.entries(self._skipped_below(mount), reading)
                for path, _, status in chain(itself, entries):
                    stamp = _stamp(status)
                    stamps[mount + path] = stamp if status.st_ctime_ns < tick else (*stamp, tick)
        return stamps

    def entries(
        self, paths: Iterable[str], reading: Reading | None = None
    ) -> dict[str, Entry | None]:
        """Read the entries that stand at ``paths`` now."""
        reading = reading or Reading()
        return {path: self._current_entry(path, reading) for path in paths}

    def archive(self, paths: Iterable[str], reading: Reading) -> bytes:
        """Return a tar archive of what stands at ``paths`` now."""
        buffer = io.BytesIO()
        with (
            tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive,
            contextlib.ExitStack() as stack,
        ):
            # The root of a sandbox that is gone must not pass for no file.
            roots: dict[str, _Walker] = {}
            for path in paths:
                reading.entry(len(path))
                folder, inner = self._locate(path)
                *folders, name = path_parts(inner)
                if path in self._mounted:
                    _pack(archive, None, self._mounted[path], path, reading)
                    continue
                if folder not in roots:
                    roots[folder] = stack.enter_context(_Walker(folder))
                try:
                    with _Walker(".", roots[folder].here()) as walker:
                        _pack(archive, walker.go("/".join(folders)), name, path, reading)
                except OSError as error:
                    if error.errno not in _REPLACED:
                        raise
        return buffer.getvalue()

    def below(self, tops: Iterable[str], reading: Reading) -> list[str]:
        """Return the paths of what stands at ``tops`` now, and of all that is in these folders."""
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
                    with _Walker(folder) as walker:
                        walker.go(path_in_it)
                        paths += [mount] * (mount in inner)
                        paths += (f"{mount}{path}" for path, *_ in walker.entries(hidden, reading))
            except OSError as error:
                if error.errno not in _REPLACED:
                    raise
        return paths

    def _locate(self, path: str) -> tuple[str, str]:
        """Return a folder that shows what is at a path, and where it is in that folder."""
        if not self._volumes:
            return self._merged, path
        path = "/".join(["", *path_parts(path)]) + "/" * path.endswith("/")
        for volume in reversed(self._volumes):
            if path.startswith(f"{volume}/"):
                return self._volumes[volume], path[len(volume) :]
        return self._merged, path

    def _mounts(self) -> Iterator[tuple[str, str]]:
        """Yield the folders that hold what was written, by the paths that they are mounted at."""
        yield "", self._upper
        yield from self._volumes.items()

    def _skipped_below(self, at: str) -> Set[str]:
        """Return what of the folder that is mounted at a path is not seen in it, or not a part."""
        skipped = (*self._skipped, *self._volumes)
        return {path[len(at) :] for path in skipped if path.startswith(f"{at}/")}

    def _current_entry(self, path: str, reading: Reading) -> Entry | None:
        reading.check()
        if path in self._mounted:
            host_path = self._mounted[path]
            return _read_entry(None, host_path, os.lstat(host_path), reading)
        if path in self._volumes:
            return _make_entry(os.lstat(self._volumes[path]))
        return _find_in_layer(*self._locate(path), reading)[0]

    # -- the upper folder

    def _walk(self, previous: dict[str, _Record], reading: Reading) -> dict[str, _Record]:
        """Return every entry by its path, of which an earlier walk has found the known ones."""
        # By the clock that files get their times from: a change at a later tick shows in them.
        tick = time.clock_gettime_ns(_COARSE_CLOCK)
        records: dict[str, _Record] = {}
        # The path of a file that the engine keeps elsewhere is not looked up in a folder.
        mounted = (
            (path, host_path, os.lstat(host_path)) for path, host_path in self._mounted.items()
        )
        for mount, top in self._mounts():
            with _Walker(top) as walker:
                if mount:
                    status = os.fstat(walker.here())
                    records[mount] = _Record(_make_entry(status), _stamp(status))
                entries = walker.entries(self._skipped_below(mount), reading)
                for relative, name, status in entries if mount else chain(mounted, entries):
                    path = mount + relative
                    stamp, old = _stamp(status), previous.get(path)
                    if old is not None and old.stamp == stamp and old.reliable:
                        records[path] = old
                        continue
                    try:
                        records[path] = self._make_record(
                            walker.here(), name, status, stamp, tick, reading
                        )
                    except OSError as error:
                        if error.errno not in _REPLACED:
                            raise
        return records

    def _make_record(
        self,
        folder: int,
        name: str,
        status: os.stat_result,
        stamp: tuple[int, ...],
        tick: int,
        reading: Reading,
    ) -> _Record:
        if stat.S_ISDIR(status.st_mode):
            return _Record(_make_entry(status), stamp, _is_opaque(folder))
        if _is_whiteout(status):
            return _Record(None, stamp)
        reliable = status.st_ctime_ns < tick and (
            self._timely or not stat.S_ISREG(status.st_mode) or status.st_size == 0
        )
        return _Record(_read_entry(folder, name, status, reading), stamp, reliable=reliable)

    # -- the layers below

    def _entry_at_mark(self, path: str, reading: Reading) -> Entry | None:
        """Return the entry that stood at ``path`` at the mark."""
        reading.check()
        if path in self._base:
            return self._base[path].entry
        if self._locate(path)[0] != self._merged:  # no layer is below a volume
            return None
        parent = os.path.dirname(path)
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
        """Name what lay below the folder ``path`` at the mark and is hidden by its new self."""
        names: set[str] = set()
        for layer in self._lower:
            try:
                with _Walker(layer) as walker:
                    names.update(os.listdir(walker.go(path)))  # noqa: PTH208
            except OSError:
                continue
        for name in sorted(names):
            child = f"{path}/{name}"
            reading.entry(len(child))
            if self._entry_at_mark(child, reading) is None:
                continue
            if child not in current:
                yield child
            elif _is_folder(current[child].entry):
                yield from self._find_hidden(child, current, reading)


@cache
def _unknown_feature() -> str:
    """Name what the kernel's overlay uses that this walk does not know, or return nothing."""
    for feature in _FEATURES:
        setting = Path("/sys/module/overlay/parameters", feature)
        if setting.exists() and setting.read_text().strip() not in ("N", "off", "0"):
            return feature
    return ""


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


class _Walker:
    """The way from a folder down to one below it, step by step and through no link.

    A few of the folders in between stay open, and no more, however deep it goes: the others are
    opened once more, from the top.

    Args:
        top: the path of the folder that it begins at.
        parent: a descriptor of the folder that a relative path begins at.
    """

    def __init__(self, top: str, parent: int | None = None) -> None:
        self._top = os.open(top, _FOLDER, dir_fd=parent)
        self._parts: list[str] = []
        self._folders: list[int | None] = []  # None for one that was closed again

    def here(self) -> int:
        """Return the folder that the way leads to."""
        if not self._folders:
            return self._top
        last = self._folders[-1]
        return self._reopen() if last is None else last

    def enter(self, name: str) -> int:
        """Go on to a folder in the present one, and return it."""
        inner = os.open(name, _FOLDER, dir_fd=self.here())
        self._parts.append(name)
        self._folders.append(inner)
        self._close(len(self._folders) - 1 - _MAX_OPEN_FOLDERS)
        return inner

    def leave(self) -> None:
        """Go back to the folder above; does nothing at the top."""
        if self._folders:
            self._close(len(self._folders) - 1)
            self._folders.pop()
            self._parts.pop()

    def go(self, path: str) -> int:
        """Go on to a folder below the present one, and return it."""
        for part in path_parts(path):
            self.enter(part)
        return self.here()

    def entries(
        self, skipped: Set[str], reading: Reading
    ) -> Iterator[tuple[str, str, os.stat_result]]:
        """Yield path, name and status of all below the top; a folder comes before what is in it.

        Meanwhile the way leads to the folder that was yielded, or that the entry is in.

        Args:
            skipped: paths that are left out.
            reading: what is read counts here.
        """
        stack = [("", self._names("", reading))]
        while stack:
            path, names = stack[-1]
            name = next(names, None)
            if name is None:
                stack.pop()
                self.leave()
                continue
            child = f"{path}/{name}"
            if child in skipped:
                continue
            try:
                status = os.stat(name, dir_fd=self.here(), follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    self.enter(name)
                    stack.append((child, iter(())))
                yield child, name, status
                if stat.S_ISDIR(status.st_mode):
                    stack[-1] = child, self._names(child, reading)
            except OSError as error:
                if error.errno not in _REPLACED:
                    raise  # else a process in the container changes it now

    def _names(self, path: str, reading: Reading) -> Iterator[str]:
        """Return the names in the present folder, whose path is ``path``."""
        names = os.listdir(self.here())  # noqa: PTH208
        reading.entry((len(path) + 1) * len(names) + sum(map(len, names)), len(names))
        return iter(names)

    def _reopen(self) -> int:
        current = self._top
        for index, part in enumerate(self._parts):
            folder = self._folders[index]
            if folder is None:
                folder = self._folders[index] = os.open(part, _FOLDER, dir_fd=current)
            current = folder
            self._close(index - _MAX_OPEN_FOLDERS)
        return current

    def _close(self, at: int) -> None:
        folder = self._folders[at] if at >= 0 else None
        if folder is not None:
            self._folders[at] = None
            os.close(folder)

    def __enter__(self) -> _Walker:
        return self

    def __exit__(self, *_: object) -> None:
        for index in range(len(self._folders)):
            self._close(index)
        os.close(self._top)


def _make_entry(status: os.stat_result, content: str = "") -> Entry:
    kind = stat.filemode(status.st_mode)[0].replace("-", "f")
    return Entry(kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, content)


def _read_entry(folder: int | None, name: str, status: os.stat_result, reading: Reading) -> Entry:
    content = ""
    if stat.S_ISLNK(status.st_mode):
        content = os.readlink(name, dir_fd=folder)
        reading.link(len(content))
    elif stat.S_ISREG(status.st_mode):
        descriptor = _open_file(name, folder)
        try:
            content = digest_of(descriptor, status.st_size, reading)
        finally:
            os.close(descriptor)
    elif stat.S_ISBLK(status.st_mode) or stat.S_ISCHR(status.st_mode):
        content = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return _make_entry(status, content)


def _open_file(name: str, folder: int | None) -> int:
    """Open a file without waiting for anybody.

    Raises:
        UngradableState: a process in the container holds a lease on it. The file is there, and must
            not pass for one that is gone.
    """
    try:
        return os.open(name, _FILE, dir_fd=folder)
    except BlockingIOError:
        raise UngradableState(f"a process holds a lease on {name}, so it cannot be read") from None


def _pack(
    archive: tarfile.TarFile, folder: int | None, name: str, path: str, reading: Reading
) -> None:
    """Add a file, a link or a folder to an archive."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    member = tarfile.TarInfo(path.lstrip("/"))
    member.mode, member.uid, member.gid = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
    member.mtime = int(status.st_mtime)
    if stat.S_ISLNK(status.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=folder)
        archive.addfile(member)
    elif stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    elif stat.S_ISREG(status.st_mode):
        reading.content(status.st_size)
        with os.fdopen(_open_file(name, folder), "rb") as file:
            content = file.read(status.st_size)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


def _find_in_layer(layer: str, path: str, reading: Reading) -> tuple[Entry | None, bool]:
    """Look ``path`` up in one layer.

    Returns:
        The entry, or None, and whether the layers below this one need not be asked.
    """
    *folders, name = path_parts(path)
    final = False
    with _Walker(layer) as walker:
        try:
            for part in folders:
                status = os.stat(part, dir_fd=walker.here(), follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    return None, True
                final = _is_opaque(walker.enter(part)) or final
            status = os.stat(name, dir_fd=walker.here(), follow_symlinks=False)
            if _is_whiteout(status):
                return None, True
            return _read_entry(walker.here(), name, status, reading), True
        except OSError as error:
            if error.errno not in _REPLACED:
                raise
            return None, final
