"""Which files of a project an agent has read, as far as what it did says so. Pure but for the copy.

Nobody sees reading itself. What counts is a file that a call of a tool names, one that a search has
found a line in, and what agents read without being told: instructions, skills and settings.
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
_UNLIKE_WORDS = re.compile(r"[\s\"'`<>|;&(){}\[\],:=$*?\\]")  # that no word has, or as itself
# What an agent writes may be made to take long: beyond these, files count as read unseen.
_MAX_WILDCARDS = 8  # of a name; of one that has more, its two ends count
_MAX_COMPARISONS = 5_000_000  # of names with patterns: some seconds
_COMPARISONS_OF_PATTERN = 500  # that take as long as to make the pattern of a name
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

    The folder that a command runs in is not known, so the end of a file's path names it, and so
    does a path that ends with all of it. Rather too many files count as read than too few.

    Args:
        turns: what it did.
        digests: all files of the project, as they were at the beginning.
        workdir: where its sandbox has the project.
        commands: what else was run in the project for it: a file that one names counts as well.
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
    # Joined by what no path has.
    read_paths.update(_find_mentioned("\0".join(texts), digests))
    return {path: digests[path] for path in sorted(read_paths)}


def _normal_name(word: str, workdir: str) -> str:
    """Return what of a word may be the end of a path in the project."""
    parts = posixpath.normpath(word).removeprefix(f"{workdir}/").lstrip("/").split("/")
    # What leads to a folder that is not known says nothing: "..", and a variable.
    start = next((index for index, part in enumerate(parts) if part.strip(".*")), len(parts) - 1)
    return "/".join(parts[start:])


def _find_named(names: Iterable[str], paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths that end with a name; where none does, the longest that a name ends with."""
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
    """Return of how many parts a path has at most, and at least one."""
    return max((path.count("/") + 1 for path in paths), default=1)


def _ends(parts: Sequence[str]) -> Iterator[str]:
    """Yield the ends of a path, the longest first."""
    return ("/".join(parts[start:]) for start in range(len(parts)))


def _find_matching(patterns: Iterable[str], paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths whose ends match a pattern; all of them where it would take too long."""
    files_by_name: dict[str, list[Sequence[str]]] = {}
    for path in paths:
        parts = path.split("/")[::-1]
        files_by_name.setdefault(parts[0], []).append(parts)
    # Joined by what no name has, so that a part is looked for in all of them at once.
    all_names, depth = "/".join(files_by_name), _depth(paths)
    remaining_comparisons = _MAX_COMPARISONS
    for pattern in patterns:
        # Two stars stand for any folders: those before them may be anywhere, and do not count.
        end = pattern.rpartition("**/")[2]
        if not end.strip("*?"):
            continue  # any text may have such a word, and it says nothing
        parts = end.rsplit("/", depth)[::-1][:depth]
        remaining_comparisons -= _COMPARISONS_OF_PATTERN * len(parts)
        if remaining_comparisons < 0:
            yield from paths
            return
        if max(_WILDCARD.split(parts[0]), key=len) not in all_names:
            continue  # most words with a star are of programs
        name, *folders = map(_compile, parts)
        matching = [files for key, files in files_by_name.items() if name.match(key)]
        remaining_comparisons -= len(files_by_name) + sum(map(len, matching))
        for file in (file for files in matching for file in files):
            pairs = zip(folders, file[1:], strict=False)
            if all(folder.match(part) for folder, part in pairs):
                yield "/".join(file[::-1])


def _compile(pattern: str) -> re.Pattern[str]:
    """Return a pattern of a name, which takes no longer however it is made."""
    pieces = _WILDCARD.split(pattern)
    if len(pieces) > _MAX_WILDCARDS:
        pattern = f"{pieces[0]}*{pieces[-1]}"
    return re.compile(fnmatch.translate(pattern))


def _find_mentioned(text: str, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths that a text has and no word can be, from their last such part on."""
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

    A file's mode counts. Of a symbolic link, its target does.

    Args:
        layer: the archive; what it holds does not change.
        workdir: what is in it.

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
