"""A transport carries bytes to a sandbox's keeper and back; a backend gives the channel one."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from pytest_intercode.errors import SandboxError

__all__ = ["ChannelClosed", "Chunk", "Transport"]


class ChannelClosed(SandboxError):
    """The other end is gone: the sandbox ended."""


class Chunk(NamedTuple):
    """Bytes that arrived from the sandbox."""

    stream: Literal["output", "answers"]
    data: bytes


class Transport(Protocol):
    """Carries bytes to the keeper's input and back from its two outputs."""

    def send(self, data: bytes) -> None:
        """Queue bytes for the keeper; they are sent while :meth:`receive` waits."""

    def receive(self, timeout: float) -> list[Chunk]:
        """Wait up to ``timeout`` seconds and return what arrived, oldest first.

        Raises:
            ChannelClosed: the sandbox has ended.
        """

    def send_to_shell(self, data: bytes, new: bool) -> bool:
        """Write directly to the shell's input, if nothing runs but the keeper and the shell.

        Args:
            data: bytes for the shell.
            new: the shell is not that of the last call.

        Returns:
            Whether it was written; if not, the keeper has to do it.
        """

    def read_output(self) -> bytes | None:
        """Return immediately what is in the keeper's stdout and was not received yet.

        None if that is unknown, because something in between carries it asynchronously.
        """

    def close(self) -> None:
        """Close the connection; the sandbox ends."""
