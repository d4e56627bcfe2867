"""Services that the episodes of an installed agent share: the gateway and its socket folder."""

from __future__ import annotations

import secrets
import shutil
import threading
from functools import partial
from pathlib import Path

from pytest_intercode.agents.agent_environment import (
    AgentEnvironment,
    exhaust,
    keep_tokens,
    recording_of,
)
from pytest_intercode.errors import AgentLoadError, ConfigurationError
from pytest_intercode.gateway.gateway import Gateway
from pytest_intercode.gateway.session import Session
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.system.private_folder import PrivateFolder

__all__ = ["InstalledServices"]

_FORWARDER = Path(__file__).with_name("forward.pl")


class InstalledServices:
    """The services that the episodes of one process share.

    Attributes:
        settings: the gateway's settings.
        folder: the folder with the sockets and the forwarder, which sandboxes see. Only root can
            list it, so that a sandbox finds only its own socket.
    """

    def __init__(self, settings: GatewaySettings, option: str) -> None:
        self.settings = settings
        self._private = PrivateFolder()
        self.folder = self._private.make()
        self.folder.chmod(0o711)  # a sandbox may run as another user
        forwarder = shutil.copyfile(_FORWARDER, self.folder / _FORWARDER.name)
        forwarder.chmod(0o644)
        try:
            self._gateway = Gateway(settings)
        except ConfigurationError as error:
            self._private.close()
            raise AgentLoadError(f"{option}: {error}") from None

    def open(self, key: str, env: AgentEnvironment, max_turns: int) -> tuple[Session, Path]:
        """Open the session of an episode; return it and its socket.

        All requests through the socket belong to this episode, whatever token they have.
        """
        opened: list[Session] = []

        def find_refusal() -> str:
            if env.over:
                return "the episode is over"
            if opened and opened[0].turns >= max_turns:
                reason = f"{max_turns} of {max_turns} turns used"
                # Set this before the refusal, after which a program may exit immediately.
                opened[0].exhausted = opened[0].exhausted or reason
                # exhaust() may wait for a lock, which the gateway's thread must not do.
                threading.Thread(target=exhaust, args=(env, reason), daemon=True).start()
                return reason
            return ""

        path = self.new_socket()
        opened.append(
            self._gateway.open(
                key,
                spend=env.spend,
                refused=find_refusal,
                socket=path,
                recording=recording_of(env),
                keep=partial(keep_tokens, env),
            )
        )
        return opened[0], path

    def new_socket(self) -> Path:
        """Return the path for a new socket that sandboxes can reach."""
        return self.folder / secrets.token_hex(8)

    def make_folder(self) -> Path:
        """Return a new folder for files to put into a sandbox; removed at the latest at exit."""
        return self._private.make()

    def close(self) -> None:
        """End the gateway, and remove the folders."""
        self._gateway.close()
        self._private.close()
