"""How much is played every time, and how much with ``scripts/test --all`` alone.

Of suites and data sets it is one task in so many, always the same. Of tests it is those that
``tests/thinned.txt`` does not name: a test that it names gets the mark ``slow``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["ALL", "THINNED", "ThinnedTests", "every", "thinned"]

ALL = bool(os.environ.get("INTERCODE_ALL"))
"""Whether all is played, as ``scripts/test --all`` says."""

THINNED = Path(__file__).parents[1] / "thinned.txt"
"""The tests that are left to ``scripts/test --all``, with the reasons."""

_PLUGIN = """\
def pytest_intercode_modify_tasks(config, tasks):
    tasks[:] = tasks[::{}]
"""


class ThinnedTests:
    """The lines of ``tests/thinned.txt``: ids below ``tests/``, in which ``*`` is anything.

    Attributes:
        lines: those that are neither empty nor a comment.
    """

    def __init__(self, text: str) -> None:
        rows = (row.strip() for row in text.splitlines())
        self.lines = [row for row in rows if row and not row.startswith("#")]
        # A line without brackets stands for all cases of a test.
        self._patterns = {
            line: re.compile(
                re.escape(line).replace(r"\*", ".*") + ("" if "[" in line else r"(\[.*)?"),
                re.DOTALL,
            )
            for line in self.lines
        }
        # Few files have one: the others are not compared with every line.
        self._by_file: dict[str, list[str]] = {}
        for line in self.lines:
            self._by_file.setdefault(line.partition("::")[0], []).append(line)

    def line_of(self, test: str) -> str | None:
        """Return the line that names a test; None where there is none.

        Args:
            test: its id, such as ``tests/unit/test_names.py::test_words[a]``.
        """
        test = test.removeprefix("tests/")
        lines = self._by_file.get(test.partition("::")[0], ())
        return next((line for line in lines if self._patterns[line].fullmatch(test)), None)

    def unmatched(self, tests: Iterable[str]) -> list[str]:
        """Return the lines of which no test is one, of the files that these tests are of."""
        by_file: dict[str, list[str]] = {}
        for test in tests:
            file = test.removeprefix("tests/").partition("::")[0]
            by_file.setdefault(file, []).append(test.removeprefix("tests/"))
        return [
            line
            for file in sorted(by_file.keys() & self._by_file.keys())
            for line in self._by_file[file]
            if not any(self._patterns[line].fullmatch(test) for test in by_file[file])
        ]


def every(number: int) -> int:
    """Return a number where one task in so many is played, and 1 where all are."""
    return 1 if ALL else number


def thinned(folder: Path, number: int) -> list[str]:
    """Return the options of a run in a folder that takes one in so many of its tasks."""
    (folder / "thinned.py").write_text(_PLUGIN.format(number))
    return ["-p", "thinned"]
