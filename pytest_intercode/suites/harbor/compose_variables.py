"""Variables of a compose file: ``${NAME}`` in its texts, and its ``env_file`` files. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["RequiredVariable", "expand", "parse_env_file"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r":?[-?+]")
_BRACES = re.compile(r"\$\{|\}")
_MAX_DEPTH = 10  # levels of references in the defaults of others
_MAX_VALUES = 2**17  # characters of all values in a text; a process's variable cannot be longer
# One line, or several if a quoted value contains line ends.
_ENTRY = re.compile(
    r"(?:export[ \t]+)?(?P<name>[^\s=:#'\"]+)[ \t]*"
    r"(?P<sign>[=:][ \t]*(?:'(?P<literal>[^']*)'|\"(?P<quoted>(?:[^\"\\]|\\.)*)\"|"
    r"(?P<plain>[^\n]*)))?[ \t]*(?:#[^\n]*)?(?:\n|\Z)",
    re.DOTALL,
)
_SKIPPED = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:#[^\n]*\Z)?")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class RequiredVariable(ValueError):
    """A text needs a variable that is not given (``${NAME:?why}``).

    Args:
        name: the variable.
        reason: the reason that the text gives.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the variable {name} is needed{f': {reason}' if reason else ''}")
        self.name = name


def expand(value: Any, variables: Mapping[str, str]) -> Any:
    """Replace references to variables in the texts of a value, as Docker Compose does.

    References are ``$NAME``, ``${NAME}``, and ``${NAME:-default}``, ``${NAME:+instead}`` and
    ``${NAME:?why it is needed}``; with the colon, an empty variable counts as not set. An unknown
    name is replaced by nothing; ``$$`` is a dollar.

    Raises:
        RequiredVariable: a required variable is not set.
        ValueError: a brace is not closed, they are nested too deeply, or their values are too long.
    """
    if isinstance(value, str):
        return _expand_text(value, variables)
    if isinstance(value, dict):
        return {str(key): expand(part, variables) for key, part in value.items()}
    if isinstance(value, list):
        return [expand(part, variables) for part in value]
    return value


def _expand_text(text: str, variables: Mapping[str, str], depth: int = 0) -> str:
    parts, index, room = [], 0, _MAX_VALUES
    while (start := text.find("$", index)) >= 0:
        value, end = _expand_reference(text, start, variables, depth)
        parts += [text[index:start], value]
        index = end
        room -= len(value)
        if room < 0:
            raise ValueError(
                f"its variables have more than {_MAX_VALUES:,} characters: {text!r:.60}"
            )
    return "".join(parts) + text[index:]


def _expand_reference(
    text: str, start: int, variables: Mapping[str, str], depth: int
) -> tuple[str, int]:
    """Return the value of the reference at an index, and the index of its end."""
    if text.startswith("$$", start):
        return "$", start + 2
    is_braced = text.startswith("${", start)
    name = _NAME.match(text, start + 1 + is_braced)
    if name is None:
        return "$", start + 1
    value = variables.get(name[0])
    if not is_braced:
        return value or "", name.end()
    operator = _OPERATOR.match(text, name.end())
    if operator is None:
        closed = text.startswith("}", name.end())
        return (value or "", name.end() + 1) if closed else ("$", start + 1)
    end = _find_end(text, start, operator.end())
    alternative = text[operator.end() : end]
    if depth >= _MAX_DEPTH:
        raise ValueError(f"references nested more than {_MAX_DEPTH} deep: {text[start:]!r:.60}")
    is_given = value is not None and (value != "" or ":" not in operator[0])
    if operator[0][-1] == "+":
        result = _expand_text(alternative, variables, depth + 1) if is_given else ""
    elif is_given:
        result = value or ""
    elif operator[0][-1] == "-":
        result = _expand_text(alternative, variables, depth + 1)
    else:
        raise RequiredVariable(name[0], alternative)
    return result, end + 1


def _find_end(text: str, start: int, index: int) -> int:
    """Return the index of the brace that closes a reference."""
    depth = 1
    for brace in _BRACES.finditer(text, index):
        depth += 1 if brace[0] == "${" else -1
        if depth == 0:
            return brace.start()
    raise ValueError(f"a brace is not closed: {text[start:]!r:.60}")


def parse_env_file(text: str, variables: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables of a file, as Docker Compose reads it; None for one without a value.

    Args:
        text: the file's text, with plain line ends.
        variables: the values of references, in addition to the file's own variables.

    Raises:
        ValueError: a line is not ``NAME=VALUE``; the message gives its number.
    """
    pairs: dict[str, str | None] = {}
    references = dict(variables)
    index = 0
    while (match := _SKIPPED.match(text, index)) and (index := match.end()) < len(text):
        entry = _ENTRY.match(text, index)
        if entry is None or (entry["plain"] or "").startswith(("'", '"')):
            line = text.count("\n", 0, index) + 1
            raise ValueError(
                f"line {line}: NAME=VALUE is needed, with quotes that are closed, found "
                f"{text[index:].partition(chr(10))[0]!r:.60}"
            )
        value = pairs[entry["name"]] = _value(entry, references)
        if value is not None:
            references[entry["name"]] = value
        index = entry.end()
    return pairs


def _value(entry: re.Match[str], variables: Mapping[str, str]) -> str | None:
    if entry["sign"] is None or entry["literal"] is not None:
        return entry["literal"]
    if entry["quoted"] is not None:
        # Do this before escapes are replaced, because an escaped dollar is not a reference.
        text = _expand_text(entry["quoted"].replace(r"\$", "$$"), variables)
        return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)
    return _expand_text(re.split(r"\s#", entry["plain"])[0].strip(), variables)
