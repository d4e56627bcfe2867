"""Options for the sandboxes and their network access.

Each class is a group of options, as ``--intercode-help`` shows them.
"""

from __future__ import annotations

from pathlib import Path

from pytest_intercode.core.values import text
from pytest_intercode.options.option import (
    Option,
    Values,
    choices,
    flag,
    listed,
    option,
    optional,
    pairs,
)
from pytest_intercode.options.parsers import (
    parse_backend,
    parse_docker_host,
    parse_host,
    parse_platform,
    parse_registry,
)

__all__ = ["KubernetesOptions", "NetworkOptions", "SandboxOptions"]


class SandboxOptions(Values):
    """The backend, its engines and images."""

    title = "sandboxes"

    backend = option(
        "sandbox=auto|docker|bubblewrap|kubernetes|NAME",
        "the backend of sandboxes; `auto` chooses Docker if its engine answers, else bubblewrap, "
        "which needs no daemon and no root; the header shows which and why. `kubernetes` starts "
        "pods (docs/kubernetes.md). NAME is a backend of an installed package (docs/backends.md)",
        parse_backend,
        default="auto",
        everyday=True,
    )
    docker_hosts = listed(
        "docker-host=HOST[=SLOTS]",
        "start sandboxes on this Docker host: `ssh://USER@HOST`, `tcp://HOST:PORT`, "
        "`unix://PATH` or the name of a Docker context; several hosts share sandboxes by their "
        "slots, which by default depend on their processors and memory (docs/hosts.md)",
        parse_docker_host,
        distinct=True,
        excludes=("cluster", "a cluster's nodes have their own engines"),
    )
    runtime = optional(
        "runtime=NAME",
        "the container runtime, by the name that Docker's engine has for it: `runsc` (gVisor), "
        "`kata`, `crun`; docs/isolation.md describes them. With Kubernetes, a RuntimeClass",
        str,
        fallback="the engine's own",
        excludes=("rootfs", "a runtime needs Docker, and a root file system needs bubblewrap"),
    )
    rootfs = optional(
        "rootfs=DIR",
        "an unpacked root file system for bubblewrap, or a folder with one for each image",
        Path,
        fallback="this machine's own programs",
        exists=True,
        excludes=("docker_host", "a root file system needs bubblewrap, and hosts need Docker"),
    )
    platform = optional(
        "platform=PLATFORM",
        "the platform of images whose suite does not name one (`platform:`): `linux/amd64`, "
        "`linux/arm64`; a platform other than the engine's is emulated, which is slower",
        parse_platform,
        fallback="the engine's own",
        same_in_parts=True,
    )
    registry = optional(
        "registry=HOST[:PORT][/PREFIX]",
        "ask this registry for each image before building it, and push what was built, so that "
        "other hosts, nodes and jobs can pull it; uses the credentials of `docker login` "
        "(docs/hosts.md)",
        parse_registry,
        excludes=(
            "rootfs",
            "a registry has Docker's images, which a root file system replaces",
        ),
    )
    base_images = pairs(
        "base-image NAME=REPLACEMENT", "use another base image, such as one of a mirror", text
    )
    verifier: Option[str] = choices(
        "verifier=fresh|shared",
        "where the tests of task folders run: in a `fresh` sandbox with what the agent left, or "
        "in the agent's own (`shared`), where its services still run, and where it can forge "
        "results",
        default="fresh",
        same_in_parts=True,
    )
    kit: Option[str] = choices(
        "kit=auto|always|never",
        "where the tests of task folders get what they install: `auto` uses the verifier kit if "
        "their sandbox has no network, and otherwise installs as published; `always` uses the "
        "kit, `never` does not",
        default="auto",
        same_in_parts=True,
    )


class KubernetesOptions(Values):
    """The cluster in which pods run."""

    title = "sandboxes in Kubernetes"

    kube_context = optional(
        "kube-context=NAME",
        "the kubeconfig context whose cluster runs the pods; needs the extra `kubernetes`",
        str,
        fallback="the current one; in a pod without kubeconfig, its own cluster",
    )
    kube_namespace = optional(
        "kube-namespace=NAME", "the namespace of the pods", str, fallback="the context's own"
    )
    kube_pull_secrets = listed(
        "kube-pull-secret=NAME", "a secret of that namespace with which the nodes pull images", str
    )
    kube_nodes = pairs(
        "kube-node LABEL=VALUE", "a label that the nodes of the pods must have", text
    )


class NetworkOptions(Values):
    """The network access of sandboxes; by default, they have none."""

    title = "the sandboxes' network"

    network = flag(
        "network",
        "let sandboxes reach the network unless their task says otherwise",
        same_in_parts=True,
    )
    override_network = flag(
        "override-network",
        "let sandboxes reach the network even if their task allows none or only a few hosts",
        needs=("network", "which it gives to all sandboxes"),
        same_in_parts=True,
    )
    allow_host = listed(
        "allow-host=HOST[:PORT]",
        "let sandboxes reach this host and nothing else: a name, `*.NAME`, an address or a "
        "network such as `10.0.0.0/8`; ports 443 and 80 unless one is given",
        parse_host,
        excludes=("network", "with the whole network, sandboxes reach every host"),
        same_in_parts=True,
    )
