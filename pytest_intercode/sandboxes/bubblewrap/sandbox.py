"""A sandbox of the bubblewrap backend."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable

if sys.platform != "linux":
    raise ImportError("bubblewrap runs on Linux only")

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.attached import AttachedSandbox, find_killer
from pytest_intercode.sandboxes.bubblewrap.cgroups import ControlGroup
from pytest_intercode.sandboxes.overlay import OverlayProbe, Unreadable
from pytest_intercode.sandboxes.pipes import PipeStreams
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.seccomp import program

__all__ = ["BubblewrapSandbox", "let_go"]

_KILLED = 128 + signal.SIGKILL
_EXIT_STATUS_TIMEOUT = 1000  # milliseconds for the starter to report how a sandbox ended


class BubblewrapSandbox(AttachedSandbox):
    """A started sandbox and the channel to its keeper.

    Args:
        name: a short name for messages.
        pid: the number of its first process on the host.
        descriptors: for that process, with which it is ended; for the starter's report of its end;
            for its overlay's upper folder, its root, and the layers below.
        streams: the pipes to its keeper.
        spec: the spec that was asked for.
        readable: we may read all its files from outside.
        lowered: its shells have fewer rights than its keeper.
        group: its control group, if it has one.
        ended: called once, when it is closed.
        starter_ended: returns whether the starter, with which sandboxes end, has ended.
    """

    def __init__(
        self,
        name: str,
        pid: int,
        descriptors: list[int],
        streams: PipeStreams,
        spec: SandboxSpec,
        *,
        readable: bool,
        lowered: bool,
        group: ControlGroup | None,
        ended: Callable[[BubblewrapSandbox], None],
        starter_ended: Callable[[], bool],
    ) -> None:
        self.pid = pid
        self._descriptors = descriptors
        self.group = group
        self._readable = readable
        self._when_ended = ended
        self._starter_ended = starter_ended
        self._guarded = spec.guarded
        self._started_at = time.monotonic()
        self._status: int | None = None  # the exit status of its first process, once it was read
        super().__init__(name, streams, spec, lowered=lowered)

    @property
    def process(self) -> int:
        """The descriptor of its first process.

        Raises:
            SandboxError: it was closed.
        """
        if not self._descriptors:
            raise SandboxError(f"sandbox {self.name} was ended")
        return self._descriptors[0]

    def kill(self) -> None:
        """End all its processes immediately."""
        self._ended = True
        with contextlib.suppress(OSError, IndexError):  # it may have been closed just now
            signal.pidfd_send_signal(self._descriptors[0], signal.SIGKILL)

    def close(self) -> None:
        """End the sandbox; nothing of it remains."""
        super().close()
        descriptors, self._descriptors = self._descriptors, []
        if descriptors:
            let_go(descriptors)
            self._when_ended(self)

    def outside_cause(self) -> str:
        """Return whether the starter was ended, or the keeper was killed from outside."""
        if self._starter_ended():
            return "bubblewrap's starter was ended"
        # Without a group, the sandbox itself may have used up the machine's memory.
        if self.group is None or not (self._guarded and program()):
            return ""
        if self._exit_status() != _KILLED:
            return ""
        return find_killer(self.pid, self._started_at)

    def _exit_status(self) -> int | None:
        """Return the keeper's exit status; None if it still runs, or the status is unknown."""
        # The pipe delivers it once, but each use of the sandbox asks for it.
        if self._status is None:
            poll = select.poll()
            poll.register(self._descriptors[1], select.POLLIN)
            if not poll.poll(_EXIT_STATUS_TIMEOUT):
                return None
            text = os.read(self._descriptors[1], 16)
            self._status = int(text) if text else None
        return self._status

    def layers(self) -> OverlayProbe:
        """Return the probe that reads the overlay's layers from outside; only root can."""
        if not self._readable or not self._descriptors:
            raise Unreadable("only root may read the layers")
        _, _, upper, merged, *lower = (
            f"/proc/self/fd/{descriptor}/." for descriptor in self._descriptors
        )
        return OverlayProbe(upper, lower, merged, timely=False)  # the upper folder is in memory


def let_go(descriptors: list[int]) -> None:
    """End a sandbox's first process, by the first of its descriptors, and close them all."""
    with contextlib.suppress(OSError, IndexError):  # it may have ended by itself
        signal.pidfd_send_signal(descriptors[0], signal.SIGKILL)
    for descriptor in descriptors:
        os.close(descriptor)
