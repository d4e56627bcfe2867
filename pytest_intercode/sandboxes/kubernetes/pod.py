"""A pod as a sandbox, and a cluster's reports on why a pod does not start, or has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.channel import INPUT_ENDED
from pytest_intercode.sandboxes.kubernetes.cluster import Cluster, ClusterError
from pytest_intercode.sandboxes.kubernetes.streams import PodStreams
from pytest_intercode.sandboxes.protocol import OUTSIDE, SandboxSpec

__all__ = [
    *("Pod", "await_end", "end_cause", "ended_at", "has_ended", "has_stopped", "is_given_up"),
    *("is_running", "start_problem"),
]

_ADDRESSES = "/etc/hosts"  # with a network, it contains this pod's own address
_LOST = "the connection to it was lost"
_END_TIMEOUT = 15.0  # seconds within which a cluster notices that a container has ended
_END_INTERVAL = 0.25
_ANSWER_TIMEOUT = 10.0  # seconds for which a request about an end is retried
_MAX_WORDS = 200  # characters of a cluster's message

# The messages of a kubelet that ends a pod for what is in it, not for a shortage of the machine.
_OWN_FAULTS = (
    "ephemeral local storage usage exceeds",  # Pod ephemeral local storage usage exceeds the total
    "exceeded its local ephemeral storage limit",  # Container sandbox exceeded ...
    "exceeds the limit",  # Usage of EmptyDir volume "scratch-0" exceeds the limit "1Gi"
)
# The reasons why a waiting container will not start. For the first two, a retry may help.
_PULL_FAULTS = ("ErrImagePull", "ImagePullBackOff")
_GIVEN_UP = "ImagePullBackOff"
_START_FAULTS = (
    *("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"),
    *("CreateContainerError", "RunContainerError", "CrashLoopBackOff"),
)
_KILLED = 137  # the status of a container that was ended by SIGKILL
_NO_PROGRAM = (126, 127, 128)  # statuses of a container without bash or setpriv


def is_running(pod: Mapping[str, Any]) -> bool:
    """Whether the container of a pod runs."""
    return "running" in _container_state(pod)


def has_ended(pod: Mapping[str, Any] | None) -> bool:
    """Whether a pod is gone, its container has ended, or the cluster is about to end it."""
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return True
    return has_stopped(pod) or "terminated" in _container_state(pod)


def has_stopped(pod: Mapping[str, Any]) -> bool:
    """Whether nothing of a pod runs any more, according to its kubelet."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def is_given_up(pod: Mapping[str, Any]) -> bool:
    """Whether a pod's image could not be pulled, and is not being pulled at the moment."""
    return (_container_state(pod).get("waiting") or {}).get("reason") == _GIVEN_UP


def ended_at(pod: Mapping[str, Any]) -> str | None:
    """Return when a pod's container ended, in the cluster's format; None if not known."""
    return (_container_state(pod).get("terminated") or {}).get("finishedAt")


def await_end(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """Wait until a pod whose client is gone has ended, but not for long; return the pod.

    A container outlives its client for a moment, and the cluster notices its end later.

    Raises:
        ClusterError: its state cannot be found out.
    """
    limit = time.monotonic() + _END_TIMEOUT
    while True:
        pod = cluster.read_pod(name, _ANSWER_TIMEOUT)
        if has_ended(pod) or time.monotonic() > limit:
            return pod
        time.sleep(_END_INTERVAL)


def start_problem(pod: Mapping[str, Any]) -> tuple[str, bool]:
    """Return why a pod does not start, and whether it still may; empty if there is no problem."""
    waiting = _container_state(pod).get("waiting") or {}
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason in (*_PULL_FAULTS, *_START_FAULTS):
        return _words(reason, message), reason in _PULL_FAULTS
    termination = _container_state(pod).get("terminated") or {}
    if termination.get("reason") == "StartError" or termination.get("exitCode") in _NO_PROGRAM:
        words = _words(str(termination.get("reason")), str(termination.get("message") or ""))
        return f"it needs bash and setpriv ({words})", False
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _words(str(condition.get("reason")), str(condition.get("message") or "")), True
    return "", True


def end_cause(pod: Mapping[str, Any] | None) -> str:
    """Return what ended a pod, if that was outside of it; empty if that is not known.

    Nothing in a sandbox can end its first process directly. It can use up all of its memory or
    disk: then the kernel or the kubelet ends it, and reports that.
    """
    if pod is None:
        return "somebody has deleted its pod"
    status = pod.get("status") or {}
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if reason == "Evicted":
        is_own = any(words in message for words in _OWN_FAULTS)
        return "" if is_own else _words("its node has evicted it", message)
    termination = _container_state(pod).get("terminated") or {}
    if termination.get("exitCode") == _KILLED and termination.get("reason") == "OOMKilled":
        return ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            words = _words(str(condition.get("reason")), str(condition.get("message") or ""))
            return f"the cluster has ended it: {words}"
    if reason:
        return f"the cluster has ended it: {_words(reason, message)}"
    if pod["metadata"].get("deletionTimestamp"):
        return "somebody has deleted its pod"
    if termination.get("exitCode") == INPUT_ENDED:
        return _LOST
    return ""


class Pod(AttachedSandbox):
    """A started pod, and the channel to its keeper.

    Args:
        cluster: the cluster that it is in.
        name: the pod's name.
        streams: the streams that are attached to its keeper.
        spec: the spec that was asked for.
        remove: deletes the pod, now or soon.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        streams: PodStreams,
        spec: SandboxSpec,
        remove: Callable[[Pod], None],
    ) -> None:
        if spec.limits.network:
            self.outside = OUTSIDE | {_ADDRESSES}
        self.streams = streams
        self._cluster = cluster
        self._remove = remove
        super().__init__(name, streams, spec)

    def outside_cause(self) -> str:
        """Return the cluster's reason for its end, if that was outside of it."""
        try:
            if not self.streams.hung_up():
                pod = self._cluster.read_pod(self.name, _ANSWER_TIMEOUT)
                return end_cause(pod) if has_ended(pod) else ""
            pod = await_end(self._cluster, self.name)
        except ClusterError as error:
            return str(error)
        return end_cause(pod) if has_ended(pod) else _LOST

    def lead_to(self, inside: str, outside: Path) -> None:
        """Refuse: a socket in a pod cannot be reached from here."""
        raise SandboxError(f"kubernetes: {inside} in a pod cannot be reached from here")

    def close(self) -> None:
        """End the pod and everything in it."""
        first = not self._ended
        super().close()
        if first:
            self._remove(self)


def _container_state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    state: Mapping[str, Any] = statuses[0].get("state") or {}
    return state


def _words(reason: str, message: str) -> str:
    text = f"{reason}: {message}" if message else reason
    return " ".join(text.split())[:_MAX_WORDS]
