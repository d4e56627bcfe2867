"""The networks and volumes of one sandbox and its services in Docker.

Each network belongs to one sandbox. Unless the sandbox has network access, it is internal, the
engine's machine has no address in it, and other names are not resolved: only the containers in it
reach each other.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.machine import Services
from pytest_intercode.sandboxes.docker.errors import client_errors
from pytest_intercode.sandboxes.docker.reaper import remove_network

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["SharedParts"]

# Reserved for measuring network devices (RFC 2544), so that nothing that is to be reached has these
# addresses. An engine's own ranges are so large that it has only few of them.
_FIRST_ADDRESS = (198 << 24) + (18 << 16)
_BLOCKS, _BLOCK_BITS = 2**12, 5  # networks of 32 addresses each
_MAX_TRIES = 50  # to find a range that no other network has
# Nothing answers there. So a resolver gives up after a short time, and not after half a minute.
_NO_DNS = {"Dns": ["127.0.0.1"], "DnsOptions": ["timeout:1", "attempts:2"]}


class SharedParts:
    """The networks and volumes that the containers of one sandbox and its services share.

    Args:
        api: the engine's client.
        services: the services, and the sandbox's share in them.
        labels: the labels of everything that is made.
        closed: the networks lead nowhere.
    """

    def __init__(
        self, api: APIClient, services: Services, labels: Mapping[str, str], *, closed: bool
    ) -> None:
        self._api = api
        self._services = services
        self._labels = dict(labels)
        self._closed = closed
        self._token = secrets.token_hex(6)
        self._networks: dict[str, str] = {}
        self._volumes: dict[str, str] = {}
        self._empty_volumes: list[str] = []

    def begin(self) -> None:
        """Make the networks and the volumes."""
        services = self._services
        groups = (services.networks, *(service.networks for service in services.machines))
        for network in dict.fromkeys(name for names in groups for name in names):
            self._networks[network] = self._make_network(network)
        volumes = (*services.volumes, *(v for s in services.machines for v in s.volumes))
        for volume in dict.fromkeys(name for name, _ in volumes):
            self._volumes[volume] = self._make_volume(f"-{volume}")

    def host_settings(self, network_names: Iterable[str]) -> dict[str, Any]:
        """Return the settings of a container that is in the networks of these names."""
        ids = [self._networks[name] for name in network_names]
        dns = _NO_DNS if self._closed else {}
        return {"NetworkMode": ids[0] if ids else "none", **dns}

    def own_settings(self) -> dict[str, Any]:
        """Return the settings of the sandbox's own container."""
        services = self._services
        binds = self.binds(services.volumes, services.read_only)
        return {**self.host_settings(services.networks), "Binds": binds}

    def endpoints(self, network_names: Iterable[str], names: Iterable[str]) -> dict[str, Any]:
        """Return a container's names in the first of its networks, in the form of the API."""
        first = next(iter(network_names), None)
        if first is None:
            return {}
        return {"EndpointsConfig": {self._networks[first]: {"Aliases": list(names)}}}

    def own_endpoints(self) -> dict[str, Any]:
        """Return the names of the sandbox's own container."""
        return self.endpoints(self._services.networks, self._services.names)

    def connect(
        self, container_id: str, network_names: Iterable[str], names: Iterable[str]
    ) -> None:
        """Connect a container to its other networks, before it starts."""
        for network in list(network_names)[1:]:
            self._api.connect_container_to_network(
                container_id, self._networks[network], aliases=list(names)
            )

    def connect_own(self, container_id: str) -> None:
        """Connect the sandbox's own container to its other networks."""
        self.connect(container_id, self._services.networks, self._services.names)

    def binds(self, volumes: Iterable[tuple[str, str]], read_only: Sequence[str]) -> list[str]:
        """Return volumes that several containers use, for the API; some paths are read-only."""
        endings = dict.fromkeys(read_only, ":ro")
        return [f"{self._volumes[name]}:{path}{endings.get(path, '')}" for name, path in volumes]

    def empty_volume(self) -> str:
        """Make a further volume, apart from those of a task, and return its name."""
        volume = self._make_volume(f".{len(self._empty_volumes)}")
        self._empty_volumes.append(volume)
        return volume

    def move(self, container_id: str, other: SharedParts) -> None:
        """Move the sandbox's own container to the networks of another sandbox."""
        for name in self._services.networks:
            self._api.disconnect_container_from_network(container_id, self._networks[name])
        for name in other._services.networks:
            self._api.connect_container_to_network(container_id, other._networks[name])

    def remove(self) -> None:
        """Remove networks and volumes; the rest is left to later sweeps by the labels."""
        for network in self._networks.values():
            with contextlib.suppress(*client_errors()):
                remove_network(self._api, network)
        for volume in (*self._volumes.values(), *self._empty_volumes):
            with contextlib.suppress(*client_errors()):
                self._api.remove_volume(volume, force=True)
        self._networks, self._volumes, self._empty_volumes = {}, {}, []

    def _make_network(self, name: str) -> str:
        """Make a network with its own small range of addresses, of which there are many."""
        from docker.errors import APIError
        from docker.types import IPAMConfig, IPAMPool

        closed = self._closed
        for attempt in range(_MAX_TRIES):
            block = _FIRST_ADDRESS + (secrets.randbelow(_BLOCKS) << _BLOCK_BITS)
            address = ".".join(str(block >> shift & 255) for shift in (24, 16, 8, 0))
            pool = IPAMPool(subnet=f"{address}/{32 - _BLOCK_BITS}")
            options = {"com.docker.network.bridge.inhibit_ipv4": "true"} if closed else {}
            try:
                network = self._api.create_network(
                    f"pytest-intercode-{self._token}-{name}",
                    driver="bridge",
                    internal=closed,
                    ipam=IPAMConfig(pool_configs=[pool]),
                    options=options,
                    labels=self._labels,
                )
            except APIError as error:
                if "overlap" not in str(error) or attempt == _MAX_TRIES - 1:
                    raise
            else:
                return str(network["Id"])
        raise AssertionError("the last try raises")

    def _make_volume(self, ending: str) -> str:
        volume = f"pytest-intercode-{self._token}{ending}"
        self._api.create_volume(volume, labels=self._labels)
        return volume
