"""Text as it is shown to people: escaped, counted, in columns.

Text from a sandbox, an agent or a suite drives neither a terminal nor a CI server once it is
escaped. Whatever does not show as itself is written as an escape: control characters, which could
move the cursor, rename the window or answer in the user's place; marks that turn the direction of
writing; blanks that only look like blanks; line ends other than the usual one.

So is a character of each sequence by which a line of a log becomes a command to a CI server.
GitHub's runner takes ``::name::`` after blanks, so indenting does not help, and ``##[name]``
anywhere in a line, so no prefix helps; Azure Pipelines takes ``##vso[`` and TeamCity
``##teamcity[``. GitLab's and Buildkite's need an escape character.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

__all__ = [
    "clipped",
    "escape_for_terminal",
    "first_names",
    "first_words",
    "format_columns",
    "fragments",
    "hide_passwords",
    "indented",
    "markdown_code",
    "markdown_text",
    "one_line",
    "pluralize",
    "replace_surrogates",
]

_STYLE = "reverse"
_HIDDEN = re.compile(r"[^\n\t\x20-\x7e]")
_HIDDEN_RUNS = re.compile(rf"{_HIDDEN.pattern}+")
# It is the last character that is escaped: what is shown of a text's beginning then never depends
# on what follows, so that a stream can be escaped piece by piece.
_COMMANDS = re.compile(r"##vso|##[A-Za-z]{0,32}\[|^[ \t]*::", re.MULTILINE)
_PASSWORD = re.compile(r"[^\s:/@=]*:[^\s/@]+@")  # and its user, before the host of an address
_MARKUP = re.compile(r"[\\`*_<>|\[\]&~#!$]")
_BACKTICKS = re.compile(r"`+")
_MAX_CHARACTERS = 1_000_000  # of a text in a report: more than people read


def fragments(text: str, style: str = "") -> list[tuple[str, str]]:
    """Return pairs of a style and a text; escapes stand out from backslashes of the text."""
    styled = []
    for run in re.finditer(rf"{_HIDDEN.pattern}|[\n\t\x20-\x7e]+", text):
        escaped = _HIDDEN_RUNS.sub(_escape, run[0])
        styled.append((style if escaped == run[0] else _STYLE, escaped))
    return styled


def escape_for_terminal(text: str) -> str:
    """Return a text in which what does not show as itself, or is a command, is escaped.

    Lines stay lines, and tabs stay. Escaping twice changes nothing more. What is returned for a
    text begins with what is returned for the text's beginning.
    """
    return _COMMANDS.sub(_disarm, _HIDDEN_RUNS.sub(_escape, text))


def one_line(text: str) -> str:
    """Return an escaped text on one line, in which line ends and tabs are escaped, too."""
    return escape_for_terminal(text).replace("\n", "\\n").replace("\t", "\\t")


def indented(text: str, margin: str = "    ") -> str:
    """Return an escaped text with a margin before each line, so that none passes for ours."""
    return textwrap.indent(escape_for_terminal(text), margin, lambda line: True)


def clipped(text: str, max_characters: int = _MAX_CHARACTERS) -> str:
    """Return a text of at most so many characters, and a line that says how many it lacks.

    The first and the last half of what may stay is kept.
    """
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"


def first_words(text: str, max_characters: int) -> str:
    """Return a text in one line, of whole words: of a key that is cut, nobody knows the half."""
    text = " ".join(text.split())
    if len(text) <= max_characters:
        return text
    mark = "[...]"
    words, _, _ = text[: max_characters - len(mark)].rpartition(" ")
    return f"{words} {mark}".lstrip()


def first_names(names: Iterable[object], most: int = 3) -> str:
    """Return so many names, separated by commas, and dots if there are more."""
    texts = list(map(str, names))
    return ", ".join(texts[:most]) + (", ..." if len(texts) > most else "")


def replace_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which are not characters and which JSON readers refuse."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def hide_passwords(text: str) -> str:
    """Return a text in which no address has a user with a password."""
    return _PASSWORD.sub("(hidden)@", text)


def markdown_text(text: str) -> str:
    """Return a text on one line that means nothing in Markdown, and has no HTML in it."""
    return _MARKUP.sub(r"\\\g<0>", one_line(text))


def markdown_code(text: str, max_characters: int = 200, *, in_table: bool = False) -> str:
    """Return a text on one line as a code span of Markdown, of which GitHub makes nothing else.

    GitHub looks for ``@user``, ``#12``, addresses and emoji in what Markdown has been made into, so
    that a backslash does not keep them from being found. It does not look into code.

    Args:
        text: the text.
        max_characters: how many of its characters are shown, once it is escaped.
        in_table: it is for a cell of a table. There a ``|`` ends the cell, also in code; a
            backslash keeps it from that, unless the text has one before it. So it is written as an
            escape, as control characters are.
    """
    line = one_line(text)
    if in_table:
        line = line.replace("|", "\\x7c")
    if len(line) > max_characters:
        line = f"{line[: max_characters - 4]} ..."
    if not line.strip():
        line = f"(empty){line}"  # a code span of blanks alone keeps them, and shows nothing
    fence = "`" * (max(map(len, _BACKTICKS.findall(line)), default=0) + 1)
    # One blank at each end is not part of a span's text.
    margin = " " if line[0] in "` " or line[-1] in "` " else ""
    return f"{fence}{margin}{line}{margin}{fence}"


def _escape(run: re.Match[str]) -> str:
    if run[0].isprintable():
        return run[0]
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in run[0]
    )


def _disarm(command: re.Match[str]) -> str:
    return f"{command[0][:-1]}\\x{ord(command[0][-1]):02x}"


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 episode``, ``1,024 episodes``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def format_columns(rows: Sequence[Sequence[str]], *, labels: int) -> list[str]:
    """Return a line for each row, its cells in columns and escaped.

    Args:
        rows: the rows, all of the same length.
        labels: how many columns are aligned to the left; the others, numbers, to the right.
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if index < labels else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
