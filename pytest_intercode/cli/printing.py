"""The output of commands: lines for people, escaped because results and suites are not ours.

Also writes the file of ``--output``, as that may print notes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_intercode.core.text import escape_for_terminal, format_columns, one_line
from pytest_intercode.system.files import check_writable, write_file

__all__ = [
    *("check_output", "note", "open_browser", "say", "say_json", "say_states", "show_count"),
    *("warn", "write_output"),
]

_COLOURS = {"ok": 32, "note": 33, "problem": 31}  # green, yellow and red, as terminals number them


def say(text: str) -> None:
    """Print a result, of one line or several."""
    print(escape_for_terminal(text))


def say_json(value: object) -> None:
    """Print a result for programs; no line in it is a command for a CI server either."""
    # Only strings contain "##", and an escape of JSON does not change their value.
    print(json.dumps(value, indent=1).replace("##", r"#\u0023"))


def say_states(rows: Sequence[tuple[str, str, str]]) -> None:
    """Print a table whose first column has states: ``ok``, ``note``, ``problem``.

    States are coloured in a terminal, unless the variable NO_COLOR is set.
    """
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for (state, *_), line in zip(rows, format_columns(rows, labels=3), strict=True):
        if coloured:
            line = f"\x1b[{_COLOURS[state]}m{state}\x1b[0m{line[len(state) :]}"
        print(line)


def note(line: str) -> None:
    """Print a line on the standard error: a mistake, or progress."""
    print(f"pytest-intercode: {one_line(line)}", file=sys.stderr, flush=True)


def warn(line: str) -> None:
    """Print a warning on the standard error."""
    note(f"warning: {line}")


def show_count(noun: str, total: int, number: int) -> None:
    """Show in a terminal how far a command is, in one line that each call overwrites.

    Args:
        noun: the things that are counted, such as ``images``.
        total: how many there are.
        number: how many of them are done.
    """
    if sys.stderr.isatty():
        end = "\n" if number == total else ""
        print(f"\r{number}/{total} {noun}", end=end, file=sys.stderr, flush=True)


def open_browser(address: str) -> bool:
    """Open a page in the user's browser; return whether there is one."""
    import webbrowser

    is_open = webbrowser.open(address)
    if not is_open:
        note("no browser could be started here")
    return is_open


def check_output(path: Path) -> None:
    """Check that the file of ``--output`` can be written, before the work for it starts.

    Raises:
        ConfigurationError: it cannot be written.
    """
    check_writable(path.expanduser(), option="--output", existing="keep")


def write_output(path: Path, text: str) -> None:
    """Write the file of ``--output``; results that it already holds are kept under another name.

    Raises:
        ConfigurationError: it cannot be written.
    """
    for line in write_file(path.expanduser(), text, option="--output", existing="keep"):
        note(line)
