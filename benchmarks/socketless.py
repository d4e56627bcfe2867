"""A pytest plugin for runs whose state nobody can ask for: they open no socket for it.

Loaded by ``-p benchmarks.socketless`` for the reference that the socket is compared with.
"""

from __future__ import annotations

import pytest

from pytest_intercode.system.control import ControlSocket


class NoSocket(ControlSocket):
    """A socket that cannot be created, as on a machine without a place for it."""

    def __init__(self, *arguments: object, **more: object) -> None:
        raise OSError("benchmarks: no socket")


def pytest_sessionstart() -> None:
    """Prevent the run from opening its socket."""
    pytest.MonkeyPatch().setattr("pytest_intercode.plugin.control.ControlSocket", NoSocket)
