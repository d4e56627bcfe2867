"""Which files of a project an agent has read, as far as what it did says so. Pure but for the copy.

Nobody sees reading itself. What counts is a file that a call of a tool names, one that a search has
found a line in, and what agents read without being told: instructions, skills and settings.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from pytest_intercode.core.turn import Turn

__all__ = ["digests_of_layer", "find_read_files"]

_DIGEST_LENGTH = 16  # hexadecimal digits
_WORD = re.compile(r"[^\s\"'`<>|;&(){}\[\],:=]+")
_FOUND = re.compile(r"^(?:\./)?([^\s:]+):\d+[:-]", re.MULTILINE)  # FILE:LINE:, as grep writes it
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
    turns: Iterable[Turn], digests: Mapping[str, str], workdir: str = "/project"
) -> dict[str, str]:
    """Return the files that an agent has read, with their digests.

    Args:
        turns: what it did.
        digests: all files of the project, as they were at the beginning.
        workdir: where its sandbox has the project.
    """
    read_paths = {path for path in digests if _is_instruction(PurePosixPath(path))}
    by_name: dict[str, list[str]] = {}
    for path in digests:
        by_name.setdefault(path.rpartition("/")[2], []).append(path)
    for turn in turns:
        words = set(_WORD.findall(turn.action)) | set(_FOUND.findall(turn.observation))
        for word in words:
            name = word.replace("\\n", "").removeprefix(f"{workdir}/").removeprefix("./")
            candidates = by_name.get(name.rpartition("/")[2], ())
            # The directory that a command runs in is not known, so the end of a path is enough.
            read_paths.update(
                path for path in candidates if path == name or path.endswith(f"/{name}")
            )
    return {path: digests[path] for path in sorted(read_paths)}


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
