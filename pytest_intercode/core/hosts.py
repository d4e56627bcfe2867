"""Hosts that a sandbox with a limited network may reach: how they are written and matched.

Pure. The source of this module also runs in the proxy (``sandboxes/egress``), so it imports only
the standard library.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = [
    *("MAX_HOSTS", "WEB_PORTS", "Address", "AllowedHost", "AllowedHosts"),
    *("check_hosts", "is_private", "is_public", "normal_name", "parse_host"),
]

WEB_PORTS = (443, 80)
"""The default ports, for a host that is written without one."""

MAX_HOSTS = 64
"""Maximum hosts that a task may name; each needs its own sockets."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _parse_networks(texts: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts.split()))


_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # the last label of an address in an old form
_MAX_NAME = 253  # characters of a host's name, by RFC 1035
_MAX_PORT = 65535
_FORM = "HOST or HOST:PORT, with a name, *.NAME, an address or a network such as 10.0.0.0/8"
# These addresses are in public ranges, but are services of the machine's own cloud.
_METADATA = ("168.63.129.16", "192.0.0.192")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# These ranges are reserved for examples in documentation.
_EXAMPLES = _parse_networks("192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20")
# Ranges with addresses of machines, none of them on the public internet.
_SPECIAL = _parse_networks(
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 "
    "192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 224.0.0.0/3 "
    # In IPv6 only 2000::/3 is in use, and parts of it embed IPv4 addresses.
    "::/3 2001::/23 2002::/16 4000::/2 8000::/1 " + " ".join(_METADATA)
)


@dataclass(frozen=True)
class AllowedHost:
    """One host, and its ports that may be reached.

    Attributes:
        name: a name in lower case, or the part of a pattern after the ``*``, with its dot; empty
            for a network.
        network: an address, or a range of addresses, in place of a name.
        ports: the ports.
    """

    name: str
    network: Network | None
    ports: tuple[int, ...]

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for all names below a domain."""
        return self.name.startswith(".")

    def covers(self, other: AllowedHost) -> bool:
        """Whether this one allows everything that another one allows. Patterns cover names."""
        if not set(other.ports) <= set(self.ports):
            return False
        if self.network is None or other.network is None:
            fits = self.is_pattern and other.name.endswith(self.name)
            return self.network is other.network and (fits or self.name == other.name)
        return _is_within(other.network, self.network)

    @property
    def address(self) -> str:
        """The address, if it is a single one; else empty."""
        network = self.network
        single = network is not None and network.prefixlen == network.max_prefixlen
        return str(network.network_address) if network is not None and single else ""

    def __str__(self) -> str:
        """Return the host as it may be written in a suite."""
        host = (
            f"*{self.name}" if self.is_pattern else self.name or self.address or f"{self.network}"
        )
        if self.ports == WEB_PORTS:
            return host
        return f"[{host}]:{self.ports[0]}" if ":" in host else f"{host}:{self.ports[0]}"


def parse_host(entry: str) -> AllowedHost:
    """Parse one host.

    Args:
        entry: ``name``, ``*.name``, an address, or a network (``10.0.0.0/8``), optionally with
            ``:port``. An IPv6 address before a port needs brackets. The default ports are those of
            the web.

    Raises:
        ValueError: the entry has another form; the message says what is needed.
    """
    text = entry.strip()
    if "://" in text or "@" in text:
        raise ValueError(f"a host is needed, not a URL: {_FORM}; found {entry!r:.80}")
    host, port = _split(text, entry)
    network = _network(host, entry)
    if network is not None:
        return AllowedHost("", network, port)
    if host == "*":
        raise ValueError("* is not a limit; give the hosts, or allow the network as a whole")
    pattern = host.startswith("*.")
    name = normal_name(host[2:] if pattern else host)
    if not name:
        raise ValueError(f"{_FORM} is needed, found {entry!r:.80}")
    return AllowedHost(f".{name}" if pattern else name, None, port)


def check_hosts(entries: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts of one task in their normal form, without duplicates.

    Raises:
        ValueError: a host is invalid, or there are more than a task may name.
    """
    if len(entries) > MAX_HOSTS:
        raise ValueError(f"at most {MAX_HOSTS} hosts are allowed, found {len(entries)}")
    return tuple(dict.fromkeys(str(parse_host(entry)) for entry in entries))


def _split(text: str, entry: str) -> tuple[str, tuple[int, ...]]:
    """Return host and ports."""
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ValueError(f"{_FORM} is needed, found {entry!r:.80}")
        port = rest[1:] if rest else None
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host, port = text, None
    if port is None:
        return host, WEB_PORTS
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= _MAX_PORT):
        raise ValueError(f"a port must be a number from 1 to {_MAX_PORT}, found {entry!r:.80}")
    return host, (int(port),)


def _network(host: str, entry: str) -> Network | None:
    if not ("/" in host or ":" in host or host.replace(".", "").isdigit()):
        return None
    try:
        if "%" in host:  # a scope names a network device of this machine
            raise ValueError("a scope is not allowed")
        return ipaddress.ip_network(host)
    except ValueError as error:
        raise ValueError(f"not an address or a network: {error} ({entry!r:.80})") from None


def normal_name(name: str) -> str:
    """Return a host's name in its normal form; empty for anything that is not a host's name.

    Old forms of addresses (``127.1``, ``0x7f000001``) are not names: resolvers treat them as
    addresses.
    """
    name = name.removesuffix(".").lower()
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii").lower()
        except UnicodeError:
            return ""
    labels = name.split(".")
    good = len(name) <= _MAX_NAME and all(_LABEL.fullmatch(label) for label in labels)
    return name if good and not _NUMBER.fullmatch(labels[-1]) else ""


class AllowedHosts:
    """All hosts that a sandbox may reach.

    Args:
        texts: the hosts, each as :func:`parse_host` reads it.

    Raises:
        ValueError: a host is invalid.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.hosts = tuple(parse_host(text) for text in texts)

    def names(self) -> Iterator[str]:
        """Yield the names that are not patterns, without duplicates, in order."""
        yield from dict.fromkeys(
            host.name for host in self.hosts if host.name and not host.is_pattern
        )

    def knows(self, name: str) -> bool:
        """Whether a name, in its normal form, may be resolved."""
        return any(_is_of(host, name) for host in self.hosts)

    def allows(self, name: str, port: int) -> bool:
        """Whether a port of a name, in its normal form, may be reached."""
        return any(_is_of(host, name) and port in host.ports for host in self.hosts)

    def allows_address(self, address: Address, port: int) -> bool:
        """Whether a port of an address may be reached; only entries that are networks count."""
        return any(
            port in host.ports
            and host.network is not None
            and host.network.version == address.version
            and address in host.network
            for host in self.hosts
        )

    def __str__(self) -> str:
        """Return the hosts, separated by commas."""
        return ", ".join(map(str, self.hosts)) or "none"


def _is_within(network: Network, other: Network) -> bool:
    return network.version == other.version and network.subnet_of(other)  # type: ignore[arg-type]


def _is_of(host: AllowedHost, name: str) -> bool:
    if host.is_pattern:
        return name.endswith(host.name)
    return bool(name) and name == host.name


def is_public(address: Address) -> bool:
    """Whether an address is on the public internet.

    Addresses of private networks, of this machine and of its cloud's services are not, even if they
    are embedded in an IPv6 address.
    """
    inner: list[ipaddress.IPv4Address | None] = []
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        inner = [address.sixtofour, *(address.teredo or ())]
        if address in _NAT64:
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if not all(is_public(embedded) for embedded in inner if embedded is not None):
        return False
    odd = address.is_multicast or (address.is_reserved and address not in _NAT64)
    return address.is_global and not odd and str(address) not in _METADATA


def is_private(host: AllowedHost) -> bool:
    """Whether a host is written as an address, or a range of addresses, that may not be public.

    Names are never private here: whoever connects to a name checks what it resolves to.
    """
    network = host.network
    if network is None:
        return False
    if any(_is_within(network, examples) for examples in _EXAMPLES):
        return False
    if network.prefixlen == network.max_prefixlen:
        return not is_public(network.network_address)
    return any(
        network.version == special.version and network.overlaps(special) for special in _SPECIAL
    )
