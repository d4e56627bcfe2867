"""A cluster on this machine, where there is no Ray."""

from __future__ import annotations

import sys

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.rollouts.cluster.local import LocalCluster


def test_without_ray_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigurationError, match=r"needs Ray: pip install .*\[ray\]"):
        LocalCluster(2)
