"""The objects that a cluster is asked for: a pod for each sandbox, and rules for its network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_intercode.sandboxes.attached import CAPABILITIES, GUARD, SHM_SIZE
from pytest_intercode.sandboxes.kubernetes.cluster import CONTAINER
from pytest_intercode.sandboxes.protocol import SCRATCH_SIZE, SandboxSpec
from pytest_intercode.sandboxes.settings import SandboxSettings

__all__ = ["DEADLINE", "MANAGED", "OWNER", "RUN_LABEL", "pod", "policies"]

RUN_LABEL = "pytest-intercode/run"
OWNER = "pytest-intercode/owner"
"""The annotation with the process that owns a pod."""

_MANAGER = {"app.kubernetes.io/managed-by": "pytest-intercode"}
MANAGED = "app.kubernetes.io/managed-by=pytest-intercode"
"""The selector for everything that is ours, of every run."""

DEADLINE = 24 * 3600
"""Seconds after which a cluster ends a pod, whatever its client does."""

_NETWORK_LABEL = "pytest-intercode/network"
_MAX_DISK = 10 * 1024**3  # bytes that a sandbox may write; the kubelet evicts it for more
_DISK_REQUEST = 256 * 1024**2
_CPU_REQUEST = 0.1  # processors: most of the time, a sandbox waits for its agent

# The addresses at which clouds give a machine or a pod its credentials, which no sandbox may get:
# most clouds (Google's pods at 169.254.169.252), Amazon, Tencent, Alibaba, Azure (WireServer) and
# Oracle.
_METADATA_ADDRESSES = (
    *("169.254.169.0/24", "169.254.170.0/24", "169.254.0.23/32", "100.100.100.200/32"),
    *("168.63.129.16/32", "192.0.0.192/32"),
)
_METADATA_ADDRESSES_6 = (
    *("fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128"),
)
# Names are resolved by a service of the cluster, whose pods a block of addresses might miss.
_RESOLVER = {
    "to": [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }
    ],
    "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
}
# Tools that move pods must not take a sandbox from its agent.
_STAY = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}


def pod(
    name: str,
    spec: SandboxSpec,
    run: str,
    owner: str,
    settings: SandboxSettings,
    architecture: str = "",
) -> dict[str, Any]:
    """Return the pod of a sandbox.

    Its container waits for input, so that nothing runs before the only client is attached, and it
    ends with that client. A cluster cannot limit the processes of a pod; only its kubelets can.

    Args:
        name: the pod's name.
        spec: the spec that is asked for.
        run: the run that it belongs to.
        owner: the process that owns it.
        settings: the runtime, secrets and nodes.
        architecture: the architecture of its nodes, in the cluster's words; empty for any.
    """
    nodes = {"kubernetes.io/arch": architecture} if architecture else {}
    manifest: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": DEADLINE,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": spec.hostname or name,
        "nodeSelector": {"kubernetes.io/os": "linux", **nodes, **settings.kube_nodes},
        "imagePullSecrets": [{"name": secret} for secret in settings.kube_pull_secrets],
        "containers": [_container(spec)],
        "volumes": [
            {"name": volume, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}
            for volume, _, size in _memory_volumes(spec)
        ],
    }
    if not spec.limits.network:  # nothing answers there, and no other server is asked
        manifest |= {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}}
    if settings.runtime:
        manifest["runtimeClassName"] = settings.runtime
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**_labels(run), _NETWORK_LABEL: _network(spec.limits.network)},
            "annotations": {OWNER: owner, **_STAY},
        },
        "spec": manifest,
    }


def policies(run: str, owner: str, number: int = 1) -> Iterator[dict[str, Any]]:
    """Yield the NetworkPolicies of a run.

    Pods without network access reach nothing, and nothing reaches them. Pods with it reach
    everything except the credentials of the machines.

    Args:
        run: the run that they belong to.
        owner: the process that owns them.
        number: the end of their names; a long run makes several of each, one after the other.
    """
    addresses = [
        _block("0.0.0.0/0", *_METADATA_ADDRESSES),
        _block("::/0", *_METADATA_ADDRESSES_6),
    ]
    egress: Mapping[bool, list[Any]] = {False: [], True: [{"to": addresses}, _RESOLVER]}
    for network, rules in egress.items():
        yield {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {
                "name": f"intercode-{run}-{_network(network)}-{number}",
                "labels": _labels(run),
                "annotations": {OWNER: owner},
            },
            "spec": {
                "podSelector": {"matchLabels": {RUN_LABEL: run, _NETWORK_LABEL: _network(network)}},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [],
                "egress": rules,
            },
        }


def _network(network: bool) -> str:
    return "open" if network else "none"


def _labels(run: str) -> dict[str, str]:
    return {**_MANAGER, RUN_LABEL: run}


def _block(cidr: str, *excluded: str) -> dict[str, Any]:
    return {"ipBlock": {"cidr": cidr, "except": list(excluded)}}


def _container(spec: SandboxSpec) -> dict[str, Any]:
    limits = spec.limits
    cpus = f"{max(1, round(limits.cpus * 1000))}m"
    request = f"{max(1, round(min(limits.cpus, _CPU_REQUEST) * 1000))}m"
    return {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [*_limit_process(limits.file_size), *(GUARD if spec.guarded else ()), "bash"],
        "workingDir": "/",
        "stdin": True,
        "stdinOnce": True,
        "tty": False,
        "env": [{"name": name, "value": _literal(value)} for name, value in spec.variables],
        "resources": {
            # Its memory is reserved, so that no neighbor gets it killed; processors are shared.
            "requests": {
                "cpu": request,
                "memory": str(limits.memory),
                "ephemeral-storage": str(_DISK_REQUEST),
            },
            "limits": {
                "cpu": cpus,
                "memory": str(limits.memory),
                "ephemeral-storage": str(_MAX_DISK),
            },
        },
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": volume, "mountPath": path} for volume, path, _ in _memory_volumes(spec)
        ],
    }


def _limit_process(file_size: int) -> list[str]:
    """Return the beginning of a command that sets per-process limits, which a cluster cannot."""
    script = f'ulimit -c 0 -f {file_size // 1024} && exec "$@"'
    return ["bash", "-c", script, "bash"]


def _literal(value: str) -> str:
    """Return a value in which the cluster replaces nothing; it would replace $(NAME)."""
    return value.replace("$", "$$")


def _memory_volumes(spec: SandboxSpec) -> Iterator[tuple[str, str, int]]:
    """Yield the folders in memory: the volume's name, its path, and its maximum bytes."""
    yield "shm", "/dev/shm", min(SHM_SIZE, spec.limits.memory // 4)
    for number, path in enumerate(spec.scratch):
        yield f"scratch-{number}", path, SCRATCH_SIZE
