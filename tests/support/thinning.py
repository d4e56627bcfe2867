"""How much of the suites and data sets tests play: one task in so many, always the same, or all."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["ALL", "every", "thinned"]

ALL = bool(os.environ.get("INTERCODE_ALL"))
"""Whether all is played, as ``scripts/test --all`` says."""

_PLUGIN = """\
def pytest_intercode_modify_tasks(config, tasks):
    tasks[:] = tasks[::{}]
"""


def every(number: int) -> int:
    """Return a number where one task in so many is played, and 1 where all are."""
    return 1 if ALL else number


def thinned(folder: Path, number: int) -> list[str]:
    """Return the options of a run in a folder that takes one in so many of its tasks."""
    (folder / "thinned.py").write_text(_PLUGIN.format(number))
    return ["-p", "thinned"]
