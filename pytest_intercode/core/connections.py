"""Why a connection to a server failed, in the system's own words. Pure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

__all__ = ["causes", "failure"]


def causes(error: BaseException) -> Iterator[BaseException]:
    """Return an error and those that led to it, the innermost last."""
    visited_ids: set[int] = set()
    inner: BaseException | None = error
    while inner is not None and id(inner) not in visited_ids:
        yield inner
        visited_ids.add(id(inner))
        inner = inner.__cause__ or inner.__context__ or getattr(inner, "os_error", None)


def failure(error: BaseException) -> str:
    """Return why a connection failed: what the system says of it, or TLS; else nothing.

    Libraries wrap these errors, and give wrappers the number of what they wrap. That of TLS is not
    one of the system's.
    """
    chain = list(causes(error))
    ssl = sys.modules.get("ssl")  # slow to import; without it there is no such error
    for cause in chain:
        if ssl is not None and isinstance(cause, ssl.SSLError):
            message = getattr(cause, "verify_message", "") or (cause.reason or "").replace("_", " ")
            return f"TLS: {message.lower() or 'it failed'}"
    for cause in chain:
        if isinstance(cause, OSError) and cause.strerror:
            number = cause.errno or 0  # below 0 where a name was not found
            return os.strerror(number) if number > 0 else cause.strerror
    return ""
