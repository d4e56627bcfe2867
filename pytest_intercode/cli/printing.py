"""What the commands print: lines for people, escaped, as results and suites are others' words."""

from __future__ import annotations

import sys

from pytest_intercode.core.text import escape_for_terminal, one_line

__all__ = ["note", "say", "warn"]


def say(text: str) -> None:
    """Print a result, of one line or several."""
    print(escape_for_terminal(text))


def note(line: str) -> None:
    """Print a line on the standard error: a mistake, progress."""
    print(f"pytest-intercode: {one_line(line)}", file=sys.stderr, flush=True)


def warn(line: str) -> None:
    """Print a warning on the standard error."""
    note(f"warning: {line}")
