"""What changed on disk, read from inside: two listings and some digests, by our own program.

This is for every backend whose files cannot be read from the host. The program
(``lister/lister.c``) is a part of the sandbox's keeper: no program, library or setting of the
sandbox takes part, and its answers are authenticated. All that an agent can do is disturb it. As it
is loaded before the agent acts, a failure of it is the agent's.
"""

from __future__ import annotations

import hmac
import io
import os
import re
import secrets
import stat
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from pytest_intercode.errors import CommandFailed, UngradableState
from pytest_intercode.sandboxes.protocol import OUTSIDE, Changes, Entry
from pytest_intercode.sandboxes.reading import SETUP_LIMITS, Reading, path_parts
from pytest_intercode.system.archives import add_entry

__all__ = ["Lister", "ListingProbe"]

Lister: TypeAlias = Callable[[bytes, float, int], "tuple[int, bytes]"]
"""Answers a request; see ``Channel.list_files``."""

_KEY = 32  # bytes
_MAC = 32
_MAX_RECORD = 200  # bytes of a record at most, without names and content
_ANSWER_OVERHEAD = 16384  # bytes of an answer at most, without entries and content
_GRACE_PERIOD = 1.0  # seconds that we wait beyond the program's own limit

# The records, as lister.c defines them.
_FOLDER = struct.Struct("<II")
_ENTRY = struct.Struct("<BIHIIIII")
_STAMP = struct.Struct("<QqIqIQ")  # size, times and inode
_PART = struct.Struct("<I")
_END = struct.Struct("<BQ")
_DIGEST, _LEASED, _UNREADABLE = 1, 2, 4
_DIGEST_SIZE = 32

# Why an answer ends before it is complete.
_ENDS: dict[int, Callable[[Reading], UngradableState]] = {
    ord("e"): Reading.too_many,
    ord("n"): Reading.too_long,
    ord("c"): Reading.too_much,
    ord("t"): Reading.too_slow,
    ord("r"): lambda _: UngradableState("the sandbox's kernel refused to read its files"),
}
_TYPES = {
    **{stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFIFO: "p"},
    **{stat.S_IFSOCK: "s", stat.S_IFBLK: "b", stat.S_IFCHR: "c"},
}
_SPECIAL = re.compile(rb"[^A-Za-z0-9/._-]")


class _Listed(NamedTuple):
    """An entry as the program lists it.

    Attributes:
        stamp: size, times and inode, which change with the entry. Empty for a folder when folders
            are compared, as their entries are listed themselves.
        content: a link's target, a device's number or a file's digest; empty if it is not known.
        data: a file's content, if that was asked for and can be read.
    """

    type: str
    mode: int
    uid: int
    gid: int
    stamp: bytes
    content: str = ""
    data: bytes | None = None

    @property
    def entry(self) -> Entry:
        return Entry(self.type, self.mode, self.uid, self.gid, self.content)

    @property
    def known(self) -> bool:
        """Whether the entry is known in full."""
        return self.type != "f" or bool(self.content)

    @property
    def mtime(self) -> int:
        """The time of its last change, in seconds."""
        return int(_STAMP.unpack(self.stamp)[1])


class ListingProbe:
    """Reads the changes of one sandbox through the program in its keeper.

    Args:
        lister: sends a request to the program.
        outside: paths that are not a part of the sandbox's disk.
        volumes: folders that are mounts of their own, but hold files like all others.
    """

    def __init__(
        self, lister: Lister, outside: Iterable[str] = OUTSIDE, volumes: Iterable[str] = ()
    ) -> None:
        self._lister = lister
        self._volumes = sorted(volumes)
        # Some runtimes, such as gVisor, keep an empty /tmp in memory, as a mount of its own.
        self._disk = [*sorted(outside), "-", *self._volumes, "/tmp"]
        self._base: dict[str, _Listed] = {}
        self._names = 0  # bytes of the base's paths

    def mark(self, reading: Reading | None = None) -> None:
        """List everything, with digests of what was written since the sandbox started."""
        reading = reading or Reading(SETUP_LIMITS)
        self._base = dict(self._ask("mark", self._disk, reading))
        self._names = sum(len(os.fsencode(path)) for path in self._base)

    def changes(self, reading: Reading | None = None) -> Changes:
        """List everything again, and compare."""
        reading = reading or Reading()
        # The entries at the mark were not made by the agent, and do not count for the limits.
        reading.spare(len(self._base), self._names)
        current = dict(self._ask("tree", self._disk, reading))
        # Files written just before the mark are read again, as their times might not show a change.
        touched = [path for path, new in current.items() if self._base.get(path) != new]
        for path, item in self._query(
            [p for p in touched if current[p].type == "f"], reading
        ).items():
            if item is None:  # it was removed in the meantime
                del current[path]
            else:
                current[path] = item
        entries: dict[str, Entry | None] = {}
        old_entries: dict[str, Entry | None] = {}
        for path in touched:
            new, old = current.get(path), self._base.get(path)
            if new is None or (old is not None and old.known and new.entry == old.entry):
                continue
            entries[path] = new.entry
            if old is None or old.known:
                old_entries[path] = old and old.entry
        for path, old in self._base.items():
            # Entries of a folder that is gone, or is not a folder any more, went with it.
            if path not in current and _is_folder(current, path.rpartition("/")[0]):
                entries[path] = None
                if old.known:
                    old_entries[path] = old.entry
        return Changes(entries, old_entries)

    def entries(
        self, paths: Iterable[str], reading: Reading | None = None
    ) -> dict[str, Entry | None]:
        """List only the given paths."""
        results = self._query(list(paths), reading or Reading())
        return {path: item and item.entry for path, item in results.items()}

    def archive(self, paths: Iterable[str], reading: Reading) -> bytes:
        """Return a tar archive of the entries at ``paths`` now."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path, item in self._query(list(paths), reading, "content").items():
                if item is not None:
                    _pack(archive, path, item)
        return buffer.getvalue()

    def below(self, tops: Iterable[str], reading: Reading) -> list[str]:
        """Return those of ``tops`` that exist now, and the paths of everything in these folders."""
        top_paths = [_normalize(top) for top in tops]
        inner = [
            volume
            for volume in self._volumes
            if any(volume.startswith(f"{top.rstrip('/')}/") for top in top_paths)
        ]
        return list(dict(self._ask("below", [*top_paths, *inner], reading)))

    def _query(
        self, paths: list[str], reading: Reading, command: str = "digest"
    ) -> dict[str, _Listed | None]:
        """Return the entries at paths, with the digests or the contents of files."""
        unique = list(dict.fromkeys(map(_normalize, paths)))
        if command == "digest":  # the paths are from a listing, or from gold
            reading.spare(len(unique), sum(len(os.fsencode(path)) for path in unique))
        results: dict[str, _Listed | None] = dict.fromkeys(unique)
        if unique:
            results.update(self._ask(command, unique, reading))
        return {path: results[_normalize(path)] for path in paths}

    def _ask(
        self, command: str, paths: Iterable[str], reading: Reading
    ) -> Iterator[tuple[str, _Listed]]:
        """Send a request; return the entries of the answer, with their paths."""
        reading.check()
        key = secrets.token_hex(_KEY).encode()
        words = [*map(str, reading.remaining), str(int(1000 * reading.remaining_seconds)), command]
        request = b" ".join([key, *map(str.encode, words), *map(_quote, paths)])
        limit = reading.max_listing(_MAX_RECORD) + _ANSWER_OVERHEAD
        limit += reading.remaining[2] if command == "content" else 0
        try:
            status, answer = self._lister(request, reading.remaining_seconds + _GRACE_PERIOD, limit)
        except CommandFailed as failed:
            reading.check()
            raise UngradableState(f"the files could not be listed: {failed}") from None
        if status != 0:
            raise UngradableState(f"the files could not be listed (it ended with {status})")
        # Before anything is parsed, so that the parser reads only what the program wrote.
        if not hmac.compare_digest(hmac.digest(key, answer[:-_MAC], "sha256"), answer[-_MAC:]):
            raise UngradableState("a process in the sandbox disturbed the listing of its files")
        return _entries(answer, reading, whole=command == "content")


def _entries(answer: bytes, reading: Reading, whole: bool) -> Iterator[tuple[str, _Listed]]:
    """Yield the entries of an authentic answer, and count what is in it.

    Args:
        answer: the answer.
        reading: counts what was read.
        whole: the answer has the contents of files.
    """
    end = len(answer) - _MAC - _END.size
    reason, content_read = _END.unpack_from(answer, end)
    if reason:
        raise _ENDS[reason](reading)
    index = names = count = 0
    folders: list[str] = []
    while index < end - 1:
        kind, index = answer[index : index + 1], index + 1
        if kind == b"d":
            depth, length = _FOLDER.unpack_from(answer, index)
            index += _FOLDER.size + length
            name = os.fsdecode(answer[index - length : index])
            del folders[depth:]
            folders.append(f"{folders[-1]}/{name}" if depth else name)
        else:
            flags, length, target, mode, uid, gid, major, minor = _ENTRY.unpack_from(answer, index)
            index += _ENTRY.size
            stamp, index = answer[index : index + _STAMP.size], index + _STAMP.size
            name, index = os.fsdecode(answer[index : index + length]), index + length
            content, index = os.fsdecode(answer[index : index + target]), index + target
            path = name if name[0] == "/" else f"{folders[-1]}/{name}"
            if flags & _LEASED:
                raise UngradableState(f"a process holds a lease on {path}, so it cannot be read")
            if flags & _DIGEST:
                content, index = answer[index : index + _DIGEST_SIZE].hex(), index + _DIGEST_SIZE
            form = stat.S_IFMT(mode)
            data = None
            if form in (stat.S_IFBLK, stat.S_IFCHR):
                content = f"{major}:{minor}"
            elif form == stat.S_IFDIR and not whole:
                stamp = b""
            elif form == stat.S_IFREG and whole:
                data, index = _join_parts(answer, index)
                data = None if flags & _UNREADABLE else data
            names += len(path) + target
            count += 1
            yield path, _Listed(_TYPES[form], stat.S_IMODE(mode), uid, gid, stamp, content, data)
    reading.entry(names, count)
    reading.content(content_read)


def _join_parts(answer: bytes, index: int) -> tuple[bytes, int]:
    """Return the joined parts of a content, and the index after them."""
    parts: list[bytes] = []
    while True:
        (length,) = _PART.unpack_from(answer, index + 1)  # each begins with a `c`
        index += 1 + _PART.size + length
        if not length:
            return b"".join(parts), index
        parts.append(answer[index - length : index])


def _pack(archive: tarfile.TarFile, path: str, listed: _Listed) -> None:
    """Add a file, a link or a folder to an archive."""
    content: bytes | str | None = listed.data
    if listed.type == "l":
        content = listed.content
    elif listed.type != "d" and content is None:
        return
    name, owner = path.lstrip("/"), (listed.uid, listed.gid)
    add_entry(archive, name, content, listed.mode, mtime=listed.mtime, owner=owner)


def _normalize(path: str) -> str:
    return "/" + "/".join(path_parts(path))


def _quote(path: str) -> bytes:
    return _SPECIAL.sub(lambda byte: b"%%%02x" % byte[0][0], os.fsencode(path))


def _is_folder(listed: Mapping[str, _Listed], path: str) -> bool:
    return not path or (path in listed and listed[path].type == "d")
