"""Messages between the starter and its client: one JSON object each, with descriptors beside it.

This text is sent to the starter, too; so it imports the standard library alone.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

__all__ = ["HOLD", "IDS", "receive", "send"]

HOLD = 199
"""A descriptor that bubblewrap leaves open in the sandbox, and that the keeper has to close."""

IDS = 65536
"""User and group ids that a sandbox knows, where we may give it that many."""

_MESSAGE = 1 << 18
_MOST_DESCRIPTORS, _INT = 32, 4


def send(channel: socket.socket, message: dict[str, Any], descriptors: list[int]) -> None:
    """Send a message, and copies of descriptors with it."""
    data = json.dumps(message).encode()
    socket.send_fds(channel, [data], descriptors)


def receive(channel: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message and its descriptors; None when there is no other end any more."""
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * _INT)
    data, beside, _, _ = channel.recvmsg(_MESSAGE, room, socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    for level, kind, content in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            count = len(content) // _INT
            descriptors += struct.unpack(f"={count}i", content[: count * _INT])
    return (json.loads(data) if data else None), descriptors
