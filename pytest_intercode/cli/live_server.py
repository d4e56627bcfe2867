"""The server of ``pytest-intercode top --page``: one page, only for this user's browser.

It listens on 127.0.0.1, which every account of the machine and every site in a browser may try to
reach. So each path begins with a random token; the requested host has to be a local name of this
machine, because a site could make its own name lead here (DNS rebinding); and a request that stops
something has to come from the page itself.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from pytest_intercode.cli.living_runs import Runs, find_runs, stop_episode, stop_run
from pytest_intercode.cli.printing import note
from pytest_intercode.errors import ConfigurationError, IntercodeError
from pytest_intercode.page.live import describe_runs, live_document

__all__ = ["LiveServer"]

_TOKEN_BYTES = 32
_MAX_REQUEST = 64 * 1024  # bytes of a request's body
_MAX_CONNECTIONS = 32  # at a time; a browser uses six
_REQUEST_TIMEOUT = 5.0  # seconds for each part of a request
_SHARED_INTERVAL = 0.5  # seconds in which several pages share an answer
_STOP_INTERVAL = 0.1  # seconds between two checks whether to stop
_HOSTS = ("127.0.0.1", "localhost")
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class LiveServer:
    """The server.

    Args:
        pid: the process number of the run that it shows; None for all runs of this user.
        port: the port on which it listens; 0 for any free port.

    Attributes:
        address: the address of the page, with its token.

    Raises:
        ConfigurationError: it cannot listen there.
    """

    def __init__(self, pid: int | None, port: int = 0) -> None:
        self._pid = pid
        self._token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._code: str | None = None
        self._document = live_document()
        self._code_lock = threading.Lock()
        self._runs_lock = threading.Lock()  # held while runs are asked
        self._asked: tuple[float, Runs, list[str]] | None = None
        try:
            self._server = _Server(("127.0.0.1", port), self._answer)
        except (OSError, OverflowError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
            raise ConfigurationError(
                f"--port={port}: the page cannot be served there: {reason}; leave --port out to "
                "use any free port"
            ) from None
        self._origin = f"http://127.0.0.1:{self._server.server_port}"
        self.address = f"{self._origin}/{self._token}/"

    def address_for_browser(self) -> str:
        """Return an address that leads to the page only once.

        A browser is started with it as an argument, which other accounts of the machine can read.
        """
        self._code = secrets.token_urlsafe(_TOKEN_BYTES)
        return f"{self._origin}/open/{self._code}"

    def serve(self) -> None:
        """Answer until :meth:`stop`, or until Ctrl-C in the main thread."""
        try:
            self._server.serve_forever(_STOP_INTERVAL)
        finally:
            self._server.server_close()

    def stop(self) -> None:
        """Make :meth:`serve` return, from another thread; may be called twice."""
        self._server.shutdown()

    # -- on a connection's thread

    def _answer(self, request: _Request) -> None:
        host = request.headers.get("Host", "")
        if host.partition(":")[0] not in _HOSTS:
            request.refuse(HTTPStatus.MISDIRECTED_REQUEST)
            return
        method, path = request.command, request.path
        if method == "GET" and self._is_code(path):
            request.send(HTTPStatus.SEE_OTHER, {"Location": f"/{self._token}/"})
            return
        token, slash, rest = path[1:].partition("/")
        name = slash + rest
        if not _is_same(token, self._token):
            request.refuse(HTTPStatus.NOT_FOUND)
        elif (method, name) == ("GET", "/"):
            policy = {"Content-Security-Policy": self._document.policy}
            request.send(HTTPStatus.OK, policy, self._document.html, "text/html; charset=utf-8")
        elif (method, name) == ("GET", "/status"):
            request.send_json(self._status())
        elif (method, name) == ("POST", "/stop"):
            kind = request.headers.get("Content-Type")
            # A form on another site cannot send JSON, and a script there has another origin.
            if request.headers.get("Origin") != f"http://{host}" or kind != "application/json":
                request.refuse(HTTPStatus.FORBIDDEN)
            else:
                request.send_json(self._stop(request.read_json()))
        else:
            request.refuse(HTTPStatus.NOT_FOUND)

    def _is_code(self, path: str) -> bool:
        """Whether a path is the one that leads to the page once; it is then no longer valid."""
        with self._code_lock:
            if self._code is None or not _is_same(path, f"/open/{self._code}"):
                return False
            self._code = None
            return True

    def _status(self) -> dict[str, Any]:
        try:
            runs, notes = self._runs()
        except IntercodeError as error:
            runs, notes = {}, [str(error)]
        status = describe_runs(list(runs.values()), notes)
        if self._pid is not None and not runs and not notes:
            status["title"] = f"Run {self._pid} is over"
        return status

    def _runs(self, max_age: float = _SHARED_INTERVAL) -> tuple[Runs, list[str]]:
        """Return the runs, and lines about those that do not answer.

        However many pages ask, only one of them at a time asks the runs.
        """
        with self._runs_lock:
            if self._asked is None or time.monotonic() - self._asked[0] > max_age:
                notes: list[str] = []
                runs = find_runs(None, notes.append)
                if self._pid is not None:
                    runs = {path: run for path, run in runs.items() if run.pid == self._pid}
                self._asked = time.monotonic(), runs, notes
            return self._asked[1:]

    def _stop(self, request: Mapping[str, Any]) -> dict[str, str]:
        """Stop the run or the episode that the page names; return a sentence, or why not."""
        try:
            runs, _ = self._runs(max_age=0.0)
            pid, name = request.get("run"), request.get("episode")
            own_runs = {path: status for path, status in runs.items() if status.pid == pid}
            if own_runs and name is None:
                return {"message": stop_run(own_runs)}
            episodes = [episode for status in own_runs.values() for episode in status.episodes]
            if name not in [episode.item for episode in episodes]:
                return {"problem": "it is over"}
            return {"message": stop_episode(str(name), own_runs)}
        except IntercodeError as error:
            return {"problem": str(error)}


class _Request(BaseHTTPRequestHandler):
    """One request, and its answer."""

    server: _Server
    timeout = _REQUEST_TIMEOUT
    server_version = "pytest-intercode"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer the request."""
        self.server.answer(self)

    do_POST = do_GET

    def read_json(self) -> dict[str, Any]:
        """Return the object that was sent; an empty one if it is not an object."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MAX_REQUEST:
            return {}
        try:
            value = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def send_json(self, value: Mapping[str, Any]) -> None:
        """Answer with an object."""
        self.send(HTTPStatus.OK, {}, json.dumps(value), "application/json")

    def refuse(self, status: HTTPStatus) -> None:
        """Answer that the request is refused."""
        self.send(status, {}, f"{status.phrase}\n", "text/plain; charset=utf-8")

    def send(
        self, status: HTTPStatus, headers: Mapping[str, str], text: str = "", kind: str = ""
    ) -> None:
        """Send an answer."""
        content = text.encode("utf-8")
        self.send_response(status)
        for name, value in {**_HEADERS, **headers}.items():
            self.send_header(name, value)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because each path contains the token."""


class _Server(ThreadingHTTPServer):
    """Serves each connection on its own thread, with a limit on their number.

    Args:
        address: the address on which it listens.
        answer: answers a request.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], answer: Callable[[_Request], None]) -> None:
        self.answer = answer
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__(address, _Request)

    def server_bind(self) -> None:
        """Bind the port without looking up this machine's name, which may take long."""
        TCPServer.server_bind(self)
        self.server_port = self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, if the limit allows one more."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system has no more threads
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless it is of a browser that has gone."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            note(f"the page: {type(error).__name__}: {error}")


def _is_same(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode("utf-8"))
