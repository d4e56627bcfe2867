"""Finds the files of a project that an agent has read, from what it did. Pure, except for the copy.

Reading itself cannot be seen. A file counts as read if a tool call names it, if a search found a
line in it, or if agents read it without being told: instructions, skills and settings.
"""

from __future__ import annotations

import fnmatch
import hashlib
import posixpath
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

from pytest_intercode.core.turn import Turn

__all__ = ["digests_of_layer", "find_read_files"]

_DIGEST_LENGTH = 16  # hexadecimal digits
_WORD = re.compile(r"[^\s\"'`<>|;&(){}\[\],:=]+")
_FOUND = re.compile(r"^(.+?):\d+[:-]", re.MULTILINE)  # FILE:LINE:, as grep writes it
_ESCAPED_LINE_END = re.compile(r"\\[nrt]")  # in the JSON of a call's arguments
_VARIABLE = re.compile(r"\$\w+")
_WILDCARD = re.compile(r"[*?]")
_UNLIKE_WORDS = re.compile(r"[\s\"'`<>|;&(){}\[\],:=$*?\\]")  # in no word, or not as itself
# An agent's text may be made to take long: beyond these limits, files count as read unchecked.
_MAX_WILDCARDS = 8  # of a name; if it has more, only its two ends count
_MAX_COMPARISONS = 5_000_000  # of names with patterns: some seconds
_COMPARISONS_OF_PATTERN = 500  # which take as long as making the pattern of a name
_MAX_SEARCHED = 10**9  # characters: some seconds
_INSTRUCTIONS = frozenset(
    {
        *(
            "AGENTS.md",
            "AGENTS.override.md",
            "CLAUDE.md",
            "CLAUDE.local.md",
            "GEMINI.md",
            "QWEN.md",
        ),
        *("SKILL.md", "opencode.json", "opencode.jsonc", ".mcp.json", ".cursorrules"),
        *("copilot-instructions.md",),
    }
)
_SETTINGS = frozenset(
    (
        ".agents",
        ".claude",
        ".cline",
        ".clinerules",
        ".codex",
        ".cursor",
        ".gemini",
        ".kimi-code",
        ".opencode",
        ".qwen",
    )
)


def find_read_files(
    turns: Iterable[Turn],
    digests: Mapping[str, str],
    workdir: str = "/project",
    commands: Iterable[str] = (),
) -> dict[str, str]:
    """Return the files that an agent has read, with their digests.

    The folder in which a command runs is not known, so a file is named by the end of its path, or
    by a path that ends with its whole path. Too many files count as read rather than too few.

    Args:
        turns: what the agent did.
        digests: the digests of all files of the project, as they were at the beginning.
        workdir: the path of the project in its sandbox.
        commands: other commands that ran in the project for it; a file that one names counts too.
    """
    read_paths = {path for path in digests if _is_instruction(PurePosixPath(path))}
    texts: list[str] = []
    names: set[str] = set()
    patterns: set[str] = set()
    pairs = [(turn.action, turn.observation) for turn in turns]
    for call, output in (*pairs, *((command, "") for command in commands)):
        text = _ESCAPED_LINE_END.sub("\n", call)
        texts += [call, text.replace("\\", "")]  # a shell's escaped blank is a blank
        for word in {*_WORD.findall(call), *_WORD.findall(text)}:
            name = _normal_name(_VARIABLE.sub("*", word), workdir)
            (patterns if _WILDCARD.search(name) else names).add(name)
        names.update(_normal_name(name, workdir) for name in _FOUND.findall(output))
    read_paths.update(_find_named(names, digests))
    read_paths.update(_find_matching(patterns, digests))
    # Joined by a character that no path has.
    read_paths.update(_find_mentioned("\0".join(texts), digests))
    return {path: digests[path] for path in sorted(read_paths)}


def _normal_name(word: str, workdir: str) -> str:
    """Return the part of a word that may be the end of a path in the project."""
    parts = posixpath.normpath(word).removeprefix(f"{workdir}/").lstrip("/").split("/")
    # Parts that lead to an unknown folder say nothing: "..", and a variable.
    start = next((index for index, part in enumerate(parts) if part.strip(".*")), len(parts) - 1)
    return "/".join(parts[start:])


def _find_named(names: Iterable[str], paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths that end with a name; if there is none, the longest path that ends it."""
    whole_paths, depth = set(paths), _depth(paths)
    paths_by_end: dict[str, list[str]] = {}
    for path in whole_paths:
        for end in _ends(path.split("/")):
            paths_by_end.setdefault(end, []).append(path)
    for name in names:
        ends = _ends(name.rsplit("/", depth)[-depth:])
        longest = next((end for end in ends if end in whole_paths), "")
        yield from paths_by_end.get(name, [longest] if longest else [])


def _depth(paths: Iterable[str]) -> int:
    """Return the largest number of parts of a path, at least 1."""
    return max((path.count("/") + 1 for path in paths), default=1)


def _ends(parts: Sequence[str]) -> Iterator[str]:
    """Yield the ends of a path, the longest first."""
    return ("/".join(parts[start:]) for start in range(len(parts)))


def _find_matching(patterns: Iterable[str], paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths whose ends match a pattern; all paths if matching would take too long."""
    files_by_name: dict[str, list[Sequence[str]]] = {}
    for path in paths:
        parts = path.split("/")[::-1]
        files_by_name.setdefault(parts[0], []).append(parts)
    # Joined by a character that no name has, so that one search covers all of them.
    all_names, depth = "/".join(files_by_name), _depth(paths)
    remaining_comparisons = _MAX_COMPARISONS
    for pattern in patterns:
        # Two stars stand for any folders, so the folders before them do not matter.
        end = pattern.rpartition("**/")[2]
        if not end.strip("*?"):
            continue  # such a word may be in any text, and says nothing
        parts = end.rsplit("/", depth)[::-1][:depth]
        remaining_comparisons -= _COMPARISONS_OF_PATTERN * len(parts)
        if remaining_comparisons < 0:
            yield from paths
            return
        if max(_WILDCARD.split(parts[0]), key=len) not in all_names:
            continue  # no file has such a name; most words with a star are code
        name, *folders = map(_compile, parts)
        matching = [files for key, files in files_by_name.items() if name.match(key)]
        remaining_comparisons -= len(files_by_name) + sum(map(len, matching))
        for file in (file for files in matching for file in files):
            pairs = zip(folders, file[1:], strict=False)
            if all(folder.match(part) for folder, part in pairs):
                yield "/".join(file[::-1])


def _compile(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern of a name, which matches in bounded time."""
    pieces = _WILDCARD.split(pattern)
    if len(pieces) > _MAX_WILDCARDS:
        pattern = f"{pieces[0]}*{pieces[-1]}"
    return re.compile(fnmatch.translate(pattern))


def _find_mentioned(text: str, paths: Iterable[str]) -> Iterator[str]:
    """Yield paths that are not single words, if a text has their end from the last such part on."""
    ends: dict[str, list[str]] = {}
    for path in paths:
        head, separator, name = path.rpartition("/")
        end = name
        while separator and not _UNLIKE_WORDS.search(end.partition("/")[0]):
            head, separator, name = head.rpartition("/")
            end = f"{name}/{end}"
        if _UNLIKE_WORDS.search(end):
            ends.setdefault(end, []).append(path)
    is_too_long = len(text) * len(ends) > _MAX_SEARCHED
    for end, mentioned in ends.items():
        if is_too_long or end in text:
            yield from mentioned


def _is_instruction(path: PurePosixPath) -> bool:
    return path.name in _INSTRUCTIONS or not _SETTINGS.isdisjoint(path.parts[:-1])


def digests_of_layer(layer: Path, workdir: str = "/project") -> Mapping[str, str]:
    """Return digests of the files of a project's copy, by their paths in it.

    A digest covers the content and whether the file is executable; for a symbolic link, its target.

    Args:
        layer: the archive; its content does not change.
        workdir: the folder that is in it.

    Raises:
        OSError, tarfile.TarError: it cannot be read.
    """
    return _digests_of(layer, workdir.strip("/"))


@lru_cache(maxsize=16)
def _digests_of(layer: Path, prefix: str) -> Mapping[str, str]:
    digests: dict[str, str] = {}
    with tarfile.open(layer) as archive:
        for member in archive:
            name = member.name.removeprefix("./").strip("/")
            path = name.removeprefix(f"{prefix}/")
            if path == name or path.split("/")[0] == ".git":
                continue
            if member.issym():
                content = member.linkname.encode("utf-8", "surrogateescape")
            elif member.isreg():
                file = archive.extractfile(member)
                assert file is not None
                content = file.read()
            else:
                continue
            head = f"{member.type!r} {bool(member.mode & 0o100)}\n".encode("ascii")
            digests[path] = hashlib.sha256(head + content).hexdigest()[:_DIGEST_LENGTH]
    return digests
