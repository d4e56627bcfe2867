"""Connections: the system's reasons for failures, and how programs reach this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

__all__ = ["LOOPBACK_HOSTS", "causes", "failure", "without_proxy"]

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names of this machine itself, which cannot be reached through a proxy."""

_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, the innermost last."""
    visited_ids: set[int] = set()
    inner: BaseException | None = error
    while inner is not None and id(inner) not in visited_ids:
        yield inner
        visited_ids.add(id(inner))
        inner = inner.__cause__ or inner.__context__ or getattr(inner, "os_error", None)


def failure(error: BaseException) -> str:
    """Return why a connection failed, as the system or TLS reports it; else the empty string.

    Libraries wrap these errors, and give wrappers the number of the wrapped error. The number of a
    TLS error is not one of the system's.
    """
    chain = list(causes(error))
    ssl = sys.modules.get("ssl")  # slow to import; if it is not imported, there is no TLS error
    for cause in chain:
        if ssl is not None and isinstance(cause, ssl.SSLError):
            message = getattr(cause, "verify_message", "") or (cause.reason or "").replace("_", " ")
            return f"TLS: {message.lower() or 'it failed'}"
    for cause in chain:
        if isinstance(cause, OSError) and cause.strerror:
            number = cause.errno or 0  # negative if a name was not found
            return os.strerror(number) if number > 0 else cause.strerror
    return ""


def without_proxy() -> dict[str, str]:
    """Return the variables with which clients bypass a proxy for this machine, if one is set."""
    hosts = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(",")
    if not any(map(os.environ.get, _PROXIES)) or "*" in map(str.strip, hosts):
        return {}
    direct_hosts = filter(None, map(str.strip, hosts))
    direct = ",".join(dict.fromkeys([*direct_hosts, "127.0.0.1", "localhost"]))
    return {"no_proxy": direct, "NO_PROXY": direct}
