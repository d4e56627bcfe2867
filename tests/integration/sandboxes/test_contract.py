"""The contract that every backend keeps, on each of ours."""

from __future__ import annotations

import pytest

from pytest_intercode.core.task import Limits
from pytest_intercode.testing import BackendUnderTest, SandboxContract
from tests.support.backends import Backend


class TestContract(SandboxContract):
    @pytest.fixture
    def under_test(self, backend: Backend) -> BackendUnderTest:
        if backend.runtime == "runsc":  # its kernel is a process that counts, too
            limits = Limits(memory=512 * 1024**2, file_size=1024**2, cpus=1.0)
            return BackendUnderTest(backend.engine, backend.image, limits)
        return BackendUnderTest(backend.engine, backend.image)
