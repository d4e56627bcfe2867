"""The gateway to models other than the agent's: models that play users, and judges.

Most runs have neither, so it is opened, and its dependencies are imported, on first use.
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
    """Opens one shared gateway on first use, from any thread.

    Args:
        settings: how models are reached; None to read environment variables.
    """

    def __init__(self, settings: GatewaySettings | None = None) -> None:
        self._given_settings = settings
        self._lock = threading.Lock()
        self._gateway: Gateway | None = None

    @property
    def _settings(self) -> GatewaySettings:
        settings = self._given_settings or GatewaySettings.of_environment()
        return replace(settings, models=())  # the list of allowed models applies to agents

    def check(self, subject: str, *, replayed: bool = False) -> None:
        """Check that a model can be reached through OpenAI's API, before anything is started.

        Args:
            subject: the user of the model, for the beginning of messages.
            replayed: whether a separate recording answers its requests.

        Raises:
            ConfigurationError: an extra is missing, or no model can be reached.
        """
        for extra in ("chat", "gateway"):
            if not has_extra(extra):
                raise ConfigurationError(need(extra, subject))
        settings = self._settings
        if replayed or settings.replay is not None:
            return
        if settings.offline:
            raise ConfigurationError(
                f"{subject}: --intercode-record=none does not allow model calls; replay answers "
                "with --intercode-gateway-replay"
            )
        if not (settings.keys.get("openai") or _has_own_server(settings)):
            raise ConfigurationError(
                f"{subject}: no model can be reached: set OPENAI_API_KEY, or OPENAI_BASE_URL for "
                "your own server with OpenAI's API, or replay answers with "
                "--intercode-gateway-replay"
            )

    def open(self) -> Gateway:
        """Return the gateway.

        Raises:
            ConfigurationError: one of its settings is wrong.
        """
        from pytest_intercode.gateway.gateway import Gateway

        with self._lock:
            self._gateway = self._gateway or Gateway(self._settings)
            return self._gateway

    def close(self) -> None:
        """Close the gateway if it was opened; may be called twice."""
        with self._lock:
            gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.close()


def _has_own_server(settings: GatewaySettings) -> bool:
    return settings.upstream("openai") != VENDORS["openai"].address
