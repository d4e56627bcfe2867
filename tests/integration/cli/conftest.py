"""Runs in other processes, which commands look at."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ADDOPTS
from tests.support.backends import short_temporary_folder
from tests.support.gated_run import GatedRun

KEY = "my-own-secret-key-0123456789"

Start = Callable[..., GatedRun]


@pytest.fixture
def temporary(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Return where runs and commands of this test, and no others, have their folders."""
    tmp_path_factory.getbasetemp()  # which pytest makes when it is first asked for, and keeps
    monkeypatch.setenv("PYTEST_ADDOPTS", ADDOPTS)
    monkeypatch.setenv("MY_API_KEY", KEY)
    with short_temporary_folder(monkeypatch) as folder:
        yield folder


@pytest.fixture
def start(pretend: Path, temporary: Path) -> Iterator[Start]:
    """Return what starts a run, in an environment that needs no sandbox."""
    folder = pretend.parent
    with contextlib.ExitStack() as stack:

        def start_run(*options: str) -> GatedRun:
            run = GatedRun(folder, *options)
            stack.callback(run.close)
            return run

        yield start_run
