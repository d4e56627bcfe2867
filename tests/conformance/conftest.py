"""Conformance is tested on the images of the data sets."""

from __future__ import annotations

import pytest

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.docker.engine import connect


@pytest.fixture(scope="session", autouse=True)
def docker_answers() -> None:
    try:
        connect().close()
    except EngineUnavailable as error:
        pytest.skip(str(error))
