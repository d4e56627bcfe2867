"""How programs that are set to use a proxy reach a server on this machine."""

from __future__ import annotations

import os

__all__ = ["without_proxy"]

_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def without_proxy() -> dict[str, str]:
    """Return the variables with which a client reaches this machine past a proxy, if one is set."""
    hosts = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(",")
    if not any(map(os.environ.get, _PROXIES)) or "*" in map(str.strip, hosts):
        return {}
    direct_hosts = filter(None, map(str.strip, hosts))
    direct = ",".join(dict.fromkeys([*direct_hosts, "127.0.0.1", "localhost"]))
    return {"no_proxy": direct, "NO_PROXY": direct}
