"""One sandbox of bubblewrap's."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from pytest_intercode.sandboxes.attached import AttachedSandbox, Probe
from pytest_intercode.sandboxes.bubblewrap.streams import PipeStreams
from pytest_intercode.sandboxes.listing import ListingProbe
from pytest_intercode.sandboxes.overlay import OUTSIDE, OverlayProbe, Unreadable
from pytest_intercode.sandboxes.protocol import SandboxSpec

__all__ = ["Box"]


class Box(AttachedSandbox):
    """A started sandbox and the channel to its keeper.

    Args:
        name: its name.
        pid: its first process, as the host knows it.
        descriptors: of that process, of its overlay's upper folder, of its root, and of the layers
            below; the first is also how it is ended.
        streams: the pipes to its keeper.
        spec: what it was asked for.
        overseen: we may read all its files.
        ended: called once, when it was told to end.
    """

    def __init__(
        self,
        name: str,
        pid: int,
        descriptors: list[int],
        streams: PipeStreams,
        spec: SandboxSpec,
        *,
        overseen: bool,
        ended: Callable[[Box], None],
    ) -> None:
        self._name = name
        self.pid = pid
        self._descriptors = descriptors
        self._overseen = overseen
        self._ended = ended
        super().__init__(streams, spec)

    @property
    def name(self) -> str:
        """The name that it was given."""
        return self._name

    def kill(self) -> None:
        """End every process of it at once."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._descriptors[0], signal.SIGKILL)

    def close(self) -> None:
        """End the sandbox; nothing of it stays."""
        super().close()
        descriptors, self._descriptors = self._descriptors, []
        if descriptors:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptors[0], signal.SIGKILL)
            for descriptor in descriptors:
                os.close(descriptor)
            self._ended(self)

    def layers(self) -> OverlayProbe:
        """Return the probe that reads the overlay's layers from outside.

        Raises:
            Unreadable: only root may.
        """
        if not self._overseen or not self._descriptors:
            raise Unreadable("only root may read the layers")
        _, upper, merged, *lower = (f"/proc/self/fd/{each}/." for each in self._descriptors)
        return OverlayProbe(upper, lower, merged)

    def _make_probe(self) -> Probe:
        with contextlib.suppress(Unreadable):
            return self.layers()
        return ListingProbe(self.admin, OUTSIDE)
