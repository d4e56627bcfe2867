"""Pipes to a keeper as a transport for the command channel, with nothing in between."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterable

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.transport import ChannelClosed, Chunk
from pytest_intercode.system.forks import close_in_children
from pytest_intercode.system.platform import open_waker, readable_bytes, wake, watch_for_end

__all__ = ["PipeStreams"]

_BLOCK_SIZE = 262144
_MAX_ATOMIC_WRITE = select.PIPE_BUF  # bytes that are written to a pipe all together or not at all
_SHELL_DESCRIPTOR = 202  # the keeper's descriptor of the shell's input; see keeper.sh


class PipeStreams:
    """Our ends of the pipes to and from the keeper.

    Args:
        ends: the ends for its input, its output and its answers; they are closed with this.
        inside: the other ends, which the sandbox gets.
        lifeline: a socket that hangs up when the sandbox is lost, even if the pipes still carry
            data; its owner closes it after this.

    Attributes:
        inside: the other ends, until :meth:`close_inside`.
        is_hopeless: returns whether nothing will come any more; called when nothing came in time.
        past_keeper: the keeper's process number, and a descriptor for the number of processes in
            its control group, which is closed with this; None if its files cannot be opened.
    """

    def __init__(
        self,
        ends: tuple[int, int, int],
        inside: Iterable[int] = (),
        lifeline: int | None = None,
    ) -> None:
        self.is_hopeless: Callable[[], bool] | None = None
        self.past_keeper: tuple[int, int] | None = None
        self._shell = -1  # the shell's input
        self.inside = list(inside)
        self._input, self._output, self._answers = ends
        for descriptor in ends:
            os.set_blocking(descriptor, False)
        self._outgoing = bytearray()
        self._open = {self._output: "output", self._answers: "answers"}
        self._poll = select.poll()
        for descriptor in self._open:
            self._poll.register(descriptor, select.POLLIN)
        self._lifeline = lifeline
        if lifeline is not None:
            watch_for_end(self._poll, lifeline)
        self._writing = False
        self._closed = False
        self._use_lock = threading.RLock()  # held while reading or writing; closing waits for it
        self._waker = open_waker()  # ends the wait of a reader, when this is closed
        self._poll.register(self._waker[0], select.POLLIN)
        close_in_children(self)

    @classmethod
    def create(cls) -> PipeStreams:
        """Return streams with pipes that no sandbox has yet.

        Raises:
            SandboxError: this process has too many files open.
        """
        descriptors: list[int] = []
        try:
            for _ in range(3):
                descriptors += os.pipe()
            keeper, to_keeper, output, from_keeper, answers, keeper_answers = descriptors
            return cls((to_keeper, output, answers), (keeper, from_keeper, keeper_answers))
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            raise SandboxError(f"no pipes to a sandbox can be made: {error.strerror}") from None

    def close_inside(self) -> None:
        """Close our copies of the ends that the sandbox has now."""
        for descriptor in self.inside:
            os.close(descriptor)
        self.inside = []

    def send(self, data: bytes) -> None:
        """Queue bytes, and write as many as the pipe accepts now."""
        with self._use_lock:
            self._outgoing += data
            self._flush()

    def send_to_shell(self, data: bytes, new: bool) -> bool:
        """Write directly to the shell's input, if nothing runs but the keeper and the shell."""
        with self._use_lock:
            if self.past_keeper is None or self._closed:
                return False
            keeper, count = self.past_keeper
            try:
                if new:
                    self._close_shell()
                    path = f"/proc/{keeper}/fd/{_SHELL_DESCRIPTOR}"
                    self._shell = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                # Bytes that are queued for the keeper come first. Never write a part of an action,
                # as the keeper would then get the whole. And if another process runs, the keeper
                # has to list the processes before the action adds to them.
                if (
                    self._outgoing
                    or len(data) > _MAX_ATOMIC_WRITE
                    or os.pread(count, 8, 0) != b"2\n"
                ):
                    return False
                return os.write(self._shell, data) > 0
            except OSError:
                return False

    def _close_shell(self) -> None:
        shell, self._shell = self._shell, -1
        if shell >= 0:
            os.close(shell)

    def receive(self, timeout: float) -> list[Chunk]:
        """Wait for bytes, and write what is queued in the meantime."""
        with self._use_lock:
            if self.hung_up():
                raise ChannelClosed("the sandbox has ended")
            if self._writing != bool(self._outgoing):
                self._writing = not self._writing
                if self._writing:
                    self._poll.register(self._input, select.POLLOUT)
                else:
                    self._poll.unregister(self._input)
            chunks: list[Chunk] = []
            # Round up: less than a millisecond would be no wait at all, again and again.
            for descriptor, _ in self._poll.poll(max(0, int(timeout * 1000 + 0.999))):
                if descriptor == self._input:
                    self._flush()
                elif descriptor in self._open:
                    chunks += self._read(descriptor)
                elif descriptor == self._lifeline:
                    self._open.clear()
            if self.hung_up() or (not chunks and self.is_hopeless and self.is_hopeless()):
                raise ChannelClosed("the sandbox has ended")
            return chunks

    def hung_up(self) -> bool:
        """Whether the other ends are closed, as far as this is known."""
        return self._closed or not self._open

    def read_output(self) -> bytes | None:
        """Return what is in the pipe of the keeper's output, which is all that was printed."""
        with self._use_lock:
            if self._closed or self._output not in self._open:
                raise ChannelClosed("the sandbox has ended")
            # Not more than is there now: a background job may print endlessly.
            count = readable_bytes(self._output)
            return os.read(self._output, count) if count else b""

    def _read(self, descriptor: int) -> list[Chunk]:
        try:
            data = os.read(descriptor, _BLOCK_SIZE)
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
                count = os.write(self._input, self._outgoing[:_BLOCK_SIZE])
                del self._outgoing[:count]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            # First read what the sandbox still sent, which may be the reason why it ended.
            self._outgoing.clear()

    def close(self, last: bytes = b"") -> None:
        """Close the pipes; the keeper's input ends, and with it the sandbox.

        Args:
            last: a line that is written to the keeper first, if its pipe has room.
        """
        if not self._closed:
            self._closed = True
            # The thread that waits in `receive` holds the lock.
            wake(self._waker[1])
            with self._use_lock:
                if last and not self._outgoing:
                    with contextlib.suppress(OSError):
                        os.write(self._input, last)
                self._close_all()

    def close_copies(self) -> None:
        """Close the copies in a forked child; the sandbox remains its parent's."""
        if not self._closed:
            self._closed = True
            self._close_all()

    def _close_all(self) -> None:
        descriptors = [self._input, self._output, self._answers, *{*self._waker}]
        descriptors += [self.past_keeper[1]] if self.past_keeper else []
        self._close_shell()
        for descriptor in (*descriptors, *self.inside):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.inside = []
