"""The pipes of a sandbox as a transport for the command channel."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import termios
import threading
from array import array

from pytest_intercode.core.forks import close_in_children
from pytest_intercode.sandboxes.channel import ChannelClosed, Chunk

__all__ = ["PipeStreams"]

_BLOCK = 262144


class PipeStreams:
    """Pipes to and from the keeper; ``inside`` are the ends that the sandbox gets.

    Attributes:
        inside: the keeper's input, output and answers, until :meth:`handed_over`.
    """

    def __init__(self) -> None:
        keeper, self._input = os.pipe()
        self._output, output = os.pipe()
        self._answers, answers = os.pipe()
        self.inside = [keeper, output, answers]
        for descriptor in (self._input, self._output, self._answers):
            os.set_blocking(descriptor, False)
        self._outgoing = bytearray()
        self._open = {self._output: "output", self._answers: "answers"}
        self._said = b""  # the end of what came last, for it may say why the sandbox ended
        self._poll = select.poll()
        for descriptor in self._open:
            self._poll.register(descriptor, select.POLLIN)
        self._writing = False
        self._closed = False
        self._using = threading.RLock()  # held by whoever reads or writes; a close waits for them
        self._waker = os.eventfd(0)  # and wakes them
        self._poll.register(self._waker, select.POLLIN)
        close_in_children(self)

    def handed_over(self) -> None:
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
                raise self._ended()
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
            if self._closed:
                raise self._ended()
            return chunks

    def written(self) -> bytes:
        """Return what is in the pipe of the keeper's output; nothing lies in between."""
        with self._using:
            if self._closed or self._output not in self._open:
                raise self._ended()
            # No more than is there now, as a job that prints for ever would never let us go.
            count = array("i", [0])
            fcntl.ioctl(self._output, termios.FIONREAD, count)
            return os.read(self._output, count[0]) if count[0] else b""

    def last_words(self) -> str:
        """Return what bubblewrap said about its failure, or nothing."""
        try:
            while self._open:
                if not self.receive(0.2):
                    break
        except ChannelClosed:
            pass
        said = str(self._ended())
        return said if said.startswith("bwrap:") else ""

    def _ended(self) -> ChannelClosed:
        why = self._said.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return ChannelClosed(why if why.startswith("bwrap:") else "the sandbox has ended")

    def _read(self, descriptor: int) -> list[Chunk]:
        try:
            data = os.read(descriptor, _BLOCK)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            data = b""
        if data:
            kind = self._open[descriptor]
            if kind == "answers":
                self._said = (self._said + data)[-1000:]
                return [Chunk("answers", data)]
            return [Chunk("output", data)]
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
            # What the sandbox still has to say, why it ended perhaps, comes first.
            self._outgoing.clear()

    def close(self) -> None:
        """Close the pipes; the keeper's input ends, and with it the sandbox."""
        if not self._closed:
            self._closed = True
            os.eventfd_write(self._waker, 1)
            with self._using:
                self._let_go()

    def close_copies(self) -> None:
        """Close a forked child's copies; the sandbox stays its parent's."""
        if not self._closed:
            self._closed = True
            self._let_go()

    def _let_go(self) -> None:
        mine = (self._input, self._output, self._answers, self._waker)
        for descriptor in (*mine, *self.inside):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.inside = []
