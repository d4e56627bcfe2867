"""The gateway to models that are not the agent's: those that play users, and judges.

Most runs have neither. So it is opened for the first who asks, and what it needs is imported then.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.gateway.vendors import VENDORS
from pytest_intercode.system.extras import has_extra, need

if TYPE_CHECKING:
    from pytest_intercode.gateway.gateway import Gateway

__all__ = ["LazyGateway"]


class LazyGateway:
    """Opens one gateway for all who ask; from any thread.

    Args:
        settings: how models are reached; None for what the environment's variables say.
    """

    def __init__(self, settings: GatewaySettings | None = None) -> None:
        self._given_settings = settings
        self._lock = threading.Lock()
        self._gateway: Gateway | None = None

    @property
    def _settings(self) -> GatewaySettings:
        settings = self._given_settings or GatewaySettings.of_environment()
        return replace(settings, models=())  # those are for agents

    def check(self, subject: str, *, replayed: bool = False) -> None:
        """See that a model can be asked by OpenAI's API, before anything is started for it.

        Args:
            subject: what asks it, as messages begin.
            replayed: a recording of its own answers it.

        Raises:
            ConfigurationError: an extra is missing, or no model is within reach.
        """
        for extra in ("chat", "gateway"):
            if not has_extra(extra):
                raise ConfigurationError(need(extra, subject))
        settings = self._settings
        if replayed or settings.replay is not None:
            return
        if settings.offline:
            raise ConfigurationError(
                f"{subject}: --intercode-record=none calls no model; replay its answers with "
                "--intercode-gateway-replay"
            )
        if not (settings.keys.get("openai") or _has_own_server(settings)):
            raise ConfigurationError(
                f"{subject}: no model is within reach: set OPENAI_API_KEY, or OPENAI_BASE_URL for "
                "a server of your own with OpenAI's API, or replay answers with "
                "--intercode-gateway-replay"
            )

    def open(self) -> Gateway:
        """Return the gateway.

        Raises:
            ConfigurationError: a setting of it is wrong.
        """
        from pytest_intercode.gateway.gateway import Gateway

        with self._lock:
            self._gateway = self._gateway or Gateway(self._settings)
            return self._gateway

    def close(self) -> None:
        """Close what was opened; may be called twice."""
        with self._lock:
            gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.close()


def _has_own_server(settings: GatewaySettings) -> bool:
    return settings.upstream("openai") != VENDORS["openai"].address
