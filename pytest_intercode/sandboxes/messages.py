"""Messages between our processes: one JSON object each, with descriptors beside it.

Its text is sent to processes that have no package of ours, so it imports the standard library
alone.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

__all__ = ["receive", "send"]

_MESSAGE, _DESCRIPTORS, _INT = 1 << 18, 253, 4  # the most of a message; bytes of a descriptor


def send(channel: socket.socket, message: dict[str, Any], descriptors: list[int]) -> None:
    """Send a message, and copies of descriptors with it."""
    data = json.dumps(message).encode()
    socket.send_fds(channel, [data], descriptors)


def receive(channel: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message and its descriptors; None when the other end is closed."""
    # Not socket.recv_fds, which ignores the flag.
    room = socket.CMSG_SPACE(_DESCRIPTORS * _INT)
    data, beside, _, _ = channel.recvmsg(_MESSAGE, room, socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    for level, kind, content in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            count = len(content) // _INT
            descriptors += struct.unpack(f"={count}i", content[: count * _INT])
    return (json.loads(data) if data else None), descriptors
