"""The stdio server's process: copies bytes between its standard streams and a socket of pytest's.

Clients start it as their configuration says. It is run by its path and imports a few modules of the
standard library only: it starts in milliseconds, and needs no environment variable.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

__all__ = ["main"]

_CHUNK = 65536  # bytes that are copied at once


def main(path: str) -> int:
    """Connect to the socket and copy bytes both ways until either side ends.

    Args:
        path: the socket of the episode.

    Returns:
        The exit status.
    """
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(path)
    except OSError as error:
        print(f"pytest-intercode: the episode is over ({error.strerror})", file=sys.stderr)
        return 1
    threading.Thread(target=_copy_out, args=(server,), daemon=True).start()
    try:
        while data := os.read(0, _CHUNK):
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    # The answers to what was sent last are still to come; the server ends the connection.
    threading.Event().wait()
    return 0


def _copy_out(server: socket.socket) -> None:
    """Copy what the server sends; at its end, end the process."""
    try:
        while data := server.recv(_CHUNK):
            while data:
                data = data[os.write(1, data) :]
    except OSError:
        pass
    os._exit(0)  # the other thread may wait for a client that sends nothing more


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
