"""Why a connection to a server failed, in the system's own words. Pure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

__all__ = ["causes", "failure"]


def causes(error: BaseException) -> Iterator[BaseException]:
    """Return an error and those that led to it, the innermost last."""
    seen: set[int] = set()
    inner: BaseException | None = error
    while inner is not None and id(inner) not in seen:
        yield inner
        seen.add(id(inner))
        inner = inner.__cause__ or inner.__context__ or getattr(inner, "os_error", None)


def failure(error: BaseException) -> str:
    """Return why a connection failed: what the system says of it, or TLS; else nothing.

    Libraries wrap these errors, and give wrappers the number of what they wrap. That of TLS is not
    one of the system's.
    """
    chain = list(causes(error))
    ssl = sys.modules.get("ssl")  # slow to import; without it there is no such error
    for each in chain:
        if ssl is not None and isinstance(each, ssl.SSLError):
            said = getattr(each, "verify_message", "") or (each.reason or "").replace("_", " ")
            return f"TLS: {said.lower() or 'it failed'}"
    for each in chain:
        if isinstance(each, OSError) and each.strerror:
            number = each.errno or 0  # below 0 where a name was not found
            return os.strerror(number) if number > 0 else each.strerror
    return ""
