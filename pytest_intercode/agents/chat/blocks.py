"""Code blocks in what a model wrote, however it set them.

A fence has three or more backticks or tildes. Prose may stand before it on its line; it may be
indented or quoted; it may be closed on a line with code or not at all. The expressions here look at
each sign a few times at most, whatever a model writes.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["LANGUAGES", "Block", "blocks_of", "tidy"]

LANGUAGES = {
    "bash": ("bash", "sh", "shell", "zsh", "console", "terminal", "shell-session"),
    "sql": ("sql", "mysql", "mariadb", "sqlite", "sqlite3"),
    "python": ("python", "py", "python3", "ipython"),
    "ctf": ("bash", "sh", "shell", "zsh", "console", "terminal", "shell-session"),
}
"""Names of the language of each environment behind a fence; the first is the one that we use."""

_FENCE = re.compile(r"((?<!`)`{3,}(?!`)|(?<!~)~{3,}(?!~))[ \t]*([^\s`]*)([^\n`]*)$", re.MULTILINE)
_ONE_LINE = re.compile(r"```([^\n`]+)```")
_KNOWN = frozenset(label for labels in LANGUAGES.values() for label in labels)


@dataclass(frozen=True)
class Block:
    """One code block.

    Attributes:
        label: the name of its language, in small letters, or nothing.
        code: what is in it.
        begin: where in the text it begins.
        closed: the text does not end in it.
    """

    label: str
    code: str
    begin: int
    closed: bool = True


def blocks_of(text: str, env: str) -> list[Block]:
    """Return the code blocks of a text, or those on a line of prose where there are no others.

    Args:
        text: what a model wrote.
        env: the environment's name, which says what a language may be called.
    """
    return list(_fences(text)) or list(_one_liners(text, LANGUAGES[env]))


def _fences(text: str) -> Iterator[Block]:
    place = 0
    glued: set[str] = set()  # fences that no line begins with any more
    while (opening := _FENCE.search(text, place)) is not None:
        place = opening.end()
        before = text[text.rfind("\n", 0, opening.start()) + 1 : opening.start()]
        indent = before if not before.strip(" \t>") else ""
        if "`" in before or not (indent == before or before.endswith((" ", "\t", ":", "."))):
            continue  # prose may stand before a fence, but this is none
        fence, label, rest = opening.groups()
        # Closed by a line that begins with as many of the same signs, or by one that ends so.
        signs = f"(?<!{fence[0]}){fence[0]}{{{len(fence)},}}(?!{fence[0]})"
        closing = None
        if signs not in glued:
            closing = re.compile(rf"^[ \t>]*{signs}(?=\s|\Z)", re.MULTILINE).search(text, place)
        if closing is None:
            glued.add(signs)
            closing = re.compile(rf"{signs}[ \t]*$", re.MULTILINE).search(text, place)
        end = len(text) if closing is None else closing.start()
        lines = text[opening.end() + 1 : end].rstrip().split("\n")
        code = "\n".join(line.removeprefix(indent) for line in lines)
        if not code.strip() and rest.strip():  # the code is on the fence's own line
            code = rest.strip() if label.lower() in _KNOWN else f"{label}{rest}"
            label = label if label.lower() in _KNOWN else ""
        yield Block(label.lower(), code, opening.start(), closing is not None)
        place = len(text) if closing is None else closing.end()


def _one_liners(text: str, language: tuple[str, ...]) -> Iterator[Block]:
    for found in _ONE_LINE.finditer(text):
        first, _, rest = found[1].strip().partition(" ")
        if first.lower() in language and rest.strip():
            yield Block(first.lower(), rest.strip(), found.start())
        else:
            yield Block("", found[1], found.start())


def tidy(code: str) -> str:
    """Take away what surrounds code, and the indent of all of its lines."""
    if not code.strip():
        return ""
    if code.lstrip("\n")[:1].isspace() and "\n" in code.strip():
        code = textwrap.dedent(code)
    lines = code.rstrip().split("\n")
    while not lines[0].strip():
        lines.pop(0)
    return "\n".join([lines[0].lstrip() if len(lines) == 1 else lines[0], *lines[1:]])
