"""The proxy in front of models' APIs: it meters agents, records them, and holds the real keys.

A :class:`Gateway` is an HTTP server in the pytest process. An agent is given its address and a
token of its own in place of a key; each request goes to the configured server of the API, and
nowhere else. Others import what this module exports, and :mod:`.trajectory`. It needs the extra
``gateway`` (aiohttp), which is imported when the first session is opened.
"""

from pytest_intercode.gateway.exchange import Exchange, Price, TokenUsage
from pytest_intercode.gateway.gateway import Gateway
from pytest_intercode.gateway.session import Session
from pytest_intercode.gateway.settings import GatewaySettings

__all__ = ["Exchange", "Gateway", "GatewaySettings", "Price", "Session", "TokenUsage"]
