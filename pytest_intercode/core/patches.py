"""Patches in git's format: read with limits, checked, written in commands, and reversed.

This module works on text only; git applies patches. Changes outside the repository are refused
here: paths with ``..``, absolute paths, paths into ``.git``, symbolic links that point outside. So
are changes that cannot be applied: submodules, and binary files without their content.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pytest_intercode.errors import SuiteError

__all__ = [
    "MAX_PATCH_LENGTH",
    "Change",
    "Hunk",
    "PatchError",
    "PatchRefused",
    "heredoc",
    "read_patch",
    "reverse_patch",
]

MAX_PATCH_LENGTH = 64 * 1024**2
"""Maximum characters of a patch that is read."""

_MAX_FILES = 20_000  # files that one patch may change
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(.*)", re.DOTALL)
_MODES = ("100644", "100755", "120000", "160000")
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


class PatchError(SuiteError):
    """A patch cannot be read; the message names the file and the hunk."""


class PatchRefused(PatchError):
    """A patch makes a change that is refused; the message names the file."""


@dataclass(frozen=True)
class Hunk:
    """A part of a change.

    Attributes:
        old: the first line before the change, and the number of lines.
        new: the first line after the change, and the number of lines.
        section: the text after the line numbers.
        lines: each with its mark (blank, ``-``, ``+`` or a backslash), without the line's end.
    """

    old: tuple[int, int]
    new: tuple[int, int]
    section: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """The change of a patch to one file.

    Attributes:
        header: the new path in the line that begins the change.
        old: the old path; None for a file that is created.
        new: the new path; None for a file that is deleted.
        old_mode: the old mode, if the patch has it.
        new_mode: the new mode, if the patch has it.
        moved: ``rename``, ``copy`` or empty.
        index: the line with the hashes of the contents, or empty.
        similarity: the line with the similarity index, or empty.
        binary: the lines of a binary content; None for text.
        hunks: its parts.
    """

    header: str
    old: str | None
    new: str | None
    old_mode: str = ""
    new_mode: str = ""
    moved: str = ""
    index: str = ""
    similarity: str = ""
    binary: tuple[str, ...] | None = None
    hunks: tuple[Hunk, ...] = field(default=(), repr=False)

    @property
    def path(self) -> str:
        """The path for messages about the change."""
        return self.new or self.old or self.header


def read_patch(text: str) -> tuple[Change, ...]:
    """Return the changes of a patch, in order. Line ends within files are kept as they are.

    Raises:
        PatchError: git would not apply the patch, or it makes a change that is refused.
    """
    if len(text) > MAX_PATCH_LENGTH:
        raise PatchRefused(
            f"a patch of {len(text) / 1024**2:.0f} Mi characters; at most "
            f"{MAX_PATCH_LENGTH // 1024**2} are read"
        )
    if not text.strip():
        return ()
    changes = []
    reader = _Reader(text)
    while reader.skip_to_change():
        change = reader.change()
        _check_change(change)
        changes.append(change)
        if len(changes) > _MAX_FILES:
            raise PatchRefused(f"a patch of more than {_MAX_FILES:,} files")
    if not changes:
        raise PatchError(
            "not a patch in git's format: no line of it begins with 'diff --git' or '--- '"
        )
    return tuple(changes)


class _Reader:
    """Reads the lines of a patch, one change after another."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        if not self._lines[-1]:
            self._lines.pop()
        self._index = 0

    def _next(self, begin: str = "") -> str | None:
        """Return the next line, without a carriage return; None if it does not begin like this."""
        if self._index >= len(self._lines):
            return None
        line = self._lines[self._index]
        return line.removesuffix("\r") if line.startswith(begin) else None

    def skip_to_change(self) -> bool:
        """Go to the next change, skipping text between changes."""
        while (line := self._next()) is not None:
            if line.startswith("diff --git "):
                return True
            if line.startswith("--- ") and (self._peek(1) or "").startswith("+++ "):
                return True
            if line.startswith("@@ -"):
                raise PatchError(f"line {self._index + 1}: a hunk before any file")
            self._index += 1
        return False

    def _peek(self, ahead: int) -> str | None:
        index = self._index + ahead
        return self._lines[index] if index < len(self._lines) else None

    def change(self) -> Change:
        """Read the change that begins here."""
        header = ""
        place = self._index + 1
        change = Change("", "", "")
        if (line := self._next("diff --git ")) is not None:
            header = line.removeprefix("diff --git ")
            self._index += 1
            change = self._read_extended(change)
        if self._next("--- ") is not None and (self._peek(1) or "").startswith("+++ "):
            old, new = self._name("--- "), self._name("+++ ")
            change = replace(
                change,
                old=None if change.old is None else old,
                new=None if change.new is None else new,
            )
        elif header and not change.moved:
            name = _same_name(header)
            if name is None:
                raise PatchError(
                    f"line {place}: its header does not say which file it is about: {header!r}"
                )
            old_name = None if change.old is None else name
            change = replace(change, old=old_name, new=None if change.new is None else name)
        title = _new_path(header) or change.new or change.old or ""
        change = replace(change, header=title)
        if change.old == "" or change.new == "" or (change.old is None and change.new is None):
            raise PatchError(f"line {place}: the names of the file are missing")
        hunks = tuple(self._hunks(change))
        if not header and not hunks:
            raise PatchError(f"{change.path}: has no hunk")
        return replace(change, hunks=hunks)

    def _name(self, mark: str) -> str | None:
        """Return the name in a ``---`` or ``+++`` line; None for no file."""
        name = _unquote((self._next() or "").removeprefix(mark).partition("\t")[0])
        self._index += 1
        if name == "/dev/null":
            return None
        return name.partition("/")[2] if name.startswith(("a/", "b/")) else name

    def _read_extended(self, change: Change) -> Change:
        """Read the lines between the header and the content."""
        while (line := self._next()) is not None:
            word, _, value = line.partition(" ")
            two, _, rest = value.partition(" ")
            key = f"{word} {two}"
            if word in ("---", "@@", "diff"):
                break
            if key == "old mode":
                change = replace(change, old_mode=rest)
            elif key == "new mode":
                change = replace(change, new_mode=rest)
            elif key == "new file":
                change = replace(change, old=None, new_mode=rest.removeprefix("mode "))
            elif key == "deleted file":
                change = replace(change, new=None, old_mode=rest.removeprefix("mode "))
            elif key in ("rename from", "copy from"):
                change = replace(change, moved=word, old=_unquote(rest))
            elif key in ("rename to", "copy to"):
                change = replace(change, moved=word, new=_unquote(rest))
            elif key in ("similarity index", "dissimilarity index"):
                change = replace(change, similarity=line)
            elif word == "index":
                change = replace(change, index=line)
                mode = value.rpartition(" ")[2] if " " in value else ""
                if mode and not change.old_mode and not change.new_mode:
                    change = replace(change, old_mode=mode, new_mode=mode)
            elif line == "GIT binary patch":
                self._index += 1
                return replace(change, binary=tuple(self._binary()))
            elif line.startswith("Binary files "):
                change = replace(change, binary=())
            else:
                break
            self._index += 1
        return change

    def _binary(self) -> Iterator[str]:
        while (line := self._next()) is not None and not line.startswith("diff --git "):
            yield line
            self._index += 1

    def _hunks(self, change: Change) -> Iterator[Hunk]:
        number = 0
        while self._next("@@ -") is not None:
            number += 1
            location = f"{change.path}: hunk {number} (line {self._index + 1} of the patch)"
            line = self._next() or ""
            match = _HUNK.fullmatch(line)
            if match is None:
                raise PatchError(f"{location}: is not like '@@ -1,2 +3,4 @@', but {line!r:.80}")
            old = (int(match[1]), int(match[2] or 1))
            new = (int(match[3]), int(match[4] or 1))
            self._index += 1
            yield Hunk(old, new, match[5], tuple(self._hunk_lines(location, old[1], new[1])))

    def _hunk_lines(self, location: str, old: int, new: int) -> Iterator[str]:
        """Yield the lines of a hunk, as many as its first line says."""
        remaining = [old, new]
        while (line := self._peek(0)) is not None:
            mark = line[:1] if line.rstrip("\r") else " "
            if mark == "\\":
                yield line
                self._index += 1
                continue
            if remaining == [0, 0]:
                return
            if (
                mark not in " +-"
                or (mark != "+" and not remaining[0])
                or (mark != "-" and not remaining[1])
            ):
                break
            remaining[0] -= mark != "+"
            remaining[1] -= mark != "-"
            yield line if line[:1] == mark else f" {line}"  # a blank line may have lost its mark
            self._index += 1
        if remaining != [0, 0]:
            raise PatchError(
                f"{location}: says {old} lines before and {new} after, but has "
                f"{old - remaining[0]} and {new - remaining[1]}"
            )


def _unquote(name: str) -> str:
    """Return a name that git may have written in quotes, with escapes."""
    if len(name) < 2 or name[0] != '"' or name[-1] != '"':
        return name
    data = bytearray()
    index = 1
    while index < len(name) - 1:
        character = name[index]
        if character != "\\":
            data += character.encode("utf-8", "surrogateescape")
            index += 1
        elif re.match(r"[0-3][0-7]{2}", name[index + 1 : index + 4]):
            data.append(int(name[index + 1 : index + 4], 8))
            index += 4
        elif name[index + 1] in _ESCAPES:
            data.append(_ESCAPES[name[index + 1]])
            index += 2
        else:
            raise PatchError(f"the name {name!r:.80} has an escape that git does not write")
    return data.decode("utf-8", "surrogateescape")


def _same_name(header: str) -> str | None:
    """Return the name in a header that has it twice, as in a change without content."""
    if header.startswith('"'):
        name = _unquote(header[: header.find('" ') + 1])
        return name.partition("/")[2] or None
    # Both halves have the same length, so blanks in the name do not matter.
    half = len(header) // 2
    old, new = header[:half], header[half + 1 :]
    if header[half : half + 1] == " " and old[:2] == "a/" and new == f"b/{old[2:]}":
        return old[2:]
    return None


def _new_path(header: str) -> str:
    """Return the new path, which follows the last ``b/`` of a header."""
    if header.endswith('"'):
        return _unquote(header[header.rfind(' "') + 1 :]).partition("/")[2]
    return header.rpartition(" b/")[2] if " b/" in header else ""


# -- refused changes


def _check_change(change: Change) -> None:
    """Refuse a change outside the repository, or one that cannot be applied."""
    for path in (change.old, change.new):
        if path is not None:
            _check_path(path)
    for mode in (change.old_mode, change.new_mode):
        if mode and mode not in _MODES:
            raise PatchRefused(
                f"{change.path}: the mode {mode[:20]!r} is not one of git's: {', '.join(_MODES)}"
            )
        if mode == "160000":
            raise PatchRefused(f"{change.path}: is a submodule, which a patch cannot bring")
    if change.binary == ():
        raise PatchRefused(
            f"{change.path}: is binary, and its content is not in the patch; make it with "
            "git diff --binary"
        )
    if change.new_mode == "120000":
        _check_link(change)


def _check_path(path: str) -> None:
    parts = path.split("/")
    if path.startswith("/"):
        raise PatchRefused(f"{path!r:.80}: is an absolute path; a patch stays in the repository")
    if ".." in parts:
        raise PatchRefused(f"{path!r:.80}: leads out of the repository")
    if any(part in ("", ".") for part in parts) or "\0" in path:
        raise PatchRefused(f"{path!r:.80}: is not a path that git has")
    if any(part.rstrip(". ").lower() == ".git" for part in parts):
        raise PatchRefused(f"{path!r:.80}: is in git's own folder")


def _check_link(change: Change) -> None:
    """Refuse a symbolic link to the outside, or one whose target the patch does not fully show."""
    added_lines = [line[1:] for hunk in change.hunks for line in hunk.lines if line[:1] == "+"]
    target = added_lines[0].removesuffix("\r") if len(added_lines) == 1 else ""
    if not change.hunks and change.old is not None:
        return  # renamed without a change
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(change.path), target))
    if not target or target.startswith("/") or resolved == ".." or resolved.startswith("../"):
        raise PatchRefused(
            f"{change.path}: is a symbolic link that leads out of the repository: {target!r:.80}"
        )


# -- commands


def heredoc(command: str, text: str, failure: str = "") -> str:
    """Return a bash command that reads a text, followed by ``failure``, such as ``|| exit``."""
    end = "PATCH"
    while end in text:
        end += "_"
    line_end = "" if text.endswith("\n") else "\n"
    return f"{command} <<'{end}'{failure}\n{text}{line_end}{end}"


# -- reversing


def reverse_patch(changes: Sequence[Change]) -> str:
    """Return the patch that undoes these changes.

    Raises:
        PatchError: a change is a copy or binary.
    """
    return "".join(map(_reverse_change, changes))


def _reverse_change(change: Change) -> str:
    if change.binary is not None or change.moved == "copy":
        raise PatchRefused(f"{change.path}: a binary change or a copy cannot be reversed")
    source, target = change.new, change.old
    first, last = source or target or "", target or source or ""
    lines = [f"diff --git {_quote('a/' + first)} {_quote('b/' + last)}"]
    if source is None:
        lines.append(f"new file mode {change.old_mode or '100644'}")
    elif target is None:
        lines.append(f"deleted file mode {change.new_mode or '100644'}")
    elif change.old_mode != change.new_mode:
        lines += [f"old mode {change.new_mode}", f"new mode {change.old_mode}"]
    if change.moved:
        lines += [change.similarity] if change.similarity else []
        lines += [f"rename from {_quote(first)}", f"rename to {_quote(last)}"]
    if match := re.fullmatch(r"index ([0-9a-f]+)\.\.([0-9a-f]+)( \d+)?", change.index):
        lines.append(f"index {match[2]}..{match[1]}{match[3] or ''}")
    if change.hunks:
        lines.append(f"--- {_quote('a/' + source) if source else '/dev/null'}")
        lines.append(f"+++ {_quote('b/' + target) if target else '/dev/null'}")
    for hunk in change.hunks:
        old, new = ",".join(map(str, hunk.new)), ",".join(map(str, hunk.old))
        lines += [f"@@ -{old} +{new} @@{hunk.section}", *_reverse_lines(hunk.lines)]
    return "\n".join([*lines, ""])


def _reverse_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a reversed hunk: first those it removes, then those it adds."""
    removed_lines: list[str] = []
    added_lines: list[str] = []
    last = removed_lines
    for line in lines:
        if line[0] == "\\" and (removed_lines or added_lines):
            last.append(line)
        elif line[0] in "+-":
            last = removed_lines if line[0] == "+" else added_lines
            last.append(("-" if line[0] == "+" else "+") + line[1:])
        else:
            yield from removed_lines
            yield from added_lines
            yield line
            removed_lines, added_lines = [], []
    yield from removed_lines
    yield from added_lines


def _quote(name: str) -> str:
    """Return a name as git writes it, in quotes if needed."""
    if name.isprintable() and name.isascii() and not set(name) & {'"', "\\"}:
        return name
    escapes = {code: f"\\{letter}" for letter, code in _ESCAPES.items()}
    data = name.encode("utf-8", "surrogateescape")
    text = "".join(
        escapes.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in data
    )
    return f'"{text}"'
