"""Writes CONTRIBUTING.md's table of the slowest tests.

Run as ``python -m tests.support.slowest_tests XML``, with what pytest's ``--junitxml`` wrote.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

__all__ = ["slowest_tests", "with_table"]

_CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
_HEAD = "| seconds | test |\n| ---: | --- |\n"
_COUNT = 100


def slowest_tests(path: Path, count: int = _COUNT) -> list[tuple[float, str]]:
    """Return the slowest tests of a run: seconds with fixtures, and a file and a name.

    Args:
        path: the JUnit XML.
        count: how many.
    """
    cases = ElementTree.parse(path).iter("testcase")
    times = [
        (float(case.attrib["time"]), f"{case.attrib['classname']}::{case.attrib['name']}")
        for case in cases
    ]
    return sorted(times, reverse=True)[:count]


def with_table(text: str, tests: list[tuple[float, str]]) -> str:
    """Return a text with a table of tests in place of its own."""
    rows = "".join(f"| {seconds:.1f} | `{_cell(name)}` |\n" for seconds, name in tests)
    assert text.count(_HEAD) == 1
    return re.sub(re.escape(_HEAD) + r"(\|.*\n)*", lambda _: _HEAD + rows, text)


def _cell(name: str) -> str:
    return name.replace("|", "\\|").replace("`", "'").removeprefix("tests.")


if __name__ == "__main__":
    text = _CONTRIBUTING.read_text("utf-8")
    _CONTRIBUTING.write_text(with_table(text, slowest_tests(Path(sys.argv[1]))), "utf-8")
