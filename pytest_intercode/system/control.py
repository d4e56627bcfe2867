"""Sockets by which other processes of this user ask a process something, and tell it something.

A request is a JSON object on a line, and so is its answer. The socket is in a folder that nobody
else can open, so who can connect is this user, or root. It costs nothing while nobody asks.
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pytest_intercode.system.forks import MakingProcess, close_in_children
from pytest_intercode.system.platform import unix_socket
from pytest_intercode.system.private_folder import living_folders

__all__ = ["RUN_SOCKET", "Answer", "ControlSocket", "NoAnswer", "ask", "ask_all", "run_sockets"]

RUN_SOCKET = "run.sock"
"""The name of the socket of a run of pytest; the processes of pytest-xdist have others."""

Message: TypeAlias = "dict[str, Any]"
Answer: TypeAlias = Callable[[Mapping[str, Any]], Message]

_MAX_REQUEST = 64 * 1024  # bytes
_MAX_ANSWER = 64 * 1024 * 1024  # bytes: some thousand episodes
_MAX_WAITING = 16  # connections
_REQUEST_TIMEOUT = 2.0  # seconds for a request to come, and for its answer to be taken
_CLOSE_TIMEOUT = 5.0  # seconds for the thread to end
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SHORTAGE_INTERVAL = 0.2  # seconds until the system may have descriptors again


class NoAnswer(Exception):
    """Nobody answered, or nothing that can be read."""


class ControlSocket:
    """Answers requests on a thread of its own, one after the other.

    Args:
        path: where the socket is made.
        answer: returns the answer to a request; called on the thread.
        name: of the thread.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, path: Path, answer: Answer, *, name: str) -> None:
        self._path = path
        self._answer = answer
        self._closing = False
        self._process = MakingProcess()
        self._listener = unix_socket()
        try:
            self._listener.bind(str(path))
            path.chmod(0o600)
            self._listener.listen(_MAX_WAITING)
        except BaseException:
            self._listener.close()
            raise
        close_in_children(self)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def close_copies(self) -> None:
        """Close a forked child's copy of the socket."""
        self._listener.close()

    def close(self) -> None:
        """Answer nothing more; may be called twice. Does nothing in a forked child."""
        if self._closing or not self._process.is_this:
            return
        self._closing = True
        with contextlib.suppress(OSError), unix_socket() as waker:
            waker.settimeout(_CLOSE_TIMEOUT)
            waker.connect(str(self._path))  # the thread waits for somebody to connect
        self._thread.join(_CLOSE_TIMEOUT)
        with contextlib.suppress(OSError):  # an agent may have closed it
            self._listener.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    return  # an agent that closes descriptors which are not its own
                time.sleep(_SHORTAGE_INTERVAL)
                continue
            with connection:
                if self._closing:
                    return
                with contextlib.suppress(Exception):  # one that asks wrongly gets no answer
                    connection.settimeout(_REQUEST_TIMEOUT)
                    request = json.loads(_read_line(connection, _MAX_REQUEST))
                    if isinstance(request, dict):
                        answer = self._answer(request)
                        connection.sendall(json.dumps(answer).encode("ascii") + b"\n")


def run_sockets() -> list[Path]:
    """Return the sockets of the runs of this user that live on this machine.

    Raises:
        SandboxError: others may open the folder that they are in.
    """
    return [path for folder in living_folders() for path in sorted(folder.glob(f"*/{RUN_SOCKET}"))]


def ask(path: Path, request: Message, timeout: float) -> Message:
    """Return the answer to a request.

    Args:
        path: of the socket.
        request: the request.
        timeout: seconds to wait, for each part of the answer.

    Raises:
        NoAnswer: there is none.
    """
    try:
        with unix_socket() as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode("ascii") + b"\n")
            answer = json.loads(_read_line(connection, _MAX_ANSWER))
    except (OSError, ValueError, RecursionError) as error:
        raise NoAnswer(str(error)) from None
    if not isinstance(answer, dict):
        raise NoAnswer("the answer is not an object")
    return answer


def ask_all(paths: Iterable[Path], request: Message, timeout: float) -> dict[Path, Message]:
    """Return the answers to a request by the sockets of those that answer in time.

    Args:
        paths: of the sockets, which are asked at the same time.
        request: the request.
        timeout: seconds to wait, for all of them together.
    """
    answers: dict[Path, Message] = {}

    def ask_one(path: Path) -> None:
        with contextlib.suppress(NoAnswer):
            answers[path] = ask(path, request, timeout)

    deadline = time.monotonic() + timeout
    # Ctrl-C, or the end of a run, waits for none of them.
    threads = [threading.Thread(target=ask_one, args=(path,), daemon=True) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(answers)


def _read_line(connection: socket.socket, max_bytes: int) -> bytes:
    """Return what comes before the first line end.

    Raises:
        ValueError: it is too much, or has no end.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        data = connection.recv(65536)
        line += data
        if not data or len(line) > max_bytes:
            raise ValueError("a line that does not end")
    return bytes(line)
