"""Addresses of Docker engines: how hosts are written, Docker's contexts, and the usual sockets.

An engine is reached by a socket of this machine (``unix://``), by TCP, with or without TLS
(``tcp://``), or by SSH (``ssh://``); a name without ``://`` is that of a Docker context.

Contexts are read here and not by the SDK's ``ContextAPI``. If Docker has no configuration file,
that looks for them in the current folder; if a certificate is missing, it reaches a host without
TLS; and if the context does not say whether to check certificates, it does not check them. It also
needs the SDK, which is slow to import, and an address is needed in every run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.sandboxes.docker.places import can_connect, find_engine
from pytest_intercode.sandboxes.settings import FORMS, split_url

if TYPE_CHECKING:
    from docker.tls import TLSConfig

__all__ = ["DEFAULT_SOCKET", "Address", "find_address"]

DEFAULT_SOCKET = "/var/run/docker.sock"
"""The default path of an engine's socket."""

_PASSWORD = re.compile(r":[^:/@]*@")  # in an address, where it does not belong
_CERTIFICATES = ("ca", "cert", "key")


@dataclass(frozen=True)
class Address:
    """Where an engine is, and with which certificates it is reached; plain data.

    Attributes:
        name: the user's name for it; empty for an engine that the user does not name.
        url: its address.
        certificates: a folder's ``ca.pem``, ``cert.pem`` and ``key.pem``; empty for none.
        verify: whether the engine's certificate is checked.
        context: the Docker context that this address is from; empty for none.
        place: what usually has this address, if it was searched for; empty if it was named.
    """

    name: str
    url: str
    certificates: tuple[str, str, str] | tuple[()] = ()
    verify: bool = True
    context: str = ""
    place: str = ""

    @property
    def is_socket(self) -> bool:
        """Whether it is a socket of this machine, whichever machine the engine is on."""
        return self.url.startswith("unix://")

    @property
    def shown_url(self) -> str:
        """The address for messages, without a password, which some users write into it."""
        return _PASSWORD.sub("@", self.url)

    @property
    def origin(self) -> str:
        """Why this engine is used, for the run's header; empty for the usual one.

        Such as ``on big``, ``at unix:///home/ada/.rd/docker.sock (Rancher Desktop)`` or
        ``(DOCKER_HOST=tcp://big:2376)``.
        """
        if self.context:
            return f"on {self.context}"
        if self.place:
            return f"at {self.url} ({self.place})"
        if self.url == f"unix://{DEFAULT_SOCKET}":
            return ""
        return f"(DOCKER_HOST={self.shown_url})"

    @property
    def label(self) -> str:
        """How messages name the place; messages about a named host begin with its name already."""
        return "there" if self.name else f"at {self.shown_url}"

    def introduce(self, problem: str) -> str:
        """Return a message about the engine, with its place unless the name shows it already."""
        return problem if self.name else f"the Docker engine {self.label}: {problem}"

    def to_json(self) -> dict[str, Any]:
        """Return the address as builtin types."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Address:
        """Return an address from the result of :meth:`to_json`."""
        return cls(**{**fields, "certificates": tuple(fields["certificates"])})

    def tls(self) -> TLSConfig | bool:
        """Return the SDK's settings for TLS; False for none."""
        from docker.tls import TLSConfig

        if not self.certificates:
            return False
        authority, certificate, key = self.certificates
        return TLSConfig(
            client_cert=(certificate, key), ca_cert=authority, verify=self.verify or None
        )


def find_address(name: str = "") -> Address:
    """Return the address of a host.

    Args:
        name: its address, or the name of a context; ``default`` for the engine that is used without
            a context. Empty for the engine that ``docker`` uses here: that of ``DOCKER_HOST``, else
            of ``DOCKER_CONTEXT``, else of the current context, else the default one. If nothing
            listens at the default socket, it is the first of ``places.PLACES`` that answers.

    Raises:
        ConfigurationError: there is no such context, or it cannot be used.
    """
    if "://" in name:
        return _add_certificates(name, name)
    if name == "default":
        return _default_address(name)
    if name:
        return _read_context(name, name)
    context = "default" if os.environ.get("DOCKER_HOST") else _current_context()
    if context == "default":
        return _default_address("")
    try:
        return _read_context("", context)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"Docker's current context is {context!r}, but {error}; see `docker context use`, or "
            "set DOCKER_HOST"
        ) from None


def _default_address(name: str) -> Address:
    url = os.environ.get("DOCKER_HOST")
    if url:
        return _add_certificates(name, url)
    if not can_connect(DEFAULT_SOCKET) and (engine := find_engine()) is not None:
        place, path = engine
        return Address(name, f"unix://{path}", place=place)
    return Address(name, f"unix://{DEFAULT_SOCKET}")


def _config_folder() -> Path:
    folder = os.environ.get("DOCKER_CONFIG")
    if folder:
        return Path(folder)
    try:
        return Path.home() / ".docker"
    except RuntimeError:  # a user without HOME and without an account has no configuration
        return Path(os.devnull)


def _current_context() -> str:
    """Return the name of the context that ``docker`` uses by default.

    Raises:
        ConfigurationError: Docker's configuration is not JSON.
    """
    path = _config_folder() / "config.json"
    name = os.environ.get("DOCKER_CONTEXT")
    if not name:
        try:
            name = json.loads(path.read_bytes()).get("currentContext")
        except OSError:  # missing, or another user's: Docker ignores that, too
            pass
        except (ValueError, AttributeError) as error:
            raise ConfigurationError(
                f"{path} cannot be read: {error}; correct it, or set DOCKER_HOST"
            ) from None
    return str(name or "default")


def _read_context(name: str, context: str) -> Address:
    folder = _config_folder() / "contexts"
    digest = hashlib.sha256(context.encode()).hexdigest()
    try:
        file = folder / "meta" / digest / "meta.json"
        if not file.is_file():
            contexts = ["default", *sorted(map(_context_name, folder.glob("meta/*/meta.json")))]
            raise ConfigurationError(
                f"there is no such Docker context in {folder}.{suggestion(context, contexts)} "
                f"Contexts: {', '.join(contexts)}. An address contains ://"
            )
        endpoint = json.loads(file.read_bytes())["Endpoints"]["docker"]
        url, verify = str(endpoint["Host"]), not endpoint.get("SkipTLSVerify")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"the Docker context cannot be read ({type(error).__name__}: {error})"
        ) from None
    try:
        split_url(url)
    except ValueError:
        raise ConfigurationError(
            f"the Docker context points to {url!r:.80}; {FORMS.partition(' or ')[0]} is needed"
        ) from None
    files = tuple(folder / "tls" / digest / "docker" / f"{stem}.pem" for stem in _CERTIFICATES)
    if not any(path.is_file() for path in files):
        return Address(name, url, context=context)
    # Refuse an incomplete set: without TLS, anyone on the way could read and change everything.
    return Address(name, url, _check_certificates(files), verify, context)


def _context_name(path: Path) -> str:
    try:
        return str(json.loads(path.read_bytes())["Name"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{path.parent.name} (cannot be read)"


def _check_certificates(files: Iterable[Path]) -> tuple[str, str, str]:
    """Return the paths of certificates.

    Raises:
        ConfigurationError: one does not exist.
    """
    files = tuple(files)
    for path in files:
        if not path.is_file():
            raise ConfigurationError(
                f"{path} is missing; ca.pem, cert.pem and key.pem must be in one folder, that "
                "of DOCKER_CERT_PATH or of the context"
            )
    authority, certificate, key = map(str, files)
    return authority, certificate, key


def _add_certificates(name: str, url: str) -> Address:
    """Return an address with the certificates that the environment names, as in the SDK.

    Raises:
        ConfigurationError: one of them does not exist.
    """
    verify = bool(os.environ.get("DOCKER_TLS_VERIFY"))
    folder = os.environ.get("DOCKER_CERT_PATH") or ""
    if not url.startswith("tcp://") or not (verify or folder):
        return Address(name, url)
    certificate_folder = Path(folder) if folder else Path.home() / ".docker"
    files = [certificate_folder / f"{stem}.pem" for stem in _CERTIFICATES]
    return Address(name, url, _check_certificates(files), verify)
