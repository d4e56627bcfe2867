"""Requirements that files hold: those of pip, and scripts with their own (PEP 723).

The verifier kit has a copy of this file, which its stand-in of uv runs with the Python of the kit.
So it imports nothing but the standard library.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["inline_requirements", "is_requirement", "listed_requirements", "separated"]

_BEGIN = re.compile(r"#[ \t]*///[ \t]*script[ \t]*")
_END = re.compile(r"#[ \t]*///[ \t]*")
_DEPENDENCIES = re.compile(r"^[ \t]*dependencies[ \t]*=[ \t]*(\[.*?\])[ \t]*(?:#.*)?$", re.M | re.S)
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\s*(?:\[[A-Za-z0-9,._\s-]*\])?\s*"
    r"(?:(?:===?|~=|!=|<=?|>=?)[^,;@/\s\0]+(?:\s*,\s*(?:===?|~=|!=|<=?|>=?)\s*[^,;@/\s\0]+)*)?\s*(?:;[^\0]*)?"
)
_FILE = re.compile(r".*\.(?:txt|whl|toml|cfg|in|lock|zip|tgz|gz|py|sh)", re.IGNORECASE)


def is_requirement(text: str) -> bool:
    """Whether a text asks for a package of an index, and is no path, file or address."""
    return bool(_REQUIREMENT.fullmatch(text)) and not _FILE.fullmatch(text)


def separated(text: str) -> list[str]:
    """Return the requirements of a list with commas, as uv's options take it.

    A comma before a version, or in the brackets of extras, belongs to a requirement.
    """
    parts = re.split(r",(?=\s*[A-Za-z0-9.])(?![^\[]*\])", text)
    return [part.strip() for part in parts if part.strip()]


def inline_requirements(text: str) -> list[str]:
    """Return what scripts in a text say that they depend on, in comments as of PEP 723."""
    found: list[str] = []
    block: list[str] | None = None
    for line in text.splitlines():
        line = line.rstrip()
        if block is None:
            block = [] if _BEGIN.fullmatch(line) else None
        elif _END.fullmatch(line):
            found += _dependencies("\n".join(block))
            block = None
        elif line.startswith("#"):
            block.append(line[1:].removeprefix(" "))
        else:  # never closed
            block = None
    return list(dict.fromkeys(found))


def _dependencies(table: str) -> list[str]:
    found = _DEPENDENCIES.search(table)
    try:  # a list of strings is written in TOML as in Python, comments included
        listed = ast.literal_eval(found[1]) if found else []
    except (ValueError, SyntaxError):
        return []
    return [str(name).strip() for name in listed]


def listed_requirements(text: str, other: Callable[[str], str] | None = None) -> list[str]:
    """Return the requirements of a file for pip; its options say nothing here.

    Args:
        text: its text.
        other: returns the text of a further file that it names (``-r``).
    """
    found: list[str] = []
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        named = re.fullmatch(r"(?:-r|--requirement)[\s=]*(\S+)", line)
        if named and other is not None:
            found += listed_requirements(other(named[1]))
        elif line and not line.startswith("-"):
            found.append(re.sub(r"\s+--hash\S*", "", line))
    return list(dict.fromkeys(found))


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def _main(what: str, text: str) -> None:
    """Print the requirements of a script, of a file, or of a list with commas."""
    if what == "script":
        found = inline_requirements(_read(text))
    elif what == "file":
        folder = Path(text).parent
        found = listed_requirements(_read(text), lambda name: _read(str(folder / name)))
    else:
        found = separated(text)
    sys.stdout.write("".join(f"{name}\n" for name in found))


if __name__ == "__main__":
    _main(*sys.argv[1:3])
