"""A real cluster of Ray's for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ray_cluster import RayCluster, needs_ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """Two nodes on this machine."""
    needs_ray()
    made = RayCluster(2)
    yield made
    made.close()
