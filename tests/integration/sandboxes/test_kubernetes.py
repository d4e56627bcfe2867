"""Kubernetes as a backend: the contract, what a cluster is asked for, and what it may do to us.

There is no cluster here: the API server is ours, and its pods are containers of the Docker engine
(``tests/support/cluster.py``). The client is the official one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode.sandboxes.kubernetes.engine import KubernetesEngine
from pytest_intercode.sandboxes.protocol import Sandbox
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.testing import BackendUnderTest, SandboxContract
from pytest_intercode.testing.fixtures import output_of
from tests.support.cluster import ApiServer

PAGE = (Path(__file__).parents[3] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
[ROLE] = re.findall(r"^```yaml\n(apiVersion: rbac.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("cluster"), ROLE) as server:
        yield server


@pytest.fixture(scope="module")
def engine(server: ApiServer) -> Iterator[KubernetesEngine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(server.kubeconfig))
        engine = KubernetesEngine(SandboxSettings("kubernetes"))
    yield engine
    engine.close()


class TestContract(SandboxContract):
    @pytest.fixture
    def under_test(self, engine: KubernetesEngine, bash_image: str) -> BackendUnderTest:
        return BackendUnderTest(engine, bash_image)

    def test_processes(self, small: Sandbox) -> None:
        """Here, the limit is the kubelet's: no pod can ask for one."""
        start = "for n in $(seq 150); do sleep 1000 & done 2>&1; sleep 1000"
        assert b"Resource temporarily unavailable" in small.run(start, 1.0).output
        assert output_of(small, "ls /proc/self/fd >/dev/null && echo forked") == "forked\n"
