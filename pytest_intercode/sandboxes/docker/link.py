"""Clients of Docker engines, and the SSH clients that lead to some of them.

SSH is the system's own client, so that its configuration applies: it forwards one of our sockets to
the engine's. The SDK can start that client too (``use_ssh_client``), but starts one for each
connection. Such a client needs ``docker`` on the other machine and outlives us, and ``poll`` cannot
wait for it.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.docker.address import DEFAULT_SOCKET, Address
from pytest_intercode.sandboxes.docker.errors import ANSWER_TIMEOUT, client_errors, explain
from pytest_intercode.sandboxes.settings import split_url
from pytest_intercode.system.forks import close_in_children
from pytest_intercode.system.private_folder import PrivateFolder

if TYPE_CHECKING:
    from docker import APIClient
    from docker.tls import TLSConfig

__all__ = ["Link"]

_API_TIMEOUT = 60  # seconds for requests that may take a while
_MIN_API_VERSION = (1, 40)  # older engines do not accept a list of read-only paths
_SSH_OPTIONS = (
    *("BatchMode=yes", "ExitOnForwardFailure=yes", f"ConnectTimeout={ANSWER_TIMEOUT}"),
    *("ServerAliveInterval=5", "ServerAliveCountMax=3", "ControlMaster=no", "ControlPath=none"),
)
# The client ends with its input, which is one of our pipes, and so ends with us in any case.
_SUPERVISED_SCRIPT = """
exec 3<&0
"$@" </dev/null 3<&- & client=$!
{ read -r _ <&3; kill $client; } & reader=$!
wait $client
kill $reader
"""


class Link:
    """The clients of one engine.

    Args:
        address: where it is.
        timeout: seconds for the answer to each request; by default, each client has its own.

    Attributes:
        address: where it is.
        api: a client for requests that may take a while.
        probe: a client for requests that have to be answered soon.

    Raises:
        EngineUnavailable: it does not answer in time, or is too old; the message is one line, which
            names it only if the user has not.
    """

    def __init__(self, address: Address, timeout: int | None = None) -> None:
        from docker import APIClient
        from docker.errors import DockerException

        self.address = address
        self._timeout = timeout
        self._tunnel = Tunnel(address) if address.url.startswith("ssh://") else None
        self._url = self._tunnel.url if self._tunnel else address.url
        try:
            tls = address.tls()
            with self.explained_failures():
                version = self._read_api_version(tls)
            self.api, self.probe = (
                APIClient(self._url, version=version, timeout=timeout or seconds, tls=tls)
                for seconds in (_API_TIMEOUT, ANSWER_TIMEOUT)
            )
        except BaseException as error:
            if self._tunnel:
                self._tunnel.close()
            if isinstance(error, DockerException):  # certificates that cannot be read
                raise EngineUnavailable(address.introduce(str(error))) from None
            raise
        _ignore_environment(self.api)
        _ignore_environment(self.probe)

    def _read_api_version(self, tls: TLSConfig | bool) -> str:
        """Return the version of the engine's API.

        Raises:
            EngineUnavailable: the engine is too old.
        """
        from docker import APIClient

        self._try_socket()
        oldest = ".".join(map(str, _MIN_API_VERSION))
        # This machine's only engine may be busy with sandboxes; of several hosts, a late one is
        # left out.
        timeout = self._timeout or (ANSWER_TIMEOUT if self.address.name else _API_TIMEOUT)
        # With a fixed version, as the SDK would ask for it before `trust_env` can be set.
        api = APIClient(self._url, version=oldest, timeout=timeout, tls=tls)
        with contextlib.closing(api):
            _ignore_environment(api)
            version = str(api.version(api_version=False).get("ApiVersion", ""))
        numbers = tuple(int(word) if word.isdigit() else 0 for word in version.split("."))
        if numbers < _MIN_API_VERSION:
            problem = f"the engine is too old: its API is of version {version or '(none)'}, but "
            problem += f"{oldest} is needed (Docker 19.03, Podman 3)"
            raise EngineUnavailable(self.address.introduce(problem))
        return version

    def _try_socket(self) -> None:
        """Connect to a socket before the SDK does, which leaks its own if nothing answers."""
        if self._url.startswith("unix://"):
            with socket.socket(socket.AF_UNIX) as trial:
                trial.settimeout(self._timeout or ANSWER_TIMEOUT)
                trial.connect(self._url.removeprefix("unix://"))

    @contextlib.contextmanager
    def explained_failures(self) -> Iterator[None]:
        """Report in one line why the engine does not answer.

        Raises:
            EngineUnavailable: instead of what the SDK and its HTTP library raise.
        """
        try:
            yield
        except client_errors(OSError) as error:
            problem = explain(error, self.address, self._timeout or ANSWER_TIMEOUT)
            last_line = self._tunnel.last_line() if self._tunnel else ""
            raise type(problem)(f"{problem} ({last_line})" if last_line else f"{problem}") from None

    def renew(self) -> None:
        """Restart the SSH client if it has ended; the API clients remain the same.

        Raises:
            EngineUnavailable: it does not connect.
        """
        if self._tunnel is not None:
            self._tunnel.renew()

    def ask(self) -> None:
        """Check that the engine answers.

        Raises:
            EngineUnavailable: it does not.
        """
        with self.explained_failures():
            self.renew()
            self._try_socket()
            self.probe.ping()

    def close(self) -> None:
        """Close the clients."""
        self.api.close()
        self.probe.close()
        if self._tunnel is not None:
            self._tunnel.close()


def _ignore_environment(api: APIClient) -> None:
    """Ignore environment variables: REQUESTS_CA_BUNDLE would replace the certificate authority.

    A socket does not need a proxy either. To look for one, the library goes through the variables
    at each request, which is slow, and fails if another thread changes them at that time.
    """
    api.trust_env = False


class Tunnel:
    """One of our sockets, which the system's SSH client forwards to an engine's.

    Args:
        address: its URL is ``ssh://[USER@]HOST[:PORT][/PATH]``, with the path of the engine's
            socket.

    Attributes:
        url: the URL of our socket.

    Raises:
        EngineUnavailable: there is no SSH client, or it does not connect.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        try:
            parts = split_url(address.url)
        except ValueError:
            form = "ssh://[USER@]HOST[:PORT][/SOCKET]"
            raise self._failure(f"{form} is needed, without a password") from None
        if not shutil.which("ssh"):
            raise self._failure("it needs ssh, which this machine does not have")
        self._private = PrivateFolder()
        folder = self._private.make()
        self._socket = folder / "engine.sock"
        self._log = folder / "log"
        self.url = f"unix://{self._socket}"
        remote_socket = parts.path if parts.path not in ("", "/") else DEFAULT_SOCKET
        options = [word for option in _SSH_OPTIONS for word in ("-o", option)]
        options += ["-p", str(parts.port)] if parts.port else []
        options += ["-l", parts.username] if parts.username else []
        self._command = ["ssh", "-nNT", *options, "-L", f"{self._socket}:{remote_socket}"]
        self._command += ["--", parts.hostname or ""]
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()  # held until it is connected, or has ended for good
        self._closed = False
        close_in_children(self)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _failure(self, problem: str) -> EngineUnavailable:
        return EngineUnavailable(self._address.introduce(problem))

    def _start(self) -> None:
        self._socket.unlink(missing_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _SUPERVISED_SCRIPT, "sh", *self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us, and we still need it then
            )
        deadline = time.monotonic() + ANSWER_TIMEOUT + 1
        while not self._socket.exists():
            if self._closed:
                raise self._failure("ssh: it was closed")
            if time.monotonic() > deadline:
                raise self._failure(f"ssh: no answer within {ANSWER_TIMEOUT} seconds")
            if self._has_ended():
                raise self._failure(f"ssh: {self.last_line().removeprefix('ssh: ') or 'it ended'}")
            time.sleep(0.02)

    def _has_ended(self) -> bool:
        """Whether the SSH client has ended."""
        return self._process is None or self._process.poll() is not None

    def renew(self) -> None:
        """Start the client again if it has ended; from any thread.

        Raises:
            EngineUnavailable: it does not connect, or was closed.
        """
        with self._starting:
            if self._closed:
                raise self._failure("ssh: it was closed")
            if self._has_ended():
                self._stop()
                self._start()

    def last_line(self) -> str:
        """Return the last line that the client wrote."""
        with contextlib.suppress(OSError):
            lines = self._log.read_text("utf-8", "replace").split("\n")
            return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")
        return ""

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ANSWER_TIMEOUT)

    def close_copies(self) -> None:
        """Close the copy of the pipe in a forked child; the client remains its parent's."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.returncode = 0

    def close(self) -> None:
        """End the client for good."""
        self._closed = True  # before the lock, so that a start in another thread gives up
        with self._starting:
            self._stop()
        self._private.close()
