"""What sandboxes of every backend share: a keeper behind streams, and a reader of its disk."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.channel import MOST_SAID, Channel, ChannelClosed, Transport
from pytest_intercode.sandboxes.listing import ListingProbe
from pytest_intercode.sandboxes.overlay import OverlayProbe, Unreadable
from pytest_intercode.sandboxes.protocol import OUTSIDE, Changes, Entry, Execution, SandboxSpec
from pytest_intercode.sandboxes.python_channel import PythonChannel
from pytest_intercode.sandboxes.reading import SETUP_LIMITS, GradingLimits, Reading

__all__ = ["CAPABILITIES", "KEEPER_CAPABILITY", "SHM_SIZE", "AttachedSandbox"]

# What su, useradd, tar, chmod 4755, git and crontab need, and nothing that reaches the host.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
# Only the keeper has this one; the shell is started without it (see keeper.sh).
KEEPER_CAPABILITY = "SETPCAP"
SHM_SIZE = 16 * 1024**2

Method = TypeVar("Method", bound=Callable[..., Any])


def _explained(method: Method) -> Method:
    """Turn a channel that closed into a sentence about why the sandbox ended."""

    @functools.wraps(method)
    def call(self: AttachedSandbox, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except ChannelClosed as closed:
            raise SandboxError(f"sandbox {self.name} ended while in use: {closed}") from closed
        except OSError as error:  # its files went away with it
            raise SandboxError(f"sandbox {self.name} cannot be read: {error}") from error

    return call  # type: ignore[return-value]


class AttachedSandbox:
    """A started sandbox and the channel to its keeper.

    Attributes:
        name: a short name for messages.
        probe: reads what changed on disk; made at the first mark.
        grading: how much is read of it at most, each time that it is graded.
        outside: what of its files is no part of its disk.
    """

    grading = GradingLimits()
    outside = OUTSIDE

    def __init__(self, name: str, streams: Transport, spec: SandboxSpec) -> None:
        self.name = name
        channel = PythonChannel if spec.worker == "python" else Channel
        self._channel = channel(
            streams,
            workdir=spec.workdir,
            output_limit=spec.limits.output,
            guarded=spec.guarded,
            offline=not spec.limits.network,
        )
        self.probe: ListingProbe | OverlayProbe | None = None
        self._ended = False

    @_explained
    def run(self, action: str, timeout: float) -> Execution:
        """Run one action in the shell."""
        return self._channel.run(action, timeout)

    @_explained
    def admin(self, command: str, timeout: float, most: int = MOST_SAID) -> tuple[int, bytes]:
        """Run a command of ours outside the shell."""
        return self._channel.admin(command, timeout, most)

    @_explained
    def settle(self, timeout: float) -> bytes:
        """Wait for what runs in the background."""
        return self._channel.settle(timeout)

    @_explained
    def unpack(self, archive: bytes) -> None:
        """Unpack a tar archive at the root."""
        self._channel.unpack(archive)

    @_explained
    def mark(self) -> None:
        """Remember the state of the file system."""
        self._made_probe().mark(self._reading(SETUP_LIMITS))

    @_explained
    def changes(self) -> Changes:
        """Return what changed on disk since the mark."""
        if self.probe is None:
            raise SandboxError(f"sandbox {self.name} was never marked")
        return self.probe.changes(self._reading(self.grading))

    @_explained
    def entries(self, paths: Iterable[str]) -> dict[str, Entry | None]:
        """Return what stands at the given paths."""
        return self._made_probe().entries(paths, self._reading(self.grading))

    def interrupt(self) -> None:
        """End a running action from another thread."""
        self._channel.interrupt()

    def close(self) -> None:
        """End the sandbox and everything in it."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._channel.close()

    def layers(self) -> OverlayProbe:
        """Return the probe that reads the overlay's layers from outside.

        Raises:
            Unreadable: they cannot be read here.
        """
        raise NotImplementedError

    def _made_probe(self) -> ListingProbe | OverlayProbe:
        if self.probe is None:
            try:
                self.probe = self.layers()
            except Unreadable:
                self.probe = ListingProbe(self.admin, self.outside)
        return self.probe

    def _reading(self, limits: GradingLimits) -> Reading:
        return Reading(limits, lambda: self._ended)
