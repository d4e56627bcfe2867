"""Makes a Unix socket in a container reachable here, for engines that share no folder with us.

For each connection, the engine starts a process in the container and carries its streams. This is
for our own servers, whose image has perl.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.docker.errors import client_errors
from pytest_intercode.sandboxes.docker.streams import AttachedStreams
from pytest_intercode.system.forks import close_in_children

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Relay"]

# Uses only core modules in perl-base, which Debian's images have.
_CARRIER = r"""
use strict; use IO::Socket::UNIX; use IO::Select;
my $server = IO::Socket::UNIX->new(Peer => $ARGV[0]) or exit 1;
my $ready = IO::Select->new($server, \*STDIN);
while (my @readable = $ready->can_read) {
    for my $from (@readable) {
        my $to = $from == $server ? \*STDOUT : $server;
        my $count = sysread $from, my $data, 65536 or exit;
        for (my $sent = 0; $sent < $count;) {
            $sent += syswrite($to, $data, $count - $sent, $sent) // exit;
        }
    }
}
"""
_BLOCK_SIZE = 65536
_BACKLOG = 64


class Relay:
    """Listens at a path until it is closed, or its container is gone.

    Args:
        api: the engine's client.
        container_id: the container.
        inside: the path of the socket in the container.
        outside: the path at which to listen here.

    Raises:
        SandboxError: it cannot listen at the path.
    """

    def __init__(self, api: APIClient, container_id: str, inside: str, outside: Path) -> None:
        self._api = api
        self._container_id = container_id
        self._inside = inside
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(os.fspath(outside))
            self._listener.listen(_BACKLOG)
        except OSError as error:
            self._listener.close()
            raise SandboxError(f"{outside}: {error.strerror}") from None
        close_in_children(self)
        threading.Thread(target=self._listen, name="intercode-relay", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(near,), name="intercode-relayed", daemon=True
            ).start()

    def _serve(self, near: socket.socket) -> None:
        with contextlib.closing(near):
            try:
                command = ["perl", "-e", _CARRIER, self._inside]
                process = self._api.exec_create(self._container_id, command, stdin=True)
                far = AttachedStreams(self._api.exec_start(process["Id"], socket=True))
            except client_errors(OSError):
                return  # the other end sees the connection end, and asks the sandbox why
            with contextlib.closing(far), contextlib.suppress(OSError, SandboxError):
                _carry(near, far)

    def close_copies(self) -> None:
        """Close the copy of the socket in a forked child."""
        self._listener.close()

    def close(self) -> None:
        """Stop listening; connections end with the container."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _carry(near: socket.socket, far: AttachedStreams) -> None:
    """Carry bytes in both directions until one side ends."""
    while True:
        for chunk in far.receive(0):
            if chunk.stream == "output":
                near.sendall(chunk.data)
        poll = select.poll()
        # Do not read more while something cannot be sent yet.
        if not far.queued:
            poll.register(near, select.POLLIN)
        poll.register(far.fileno(), select.POLLIN | (select.POLLOUT if far.queued else 0))
        ready = dict(poll.poll())
        if near.fileno() in ready:
            data = near.recv(_BLOCK_SIZE)
            if not data:
                return
            far.send(data)
