"""An installed program that speaks ACP: forwards its standard streams out of its sandbox.

In the sandbox they are connected to a port that leads to a socket here. The program acts in the
sandbox itself, so the client offers it neither files nor terminals. It runs in the background of
the shell, so that the user can be asked between its turns.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from pytest_intercode.agents.acp.connection import ConnectionLost
from pytest_intercode.agents.acp.conversation import Conversation, SessionSettings
from pytest_intercode.agents.acp.updates import Updates
from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.installed.script import END_CONNECTED, START_CONNECTED
from pytest_intercode.agents.program.messages import JsonLines
from pytest_intercode.errors import AgentError, BudgetExhausted

__all__ = ["AcpStreams"]

_CONNECT_TIMEOUT = 5.0  # seconds for a connection that the sandbox reports to exist
_REFUSAL_TIMEOUT = 1.0  # seconds for the program to exit once the gateway refuses its requests
_END_TIMEOUT = 30.0  # seconds for the command that ends the program


class AcpStreams:
    """The standard streams of one program in a sandbox.

    Args:
        path: where to create the socket to which a port of the sandbox leads.

    Attributes:
        message: the program's last message.
    """

    def __init__(self, path: Path) -> None:
        self.message = ""
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        path.chmod(0o666)  # sandboxes have their own accounts
        self._listener.listen(1)
        self._streams: _Streams | None = None

    def converse(
        self,
        env: AgentEnvironment,
        settings: SessionSettings,
        folder: str,
        servers: Mapping[str, str],
        prompt: str,
        ask: Callable[[str], str | None],
    ) -> tuple[int | None, str]:
        """Start the program with its script, which is in place, and let it work until it is done.

        Args:
            env: the episode.
            settings: the settings of the session.
            folder: the task's directory.
            servers: the command lines of the task's MCP servers, by name.
            prompt: the first prompt.
            ask: sends the user a message; returns the reply, or None if the conversation is over.

        Returns:
            Its exit status, which is 0 if it answered all prompts, and the end of its output.

        Raises:
            AgentError: the program violates the protocol, or answers with an error.
            BudgetExhausted: the episode is over.
        """
        status, output = env.exec(START_CONNECTED, timeout=_END_TIMEOUT)
        self._streams = streams = self._accept()
        if status != 0 or streams is None:
            return self._end(env, lost=True) if status == 0 else (status, output)

        deadline: float | None = None

        def check() -> None:
            nonlocal deadline
            if env.over:
                deadline = deadline or time.monotonic() + _REFUSAL_TIMEOUT
                if time.monotonic() >= deadline:
                    raise BudgetExhausted("the episode is over")

        lines = JsonLines(streams, check)
        updates = Updates(env, take_turns=False)
        conversation = Conversation(env, lines, updates, settings)
        try:
            conversation.open(folder, servers)
            conversation.converse(prompt, ask)
            self.message = updates.message
        except ConnectionLost:
            if env.over:
                raise BudgetExhausted("the episode is over") from None
            return self._end(env, lost=True)
        except BudgetExhausted:
            lines.release()
            conversation.cancel()
            raise
        return self._end(env, lost=False)

    def shut(self) -> None:
        """Shut down the connection, which ends the program; from any thread, even twice."""
        self._path.unlink(missing_ok=True)
        self._listener.close()
        if self._streams is not None:
            self._streams.shut()

    def close(self) -> None:
        """Shut down the connection and close its files, on the agent's thread."""
        self.shut()
        if self._streams is not None:
            self._streams.close()

    def _accept(self) -> _Streams | None:
        """Return the first connection and stop listening; None if there is no connection."""
        self._listener.settimeout(_CONNECT_TIMEOUT)
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return None
        finally:
            self._listener.close()
            self._path.unlink(missing_ok=True)
        return _Streams(connection)

    def _end(self, env: AgentEnvironment, *, lost: bool) -> tuple[int | None, str]:
        """End the program; return its exit status and its output."""
        _, output = env.exec(END_CONNECTED, timeout=_END_TIMEOUT)
        first, _, output = output.partition("\n")
        status = int(first) if first.isdecimal() else None
        if lost and status == 0:
            raise AgentError(
                "the program ended its output, or itself, before it answered; its last output: "
                f"{' '.join(output.split())[-400:]}"
            )
        return (status if lost else 0), output


class _Streams:
    """A connection, presented as the pipes of the program at its other end."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self.stdin: IO[bytes] = os.fdopen(os.dup(connection.fileno()), "wb", buffering=0)
        self.stdout: IO[bytes] = os.fdopen(os.dup(connection.fileno()), "rb", buffering=0)

    def wait(self, timeout: float | None) -> int | None:
        """Return None: the program's end shows as the end of the connection."""
        return None

    def shut(self) -> None:
        """Shut down the connection in both directions."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has already ended

    def close(self) -> None:
        """Close the files of the connection."""
        for file in (self.stdin, self.stdout, self._connection):
            file.close()
