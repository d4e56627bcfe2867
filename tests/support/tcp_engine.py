"""The machine's own Docker engine by TCP: for a client, an engine that shares nothing with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.support.engine_proxy import EngineProxy

__all__ = ["engine_by_tcp"]


@contextlib.contextmanager
def engine_by_tcp() -> Iterator[str]:
    """Have it be the engine that nobody names, for this process and what it starts."""
    with EngineProxy(None) as proxy, pytest.MonkeyPatch.context() as patch:
        for name in ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
            patch.delenv(name, raising=False)
        patch.setenv("DOCKER_HOST", proxy.url)
        yield proxy.url
