"""Messages between our processes: one JSON object each, with descriptors next to it.

The text of this module is sent to processes that do not have our package, so it imports only the
standard library.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

__all__ = ["receive", "send"]

# The kernel passes at most 253 descriptors with one message (SCM_MAX_FD).
_MESSAGE, _DESCRIPTORS, _INT = 1 << 18, 253, 4  # bytes of a message; descriptors; bytes of each
_CLOSE_IN_PROGRAMS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # Linux only, as descriptors are


def send(channel: socket.socket, message: dict[str, Any], descriptors: list[int]) -> None:
    """Send a message, with copies of descriptors."""
    data = json.dumps(message).encode()
    socket.send_fds(channel, [data], descriptors)


def receive(channel: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message and its descriptors; None when the other end is closed."""
    # Not socket.recv_fds, which ignores the flag.
    ancillary_size = socket.CMSG_SPACE(_DESCRIPTORS * _INT)
    data, ancillary, _, _ = channel.recvmsg(_MESSAGE, ancillary_size, _CLOSE_IN_PROGRAMS)
    descriptors: list[int] = []
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            count = len(content) // _INT
            descriptors += struct.unpack(f"={count}i", content[: count * _INT])
    return (json.loads(data) if data else None), descriptors
