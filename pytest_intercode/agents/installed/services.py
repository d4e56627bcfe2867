"""What the episodes of an installed agent share: the gateway, and the folder of its sockets."""

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
    """What the episodes of one process share.

    Attributes:
        settings: the gateway's.
        folder: sandboxes see it; the sockets are in it, and the forwarder. None but root can list
            it, so that a sandbox finds its own socket alone.
    """

    def __init__(self, settings: GatewaySettings, option: str) -> None:
        self.settings = settings
        self._private = PrivateFolder()
        self.folder = self._private.make()
        self.folder.chmod(0o711)  # the user of a sandbox may be another one
        forwarder = shutil.copyfile(_FORWARDER, self.folder / _FORWARDER.name)
        forwarder.chmod(0o644)
        try:
            self._gateway = Gateway(settings)
        except ConfigurationError as error:
            self._private.close()
            raise AgentLoadError(f"{option}: {error}") from None

    def open(self, key: str, env: AgentEnvironment, max_turns: int) -> tuple[Session, Path]:
        """Open the session of an episode; return it and its socket.

        What comes through the socket is this episode's, whatever it has for a token.
        """
        opened: list[Session] = []

        def find_refusal() -> str:
            if env.over:
                return "the episode is over"
            if opened and opened[0].turns >= max_turns:
                reason = f"{max_turns} of {max_turns} turns used"
                # Before the refusal, at which a program may end at once.
                opened[0].exhausted = opened[0].exhausted or reason
                # It may wait for a lock, and this is the gateway's own thread.
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
        """Return where a socket can be that sandboxes find."""
        return self.folder / secrets.token_hex(8)

    def make_folder(self) -> Path:
        """Return a new folder for what goes into a sandbox; it does not outlive this process."""
        return self._private.make()

    def close(self) -> None:
        """End the gateway, and remove the folders."""
        self._gateway.close()
        self._private.close()
