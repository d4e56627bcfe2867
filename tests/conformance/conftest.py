"""Where the reference data are; they are large, not ours, and not part of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.docker.engine import connect


def _folder(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} names no folder with the reference data")
    path = Path(value)
    if not path.is_dir():
        pytest.fail(f"{variable}={value} is not a folder")
    return path


@pytest.fixture(scope="session")
def data() -> Path:
    return _folder("INTERCODE_DATA")


@pytest.fixture(scope="session")
def reference() -> Path:
    return _folder("INTERCODE_REFERENCE")


@pytest.fixture(scope="session")
def recordings() -> Path:
    return _folder("INTERCODE_RECORDINGS")


@pytest.fixture(scope="session", autouse=True)
def docker_answers() -> None:
    try:
        connect().close()
    except EngineUnavailable as error:
        pytest.skip(str(error))
