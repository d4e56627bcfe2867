"""What changed on disk, read from the inside: two listings by ``find`` and some digests.

For every backend whose files cannot be read from the host. A listing of a small Debian system
takes about 100 ms. An agent that replaces ``find`` or ``sha256sum`` in its own sandbox can
falsify its own listing here; where the host can read the layers, it does.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.protocol import DEPTH, Changes, Entry

__all__ = ["ListingProbe"]

_FORMAT = r"%y\0%m\0%U\0%G\0%s\0%T@\0%C@\0%i\0%p\0%l\0"
_FIELDS = 10
_CONTENT_AT_MARK = 8 * 1024**2
_TIMEOUT = 60.0
_COMMAND_LINE = 100_000  # bytes; Linux takes 128 KiB in one argument

Admin = Callable[[str, float], tuple[int, bytes]]


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
    """

    def __init__(self, admin: Admin, outside: Iterable[str]) -> None:
        self._admin = admin
        self._outside = frozenset(outside)
        self._base: dict[str, _Listed] = {}
        self._digests: dict[str, str] = {}

    def mark(self) -> None:
        """List everything; take digests of what was written since the sandbox started."""
        self._base = self._list()
        _, started = self._admin("stat -c %Z /proc/1", _TIMEOUT)
        since = float(started.decode().strip() or 0) - 1
        fresh = [
            path
            for path, listed in self._base.items()
            if listed.type == "f"
            and float(listed.stamp[2]) >= since
            and int(listed.stamp[0]) <= _CONTENT_AT_MARK
        ]
        self._digests = self._sums(fresh)

    def changes(self) -> Changes:
        """List again and compare."""
        now = self._list()
        touched = [p for p, listed in now.items() if self._base.get(p) != listed]
        sums = self._sums(p for p in touched if now[p].type == "f")
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

    def entries(self, paths: Iterable[str]) -> dict[str, Entry | None]:
        """List the given paths alone."""
        wanted = list(paths)
        # Their folders are looked at as well: what lies behind a link is not at the path.
        folders = {above for path in wanted for above in _above(path)}
        found: dict[str, _Listed] = {}
        for some in _batches({*wanted, *folders}):
            found |= self._parse(f"find {_words(some)} -maxdepth 0 -printf '{_FORMAT}'")
        real = [
            path
            for path in wanted
            if path in found and all(_is_folder(found, above) for above in _above(path))
        ]
        sums = self._sums(path for path in real if found[path].type == "f")
        entries: dict[str, Entry | None] = dict.fromkeys(wanted)
        return entries | {path: found[path].entry(sums.get(path, "")) for path in real}

    def _list(self) -> dict[str, _Listed]:
        skipped = " -o ".join(f"-path {shlex.quote(path)}" for path in sorted(self._outside))
        return self._parse(
            f"find / -mindepth 1 -maxdepth {DEPTH} -xdev"
            f" \\( {skipped} \\) -prune -o -printf '{_FORMAT}'"
        )

    def _parse(self, command: str) -> dict[str, _Listed]:
        # What vanishes meanwhile is a complaint of find's, and no entry.
        script = f"LC_ALL=C exec bash -c {shlex.quote(command)} 2>/dev/null"
        status, output = self._admin(script, _TIMEOUT)
        fields = output.decode("utf-8", "surrogateescape").split("\0")
        if status not in (0, 1) or len(fields) % _FIELDS != 1:
            raise SandboxError(f"the files could not be listed (status {status})")
        listed: dict[str, _Listed] = {}
        for at in range(0, len(fields) - 1, _FIELDS):
            kind, mode, uid, gid, size, written, changed, inode, path, link = fields[
                at : at + _FIELDS
            ]
            # A folder's size and times change with what is in it, which is listed itself.
            stamp = () if kind == "d" else (size, written, changed, inode)
            listed[path] = _Listed(kind, int(mode, 8), int(uid), int(gid), stamp, link)
        return listed

    def _sums(self, paths: Iterable[str]) -> dict[str, str]:
        sums: dict[str, str] = {}
        for some in _batches(paths):
            _, output = self._admin(f"sha256sum -z -- {_words(some)} 2>/dev/null", _TIMEOUT)
            for line in output.decode("utf-8", "surrogateescape").split("\0"):
                digest, _, path = line.partition("  ")
                if path:
                    sums[path] = digest
        return sums


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
