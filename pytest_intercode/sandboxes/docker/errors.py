"""What a Docker engine and its client say of an error, in one line."""

from __future__ import annotations

from pytest_intercode.system.connections import causes

__all__ = ["NO_ANSWER", "plain"]

NO_ANSWER = "the Docker engine does not answer"
"""What :func:`plain` says, with the reason, of an engine that is gone or stopped."""


def plain(error: Exception) -> str:
    """Return what the engine says about an error, in one line."""
    from requests import exceptions

    if isinstance(
        error, (exceptions.ConnectionError, exceptions.Timeout)
    ):  # its text is that of the exceptions below it
        reason = next(filter(None, (getattr(cause, "strerror", "") for cause in causes(error))), "")
        return NO_ANSWER + (f" ({reason})" if reason else "")
    return " ".join(str(getattr(error, "explanation", None) or error).split())
