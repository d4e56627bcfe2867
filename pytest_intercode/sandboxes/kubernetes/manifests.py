"""What a cluster is asked for: a pod for each sandbox, and who may reach what."""

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
"""The annotation that names the process whose pod it is."""

_MANAGER = {"app.kubernetes.io/managed-by": "pytest-intercode"}
MANAGED = "app.kubernetes.io/managed-by=pytest-intercode"
"""What selects all that is ours, of every run."""

DEADLINE = 24 * 3600
"""Seconds after which a cluster ends a pod, whatever its client does."""

_NETWORK_LABEL = "pytest-intercode/network"
_MAX_DISK = 10 * 1024**3  # bytes that a sandbox may write; the kubelet evicts it for more
_DISK_REQUEST = 256 * 1024**2
_CPU_REQUEST = 0.1  # of a processor: most of the time a sandbox waits for its agent

# Where clouds give a machine or a pod its credentials, which no sandbox is to have: most of them
# (Google's pods at 169.254.169.252), Amazon, Tencent, Alibaba, Azure (WireServer) and Oracle.
_METADATA_ADDRESSES = (
    *("169.254.169.0/24", "169.254.170.0/24", "169.254.0.23/32", "100.100.100.200/32"),
    *("168.63.129.16/32", "192.0.0.192/32"),
)
_METADATA_ADDRESSES_6 = (
    *("fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128"),
)
# Names are asked for at a service of the cluster, whose pods no block of addresses need match.
_RESOLVER = {
    "to": [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }
    ],
    "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
}
# Those that move pods about are not to take a sandbox from its agent.
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

    Its container waits for input, so that nothing runs before the one client is attached, and ends
    with it. A cluster has no limit of processes in a pod, but that of its kubelets.

    Args:
        name: its name.
        spec: what is asked for.
        run: whose it is.
        owner: the process that has it.
        settings: runtime, secrets and nodes.
        architecture: of its nodes, as the cluster calls it; empty for any.
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
    if not spec.limits.network:  # nothing answers there; no name is asked for elsewhere
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

    The pods without the network reach nothing, and nothing reaches them. Those with it reach all
    but the machines' own credentials.

    Args:
        run: whose they are.
        owner: the process that has them.
        number: ends their names; of a long run there are several of each, one after the other.
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
            # Its memory is its own, and no neighbour has it ended for that; processors are shared.
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
    """Return the beginning of a command that sets what a cluster cannot: limits of each process."""
    script = f'ulimit -c 0 -f {file_size // 1024} && exec "$@"'
    return ["bash", "-c", script, "bash"]


def _literal(value: str) -> str:
    """Return a value of which the cluster replaces nothing: $(NAME) would be a variable's."""
    return value.replace("$", "$$")


def _memory_volumes(spec: SandboxSpec) -> Iterator[tuple[str, str, int]]:
    """Yield the folders in memory: the volume's name, its path, and the bytes that it may hold."""
    yield "shm", "/dev/shm", min(SHM_SIZE, spec.limits.memory // 4)
    for number, path in enumerate(spec.scratch):
        yield f"scratch-{number}", path, SCRATCH_SIZE
