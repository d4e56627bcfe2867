"""Tests for extensions by other packages: pytest classes that run in the package's own test suite.

A backend is tested by a file of five lines (docs/backends.md)::

    from pytest_intercode.testing import SandboxContract


    class TestPodman(SandboxContract):
        backend = "podman"
"""

from __future__ import annotations

import pytest

# Before they are imported: otherwise a failing test would show only "AssertionError".
pytest.register_assert_rewrite(
    *(f"{__name__}.{part}" for part in ("actions", "clock", "disk", "fixtures", "limits", "shells"))
)

from pytest_intercode.testing.actions import ActionTests
from pytest_intercode.testing.clock import ClockTests
from pytest_intercode.testing.disk import DiskTests
from pytest_intercode.testing.fixtures import BackendUnderTest
from pytest_intercode.testing.limits import LimitTests
from pytest_intercode.testing.shells import ShellTests

__all__ = ["BackendUnderTest", "SandboxContract"]


class SandboxContract(ActionTests, ShellTests, ClockTests, DiskTests, LimitTests):
    """The behavior of sandboxes that environments rely on, whatever the backend.

    A subclass sets its ``backend``, and optionally an ``image`` and ``settings``. To test a backend
    that is created in another way, override the fixture ``under_test``, which returns
    a :class:`BackendUnderTest`.

    To run a part of the contract, select it by name, as in ``pytest -k test_memory``;
    docs/backends.md suggests where to begin.
    """
