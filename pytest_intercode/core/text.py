"""Formatting of text for people: escaped, counted, in columns.

Escaped text from a sandbox, an agent or a suite cannot control a terminal or a CI server. All
characters that are not displayed as themselves are escaped: control characters, which could move
the cursor, rename the window or answer in the user's place; marks that change the direction of
writing; characters that only look like blanks; line ends other than the usual one.

One character of each sequence that makes a line of a log a command to a CI server is escaped too.
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
# The last character is the one that is escaped: then the escaped form of a text's beginning never
# depends on what follows, so that a stream can be escaped piece by piece.
_COMMANDS = re.compile(r"##vso|##[A-Za-z]{0,32}\[|^[ \t]*::", re.MULTILINE)
_PASSWORD = re.compile(r"[^\s:/@=]*:[^\s/@]+@")  # with its user, before the host of an address
_MARKUP = re.compile(r"[\\`*_<>|\[\]&~#!$]")
_BACKTICKS = re.compile(r"`+")
_MAX_CHARACTERS = 1_000_000  # characters of a text in a report, more than people read


def fragments(text: str, style: str = "") -> list[tuple[str, str]]:
    """Return pairs of a style and a text; escapes stand out from backslashes of the text."""
    styled = []
    for run in re.finditer(rf"{_HIDDEN.pattern}|[\n\t\x20-\x7e]+", text):
        escaped = _HIDDEN_RUNS.sub(_escape, run[0])
        styled.append((style if escaped == run[0] else _STYLE, escaped))
    return styled


def escape_for_terminal(text: str) -> str:
    """Escape characters that are not displayed as themselves, and commands to CI servers.

    Line ends and tabs are kept. Escaping a second time changes nothing. The result for a text
    begins with the result for the text's beginning.
    """
    return _COMMANDS.sub(_disarm, _HIDDEN_RUNS.sub(_escape, text))


def one_line(text: str) -> str:
    """Return an escaped text on one line, with line ends and tabs escaped too."""
    return escape_for_terminal(text).replace("\n", "\\n").replace("\t", "\\t")


def indented(text: str, margin: str = "    ") -> str:
    """Return an escaped text with a margin before each line, so that no line looks like ours."""
    return textwrap.indent(escape_for_terminal(text), margin, lambda line: True)


def clipped(text: str, max_characters: int = _MAX_CHARACTERS) -> str:
    """Shorten a text to a number of characters, plus a line with the number of those left out.

    The beginning and the end are kept, half of that number each.
    """
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"


def first_words(text: str, max_characters: int) -> str:
    """Return the beginning of a text on one line, cut between words, so that no key is cut."""
    text = " ".join(text.split())
    if len(text) <= max_characters:
        return text
    mark = "[...]"
    words, _, _ = text[: max_characters - len(mark)].rpartition(" ")
    return f"{words} {mark}".lstrip()


def first_names(names: Iterable[object], most: int = 3) -> str:
    """Return the first names, separated by commas, and dots if there are more."""
    texts = list(map(str, names))
    return ", ".join(texts[:most]) + (", ..." if len(texts) > most else "")


def replace_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which are not characters and which JSON readers refuse."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def hide_passwords(text: str) -> str:
    """Hide the user and the password of each address in a text."""
    return _PASSWORD.sub("(hidden)@", text)


def markdown_text(text: str) -> str:
    """Return a text on one line, with everything escaped that Markdown or HTML would interpret."""
    return _MARKUP.sub(r"\\\g<0>", one_line(text))


def markdown_code(text: str, max_characters: int = 200, *, in_table: bool = False) -> str:
    """Return a text on one line as a Markdown code span, in which GitHub makes no links.

    GitHub looks for ``@user``, ``#12``, addresses and emoji in the rendered Markdown, so a
    backslash does not prevent that. It does not look into code.

    Args:
        text: the text.
        max_characters: how many characters of the escaped text are shown.
        in_table: the span is for a cell of a table. There a ``|`` ends the cell, even in code; a
            backslash prevents that, unless the text has another one before it. So the ``|`` is
            escaped like a control character.
    """
    line = one_line(text)
    if in_table:
        line = line.replace("|", "\\x7c")
    if len(line) > max_characters:
        line = f"{line[: max_characters - 4]} ..."
    if not line.strip():
        line = f"(empty){line}"  # a code span with only blanks shows nothing
    fence = "`" * (max(map(len, _BACKTICKS.findall(line)), default=0) + 1)
    # Markdown removes one blank at each end of a span.
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
