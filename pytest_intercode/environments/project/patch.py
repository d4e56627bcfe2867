"""Make a patch in git's format from the changes in a project. Pure functions."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_intercode.rewards.text_diffs import equal_ends

__all__ = ["FileState", "git_patch"]

_MAX_LINES = 5000  # of each side of a diff, which takes quadratic time
_MAX_PAIRS = 1_000_000  # of equal lines, one on each side, that the diffs of a patch compare
_CONTEXT = 3  # equal lines around a difference, as in git
_NO_END_NOTE = "\\ No newline at end of file\n"


class FileState(NamedTuple):
    """A file's content, or a symbolic link's target; and its mode as in git."""

    content: bytes
    mode: str = "100644"


def git_patch(before: Mapping[str, FileState], after: Mapping[str, FileState]) -> str:
    """Return the patch from one state to another, as ``git diff`` prints it, without index lines.

    ``git apply`` accepts it, except for binary files, for which it only says that they differ.

    Args:
        before: the earlier files, by path.
        after: the later files, by path; files that are equal in both are left out.
    """
    names = sorted(before.keys() | after.keys())
    work = _Work()
    return "".join(_file_patch(name, before.get(name), after.get(name), work) for name in names)


class _Work:
    """The budget for the diffs of one patch: many equal lines take long, which agents may abuse."""

    def __init__(self) -> None:
        self._pairs = _MAX_PAIRS

    def allows(self, old: Sequence[str], new: Sequence[str]) -> bool:
        """Whether these lines may be compared; if so, take the cost from the budget."""
        if max(len(old), len(new)) > _MAX_LINES:
            return False
        counts = Counter(new)
        pairs = sum(counts[line] for line in old)
        if pairs > self._pairs:
            return False
        self._pairs -= pairs
        return True


def _file_patch(name: str, old: FileState | None, new: FileState | None, work: _Work) -> str:
    if old == new:
        return ""
    if old is not None and new is not None and old.mode[:3] != new.mode[:3]:  # file or link
        return _file_patch(name, old, None, work) + _file_patch(name, None, new, work)
    old_name, new_name = _quoted(f"a/{name}"), _quoted(f"b/{name}")
    head = [f"diff --git {old_name} {new_name}\n"]
    if old is None and new is not None:
        head.append(f"new file mode {new.mode}\n")
    elif new is None and old is not None:
        head.append(f"deleted file mode {old.mode}\n")
    elif old is not None and new is not None and old.mode != new.mode:
        head += [f"old mode {old.mode}\n", f"new mode {new.mode}\n"]
    old_content = b"" if old is None else old.content
    new_content = b"" if new is None else new.content
    if old_content == new_content:
        return "".join(head)
    old_label = "/dev/null" if old is None else old_name
    new_label = "/dev/null" if new is None else new_name
    if _is_binary(old_content) or _is_binary(new_content):
        return "".join([*head, f"Binary files {old_label} and {new_label} differ\n"])
    head += [f"--- {old_label}\n", f"+++ {new_label}\n"]
    return "".join([*head, *_hunks(_lines(old_content), _lines(new_content), work)])


def _is_binary(content: bytes) -> bool:
    """Whether a file is binary, or text that a patch, which is UTF-8, cannot hold."""
    try:
        return "\0" in content.decode("utf-8")
    except UnicodeDecodeError:
        return True


def _lines(content: bytes) -> list[str]:
    """Return lines with their ends; for git, only a newline ends a line."""
    lines = content.decode("utf-8").split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _hunks(old: list[str], new: list[str], work: _Work) -> Iterator[str]:
    for group in _grouped(_replacements(old, new, work)):
        old_begin = max(0, group[0].old_begin - _CONTEXT)
        old_end = min(len(old), group[-1].old_end + _CONTEXT)
        shift = group[0].new_begin - group[0].old_begin  # at the beginning of the group
        new_length = group[-1].new_end + old_end - group[-1].old_end - (old_begin + shift)
        old_range = _range(old_begin, old_end - old_begin)
        yield f"@@ -{old_range} +{_range(old_begin + shift, new_length)} @@\n"
        position = old_begin
        for replacement in group:
            yield from map(_ended, (f" {line}" for line in old[position : replacement.old_begin]))
            removed = old[replacement.old_begin : replacement.old_end]
            yield from map(_ended, (f"-{line}" for line in removed))
            inserted = new[replacement.new_begin : replacement.new_end]
            yield from map(_ended, (f"+{line}" for line in inserted))
            position = replacement.old_end
        yield from map(_ended, (f" {line}" for line in old[position:old_end]))


class _Replacement(NamedTuple):
    """Lines of the old text and the lines that replace them; one of the sides may be empty."""

    old_begin: int
    old_end: int
    new_begin: int
    new_end: int


def _replacements(old: list[str], new: list[str], work: _Work) -> Iterator[_Replacement]:
    head, tail = equal_ends(old, new)
    old_middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    if not work.allows(old_middle, new_middle):  # one replacement is correct, if not minimal
        yield _Replacement(head, len(old) - tail, head, len(new) - tail)
        return
    matcher = difflib.SequenceMatcher(None, old_middle, new_middle, autojunk=False)
    for kind, *ends in matcher.get_opcodes():
        if kind != "equal":
            yield _Replacement(*(head + end for end in ends))


def _grouped(replacements: Iterable[_Replacement]) -> Iterator[list[_Replacement]]:
    """Group replacements that share equal lines around them."""
    group: list[_Replacement] = []
    for replacement in replacements:
        if group and replacement.old_begin - group[-1].old_end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(replacement)
    if group:
        yield group


def _range(begin: int, length: int) -> str:
    """Format a range of lines for a hunk's head; an empty range names the line before it."""
    if length == 1:
        return f"{begin + 1}"
    return f"{begin + 1 if length else begin},{length}"


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n{_NO_END_NOTE}"


def _quoted(path: str) -> str:
    """Return a path as git writes it: in quotes with octal escapes if it has odd characters."""
    data = os.fsencode(path)
    if all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in data):
        return path
    escapes = {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x09: "\\t", 0x0D: "\\r"}
    characters = (
        escapes.get(byte, chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}") for byte in data
    )
    return f'"{"".join(characters)}"'
