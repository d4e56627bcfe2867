"""Gives SQLite's sessions their processes, forked from one that is kept for it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from pytest_intercode.errors import SandboxError

__all__ = ["Fork", "SqliteForks"]

# The package's folder comes last in the path, so that nothing in it hides the standard library.
_START = (
    "import sys; sys.path.append(sys.argv[3]); "
    "from pytest_intercode.databases.sqlite.origin import main; main()"
)
_PATIENCE = 30.0  # seconds for the origin to start, or to fork


@dataclass(frozen=True)
class Fork:
    """One process.

    Attributes:
        pid: its id, which is its own until :meth:`SqliteForks.end` lets go of it.
        requests: where it reads; ours to write.
        answers: where it writes; ours to read.
        control: its further pipe; ours to write.
        ended: a descriptor that can be read once it has ended; None where there is none (before
            Linux 5.3).
    """

    pid: int
    requests: int
    answers: int
    control: int
    ended: int | None


class SqliteForks:
    """Starts processes; one for each engine. The origin is started with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._origin: subprocess.Popen[bytes] | None = None
        self._conversation: socket.socket | None = None
        self._closed = False

    def start(self) -> Fork:
        """Return a new process.

        Raises:
            SandboxError: it cannot be started.
        """
        with self._lock:
            if self._closed:
                raise SandboxError("SQLite has been closed")
            if self._origin is not None and self._origin.poll() is not None:
                self._stop()
            try:
                return self._fork()
            except OSError as error:
                said = self._stop()
                raise SandboxError(f"SQLite's process cannot be started: {said or error}") from None

    def kill(self, fork: Fork) -> None:
        """Kill a process, and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            if fork.ended is None:
                os.kill(fork.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(fork.ended, signal.SIGKILL)
        if fork.ended is not None:
            waiting = select.poll()
            waiting.register(fork.ended, select.POLLIN)
            waiting.poll(_PATIENCE * 1000)

    def end(self, fork: Fork) -> None:
        """Close the pipes of a process that was killed, and let go of its id."""
        with self._lock, contextlib.suppress(OSError):
            if self._conversation is not None:
                self._conversation.sendall(b"R" + fork.pid.to_bytes(8, "little"))
        for number in (fork.requests, fork.answers, fork.control, fork.ended):
            if number is not None:
                os.close(number)

    def close(self) -> None:
        """End the origin; the processes must have ended before."""
        with self._lock:
            self._closed = True
            self._stop()

    # -- inside

    def _fork(self) -> Fork:
        conversation = self._conversation or self._begin()
        requests, answers, control = [os.pipe() for _ in range(3)]
        theirs = [requests[0], answers[1], control[0]]
        try:
            socket.send_fds(conversation, [b"F"], theirs)
            answer = conversation.recv(8)
            if len(answer) < 8:
                raise OSError("it ended at once")
        except OSError:
            for number in (requests[1], answers[0], control[1]):
                os.close(number)
            raise
        finally:
            for number in theirs:
                os.close(number)
        pid = int.from_bytes(answer, "little")
        ended = None
        with contextlib.suppress(AttributeError, OSError):
            ended = os.pidfd_open(pid)
        return Fork(pid, requests[1], answers[0], control[1], ended)

    def _begin(self) -> socket.socket:
        """Start the origin."""
        ours, theirs = socket.socketpair()
        with theirs:
            folder = Path(__file__).parents[3]
            self._origin = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-c", _START),
                    *(str(theirs.fileno()), str(os.getpid()), folder),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                env={"MALLOC_ARENA_MAX": "1"},  # an arena for each thread would reserve memory
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the client, which ends it in its own way
            )
        ours.settimeout(_PATIENCE)
        self._conversation = ours
        return ours

    def _stop(self) -> str:
        """End the origin; return the last line of what it said."""
        origin, self._origin = self._origin, None
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            conversation.close()
        if origin is None:
            return ""
        with origin:
            origin.kill()
            assert origin.stderr is not None
            said = origin.stderr.read().decode("utf-8", "replace").strip()
        return said.splitlines()[-1] if said else ""
