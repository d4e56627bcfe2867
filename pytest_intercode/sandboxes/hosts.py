"""How Docker's hosts and registries are written. Pure.

A host is an address or the name of a context, with its slots; a registry has a host and a prefix.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

__all__ = ["FORMS", "DockerHost", "parse_host", "parse_registry", "split_url"]

FORMS = "unix://PATH, tcp://HOST:PORT, ssh://[USER@]HOST[:PORT] or the name of a Docker context"
"""How a host may be written, for messages."""

_SCHEMES = ("unix", "tcp", "ssh")
_CONTEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")  # as Docker has it
_MOST_SLOTS = 100_000
# As engines read the names of images: without a dot or a port, the first part is not a host.
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_REGISTRY = re.compile(
    rf"(?:localhost|{_LABEL}(?:\.{_LABEL})+|{_LABEL}(?=:))(?::[0-9]{{1,5}})?"
    r"(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
)


@dataclass(frozen=True)
class DockerHost:
    """A host as the user writes it.

    Attributes:
        name: its address, or the name of a context.
        slots: its share of the sandboxes; None for what its engine says it has.
    """

    name: str
    slots: int | None = None


def parse_host(written: str) -> DockerHost:
    """Read ``HOST`` or ``HOST=SLOTS``.

    Raises:
        ValueError: it is not written like that; the message says what is needed.
    """
    name, sign, count = written.strip().rpartition("=")
    slots: int | None = None
    if sign:
        if not (count.isascii() and count.isdigit() and 0 < int(count[:9]) <= _MOST_SLOTS):
            raise ValueError(f"after = a number of sandboxes is needed, found {count!r:.80}")
        slots = int(count)
    else:
        name = count
    if "://" not in name:
        if not _CONTEXT.fullmatch(name):
            raise ValueError(f"{FORMS} is needed, found {name!r:.80}")
        return DockerHost(name, slots)
    split_url(name)
    return DockerHost(name, slots)


def parse_registry(written: str) -> str:
    """Read ``HOST[:PORT][/PREFIX]``.

    Raises:
        ValueError: it is not written like that; the message says what is needed.
    """
    if "@" in written:
        raise ValueError("credentials are those of 'docker login'; HOST[:PORT][/PREFIX] is needed")
    name = written.rstrip("/")
    if not _REGISTRY.fullmatch(name):
        raise ValueError(
            "HOST[:PORT][/PREFIX] is needed, without https:// and in lower case, with a dot or a "
            f"port in HOST, found {written!r:.80}"
        )
    return name


def split_url(url: str) -> SplitResult:
    """Return the parts of an address.

    Raises:
        ValueError: it is none.
    """
    parts = urlsplit(url)
    port = parts.port  # raises for what is not a number
    good = parts.scheme in _SCHEMES and not parts.query and not parts.fragment
    if parts.scheme == "unix":
        good = good and not parts.netloc and parts.path.startswith("/")
    else:
        # What begins with a hyphen would be an option of the SSH client.
        words = (parts.hostname or "-", parts.username or "")
        good = good and not any(word.startswith("-") for word in words)
    if parts.scheme == "tcp":
        good = good and port is not None and parts.username is None and parts.path in ("", "/")
    if not good or parts.password is not None:
        raise ValueError(f"{FORMS} is needed, found {url!r:.80}")
    return parts
