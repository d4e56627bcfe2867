"""Sockets by which other processes of this user send requests to a process.

A request is a JSON object on one line, and so is its answer. The socket is in a folder that nobody
else can open, so only this user and root can connect. It costs nothing while there are no requests.
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
_MAX_ANSWER = 64 * 1024 * 1024  # bytes, enough for some thousand episodes
_MAX_WAITING = 16  # connections
_REQUEST_TIMEOUT = 2.0  # seconds for a request to arrive, and for its answer to be received
_CLOSE_TIMEOUT = 5.0  # seconds for the thread to end
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SHORTAGE_INTERVAL = 0.2  # seconds until the system may have descriptors again


class NoAnswer(Exception):
    """There was no answer, or it could not be read."""


class ControlSocket:
    """Answers requests on its own thread, one after the other.

    Args:
        path: the path of the socket.
        answer: returns the answer to a request; called on the thread.
        name: the name of the thread.

    Raises:
        OSError: the socket cannot be created.
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
        """Stop answering; may be called twice. Does nothing in a forked child."""
        if self._closing or not self._process.is_this:
            return
        self._closing = True
        with contextlib.suppress(OSError), unix_socket() as waker:
            waker.settimeout(_CLOSE_TIMEOUT)
            waker.connect(str(self._path))  # wake the thread, which waits for a connection
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
                    return  # an agent has closed foreign descriptors, such as this one
                time.sleep(_SHORTAGE_INTERVAL)
                continue
            with connection:
                if self._closing:
                    return
                with contextlib.suppress(Exception):  # a malformed request gets no answer
                    connection.settimeout(_REQUEST_TIMEOUT)
                    request = json.loads(_read_line(connection, _MAX_REQUEST))
                    if isinstance(request, dict):
                        answer = self._answer(request)
                        connection.sendall(json.dumps(answer).encode("ascii") + b"\n")


def run_sockets() -> list[Path]:
    """Return the sockets of this user's running runs on this machine.

    Raises:
        SandboxError: others may open the folder of the sockets.
    """
    return [path for folder in living_folders() for path in sorted(folder.glob(f"*/{RUN_SOCKET}"))]


def ask(path: Path, request: Message, timeout: float) -> Message:
    """Return the answer to a request.

    Args:
        path: the path of the socket.
        request: the request.
        timeout: seconds to wait, for each part of the answer.

    Raises:
        NoAnswer: there is no answer.
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
    """Return the answers to a request that arrive in time, by the paths of their sockets.

    Args:
        paths: the paths of the sockets, which are asked at the same time.
        request: the request.
        timeout: seconds to wait, for all of them together.
    """
    answers: dict[Path, Message] = {}

    def ask_one(path: Path) -> None:
        with contextlib.suppress(NoAnswer):
            answers[path] = ask(path, request, timeout)

    deadline = time.monotonic() + timeout
    # Daemon threads, so that Ctrl-C or the end of a run does not wait for them.
    threads = [threading.Thread(target=ask_one, args=(path,), daemon=True) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(answers)


def _read_line(connection: socket.socket, max_bytes: int) -> bytes:
    """Return the first line.

    Raises:
        ValueError: it is too long, or has no end.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        data = connection.recv(65536)
        line += data
        if not data or len(line) > max_bytes:
            raise ValueError("a line that does not end")
    return bytes(line)
