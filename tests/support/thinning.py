"""One task in so many, always the same: what conformance runs are in CI; all with INTERCODE_ALL."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["ALL", "thinned"]

ALL = bool(os.environ.get("INTERCODE_ALL"))

_PLUGIN = """\
def pytest_intercode_modify_tasks(config, tasks):
    tasks[:] = tasks[::{}]
"""


def thinned(folder: Path, every: int) -> list[str]:
    """Return the options of a run in a folder that takes one in so many of its tasks."""
    (folder / "thinned.py").write_text(_PLUGIN.format(every))
    return ["-p", "thinned"]
