"""Programs that agents are, or use: started anywhere, ended with everything that they started.

A program runs below a supervisor (see :mod:`supervisor`), which ends with pytest, whatever ended
that. What only a descendant of the program could do, and it must be meant, is to kill the
supervisor: then whoever carries the mark that is in the program's environment is looked for.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from pytest_intercode.agents import supervisor
from pytest_intercode.agents.printed import Printed
from pytest_intercode.errors import AgentError, AgentLoadError

__all__ = ["Program", "find_program", "said_of_exit"]

_MARK = "PYTEST_INTERCODE_PROGRAM"
_PATIENCE = 10.0  # seconds that the supervisor has, after which it is no longer trusted


class Program:
    """One run of a program.

    Args:
        words: the program and its arguments; no shell looks at them.
        folder: where it runs; a program that is named with a slash is looked for from there.
        variables: environment variables on top of pytest's own.
        pipes: its standard input and output are pipes; otherwise it has nothing to read, and
            what it prints is collected together with its standard error.

    Attributes:
        stdin: the pipe that it reads.
        stdout: the pipe that it writes.
        pid: the supervisor's process id.
        left: how many of its processes could not be killed, as another user's; known at its end.

    Raises:
        AgentLoadError: there is no such program.
        AgentError: the system did not start it.
    """

    stdin: IO[bytes]
    stdout: IO[bytes]

    def __init__(
        self,
        words: Sequence[str],
        *,
        folder: Path,
        variables: Mapping[str, str] | None = None,
        pipes: bool = True,
    ) -> None:
        file = find_program(words, folder)
        if not sys.platform.startswith("linux"):
            raise AgentLoadError("a program as an agent needs Linux, which can end all it started")
        mark = secrets.token_hex(16)
        self._mark = f"{_MARK}={mark}".encode()
        self._name = words[0]
        self._owner = os.getpid()
        self._closing = threading.Lock()
        self._closed = False
        self._ended = threading.Event()
        self._status: int | None = None
        self.left = 0
        self._control, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-IS",
                        supervisor.__file__,
                        str(theirs.fileno()),
                        file,
                        *words,
                    ],
                    stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE if pipes else subprocess.STDOUT,
                    cwd=folder,
                    env={**os.environ, **(variables or {}), _MARK: mark},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                self._control.close()
                raise AgentError(f"{words[0]} cannot be started: {error}") from None
        self.pid = self._process.pid
        assert self._process.stdout is not None
        if pipes:
            assert self._process.stdin is not None
            self.stdin, self.stdout = self._process.stdin, self._process.stdout
        printed = self._process.stderr if pipes else self._process.stdout
        assert printed is not None
        self._printed = Printed(printed)
        self._thread = threading.Thread(
            target=self._watch, name=f"intercode-program-{self.pid}", daemon=True
        )
        self._wait_for_start()

    def stderr(self) -> str:
        """Return what it printed on its standard error since the last call, bounded."""
        return self._printed.take()

    def wait(self, timeout: float | None) -> int | None:
        """Wait until it has ended, and its descendants with it.

        Args:
            timeout: seconds to wait; None for as long as it takes.

        Returns:
            Its exit status, the negative of a signal's number if one killed it; None if it still
            runs.
        """
        return self._status if self._ended.wait(timeout) else None

    def kill(self) -> None:
        """Kill it with all its descendants, without waiting; its pipes are then at their end."""
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
                self._process.send_signal(signal.SIGCONT)  # the program may have stopped it

    def close(self) -> None:
        """Kill it with all its descendants, and give back what it used; may be called twice."""
        if os.getpid() != self._owner:
            return  # a forked child has a copy of this object, not a say in it
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self.kill()
            if not self._ended.wait(_PATIENCE):
                self._end_supervisor()
            self._thread.join(_PATIENCE)
            self._process.wait()
            self._control.close()
            self._printed.close()
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what it never read is in the buffer
                        pipe.close()

    def _wait_for_start(self) -> None:
        said = b""
        with contextlib.suppress(OSError):
            while not said.endswith(b"\n") and (piece := self._control.recv(1)):
                said += piece
        self._thread.start()
        if said == b"started\n":
            return
        printed = self._end_of_start()
        if said.startswith(b"failed "):
            number = int(said.split()[1])
            why = os.strerror(number)
            if number == 8:  # ENOEXEC
                why += "; a script begins with a line like '#!/usr/bin/env python3'"
            raise AgentError(f"{self._name} cannot be started: {why}")
        raise AgentError(
            f"{self._name} cannot be started: its supervisor ended"
            + (f": {printed.splitlines()[-1]}" if printed else "")
        )

    def _end_of_start(self) -> str:
        self._ended.wait(_PATIENCE)
        printed = self.stderr().strip()
        self.close()
        return printed

    def _watch(self) -> None:
        """Collect what it prints, and hear of its end; until the supervisor is gone."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._printed, select.POLLIN)
        said = b""
        while True:
            for number, _ in poll.poll():
                if number != self._control.fileno():
                    if not self._printed.read():
                        poll.unregister(self._printed)
                    continue
                piece = b""
                with contextlib.suppress(OSError):
                    piece = self._control.recv(4096)
                said += piece
                if not piece:
                    self._hear_of_end(said)
                    return

    def _hear_of_end(self, said: bytes) -> None:
        if said.startswith(b"exit "):
            self._status, self.left = (int(number) for number in said.split()[1:])
        else:  # killed by the program, or for want of memory
            self._status = -signal.SIGKILL
            self.left = supervisor.end_marked(self._mark)
        self._printed.read()
        self._ended.set()

    def _end_supervisor(self) -> None:
        """Do the work of a supervisor that does not, as one that was stopped."""
        until = time.monotonic() + _PATIENCE
        while supervisor.end_tree(self.pid) and time.monotonic() < until:
            time.sleep(0.01)
        self._process.kill()
        self._ended.wait(_PATIENCE)


def find_program(words: Sequence[str], folder: Path) -> str:
    """Return the path of a program.

    Args:
        words: the program and its arguments.
        folder: where a program that is named with a slash is looked for.

    Raises:
        AgentLoadError: there is none.
    """
    if not words or not words[0]:
        raise AgentLoadError("no program is named")
    name = words[0]
    if any("\0" in word for word in words):
        raise AgentLoadError(f"{name!r}: a word of a command line holds no NUL character")
    if "/" not in name:
        found = shutil.which(name)
        if found is None:
            raise AgentLoadError(
                f"there is no program {name!r} on the PATH"
                + (f"; did you mean './{name}'?" if (folder / name).is_file() else "")
                + ("; a variable is set by 'env NAME=VALUE program'" if "=" in name else "")
            )
        return str(Path(found).absolute())
    path = folder / Path(name).expanduser()
    if not path.is_file():
        what = "is a folder, not a program" if path.is_dir() else "does not exist"
        raise AgentLoadError(f"the program {path} {what}")
    if not os.access(path, os.X_OK):
        raise AgentLoadError(f"the program {path} is not executable; chmod +x makes it so")
    return str(path.absolute())


def said_of_exit(status: int) -> str:
    """Return how a program ended, in words."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
