"""A pytest plugin for runs that nobody can ask what they do: they open no socket for that.

Loaded by ``-p benchmarks.socketless`` for what the socket is measured against.
"""

from __future__ import annotations

import pytest

from pytest_intercode.system.control import ControlSocket


class NoSocket(ControlSocket):
    """Cannot be made, as where there is no place for it."""

    def __init__(self, *arguments: object, **more: object) -> None:
        raise OSError("benchmarks: no socket")


def pytest_sessionstart() -> None:
    """Leave the run without its socket."""
    pytest.MonkeyPatch().setattr("pytest_intercode.plugin.control.ControlSocket", NoSocket)
