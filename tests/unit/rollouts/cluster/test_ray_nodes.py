"""A Ray cluster, as far as it can be refused where there is no Ray."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.rollouts.cluster.ray_nodes import RayNodes


@pytest.mark.parametrize("address", ["127.0.0.1:1", "local:2", "auto"])
def test_a_connection_of_somebody_elses_stays(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    calls: list[str] = []
    ray: Any = SimpleNamespace(
        util=SimpleNamespace(),
        is_initialized=lambda: True,
        shutdown=lambda: calls.append("shutdown"),
    )
    for name in ("ray", "ray.util", "ray.util.scheduling_strategies"):
        monkeypatch.setitem(sys.modules, name, ray)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    environment = dict(os.environ)
    with pytest.raises(ConfigurationError, match="is already connected to a Ray cluster") as error:
        RayNodes(address, insecure=True)
    assert str(error.value).startswith(f"--intercode-cluster={address}: ")
    assert not calls
    assert dict(os.environ) == environment
