"""The proxy in front of models' APIs: it meters agents, records them, and holds the real keys.

A :class:`Gateway` is an HTTP server in the pytest process. An agent is given its address and a
token of its own instead of a key; each request goes to the configured server of the API, and
nowhere else. Others import what this module exports, and :mod:`.trajectory`. It needs the extra
``gateway`` (aiohttp), which is imported when the first session is opened.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_intercode.gateway.exchange import Exchange, TokenUsage
    from pytest_intercode.gateway.gateway import Gateway
    from pytest_intercode.gateway.prices import Price
    from pytest_intercode.gateway.session import Session
    from pytest_intercode.gateway.settings import GatewaySettings

__all__ = ["Exchange", "Gateway", "GatewaySettings", "Price", "Session", "TokenUsage"]

# Imported when first asked for: every run reads settings, and few open a gateway.
_MODULES = {
    "Exchange": "exchange",
    "Gateway": "gateway",
    "GatewaySettings": "settings",
    "Price": "prices",
    "Session": "session",
    "TokenUsage": "exchange",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    attribute: object = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = attribute
    return attribute
