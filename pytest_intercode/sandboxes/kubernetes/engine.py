"""A cluster as a launcher of sandboxes, and the removal of what earlier runs left."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import partial
from typing import Any

from pytest_intercode.errors import EngineUnavailable, SandboxError
from pytest_intercode.sandboxes.backend import BackendEvents
from pytest_intercode.sandboxes.kubernetes import manifests
from pytest_intercode.sandboxes.kubernetes.cluster import Cluster, ClusterError
from pytest_intercode.sandboxes.kubernetes.pod import (
    Pod,
    await_end,
    end_cause,
    ended_at,
    has_ended,
    has_stopped,
    is_given_up,
    is_running,
    start_problem,
)
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.forks import MakingProcess
from pytest_intercode.system.platform import is_dead, owner_name

__all__ = ["KubernetesEngine"]

_STARTERS = 8  # more do not help, as the scheduler handles pods one by one
_MAX_TRIES = 3  # pods for one sandbox: a cluster may lose one before anything has acted in it
_START_TIMEOUT = 600.0  # seconds: a cluster may have to add a machine first
_END_TIMEOUT = 15.0  # seconds to delete what is left at the end
_END_INTERVAL = 0.2
_WATCH_INTERVAL = 1.0  # minimum seconds from the beginning of a watch to the next one
_PING_INTERVAL = 20.0  # seconds; proxies in between end connections that are idle for a minute
_KEPT_TIMEOUT = 600.0  # seconds for which an ended pod of another run is kept
_DELETERS = 4

# If a pod reaches anything, it reaches the cluster's own API; kubelets give each container the
# address. A connection that opens is tried again, as rules may take effect after the pod starts.
# First, the probe itself is tried at a port without a listener: if it were broken, nothing would
# ever open.
_NETWORK_PROBE = """
[ "$KUBERNETES_SERVICE_HOST" ] && [ "$KUBERNETES_SERVICE_PORT" ] || exit 3
answer=$(LC_ALL=C timeout 5 bash -c ': </dev/tcp/127.0.0.1/1' 2>&1)
[[ $answer = *refused* ]] || exit 5
for ((tries = {tries}; tries; tries--)); do
  timeout 1 bash -c ': </dev/tcp/$KUBERNETES_SERVICE_HOST/$KUBERNETES_SERVICE_PORT' || exit 0
  sleep 1
done
exit 4
"""
_PROBE_TRIES = 8  # that many seconds, or twice as many
_PROBE_TIMEOUT = 60.0  # seconds
_PROBLEMS = {
    3: "its kubelet does not say where the cluster's API is, and whether the sandbox is without a "
    "network cannot be seen",
    4: "it has a network that it must not have: the cluster's network plugin does not enforce "
    "NetworkPolicies (docs/kubernetes.md)",
    5: "its image lacks `timeout`, or its bash opens no connections, and whether the sandbox is "
    "without a network cannot be seen",
}


class _PodLost(SandboxError):
    """A pod was lost before anything has acted in it; another one may work."""


class KubernetesEngine:
    """Starts sandboxes in pods; there is one for each pytest process.

    Args:
        settings: the cluster, and the settings of its pods.
        events: receives reports of lost sandboxes.
        find_architecture: returns the processor that an image is for; empty for any.

    Attributes:
        cluster: the cluster.
        run: the value of the label that marks this process's pods.
        starters: how many simultaneous starts are useful.

    Raises:
        EngineUnavailable: there is no such cluster.
    """

    starters = _STARTERS

    def __init__(
        self,
        settings: SandboxSettings,
        events: BackendEvents | None = None,
        find_architecture: Callable[[str], str] = lambda image: "",
    ) -> None:
        self._settings = settings
        self._events = events or BackendEvents()
        self._find_architecture = find_architecture
        self.cluster = Cluster(settings.kube_context, settings.kube_namespace)
        self.run = secrets.token_hex(6)
        self._owner = owner_name(os.getpid())
        self._process = MakingProcess()
        self._pods: set[Pod] = set()
        self._lock = threading.Lock()  # guards the pods and the attributes below
        self._policies_number = 0
        self._renewal_time = 0.0
        self._closing = threading.Event()
        self._deleters = ThreadPoolExecutor(_DELETERS, thread_name_prefix="intercode-pods")
        self._pinger = threading.Thread(target=self._keep_alive, name="intercode-ping", daemon=True)
        self._pinger.start()

    def launch(self, spec: SandboxSpec) -> Pod:
        """Create a pod and attach to it; create another one if the cluster loses it before that.

        Raises:
            SandboxError: the cluster refused, or the keeper did not answer.
        """
        _refuse(spec)
        try:
            self._create_policies()
            for _ in range(_MAX_TRIES - 1):
                with contextlib.suppress(_PodLost):
                    return self._start(spec)
            return self._start(spec)
        except SandboxError as error:
            raise SandboxError(f"{spec.image} does not start as a sandbox: {error}") from None

    def _create_policies(self) -> None:
        """Create the rules for who may reach what, before a pod exists.

        They are created again after half a day: another run removes rules that have no pods and are
        older than any pod can be.
        """
        with self._lock:
            if time.time() < self._renewal_time:
                return
            number = self._policies_number + 1
            for policy in manifests.policies(self.run, self._owner, number):
                self.cluster.create("network_policy", policy)
            self._policies_number = number
            self._renewal_time = time.time() + manifests.DEADLINE / 2

    def _start(self, spec: SandboxSpec) -> Pod:
        self._check_open()
        name = f"intercode-{self.run}-{secrets.token_hex(4)}"
        limit = time.monotonic() + _START_TIMEOUT
        manifest = manifests.pod(
            *(name, spec, self.run, self._owner, self._settings),
            self._find_architecture(spec.image),
        )
        try:
            self.cluster.create("pod", manifest, _START_TIMEOUT)
            self._await_running(name, limit)
            return self._attach(name, spec)
        except BaseException:
            self._delete(name)
            raise

    def _await_running(self, name: str, limit: float) -> None:
        """Wait until the container of a pod runs.

        Raises:
            SandboxError: it will not run, or not in time.
            _PodLost: the pod is gone, or its image could not be pulled this time.
        """
        problem, may_start = "", True
        while time.monotonic() < limit:
            self._check_open()
            ask = partial(self._next_state, name, problem)
            pod = self.cluster.call(f"the pod {name}", ask, _START_TIMEOUT)
            if pod is None:
                raise _PodLost(end_cause(pod))
            if is_running(pod) and not has_ended(pod):
                return
            problem, may_start = start_problem(pod)
            if not may_start:
                raise SandboxError(problem)
            if has_ended(pod) or is_given_up(pod):
                raise _PodLost(problem or end_cause(pod) or "its pod ended at once")
        raise SandboxError(problem or "its pod does not start in time")

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise SandboxError("the run is over")

    def _next_state(self, name: str, problem: str) -> dict[str, Any] | None:
        """Return a pod when there is something new about it, or after a while.

        Args:
            name: the pod's name.
            problem: the known reason why it does not start.
        """
        began = time.monotonic()
        for pod in self.cluster.watch_pod(name):
            if pod is None or is_running(pod) or has_ended(pod) or self._closing.is_set():
                return pod
            if start_problem(pod)[0] != problem:
                return pod
        # A proxy in between may end each watch immediately.
        self._closing.wait(max(0.0, began + _WATCH_INTERVAL - time.monotonic()))
        return self.cluster.read_pod(name)

    def _attach(self, name: str, spec: SandboxSpec) -> Pod:
        """Return the sandbox of a running pod.

        Raises:
            SandboxError: nothing can be started in it, or it has a network against its spec.
            _PodLost: the pod or the connection to it was lost.
        """
        try:
            streams = self.cluster.attach(name)
        except ClusterError as error:
            if error.is_refusal:
                raise
            raise _PodLost(str(error)) from None
        try:
            pod = Pod(self.cluster, name, streams, spec, self._forget)
            if not spec.limits.network:
                _check_network(pod)
        except BaseException as error:
            was_lost = streams.hung_up()
            streams.close()
            if was_lost and isinstance(error, SandboxError):
                self._explain_end(name)
            raise
        with self._lock:
            self._pods.add(pod)
        return pod

    def _explain_end(self, name: str) -> None:
        """Report why a pod ended before anything has acted in it.

        Raises:
            SandboxError: nothing can be started in it.
            _PodLost: another pod may work.
        """
        pod = await_end(self.cluster, name)
        if pod is not None:
            problem, may_start = start_problem(pod)
            if not may_start:
                raise SandboxError(problem)
        raise _PodLost(end_cause(pod) or "the connection to it was lost at once")

    # -- while pods run

    def _keep_alive(self) -> None:
        """Keep proxies from ending idle connections, and keep lost pods from being used."""
        while not self._closing.wait(_PING_INTERVAL):
            self.check_pods()

    def check_pods(self) -> None:
        """Send each pod a ping, and report the lost ones."""
        with self._lock:
            pods = list(self._pods)
        for pod in pods:
            pod.streams.ping()
        lost_pods = {id(pod) for pod in pods if pod.streams.hung_up()}
        if lost_pods:
            self._events.drop(lambda sandbox: id(sandbox) in lost_pods)

    def _forget(self, pod: Pod) -> None:
        with self._lock:
            self._pods.discard(pod)
        self._delete(pod.name)

    def _delete(self, name: str) -> None:
        """Delete a pod in the background; after the end of the run, immediately."""
        try:
            self._deleters.submit(self._try_to_delete, "pod", name)
        except RuntimeError:
            self._try_to_delete("pod", name)
            self.cluster.close()  # it may have opened a new connection

    def _try_to_delete(self, kind: str, name: str) -> bool:
        with contextlib.suppress(ClusterError):
            return self.cluster.delete(kind, name, _END_TIMEOUT)
        return False

    # -- what is left

    def sweep(self) -> int:
        """Remove the pods and rules of runs that died; return the number of pods.

        We cannot check whether a run on another machine is alive. If it is not, its pods have
        ended, as each pod ends with its client.

        Raises:
            EngineUnavailable: the cluster cannot be used.
        """
        try:
            pods = self.cluster.list_all("pod", manifests.MANAGED)
            rules = self.cluster.list_all("network_policy", manifests.MANAGED)
        except ClusterError as error:
            raise EngineUnavailable(str(error)) from None
        names = [pod["metadata"]["name"] for pod in pods if _is_left(pod)]
        removed = sum(self._try_to_delete("pod", name) for name in names)
        # A running pod keeps its rules, even if it is about to end; the next run removes them.
        running = {_run_of(pod) for pod in pods if not has_stopped(pod)}
        for rule in rules:
            is_old = _age(rule["metadata"].get("creationTimestamp")) > manifests.DEADLINE
            if _run_of(rule) not in running and (_owner_is_dead(rule) or is_old):
                self._try_to_delete("network_policy", rule["metadata"]["name"])
        return removed

    def close(self) -> None:
        """End every sandbox, and remove everything of this run from the cluster."""
        if not self._process.is_this:
            return  # a forked child must not end its parent's sandboxes
        # First, so that waiting starts give up and do not create further pods.
        self._closing.set()
        with self._lock:
            pods = list(self._pods)
        for pod in pods:
            pod.close()
        # Pods that are left are removed with all others, if the cluster answers at all.
        self._deleters.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(ClusterError):
            self._remove_all()
        self._pinger.join()
        self.cluster.close()

    def _remove_all(self) -> None:
        """Remove the pods of this run, and its rules when no pod is left; else a later run does."""
        limit = time.monotonic() + _END_TIMEOUT
        selector = f"{manifests.RUN_LABEL}={self.run}"
        while pods := self.cluster.list_all("pod", selector, _END_TIMEOUT):
            if time.monotonic() > limit:
                return
            with ThreadPoolExecutor(_DELETERS, thread_name_prefix="intercode-pods") as deleters:
                for pod in pods:
                    deleters.submit(self._try_to_delete, "pod", pod["metadata"]["name"])
            time.sleep(_END_INTERVAL)
        for rule in self.cluster.list_all("network_policy", selector, _END_TIMEOUT):
            self._try_to_delete("network_policy", rule["metadata"]["name"])


def _refuse(spec: SandboxSpec) -> None:
    """Refuse what a pod does not support.

    Raises:
        SandboxError: the spec asks for it.
    """
    if spec.limits.hosts:
        raise SandboxError(
            "kubernetes: this backend has no limited network; use docker or bubblewrap"
        )
    if spec.mounts or spec.readonly:
        raise SandboxError(
            "kubernetes: a pod shares no folder with this machine, which installed agents and "
            "database servers need; use docker or bubblewrap"
        )


def _check_network(pod: Pod) -> None:
    """Check that a pod without network access reaches nothing, before anything acts in it.

    Raises:
        SandboxError: it reaches something, or this cannot be checked.
    """
    status, output = pod.admin(_NETWORK_PROBE.replace("{tries}", f"{_PROBE_TRIES}"), _PROBE_TIMEOUT)
    if status != 0:
        problem = _PROBLEMS.get(status, f"its network cannot be tried: {output!r:.200}")
        raise SandboxError(f"the pod {pod.name}: {problem}")


def _is_left(pod: Mapping[str, Any]) -> bool:
    """Whether a pod's run is dead, or is on another machine and the pod has ended long ago."""
    if _owner_is_dead(pod):
        return True
    created = pod["metadata"].get("creationTimestamp")
    return has_ended(pod) and _age(ended_at(pod) or created) > _KEPT_TIMEOUT


def _owner_is_dead(item: Mapping[str, Any]) -> bool:
    return is_dead(str((item["metadata"].get("annotations") or {}).get(manifests.OWNER, "")))


def _run_of(item: Mapping[str, Any]) -> str:
    return str((item["metadata"].get("labels") or {}).get(manifests.RUN_LABEL, ""))


def _age(timestamp: str | None) -> float:
    """Return how many seconds ago a time of the cluster was; 0 if it is not known."""
    if not timestamp:
        return 0.0
    moment = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    return (datetime.now(timezone.utc) - moment).total_seconds()
