"""A sandbox of bubblewrap, and the pipes to it as a transport for the command channel."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import termios
import threading
import time
from array import array
from collections.abc import Callable

from pytest_intercode.core.forks import close_in_children
from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.attached import AttachedSandbox, who_killed
from pytest_intercode.sandboxes.bubblewrap.cgroups import ControlGroup
from pytest_intercode.sandboxes.channel import ChannelClosed, Chunk
from pytest_intercode.sandboxes.overlay import OverlayProbe, Unreadable
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.seccomp import program

__all__ = ["BubblewrapSandbox", "PipeStreams"]

_BLOCK = 262144
_KILLED = 128 + signal.SIGKILL
_LATE = 1000  # milliseconds after which the starter has surely said how a sandbox ended


class PipeStreams:
    """Pipes to and from the keeper; ``inside`` are the ends that the sandbox gets.

    Attributes:
        inside: the keeper's input, output and answers, until :meth:`close_inside`.
        hopeless: tells whether nothing will come any more; asked when nothing came in time.
    """

    def __init__(self) -> None:
        self.hopeless: Callable[[], bool] | None = None
        keeper, self._input = os.pipe()
        self._output, output = os.pipe()
        self._answers, answers = os.pipe()
        self.inside = [keeper, output, answers]
        for descriptor in (self._input, self._output, self._answers):
            os.set_blocking(descriptor, False)
        self._outgoing = bytearray()
        self._open = {self._output: "output", self._answers: "answers"}
        self._poll = select.poll()
        for descriptor in self._open:
            self._poll.register(descriptor, select.POLLIN)
        self._writing = False
        self._closed = False
        self._using = threading.RLock()  # held while reading or writing; a close waits for it
        self._waker = os.eventfd(0)  # and ends the wait
        self._poll.register(self._waker, select.POLLIN)
        close_in_children(self)

    def close_inside(self) -> None:
        """Close our copies of what the sandbox has now."""
        for descriptor in self.inside:
            os.close(descriptor)
        self.inside = []

    def send(self, data: bytes) -> None:
        """Queue bytes and write as many as the pipe takes now."""
        with self._using:
            self._outgoing += data
            self._flush()

    def receive(self, timeout: float) -> list[Chunk]:
        """Wait for bytes; write what is queued meanwhile."""
        with self._using:
            if self._closed or not self._open:
                raise ChannelClosed("the sandbox has ended")
            if self._writing != bool(self._outgoing):
                self._writing = not self._writing
                if self._writing:
                    self._poll.register(self._input, select.POLLOUT)
                else:
                    self._poll.unregister(self._input)
            chunks: list[Chunk] = []
            for descriptor, _ in self._poll.poll(max(0, int(timeout * 1000 + 0.999))):
                if descriptor == self._input:
                    self._flush()
                elif descriptor in self._open:
                    chunks += self._read(descriptor)
            if self._closed or (not chunks and self.hopeless and self.hopeless()):
                raise ChannelClosed("the sandbox has ended")
            return chunks

    def written(self) -> bytes:
        """Return what is in the pipe of the keeper's output; nothing lies in between."""
        with self._using:
            if self._closed or self._output not in self._open:
                raise ChannelClosed("the sandbox has ended")
            # No more than is there now: a background job may print for ever.
            count = array("i", [0])
            fcntl.ioctl(self._output, termios.FIONREAD, count)
            return os.read(self._output, count[0]) if count[0] else b""

    def _read(self, descriptor: int) -> list[Chunk]:
        try:
            data = os.read(descriptor, _BLOCK)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            data = b""
        if data:
            return [Chunk("answers" if self._open[descriptor] == "answers" else "output", data)]
        self._poll.unregister(descriptor)
        del self._open[descriptor]
        return []

    def _flush(self) -> None:
        try:
            while self._outgoing and not self._closed:
                sent = os.write(self._input, self._outgoing[:_BLOCK])
                del self._outgoing[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            # What the sandbox has still sent, perhaps why it ended, is read first.
            self._outgoing.clear()

    def close(self) -> None:
        """Close the pipes; the keeper's input ends, and with it the sandbox."""
        if not self._closed:
            self._closed = True
            os.eventfd_write(self._waker, 1)
            with self._using:
                self._close_all()

    def close_copies(self) -> None:
        """Close a forked child's copies; the sandbox stays its parent's."""
        if not self._closed:
            self._closed = True
            self._close_all()

    def _close_all(self) -> None:
        mine = (self._input, self._output, self._answers, self._waker)
        for descriptor in (*mine, *self.inside):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.inside = []


class BubblewrapSandbox(AttachedSandbox):
    """A started sandbox and the channel to its keeper.

    Args:
        name: a short name for messages.
        pid: its first process, as the host knows it.
        descriptors: of that process, by which it is ended; of what the starter says of its end; of
            its overlay's upper folder, of its root, and of the layers below.
        streams: the pipes to its keeper.
        spec: what it was asked for.
        readable: we may read all its files from outside.
        lowered: its shells have fewer rights than its keeper.
        group: its control group, if it has one.
        ended: called once, when it is closed.
        starter_ended: tells whether the starter, with which sandboxes end, has ended.
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
        self._since = time.monotonic()
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
        """End every process of it at once."""
        self._ended = True
        with contextlib.suppress(OSError, IndexError):  # it may have been closed just now
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
            self._when_ended(self)

    def outside_cause(self) -> str:
        """Return whether the starter was ended, or somebody has killed the keeper."""
        if self._starter_ended():
            return "bubblewrap's starter was ended"
        # Without a group, want of the machine's memory may be the sandbox's doing.
        if self.group is None or not (self._guarded and program()):
            return ""
        if self._exit_status() != _KILLED:
            return ""
        return who_killed(self.pid, self._since)

    def _exit_status(self) -> int | None:
        """Return the status that the keeper ended with; None while it goes on, or is unknown."""
        poll = select.poll()
        poll.register(self._descriptors[1], select.POLLIN)
        if not poll.poll(_LATE):
            return None
        said = os.read(self._descriptors[1], 16)
        return int(said) if said else None

    def layers(self) -> OverlayProbe:
        """Return the probe that reads the overlay's layers from outside; only root may."""
        if not self._readable or not self._descriptors:
            raise Unreadable("only root may read the layers")
        _, _, upper, merged, *lower = (f"/proc/self/fd/{each}/." for each in self._descriptors)
        return OverlayProbe(upper, lower, merged, timely=False)  # it is in memory
