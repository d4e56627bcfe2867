"""What the commands print: lines for people, escaped, as results and suites are others' words.

Also the file of ``--output``, as writing it may have something to say.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_intercode.core.text import escape_for_terminal, one_line
from pytest_intercode.system.files import write_file

__all__ = ["note", "say", "warn", "write_output"]


def say(text: str) -> None:
    """Print a result, of one line or several."""
    print(escape_for_terminal(text))


def note(line: str) -> None:
    """Print a line on the standard error: a mistake, progress."""
    print(f"pytest-intercode: {one_line(line)}", file=sys.stderr, flush=True)


def warn(line: str) -> None:
    """Print a warning on the standard error."""
    note(f"warning: {line}")


def write_output(path: Path, text: str) -> None:
    """Write the file of ``--output``; results that it holds are kept under another name.

    Raises:
        ConfigurationError: it cannot be written.
    """
    for line in write_file(path.expanduser(), text, option="--output", existing="keep"):
        note(line)
