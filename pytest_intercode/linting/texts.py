"""Dockerfiles and shell scripts as a linter reads them. Pure."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch

from pytest_intercode.core.dockerfile import Instruction, find_images, read_instructions
from pytest_intercode.suites.harbor.bootstrap import requirements_of

__all__ = [
    *("copied_names", "find_line", "find_loose_requirements", "is_pinned", "kept_reward_line"),
    *("loose_images", "run_requirements", "unreached_reward_line"),
]

_SET_E = re.compile(
    r"^[ \t]*set[ \t]+(?:-[a-df-zA-Z]*e|-\w*\s+-e|-o\s+errexit|-\w+o\s+errexit)", re.M
)
_SET_E_SHEBANG = re.compile(r"^#!.*\s-[a-z]*e[a-z]*[ \t]*$", re.MULTILINE)
_UNSET_E = re.compile(r"^[ \t]*set[ \t]+\+[a-zA-Z]*e", re.M)
_REWARD_FILE = re.compile(r"reward\.(?:txt|json)")
_REWARD_BY_STATUS = re.compile(r"\$\?|\$\{?(?:\w*status\w*|\w*exit\w*|ret\w*|rc)\b", re.IGNORECASE)
_CONSTANT_REWARD = re.compile(
    r"""(?:^|\s)(?P<before>.*?)(?:echo|printf)\s+['"]?[01](?:\.0)?['"]?\s*>{1,2}\s*\S*reward\.txt"""
)
_MAX_LINE = 500  # characters of a line that is searched, in quadratic time
_PYTHON = re.compile("python")
_PINNED = re.compile(r"===?[^=]|@|\.whl\b")


def find_line(text: str, pattern: str) -> int:
    """Return the number of the first line that a pattern matches, from 1; 0 if there is none."""
    match = re.search(pattern, text, re.MULTILINE)
    return _line_at(text, match.start()) if match else 0


def _line_at(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1


def _line_of(text: str, instruction: Instruction) -> int:
    return _line_at(text, instruction.places[0]) if instruction.places else 1


def loose_images(text: str) -> Iterator[tuple[str, int]]:
    """Yield the images that a Dockerfile names without a version, with their lines."""
    for image in find_images(text):
        if not is_pinned(image.name):
            yield image.name, _line_at(text, image.span[0])


def is_pinned(name: str) -> bool:
    """Whether the name of an image contains a version."""
    _, colon, tag = name.rpartition("/")[2].partition(":")
    return "@" in name or (bool(colon) and tag != "latest")


def copied_names(text: str, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield the files of the context that a Dockerfile copies, with the lines that copy them.

    Args:
        text: the Dockerfile.
        names: the files of the context.
    """
    for instruction in read_instructions(text):
        flags = {name for name, _, _ in instruction.flags()}
        if instruction.name not in ("COPY", "ADD") or "from" in flags:
            continue
        rest = instruction.rest[instruction.arguments_index :].strip()
        line = _line_of(text, instruction)
        for source in _copy_words(rest)[:-1]:
            pattern = posixpath.normpath(source).lstrip("/")
            for name in names:
                if _is_copied(name, pattern):
                    yield name, line


def _copy_words(rest: str) -> list[str]:
    if rest.startswith("["):
        try:
            words = json.loads(rest)
        except ValueError:
            return []
        return [str(word) for word in words] if isinstance(words, list) else []
    return rest.split()


def _is_copied(name: str, pattern: str) -> bool:
    """Whether a source of ``COPY`` matches a file or its folder; ``*`` stops at ``/``."""
    if pattern in (".", ""):
        return True
    patterns, names = pattern.split("/"), name.split("/")
    return len(patterns) <= len(names) and all(map(fnmatch, names, patterns))


def run_requirements(text: str) -> Iterator[tuple[list[str], int]]:
    """Yield the packages that a Dockerfile installs without a fixed version, with their lines."""
    for instruction in read_instructions(text):
        if instruction.name == "RUN":
            loose = find_loose_requirements(requirements_of([instruction.rest]) or ())
            if loose:
                yield loose, _line_of(text, instruction)


def find_loose_requirements(requirements: Sequence[str]) -> list[str]:
    """Return the requirements that several versions satisfy.

    Python itself, which uv installs as if it were a package, is not one of them.
    """
    return [one for one in requirements if not _PINNED.search(one) and not _PYTHON.fullmatch(one)]


def unreached_reward_line(script: str) -> int:
    """Return the line that prevents a script from writing its reward if the tests fail; else 0.

    With ``set -e``, a script ends when its tests fail, before it checks their status.
    """
    match = _SET_E.search(script) or _SET_E_SHEBANG.match(script)
    if match is None or _UNSET_E.search(script) or re.search(r"^[ \t]*trap\b", script, re.M):
        return 0
    first_reward = _REWARD_FILE.search(script)
    if first_reward is None or first_reward.start() < match.start():
        return 0
    middle = script[match.end() : first_reward.start()]
    if not _REWARD_BY_STATUS.search(middle) or "||" in middle:
        return 0
    return _line_at(script, match.start())


def kept_reward_line(script: str) -> int:
    """Return the only line that writes a reward, if it runs only when the tests pass; else 0."""
    lines = [line for line in script.split("\n") if not line.lstrip().startswith("#")]
    writes = [line for line in lines if _REWARD_FILE.search(line)]
    if len(writes) != 1 or len(writes[0]) > _MAX_LINE:
        return 0
    match = _CONSTANT_REWARD.search(writes[0])
    if match is None:
        return 0
    is_conditional = "&&" in match["before"] or writes[0][:1] in (" ", "\t")
    if not is_conditional or re.search(r"\|\||\belse\b", script):
        return 0
    return script.split("\n").index(writes[0]) + 1
