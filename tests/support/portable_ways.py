"""Has processes be started, limited and ended as where Linux's own ways are missing.

For tests of the portable ways on Linux. A script of its own begins with :data:`PRELUDE`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode.databases.sqlite import process
from pytest_intercode.system import platform

__all__ = ["PRELUDE", "ROOT", "WAYS", "both_ways", "use_portable_ways"]

ROOT = Path(__file__).parents[2]
"""Where a script has to look for this module: the first entry of its PYTHONPATH."""

WAYS = ("linux", "portable")

PRELUDE = """
import pytest
from tests.support.portable_ways import use_portable_ways
use_portable_ways(pytest.MonkeyPatch())
"""

_NOWHERE = Path("/nowhere/statm")
_WORKER = f"""
import os, pathlib, sys
vars(os).pop("pidfd_open", None)
sys.path.append(sys.argv[3])
from pytest_intercode.databases.sqlite import worker
worker.MAPPED_PAGES = pathlib.Path("{_NOWHERE}")
"""


def use_portable_ways(patch: pytest.MonkeyPatch) -> None:
    """Use them for programs and for SQLite, until the patch is undone."""
    patch.setattr(platform, "adopts_orphans", lambda: False)
    patch.setattr(process, "open_pidfd", lambda _: None)
    patch.setattr(process, "MAPPED_PAGES", _NOWHERE)
    patch.setattr(process, "_START", _WORKER + process._START)


@pytest.fixture(scope="module", params=WAYS)
def both_ways(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return each way of limiting and ending SQLite's processes, which is in use meanwhile.

    A module whose tests are to be run by both names it ``way``.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "portable":
            use_portable_ways(patch)
        yield str(request.param)
