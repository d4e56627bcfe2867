"""What carries bytes to a sandbox's keeper and back; a backend gives the channel one."""

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
        """Queue bytes for the keeper; they leave while :meth:`receive` waits."""

    def receive(self, timeout: float) -> list[Chunk]:
        """Wait up to ``timeout`` seconds and return what arrived, oldest first.

        Raises:
            ChannelClosed: the sandbox has ended.
        """

    def send_to_shell(self, data: bytes, new: bool) -> bool:
        """Write straight to the shell's input, if nothing but keeper and shell runs.

        Args:
            data: bytes for the shell.
            new: it is not the shell of the last call.

        Returns:
            Whether it was done; if not, the keeper has to do it.
        """

    def read_output(self) -> bytes | None:
        """Return at once what is written to the keeper's stdout and was not yet received.

        None if that is unknown, as something in between carries it in its own time.
        """

    def close(self) -> None:
        """Let go; the sandbox ends."""
