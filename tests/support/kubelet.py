"""The node of the tests' cluster: pods as containers of this machine's Docker engine.

It does what a kubelet does with what our manifests have, and refuses all else. A pod that rules
keep from everything has no network at all, as if its packets were dropped.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound, NotFound
from docker.types import LogConfig

from pytest_intercode.sandboxes.docker.container import READONLY

__all__ = ["CONTAINER_LABEL", "Kubelet", "StartFailed"]

CONTAINER_LABEL = "pytest-intercode-test.cluster"
_PODS_LIMIT = 128  # processes: podPidsLimit, which a kubelet may have and no manifest


class StartFailed(Exception):
    """A container does not start; it has the state that a kubelet reports."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        super().__init__(str(state))
        self.state = state


class Kubelet:
    """Starts and ends containers.

    Args:
        api_port: the port of the cluster's API, of which each container is given the address.
        enforces: whether the network plugin enforces NetworkPolicies.
    """

    def __init__(self, api_port: int, *, enforces: bool = True) -> None:
        self.api = docker.APIClient(version="auto", timeout=60)
        self.enforces = enforces
        [pool, *_] = self.api.inspect_network("bridge")["IPAM"]["Config"]
        # Some engines do not say which address is theirs where they chose it: the first one.
        gateway = pool.get("Gateway") or str(next(ip_network(pool["Subnet"]).hosts()))
        self._environment = {
            "KUBERNETES_SERVICE_HOST": gateway,
            "KUBERNETES_SERVICE_PORT": str(api_port),
        }

    def start(self, pod: Mapping[str, Any], *, reaches_nothing: bool) -> str:
        """Create and start the container of a pod; return its id.

        Raises:
            StartFailed: it does not start.
        """
        [container] = pod["spec"]["containers"]
        limits, security = container["resources"]["limits"], container["securityContext"]
        volumes = {volume["name"]: volume["emptyDir"] for volume in pod["spec"]["volumes"]}
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert security["allowPrivilegeEscalation"] is False
        assert (container["stdin"], container["stdinOnce"], container["tty"]) == (True, True, False)
        isolated = reaches_nothing and self.enforces
        config = self.api.create_host_config(
            network_mode="none" if isolated else "bridge",
            init=False,
            cap_drop=security["capabilities"]["drop"],
            cap_add=security["capabilities"]["add"],
            security_opt=["no-new-privileges"],
            log_config=LogConfig(type="none"),
            pids_limit=_PODS_LIMIT,
            mem_limit=int(limits["memory"]),
            memswap_limit=int(limits["memory"]),
            nano_cpus=int(limits["cpu"].removesuffix("m")) * 1_000_000,
            tmpfs={
                mount["mountPath"]: f"exec,mode=0777,size={volumes[mount['name']]['sizeLimit']}"
                for mount in container["volumeMounts"]
            },
            dns=pod["spec"].get("dnsConfig", {}).get("nameservers"),
        )
        config["ReadonlyPaths"] = list(READONLY)  # as on nodes with the second version of cgroups
        environment = {item["name"]: _expand(item["value"]) for item in container["env"]}
        try:
            identity = self.api.create_container(
                container["image"],
                entrypoint=[_expand(word) for word in container["command"]],
                stdin_open=True,
                user=f"{security['runAsUser']}:{security['runAsGroup']}",
                working_dir=container["workingDir"],
                hostname=pod["spec"]["hostname"],
                environment={**self._environment, **environment},
                labels={CONTAINER_LABEL: pod["metadata"]["name"]},
                host_config=config,
            )["Id"]
        except APIError as error:
            missing = isinstance(error, ImageNotFound)
            reason = "ErrImagePull" if missing else "InvalidImageName"
            message = f"failed to pull image: {error.explanation}"
            raise StartFailed({"waiting": {"reason": reason, "message": message}}) from None
        try:
            self.api.start(identity)
        except APIError as error:
            self.remove(identity)
            state = {"reason": "StartError", "exitCode": 128, "message": str(error.explanation)}
            raise StartFailed({"terminated": state}) from None
        return str(identity)

    def wait(self, identity: str) -> dict[str, Any]:
        """Wait until a container ends; return its state as a kubelet reports it."""
        with contextlib.suppress(NotFound):
            self.api.wait(identity, timeout=None)
            state = self.api.inspect_container(identity)["State"]
            status = state["ExitCode"]
            reason = "OOMKilled" if state["OOMKilled"] else "Error" if status else "Completed"
            finished = re.sub(r"\.\d+", "", state["FinishedAt"])
            return {"exitCode": status, "reason": reason, "finishedAt": finished}
        return {"exitCode": 137, "reason": "Error"}

    @contextlib.contextmanager
    def attached(self, identity: str) -> Iterator[socket.socket]:
        """Give a connection to a container's streams, in the engine's frames."""
        parameters = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        attached: Any = self.api.attach_socket(identity, params=parameters)
        with contextlib.closing(attached), contextlib.closing(attached._sock) as connection:
            connection.setblocking(False)
            yield connection

    def kill(self, identity: str) -> None:
        """End a container, all at once."""
        with contextlib.suppress(APIError):
            self.api.kill(identity)

    def remove(self, identity: str) -> None:
        """Remove a container, whether it runs or not."""
        with contextlib.suppress(APIError):
            self.api.remove_container(identity, force=True, v=True)


def _expand(text: str) -> str:
    """Return a text as a kubelet gives it to a container: two dollar signs are one."""
    assert "$(" not in text.replace("$$", ""), "that would be the value of a variable"
    return text.replace("$$", "$")
