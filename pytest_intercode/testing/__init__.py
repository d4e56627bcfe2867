"""Tests for what other packages add. They run in the package's own test suite, as pytest classes.

A backend is tested by a file of five lines (docs/backends.md)::

    from pytest_intercode.testing import SandboxContract


    class TestPodman(SandboxContract):
        backend = "podman"
"""

from __future__ import annotations

import pytest

# Before they are imported: else a test that fails would say "AssertionError", and no more.
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
    """What environments rely on, whatever runs the sandboxes.

    A subclass names its ``backend``, and where it likes an ``image`` and ``settings``. To test one
    that is made in another way, override the fixture ``under_test``, which returns a
    :class:`BackendUnderTest`.

    A part of it can be run by its name, such as ``pytest -k test_memory``; docs/backends.md says
    where to begin.
    """
