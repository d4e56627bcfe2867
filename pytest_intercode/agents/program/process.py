"""A program that an agent is or uses; it is ended together with everything that it started.

It runs below a supervisor (:mod:`supervisor` on Linux, otherwise :mod:`portable_supervisor`), which
ends when pytest ends for any reason. A descendant that kills the supervisor on purpose is found by
a mark in its environment.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import secrets
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pytest_intercode.agents.program import supervisor
from pytest_intercode.errors import AgentError, AgentLoadError
from pytest_intercode.system import platform

if TYPE_CHECKING:
    from pytest_intercode.agents.program.process_tree import ProcessTree

__all__ = ["Program", "check_value", "describe_exit", "find_program", "read_command_line"]

_PORTABLE_START = (
    "import sys; sys.path += sys.argv[1:3]; del sys.argv[1:3]; "
    "from pytest_intercode.agents.program.portable_supervisor import main; main()"
)
_END_TIMEOUT = 10.0  # seconds that the supervisor has before it is bypassed
_MAX_KEPT_CHARACTERS = 16 * 1024  # of the beginning of the output, and of its end
_READ_BYTES = 64 * 1024  # the most that is read in one call
_MAX_WORD_BYTES = 128 * 1024 - 1  # the kernel's limit for an argument or variable
_MAX_LAST_LINES = 3  # of the output, in an error message
_MAX_LAST_CHARACTERS = 400  # of these lines


class Program:
    """One run of a program.

    Args:
        words: the program and its arguments; they are not parsed by a shell.
        folder: where it runs; a program name with a slash is relative to this folder.
        variables: environment variables to add to pytest's own; the value None removes one.
        pipes: whether its standard input and output are pipes; otherwise it has no input, and
            its standard output is collected together with its standard error.
        cwd: where it runs, if that is another folder.

    Attributes:
        stdin: the pipe that it reads from.
        stdout: the pipe that it writes to.
        pid: the supervisor's process id.
        survivors: how many of its processes could not be killed at its end, as they belong to
            another user.

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
        variables: Mapping[str, str | None] | None = None,
        pipes: bool = True,
        cwd: Path | None = None,
    ) -> None:
        file = find_program(words, folder)
        mark = secrets.token_hex(16)
        self._mark = f"{supervisor.MARK}={mark}".encode()
        self._adopts_orphans = platform.adopts_orphans()
        self._name = words[0]
        self._owner = os.getpid()
        self._closing = threading.Lock()
        self._closed = False
        self._ended = threading.Event()
        self._status: int | None = None
        self._recent = ""
        self.survivors = 0
        self._control, supervisor_end = socket.socketpair()
        command = [
            *(sys.executable, "-I", "-S"),
            *([supervisor.__file__] if self._adopts_orphans else _portable_supervisor()),
            *(str(supervisor_end.fileno()), file, *words),
        ]
        environment = {**os.environ, **(variables or {}), supervisor.MARK: mark}
        with supervisor_end:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE if pipes else subprocess.STDOUT,
                    cwd=cwd or folder,
                    env={name: value for name, value in environment.items() if value is not None},
                    pass_fds=(supervisor_end.fileno(),),
                    # So that Ctrl-C reaches only pytest, which ends the program itself.
                    start_new_session=True,
                )
            except BaseException as error:
                self._control.close()
                if not isinstance(error, (OSError, ValueError)):
                    raise
                raise AgentError(f"{words[0]} cannot be started: {error}") from None
        self.pid = self._process.pid
        assert self._process.stdout is not None
        if pipes:
            assert self._process.stdin is not None
            self.stdin, self.stdout = self._process.stdin, self._process.stdout
        output = self._process.stderr if pipes else self._process.stdout
        assert output is not None
        self._output = _Output(output)
        # Its output is read all the time, as a full pipe would block the program.
        self._thread = threading.Thread(
            target=self._watch, name=f"intercode-program-{self.pid}", daemon=True
        )
        try:
            self._wait_for_start()
        except BaseException:  # interrupted, and no caller has this object yet to close it
            if self._thread.ident is None:
                self._thread.start()
            self.close()
            raise

    def output(self) -> str:
        """Return its output since the last call; the middle of a long output is omitted."""
        output = self._output.take()
        self._recent = (self._recent + output)[-_MAX_KEPT_CHARACTERS:]
        return output

    def last_lines(self) -> str:
        """Return the last lines of its output as one line, for an error message."""
        lines = [" ".join(line.split()) for line in self._recent.splitlines() if line.strip()]
        return " / ".join(lines[-_MAX_LAST_LINES:])[-_MAX_LAST_CHARACTERS:]

    def wait(self, timeout: float | None) -> int | None:
        """Wait until it and its descendants have ended.

        Args:
            timeout: seconds to wait; None to wait as long as it takes.

        Returns:
            Its exit status, or the negative number of the signal that killed it; None if it is
            still running.
        """
        return self._status if self._ended.wait(timeout) else None

    def kill(self) -> None:
        """Kill it with all its descendants, without waiting for that; its pipes then end."""
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
                self._process.send_signal(signal.SIGCONT)  # the program may have stopped it

    def close(self) -> None:
        """Kill it with all its descendants, and close its files; may be called twice."""
        if os.getpid() != self._owner:
            return  # a forked child has a copy of this object, and does not own the program
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self.kill()
            if not self._ended.wait(_END_TIMEOUT):
                self._bypass_supervisor()
            self._thread.join(_END_TIMEOUT)
            self._process.wait()
            self._control.close()
            self._output.close()
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what it never read is in the buffer
                        pipe.close()

    def _wait_for_start(self) -> None:
        report = b""
        with contextlib.suppress(OSError):
            # Byte by byte, as the report of the program's end may already follow this one.
            while not report.endswith(b"\n") and (piece := self._control.recv(1)):
                report += piece
        self._thread.start()
        if report == b"started\n":
            return
        self._ended.wait(_END_TIMEOUT)
        output = self.output().strip()
        self.close()
        if report.startswith(b"failed "):
            number = int(report.split()[1])
            reason = os.strerror(number)
            if number == 8:  # ENOEXEC
                reason += "; a script begins with a line like '#!/usr/bin/env python3'"
        else:
            reason = "its supervisor ended" + (f": {output.splitlines()[-1]}" if output else "")
        raise AgentError(f"{self._name} cannot be started: {reason}")

    def _watch(self) -> None:
        """Collect its output and wait for the report of its end, until the supervisor ends."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._output, select.POLLIN)
        report = b""
        while True:
            for number, _ in poll.poll():
                if number != self._control.fileno():
                    if not self._output.read():
                        poll.unregister(self._output)
                    continue
                piece = b""
                with contextlib.suppress(OSError):
                    piece = self._control.recv(4096)
                report += piece
                if not piece:
                    self._end(report)
                    return

    def _end(self, report: bytes) -> None:
        if report.startswith(b"exit "):
            self._status, self.survivors = (int(number) for number in report.split()[1:])
        else:  # the supervisor was killed by the program, or for lack of memory
            self._status = -signal.SIGKILL
            self.survivors = self._end_marked()
        self._output.read()
        self._ended.set()

    def _bypass_supervisor(self) -> None:
        """Do the work of a supervisor that does not react, for example because it was stopped."""
        deadline = time.monotonic() + _END_TIMEOUT
        while self._end_tree() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._process.kill()
        self._ended.wait(_END_TIMEOUT)

    def _end_tree(self) -> int:
        """Kill all processes below the supervisor; return how many were still alive."""
        return supervisor.end_tree(self.pid) if self._adopts_orphans else self._tree().end(0)

    def _end_marked(self) -> int:
        """Kill all processes that an ended supervisor has left; return how many remain."""
        if self._adopts_orphans:
            return supervisor.end_marked(self._mark)
        return self._tree().end(supervisor.KILL_TIMEOUT)

    def _tree(self) -> ProcessTree:
        from pytest_intercode.agents.program.process_tree import ProcessTree

        return ProcessTree(self.pid, self._mark)


def _portable_supervisor() -> list[str]:
    """Return Python's arguments to run it, with the folders that ``-I -S`` would hide."""
    import psutil

    package_folder, psutil_folder = Path(__file__).parents[3], Path(psutil.__file__).parents[1]
    return ["-c", _PORTABLE_START, str(package_folder), str(psutil_folder)]


class _Output:
    """A pipe that is read immediately, so that the program never blocks; keeps a bounded amount."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._file = pipe.fileno()
        os.set_blocking(self._file, False)
        self._lock = threading.Lock()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._closed = False
        self._head = self._tail = ""
        self._dropped = 0

    def fileno(self) -> int:
        return self._file

    def read(self) -> bool:
        """Read the available output; return False at the end of the pipe."""
        with self._lock:
            return self._read()

    def take(self) -> str:
        """Return the output since the last call, including what is still in the pipe."""
        with self._lock:
            self._read()
            dropped = self._dropped + max(0, len(self._tail) - _MAX_KEPT_CHARACTERS)
            notice = f"\n[... {dropped} characters ...]\n" if dropped else ""
            text = f"{self._head}{notice}{self._tail[-_MAX_KEPT_CHARACTERS:]}"
            self._head = self._tail = ""
            self._dropped = 0
            return text

    def close(self) -> None:
        """Stop reading; the owner of the pipe closes it."""
        with self._lock:
            self._closed = True  # the descriptor's number may be reused soon

    def _read(self) -> bool:
        for _ in range(64):  # it may write faster than this reads
            if self._closed:
                return False
            try:
                piece = os.read(self._file, _READ_BYTES)
            except BlockingIOError:
                return True
            if not piece:
                return False
            text = self._decoder.decode(piece)
            room = _MAX_KEPT_CHARACTERS - len(self._head)
            self._head += text[:room]
            self._tail += text[room:]
            if len(self._tail) > 4 * _MAX_KEPT_CHARACTERS:
                self._dropped += len(self._tail) - _MAX_KEPT_CHARACTERS
                self._tail = self._tail[-_MAX_KEPT_CHARACTERS:]
        return True


def read_command_line(
    name: str, line: str, folder: Path, placeholders: Mapping[str, str] | None = None
) -> list[str]:
    """Return the words of an agent's command line, after checking that its program exists.

    Args:
        name: the value of ``--intercode-agent``, for messages.
        line: the part of that value after the first word.
        folder: the folder to which a program name with a slash is relative.
        placeholders: texts to replace and their values, applied to each word separately.

    Raises:
        AgentLoadError: the line cannot be split into words, or there is no such program.
    """
    try:
        words = shlex.split(line)
        for placeholder, value in (placeholders or {}).items():
            words = [word.replace(placeholder, value) for word in words]
        find_program(words, folder)
    except ValueError as error:
        raise AgentLoadError(
            f"--intercode-agent={name}: this is not a command line: {error}"
        ) from None
    except AgentLoadError as error:
        raise AgentLoadError(f"--intercode-agent={name}: {error}") from None
    return words


def find_program(words: Sequence[str], folder: Path) -> str:
    """Return the path of a program.

    Args:
        words: the program and its arguments.
        folder: the folder to which a program name with a slash is relative.

    Raises:
        AgentLoadError: there is no such program.
    """
    if not words or not words[0]:
        raise AgentLoadError("no program is given")
    name = words[0]
    if any("\0" in word for word in words):
        raise AgentLoadError(f"{name!r}: a word of a command line cannot contain a NUL character")
    if "/" not in name:
        executable = shutil.which(name)
        if executable is None:
            raise AgentLoadError(
                f"there is no program {name!r} on the PATH"
                + (f"; did you mean './{name}'?" if (folder / name).is_file() else "")
                + ("; use 'env NAME=VALUE program' to set a variable" if "=" in name else "")
            )
        return str(Path(executable).absolute())
    path = folder / Path(name).expanduser()
    if not path.is_file():
        problem = "is a folder, not a program" if path.is_dir() else "does not exist"
        raise AgentLoadError(f"the program {path} {problem}")
    if not os.access(path, os.X_OK):
        raise AgentLoadError(f"the program {path} is not executable; run chmod +x on it")
    return str(path.absolute())


def describe_exit(status: int) -> str:
    """Return how a program ended: ``exited with status 1``, ``was killed by SIGTERM``."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def check_value(name: str, value: str) -> str:
    """Return a value if it can be put into a command line or an environment variable.

    Raises:
        AgentError: it cannot.
    """
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise AgentError(
            f"the task's {name} has half a surrogate pair, which is not text"
        ) from None
    if "\0" in value:
        raise AgentError(f"the task's {name} has a NUL, which no command line can hold")
    if size > _MAX_WORD_BYTES - len("INTERCODE_PROMPT="):
        raise AgentError(f"the task's {name} has {size} bytes; a program's word may have 128 KiB")
    return value
