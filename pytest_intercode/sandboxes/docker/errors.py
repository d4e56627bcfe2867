"""What a Docker engine and its client say of an error, in one line."""

from __future__ import annotations

__all__ = ["NO_ANSWER", "plain"]

NO_ANSWER = "the Docker engine does not answer"
"""What :func:`plain` says, with the reason, of an engine that is gone or stopped."""


def plain(error: Exception) -> str:
    """Return what the engine says about an error, in one line."""
    from requests import exceptions

    if isinstance(
        error, (exceptions.ConnectionError, exceptions.Timeout)
    ):  # its text is that of the exceptions below it
        cause: BaseException | None = error
        said = ""
        while cause is not None and not said:
            said = getattr(cause, "strerror", None) or ""
            cause = cause.__cause__ or cause.__context__
        return NO_ANSWER + (f" ({said})" if said else "")
    return " ".join(str(getattr(error, "explanation", None) or error).split())
