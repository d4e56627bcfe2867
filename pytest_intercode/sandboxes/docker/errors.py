"""Errors of a Docker engine and its client, described in one line."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Iterator, Sequence

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.docker.address import Address
from pytest_intercode.system.connections import causes

__all__ = ["ANSWER_TIMEOUT", "NO_ANSWER", "NoEngine", "client_errors", "explain", "plain"]

ANSWER_TIMEOUT = 10
"""Seconds that an engine has for its first answer, and for each later check."""

NO_ANSWER = "the Docker engine does not answer"
"""The text of :func:`plain`, before the reason, for an engine that is gone or stopped."""

_SOURCE_LOCATION = re.compile(r"\s*\(_ssl\.c:\d+\)")  # in messages of OpenSSL


class NoEngine(EngineUnavailable):
    """Nothing at the address answers as a Docker engine does."""


def client_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the errors of a client whose engine refuses or does not answer, and ``others``.

    This is for ``except client_errors()``, which is evaluated only when an error was raised: then
    the SDK has been imported already.
    """
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    return DockerException, RequestException, *others


def plain(error: Exception) -> str:
    """Return what the engine reports about an error, in one line."""
    from requests import exceptions

    # These have the text of the exceptions below them.
    if isinstance(error, (exceptions.ConnectionError, exceptions.Timeout)):
        reason = next(filter(None, (getattr(cause, "strerror", "") for cause in causes(error))), "")
        return NO_ANSWER + (f" ({reason})" if reason else "")
    return " ".join(str(getattr(error, "explanation", None) or error).split())


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those below it, which libraries hide in arguments and contexts."""
    visited: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        candidate = waiting.pop(0)
        if isinstance(candidate, BaseException) and id(candidate) not in visited:
            visited.add(id(candidate))
            yield candidate
            waiting += [*candidate.args, getattr(candidate, "reason", None)]
            waiting += [candidate.__cause__, candidate.__context__]


def explain(
    error: Exception, address: Address, timeout: float = ANSWER_TIMEOUT
) -> EngineUnavailable:
    """Return why the engine at an address cannot be used, in one line.

    Args:
        error: the client's error.
        address: where the engine is.
        timeout: the seconds that the engine had to answer.
    """
    from requests.exceptions import Timeout

    all_causes = list(_iterate_causes(error))
    explanation = " ".join(str(getattr(error, "explanation", None) or error).split())
    problem = _explain_tls(all_causes, explanation, address)
    if not problem and any(isinstance(cause, PermissionError) for cause in all_causes):
        return EngineUnavailable(
            f"no permission to use the Docker engine {address.label}. Add the user to the group "
            "'docker' (then log in again), or name an engine of your own"
        )
    if not problem and any(isinstance(cause, TimeoutError | Timeout) for cause in all_causes):
        problem = f"no answer within {timeout:g} seconds"
    if problem:
        return EngineUnavailable(address.introduce(problem))
    for cause in all_causes:
        if isinstance(cause, http.client.RemoteDisconnected):
            explanation = "the connection was closed"
            break
        if isinstance(cause, OSError) and cause.strerror:
            explanation = cause.strerror
            break
    return NoEngine(f"no Docker engine answers {address.label}: {explanation[:200]}")


def _explain_tls(all_causes: Sequence[BaseException], explanation: str, address: Address) -> str:
    """Return the part of an error that TLS causes, or nothing."""
    authority, certificate, key = address.certificates or ("", "", "")
    for cause in all_causes:
        if not isinstance(cause, ssl.SSLError):
            continue
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"TLS: its certificate is not accepted: {cause.verify_message} ({authority})"
        if "WRONG_VERSION_NUMBER" in str(cause):
            return "TLS: the engine does not use it there; unset DOCKER_TLS_VERIFY, or fix the port"
        if "PEM" in str(cause) and certificate:
            return f"TLS: {certificate} or {key} is invalid, or they do not match"
        reason = _SOURCE_LOCATION.sub("", cause.reason or cause.strerror or "")
        reason = reason.replace("_", " ").lower() or "no reason given"
        return f"TLS: the engine refuses us: {reason} (client certificate: {certificate or 'none'})"
    is_plain_tcp = address.url.startswith("tcp://") and not address.certificates
    if "HTTP request to an HTTPS server" in explanation or (
        is_plain_tcp and "malformed" in explanation
    ):
        return (
            "TLS: the engine requires it; set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH to a folder "
            "with ca.pem, cert.pem and key.pem, or name a Docker context"
        )
    return ""
