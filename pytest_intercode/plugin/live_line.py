"""The live line: what runs ahead while pytest waits for the item whose turn it is.

It stands below what pytest has written, and is there only while pytest waits, so that pytest's
own writing never meets it. It goes past pytest's capturing, on a descriptor of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

__all__ = ["LiveLine"]


class LiveLine:
    """One line on the terminal; nothing where there is none, or where pytest is told to be quiet.

    Args:
        config: pytest's; made while it captures nothing.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._file: IO[str] | None = None
        self._shown = ""
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        shown = reporter is not None and reporter.isatty and config.get_verbosity() >= 0
        if not shown or config.getoption("capture", "no") == "no" or sys.__stdout__ is None:
            return
        self._writer = reporter._tw  # it knows the column
        with contextlib.suppress(OSError, ValueError):
            self._file = os.fdopen(os.dup(sys.__stdout__.fileno()), "w", encoding="utf-8")

    def show(self, text: str) -> None:
        """Show a text in place of what is there."""
        if self._file is None or text == self._shown:
            return
        self._draw(text[: shutil.get_terminal_size().columns - 1])
        self._shown = text

    def clear(self) -> None:
        """Take the line away."""
        if self._file is not None and self._shown:
            self._draw("")
            self._shown = ""

    def close(self) -> None:
        """Take the line away, for good."""
        self.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _draw(self, text: str) -> None:
        """Write below the present line, and go back to where pytest is on that."""
        assert self._file is not None
        column = getattr(self._writer, "width_of_current_line", 0) + 1
        with contextlib.suppress(OSError):
            self._file.write(f"\n\x1b[2K{text}\x1b[A\x1b[{column}G")
            self._file.flush()
