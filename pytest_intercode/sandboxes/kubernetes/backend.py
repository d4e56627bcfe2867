"""Kubernetes as a backend: the cluster of a kubeconfig context, or of the pod that we are in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from pytest_intercode.core.facts import Fact
from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.backend import BackendEvents, EngineBackend
from pytest_intercode.sandboxes.kubernetes.cluster import Cluster, ClusterError, missing_client
from pytest_intercode.sandboxes.settings import SandboxSettings

if TYPE_CHECKING:
    from pytest_intercode.sandboxes.kubernetes.images import ClusterImages

__all__ = ["KubernetesBackend"]

_ANSWER_TIMEOUT = 5.0  # seconds


class KubernetesBackend(EngineBackend):
    """One namespace of a cluster; see :class:`~pytest_intercode.sandboxes.backend.Backend`."""

    name = "kubernetes"
    takes = frozenset(
        {
            *("kube_context", "kube_namespace", "kube_nodes", "kube_pull_secrets"),
            *("platform", "registry", "runtime"),
        }
    )
    builds_images = True
    shares_network = False

    def __init__(self, settings: SandboxSettings) -> None:
        super().__init__(settings)
        self._own_images: ClusterImages | None = None

    def __str__(self) -> str:
        settings = self.settings
        details = [f"context {settings.kube_context}"] if settings.kube_context else []
        details += [f"namespace {settings.kube_namespace}"] if settings.kube_namespace else []
        details += [f"runtime {settings.runtime}"] if settings.runtime else []
        return ", ".join([self.name, *details])

    def requested(self) -> str | None:
        """Return None: a cluster has to be asked for by its name."""
        return None

    def problem(self) -> str:
        """Return whether its client is missing; only its use shows whether a cluster answers."""
        return missing_client()

    def describe(self, problem: str) -> Iterable[Fact]:
        """Return whether the cluster answers and lets us list pods, if the settings ask for it."""
        if problem:
            return [Fact(self.name, problem, "problem")]
        if self.settings.backend != self.name:
            return [Fact(self.name, "its client is installed")]
        try:
            with closing(
                Cluster(self.settings.kube_context, self.settings.kube_namespace)
            ) as cluster:
                cluster.list_all("pod", "pytest-intercode/run=none", _ANSWER_TIMEOUT)
                return [
                    Fact(self.name, f"the cluster {cluster.label}, namespace {cluster.namespace}")
                ]
        except (EngineUnavailable, ClusterError) as error:
            return [Fact(self.name, str(error), "problem")]

    def check(self, options: Mapping[str, str]) -> None:
        """Check nothing: the first sandbox reports the cluster's own message."""

    def start(self, events: BackendEvents) -> None:
        """Remove what earlier runs left."""
        from pytest_intercode.sandboxes.kubernetes.engine import KubernetesEngine
        from pytest_intercode.sandboxes.kubernetes.images import ClusterImages

        self.images = self._own_images = images = ClusterImages(self.settings, events.report_build)
        engine = KubernetesEngine(self.settings, events, images.architecture)
        self.engine = engine
        swept = engine.sweep()
        if swept:
            events.report(f"removed {swept} pods that an earlier run left behind")

    def close(self) -> None:
        """End every sandbox, and close the connections to the cluster and the builder of images."""
        super().close()
        if self._own_images is not None:
            self._own_images.close()
