"""What changed on disk, read from the inside: two listings by ``find`` and some digests.

For every backend whose files cannot be read from the host. A listing of a small Debian system
takes about 100 ms. An agent that replaces ``find`` or ``sha256sum`` in its own sandbox can
falsify its own listing here; where the host can read the layers, it does. What these programs do
and how much they print is the agent's doing, so a failure of theirs is the agent's.
"""

from __future__ import annotations

import io
import os
import posixpath
import shlex
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from pytest_intercode.errors import CommandFailed, UngradableState
from pytest_intercode.sandboxes.protocol import OUTSIDE, Changes, Entry
from pytest_intercode.sandboxes.reading import SETUP_LIMITS, Reading

__all__ = ["Admin", "ListingProbe"]

_FORMAT = r"%y\0%m\0%U\0%G\0%s\0%T@\0%C@\0%i\0%p\0%l\0"
_FIELDS = 10
_CONTENT_AT_MARK = 8 * 1024**2
_COMMAND_LINE = 100_000  # bytes; Linux takes 128 KiB in one argument
_LONGEST_PATH = 4095  # bytes that the system takes as one path
_ABOUT_MEMBER = 16384  # bytes of an archive's member, at most, besides its content
_ABOUT_ENTRY = 200  # bytes of a line of a listing, at most, besides its names


Admin: TypeAlias = Callable[[str, float, int], "tuple[int, bytes]"]
"""Runs a command in the sandbox; see ``Channel.admin``."""


class _Listed(NamedTuple):
    """A line of a listing."""

    type: str
    mode: int
    uid: int
    gid: int
    stamp: tuple[str, ...]
    link: str

    def entry(self, content: str = "") -> Entry:
        return Entry(self.type, self.mode, self.uid, self.gid, self.link or content)


class ListingProbe:
    """Reads the changes of one sandbox through its own tools.

    Args:
        admin: :meth:`pytest_intercode.sandboxes.protocol.Sandbox.admin` of that sandbox.
        outside: paths that the backend itself mounts or writes.
        volumes: folders that are mounts of their own, and hold files as all others do.
    """

    def __init__(
        self, admin: Admin, outside: Iterable[str] = OUTSIDE, volumes: Iterable[str] = ()
    ) -> None:
        self._admin = admin
        self._outside = frozenset(outside)
        self._volumes = tuple(volumes)
        self._base: dict[str, _Listed] = {}
        self._names = 0  # characters of the base's paths
        self._digests: dict[str, str] = {}

    def mark(self, reading: Reading | None = None) -> None:
        """List everything; take digests of what was written since the sandbox started."""
        reading = reading or Reading(SETUP_LIMITS)
        self._base = self._list(reading)
        self._names = sum(map(len, self._base))
        look = "stat -c %Z /proc/1 2>/dev/null"
        _, started = self._admin(look, reading.seconds_left, _ABOUT_ENTRY)
        since = float(started.decode().strip() or 0) - 1
        fresh = {
            path: listed
            for path, listed in self._base.items()
            if listed.type == "f"
            and float(listed.stamp[2]) >= since
            and int(listed.stamp[0]) <= _CONTENT_AT_MARK
        }
        self._digests = self._sums(fresh, reading)

    def changes(self, reading: Reading | None = None) -> Changes:
        """List again and compare."""
        reading = reading or Reading()
        reading.spare(len(self._base), self._names)
        now = self._list(reading)
        # What was written just before the mark is read again, as times need not show a change.
        touched = [p for p, new in now.items() if self._base.get(p) != new or p in self._digests]
        sums = self._sums({p: now[p] for p in touched if now[p].type == "f"}, reading)
        entries: dict[str, Entry | None] = {}
        before: dict[str, Entry | None] = {}
        for path in touched:
            listed, old = now[path], self._base.get(path)
            entry = listed.entry(sums.get(path, ""))
            known = old is None or old.type != "f" or path in self._digests
            was = None if old is None else old.entry(self._digests.get(path, ""))
            if known and entry == was:
                continue
            entries[path] = entry
            if known:
                before[path] = was
        for path, old in self._base.items():
            # What lay in a folder that is gone, or is no folder now, went with it.
            if path not in now and _is_folder(now, path.rpartition("/")[0]):
                entries[path] = None
                if old.type != "f" or path in self._digests:
                    before[path] = old.entry(self._digests.get(path, ""))
        return Changes(entries, before)

    def entries(
        self, paths: Iterable[str], reading: Reading | None = None
    ) -> dict[str, Entry | None]:
        """List the given paths alone."""
        reading = reading or Reading()
        wanted = list(paths)
        # Their folders are looked at as well: what lies behind a link is not at the path.
        every = set(wanted)
        for path in wanted:
            reading.check()
            every.update(_above(path))
        reading.spare(len(every), sum(map(len, every)))
        found: dict[str, _Listed] = {}
        for some in _batches(every):
            found |= self._parse(f"find {_words(some)} -maxdepth 0 -printf '{_FORMAT}'", reading)
        real = {
            path: found[path]
            for path in wanted
            if path in found and all(_is_folder(found, above) for above in _above(path))
        }
        sums = self._sums({p: listed for p, listed in real.items() if listed.type == "f"}, reading)
        entries: dict[str, Entry | None] = dict.fromkeys(wanted)
        return entries | {path: found[path].entry(sums.get(path, "")) for path in real}

    def archive(self, paths: Iterable[str], reading: Reading) -> bytes:
        """Have the sandbox's own ``tar`` pack what stands at ``paths`` now."""
        wanted = list(paths)
        entries = self.entries(wanted, reading)
        packed = [path for path, entry in entries.items() if entry and entry.type in "fdl"]
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for some in _batches(packed):
                words = "--no-recursion --hard-dereference --format=pax -P -C / -cf -"
                most = reading.limits.content + _ABOUT_MEMBER * len(some)
                _, output = self._ask(f"tar {words} -- {_words(some)} 2>/dev/null", reading, most)
                _copy_members(output, set(some), archive, reading)
        return buffer.getvalue()

    def below(self, tops: Iterable[str], reading: Reading) -> list[str]:
        """List what stands at ``tops`` now, and all that is in these folders."""
        listed: dict[str, _Listed] = {}
        for top in tops:
            inner = [at for at in self._volumes if at.startswith(f"{top.rstrip('/')}/")]
            words = _words([top, *inner])
            listed |= self._parse(f"find {words} -xdev -printf '{_FORMAT}'", reading)
        return list(listed)

    def _list(self, reading: Reading) -> dict[str, _Listed]:
        skipped = " -o ".join(f"-path {shlex.quote(path)}" for path in sorted(self._outside))

        def find(start: str) -> str:
            return f"find {start} -mindepth 1 -xdev \\( {skipped} \\) -prune -o -printf '{_FORMAT}'"

        # Some runtimes, such as gVisor, keep an empty /tmp in memory, as a mount of its own.
        disk, tmp = find(_words(["/", *self._volumes])), find("/tmp")
        return self._parse(
            f"{disk}; status=$?; if mountpoint -q /tmp; then {tmp}; fi; exit $status", reading
        )

    def _parse(self, command: str, reading: Reading) -> dict[str, _Listed]:
        # What vanishes meanwhile is a complaint of find's, and no entry.
        script = f"LC_ALL=C exec bash -c {shlex.quote(command)} 2>/dev/null"
        status, output = self._ask(script, reading, reading.listing_left(_ABOUT_ENTRY))
        fields = output.decode("utf-8", "surrogateescape").split("\0")
        if status not in (0, 1) or len(fields) % _FIELDS != 1 or fields[-1]:
            raise UngradableState(f"the files could not be listed (find ended with {status})")
        listed: dict[str, _Listed] = {}
        for at in range(0, len(fields) - 1, _FIELDS):
            kind, mode, uid, gid, size, written, changed, inode, path, link = fields[
                at : at + _FIELDS
            ]
            reading.entry(len(path) + len(link))
            if not path.startswith("/") or posixpath.normpath(path) != path:
                raise UngradableState("find prints something else than a listing")
            # A folder's size and times change with what is in it, which is listed itself.
            stamp = () if kind == "d" else (size, written, changed, inode)
            try:
                listed[path] = _Listed(kind, int(mode, 8), int(uid), int(gid), stamp, link)
                int(size)
            except ValueError:
                raise UngradableState("find prints something else than a listing") from None
        return listed

    def _sums(self, files: Mapping[str, _Listed], reading: Reading) -> dict[str, str]:
        sums: dict[str, str] = {}
        for path, listed in files.items():
            if len(os.fsencode(path)) > _LONGEST_PATH:
                raise UngradableState(f"a file's path has more than {_LONGEST_PATH} bytes")
            reading.content(int(listed.stamp[0]))
        for some in _batches(files):
            command = f"sha256sum -z -- {_words(some)} 2>/dev/null"
            _, output = self._ask(command, reading, 2 * _COMMAND_LINE + _ABOUT_ENTRY * len(some))
            for line in output.decode("utf-8", "surrogateescape").split("\0"):
                digest, _, path = line.partition("  ")
                if path:
                    sums[path] = digest
        return sums

    def _ask(self, command: str, reading: Reading, most: int) -> tuple[int, bytes]:
        try:
            return self._admin(command, reading.seconds_left, most)
        except CommandFailed as failed:
            reading.check()
            raise UngradableState(f"the files could not be listed: {failed}") from None


def _copy_members(
    output: bytes, wanted: set[str], archive: tarfile.TarFile, reading: Reading
) -> None:
    """Copy the wanted members of what a sandbox's ``tar`` printed, each once."""
    try:
        with tarfile.open(fileobj=io.BytesIO(output), mode="r:") as printed:
            for member in printed:
                path = f"/{member.name.strip('/')}"
                if path not in wanted or not (member.isreg() or member.isdir() or member.issym()):
                    continue
                wanted.discard(path)
                member.name = path.lstrip("/")
                member.pax_headers = {}
                reading.content(member.size)
                archive.addfile(member, printed.extractfile(member) if member.isreg() else None)
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        raise UngradableState(f"tar prints something else than an archive: {error}") from None


def _above(path: str) -> Iterator[str]:
    """Name the folders that ``path`` is in, without the root."""
    while path := path.rpartition("/")[0]:
        yield path


def _is_folder(listed: Mapping[str, _Listed], path: str) -> bool:
    return not path or (path in listed and listed[path].type == "d")


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    """Split paths so that each part fits into a command line."""
    part: list[str] = []
    size = 0
    for path in paths:
        # A command is quoted once more on its way.
        length = len(os.fsencode(shlex.quote(shlex.quote(path)))) + 1
        if part and size + length > _COMMAND_LINE:
            yield part
            part, size = [], 0
        part.append(path)
        size += length
    if part:
        yield part


def _words(paths: Iterable[str]) -> str:
    return " ".join(shlex.quote(path) for path in paths)
