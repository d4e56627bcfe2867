"""Where Docker engines are: how hosts are written, Docker's contexts, and a client for each.

An engine is reached by a socket of this machine (``unix://``), by TCP, with TLS or without
(``tcp://``), or by SSH (``ssh://``), as the docker SDK writes them; a name without ``://`` is that
of a context of Docker's. SSH is the system's own client, so that its configuration holds: it leads
one of our sockets to the engine's.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.errors import ConfigurationError, EngineUnavailable, suggestion
from pytest_intercode.sandboxes.hosts import FORMS, split_url
from pytest_intercode.system.forks import close_in_children
from pytest_intercode.system.private_folder import PrivateFolder

if TYPE_CHECKING:
    from docker import APIClient
    from docker.tls import TLSConfig

__all__ = [
    *("API_TIMEOUT", "ANSWER_TIMEOUT", "Address", "Link"),
    *("find_address", "link_failure", "try_socket"),
]

API_TIMEOUT = 60
ANSWER_TIMEOUT = 10
"""Seconds in which an engine has to answer when it is first asked, and when it is looked after."""

_CERTIFICATES = ("ca", "cert", "key")
_MIN_API_VERSION = (1, 40)  # of its API; engines before it take no list of paths that are read-only
_SSH_SOCKET = "/var/run/docker.sock"
_SSH_OPTIONS = (
    *("BatchMode=yes", "ExitOnForwardFailure=yes", f"ConnectTimeout={ANSWER_TIMEOUT}"),
    *("ServerAliveInterval=5", "ServerAliveCountMax=3", "ControlMaster=no", "ControlPath=none"),
)
_SOURCE_LOCATION = re.compile(r"\s*\(_ssl\.c:\d+\)")  # in OpenSSL's words
# The client ends with its input, which is one of our pipes, and so with us, however we end.
_SUPERVISED_SCRIPT = """
exec 3<&0
"$@" </dev/null 3<&- & client=$!
{ read -r _ <&3; kill $client; } & reader=$!
wait $client
kill $reader
"""


@dataclass(frozen=True)
class Address:
    """Where an engine is, and by which certificates it is reached; plain data.

    Attributes:
        name: what the user calls it.
        url: its address.
        certificates: a folder's ``ca.pem``, ``cert.pem`` and ``key.pem``; empty for none.
        verify: whether the engine's certificate is checked.
    """

    name: str
    url: str
    certificates: tuple[str, str, str] | tuple[()] = ()
    verify: bool = True

    @property
    def is_local(self) -> bool:
        """Whether the engine sees this machine's files."""
        return self.url.startswith("unix://")

    def to_json(self) -> dict[str, Any]:
        """Return it as builtins."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Address:
        """Return what :meth:`to_json` gave."""
        return cls(**{**fields, "certificates": tuple(fields["certificates"])})

    def tls(self) -> TLSConfig | bool:
        """Return what the SDK takes for TLS; False for none."""
        from docker.tls import TLSConfig

        if not self.certificates:
            return False
        authority, certificate, key = self.certificates
        return TLSConfig(
            client_cert=(certificate, key), ca_cert=authority, verify=self.verify or None
        )


def find_address(name: str) -> Address:
    """Return where a host is.

    Args:
        name: its address, or the name of a context.

    Raises:
        ConfigurationError: there is no such context, or it cannot be used.
    """
    if "://" in name:
        return _add_certificates(name, name)
    if name == "default":
        return _add_certificates(name, os.environ.get("DOCKER_HOST") or f"unix://{_SSH_SOCKET}")
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "contexts"
    digest = hashlib.sha256(name.encode()).hexdigest()
    try:
        context = folder / "meta" / digest / "meta.json"
        if not context.is_file():
            contexts = ["default", *sorted(map(_context_name, folder.glob("meta/*/meta.json")))]
            raise ConfigurationError(
                f"there is no such Docker context in {folder}. There are: {', '.join(contexts)}."
                f"{suggestion(name, contexts)} An address has a ://"
            )
        endpoint = json.loads(context.read_bytes())["Endpoints"]["docker"]
        url, verify = str(endpoint["Host"]), not endpoint.get("SkipTLSVerify")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"the Docker context cannot be read ({type(error).__name__}: {error})"
        ) from None
    try:
        split_url(url)
    except ValueError:
        raise ConfigurationError(
            f"the Docker context leads to {url!r:.80}; {FORMS.partition(' or ')[0]} are known"
        ) from None
    files = tuple(folder / "tls" / digest / "docker" / f"{name}.pem" for name in _CERTIFICATES)
    if not any(path.is_file() for path in files):
        return Address(name, url)
    return Address(name, url, _check_certificates(files), verify)


def _context_name(path: Path) -> str:
    try:
        return str(json.loads(path.read_bytes())["Name"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{path.parent.name} (cannot be read)"


def _check_certificates(files: Iterable[Path]) -> tuple[str, str, str]:
    """Return the paths of certificates.

    Raises:
        ConfigurationError: one is not there.
    """
    files = tuple(files)
    for path in files:
        if not path.is_file():
            raise ConfigurationError(
                f"{path} is not there; ca.pem, cert.pem and key.pem have to be in one folder, that "
                "of DOCKER_CERT_PATH or of the context"
            )
    authority, certificate, key = map(str, files)
    return authority, certificate, key


def _add_certificates(name: str, url: str) -> Address:
    """Return an address with the certificates that the environment names, as the SDK has it.

    Raises:
        ConfigurationError: one of them is not there.
    """
    verify = bool(os.environ.get("DOCKER_TLS_VERIFY"))
    folder = os.environ.get("DOCKER_CERT_PATH") or ""
    if not url.startswith("tcp://") or not (verify or folder):
        return Address(name, url)
    certificate_folder = Path(folder) if folder else Path.home() / ".docker"
    files = [certificate_folder / f"{stem}.pem" for stem in _CERTIFICATES]
    return Address(name, url, _check_certificates(files), verify)


class Link:
    """The clients of one engine.

    Args:
        address: where it is.

    Attributes:
        api: a client for what may take a while.
        probe: a client for what has to be answered soon.

    Raises:
        EngineUnavailable: it does not answer in time, or it is too old; one line, which does not
            name it.
    """

    def __init__(self, address: Address) -> None:
        from docker import APIClient

        self.address = address
        self._tunnel = Tunnel(address.url) if address.url.startswith("ssh://") else None
        try:
            url = self._tunnel.url if self._tunnel else address.url
            tls = address.tls()
            with link_failure(self):
                version = _read_api_version(url, tls)
            clients = (
                APIClient(url, version=version, timeout=seconds, tls=tls)
                for seconds in (API_TIMEOUT, ANSWER_TIMEOUT)
            )
            self.api, self.probe = clients
        except BaseException as error:
            if self._tunnel:
                self._tunnel.close()
            from docker.errors import DockerException

            if isinstance(error, DockerException):  # certificates that cannot be read
                raise EngineUnavailable(f"{error}") from None
            raise
        _ignore_environment(self.api)
        _ignore_environment(self.probe)

    def last_line(self) -> str:
        """Return what the SSH client wrote last."""
        return self._tunnel.last_line() if self._tunnel else ""

    def renew(self) -> None:
        """Have an SSH client that ended started again; the clients stay the same."""
        if self._tunnel is not None:
            self._tunnel.renew()

    def ask(self) -> None:
        """See that the engine answers; raises whatever the SDK does if it does not."""
        self.renew()
        try_socket(self._tunnel.url if self._tunnel else self.address.url)
        self.probe.ping()

    def close(self) -> None:
        """Close the clients."""
        self.api.close()
        self.probe.close()
        if self._tunnel is not None:
            self._tunnel.close()


def try_socket(url: str) -> None:
    """Connect to a socket here before the SDK does, which leaves its own open if nobody answers."""
    if url.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as trial:
            trial.settimeout(ANSWER_TIMEOUT)
            trial.connect(url.removeprefix("unix://"))


def _read_api_version(url: str, tls: TLSConfig | bool) -> str:
    """Return the version of an engine's API.

    Raises:
        EngineUnavailable: it is too old.
    """
    from docker import APIClient

    try_socket(url)
    oldest = ".".join(map(str, _MIN_API_VERSION))
    with contextlib.closing(APIClient(url, version=oldest, timeout=ANSWER_TIMEOUT, tls=tls)) as api:
        _ignore_environment(api)
        version = str(api.version(api_version=False).get("ApiVersion", ""))
    numbers = tuple(int(word) if word.isdigit() else 0 for word in version.split("."))
    if numbers < _MIN_API_VERSION:
        raise EngineUnavailable(
            f"the engine is too old: its API is of version {version or '(none)'}, and {oldest} is "
            "needed (Docker 19.03, Podman 3)"
        )
    return version


def _ignore_environment(api: APIClient) -> None:
    """Let no environment variable have a say: REQUESTS_CA_BUNDLE would replace the authority.

    Looking for a proxy walks through them at each request; see `engine.connect`.
    """
    api.trust_env = False


@contextlib.contextmanager
def link_failure(link: Link) -> Iterator[None]:
    """Say in one line why an engine does not answer.

    Raises:
        EngineUnavailable: instead of what the SDK and its HTTP library raise.
    """
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except (DockerException, RequestException, OSError) as error:
        last_line = link.last_line()
        raise EngineUnavailable(
            _explain(error, link.address) + (last_line and f" ({last_line})")
        ) from None


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those below it, which other libraries hide in arguments and contexts."""
    visited: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        candidate = waiting.pop(0)
        if isinstance(candidate, BaseException) and id(candidate) not in visited:
            visited.add(id(candidate))
            yield candidate
            waiting += [*candidate.args, getattr(candidate, "reason", None)]
            waiting += [candidate.__cause__, candidate.__context__]


def _explain(error: Exception, address: Address) -> str:
    """Return why an engine cannot be used, in one line."""
    from requests import exceptions

    causes = list(_iterate_causes(error))
    explanation = " ".join(str(getattr(error, "explanation", None) or error).split())
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            authority = address.certificates[0] if address.certificates else ""
            return f"TLS: its certificate is not accepted: {cause.verify_message} ({authority})"
        if isinstance(cause, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(cause):
            return "TLS: the engine speaks none there; leave out DOCKER_TLS_VERIFY, or fix the port"
        if isinstance(cause, ssl.SSLError) and "PEM" in str(cause) and address.certificates:
            return f"TLS: {' or '.join(address.certificates[1:])} is none, or the two do not match"
        if isinstance(cause, ssl.SSLError):
            certificate = address.certificates[1] if address.certificates else "none"
            reason = _SOURCE_LOCATION.sub("", cause.reason or cause.strerror or "")
            reason = reason.replace("_", " ").lower() or "it says nothing"
            return f"TLS: the engine refuses us: {reason} (our certificate: {certificate})"
    if "HTTP request to an HTTPS server" in explanation or (
        not address.certificates and address.url.startswith("tcp://") and "malformed" in explanation
    ):
        return (
            "TLS: the engine demands it; set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH to a folder "
            "with ca.pem, cert.pem and key.pem, or name a Docker context"
        )
    if any(isinstance(cause, PermissionError) for cause in causes):
        return "no permission to use its socket; add the user to the group 'docker'"
    if any(isinstance(cause, TimeoutError | exceptions.Timeout) for cause in causes):
        return f"no answer within {ANSWER_TIMEOUT} seconds"
    for cause in causes:
        if isinstance(cause, http.client.RemoteDisconnected):
            return "no Docker engine answers there: the connection is closed"
        if isinstance(cause, OSError) and cause.strerror:
            return f"no Docker engine answers there: {cause.strerror}"
    return f"no Docker engine answers there: {explanation[:200]}"


class Tunnel:
    """One of our sockets, which the system's SSH client leads to an engine's.

    Args:
        url: ``ssh://[USER@]HOST[:PORT][/PATH]``, with the path of the engine's socket.

    Attributes:
        url: the socket's.

    Raises:
        EngineUnavailable: there is no SSH client, or it does not get there.
    """

    def __init__(self, url: str) -> None:
        parts = split_url(url)
        if not shutil.which("ssh"):
            raise EngineUnavailable("there is no ssh on this machine, which leads to it")
        self._private = PrivateFolder()
        folder = self._private.make()
        self._socket = folder / "engine.sock"
        self._log = folder / "log"
        self.url = f"unix://{self._socket}"
        remote_socket = parts.path if parts.path not in ("", "/") else _SSH_SOCKET
        options = [word for option in _SSH_OPTIONS for word in ("-o", option)]
        options += ["-p", str(parts.port)] if parts.port else []
        options += ["-l", parts.username] if parts.username else []
        self._command = ["ssh", "-nNT", *options, "-L", f"{self._socket}:{remote_socket}"]
        self._command += ["--", parts.hostname or ""]
        self._process: subprocess.Popen[bytes] | None = None
        close_in_children(self)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

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
            if time.monotonic() > deadline:
                raise EngineUnavailable(f"ssh: no answer within {ANSWER_TIMEOUT} seconds")
            if self._has_ended():
                raise EngineUnavailable(
                    f"ssh: {self.last_line().removeprefix('ssh: ') or 'it ended'}"
                )
            time.sleep(0.02)

    def _has_ended(self) -> bool:
        """Whether the SSH client has ended."""
        return self._process is None or self._process.poll() is not None

    def renew(self) -> None:
        """Start the client again if it has ended.

        Raises:
            EngineUnavailable: it does not get there.
        """
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
        """Close a forked child's copy of the pipe; the client stays its parent's."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.returncode = 0

    def close(self) -> None:
        """End the client."""
        self._stop()
        self._private.close()
