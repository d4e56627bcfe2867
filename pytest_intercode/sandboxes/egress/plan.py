"""What exists in a sandbox with a limited network: addresses, sockets, files and variables.

This is pure code. Its text also runs in the proxy, so it imports only the standard library and
``core.hosts``.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from pytest_intercode.core.hosts import AllowedHosts

__all__ = ["DNS", "PROXY", "Names", "host_lines", "resolver_lines", "sockets_of", "variables"]

_GATE = "127.88.0.1"
DNS = (_GATE, 53)
"""The address of the sandbox's name server."""
PROXY = (_GATE, 3128)
"""The address of the sandbox's HTTP proxy."""

_ANY = {4: "0.0.0.0", 6: "::"}
_FIRST_ADDRESS = int(ipaddress.IPv4Address(_GATE)) + 1
_MAX_NAMES = 4096  # names that one sandbox may resolve


class Names:
    """Addresses that represent names in one sandbox, from its loopback network.

    Args:
        hosts: the hosts that it may reach. Names that are not patterns have addresses from the
            start, in the same order in every process that makes this.
    """

    def __init__(self, hosts: AllowedHosts) -> None:
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}
        for name in hosts.names():
            self.address_of(name)

    def address_of(self, name: str) -> str:
        """Return the address of a name; empty if there are too many names."""
        if name not in self._addresses:
            if len(self._addresses) >= _MAX_NAMES:
                return ""
            address = str(ipaddress.IPv4Address(_FIRST_ADDRESS + len(self._addresses)))
            self._addresses[name], self._names[address] = address, name
        return self._addresses[name]

    def name_of(self, address: str) -> str:
        """Return the name that an address represents; empty for any other address."""
        return self._names.get(address, "")


def sockets_of(hosts: AllowedHosts) -> dict[str, Any]:
    """Return the sockets to open in a sandbox, as arguments of ``namespace.open_sockets``."""
    names = Names(hosts)
    wide, single = set(), {DNS, PROXY}
    for host in hosts.hosts:
        # If the names or addresses cannot be listed, listen on all addresses.
        address = host.address or (
            host.name and not host.is_pattern and names.address_of(host.name)
        )
        version = host.network.version if host.network else 4
        for port in host.ports:
            if address:
                single.add((address, port))
            else:
                wide.add((_ANY[version], port))
    single = {
        endpoint
        for endpoint in single
        if (_ANY[6 if ":" in endpoint[0] else 4], endpoint[1]) not in wide
    }
    return {"tcp": sorted(single | wide), "udp": [DNS]}


def host_lines(hosts: AllowedHosts) -> str:
    """Return the lines of ``/etc/hosts`` for the names that are not patterns."""
    names = Names(hosts)
    return "".join(f"{names.address_of(name)}\t{name}\n" for name in hosts.names())


def resolver_lines() -> str:
    """Return ``/etc/resolv.conf``."""
    return f"nameserver {DNS[0]}\noptions timeout:5 attempts:1\n"


def variables() -> dict[str, str]:
    """Return the variables with which programs find the proxy."""
    proxy, direct = f"http://{PROXY[0]}:{PROXY[1]}", "localhost,127.0.0.1,::1"
    settings = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": direct}
    return {**settings, **{name.upper(): value for name, value in settings.items()}}
