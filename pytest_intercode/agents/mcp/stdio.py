"""The stdio server's process: copies bytes between its standard streams and pytest's socket.

Clients start it as their configuration tells them. It is run by its path and imports only a few
modules of the standard library, so it starts in milliseconds and needs no environment variables.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

__all__ = ["main"]

_CHUNK = 65536  # the most bytes that are copied in one call


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
    # The last requests may not be answered yet; the server ends the connection.
    threading.Event().wait()
    return 0


def _copy_out(server: socket.socket) -> None:
    """Copy the server's output; exit the process when it ends."""
    try:
        while data := server.recv(_CHUNK):
            while data:
                data = data[os.write(1, data) :]
    except OSError:
        pass
    os._exit(0)  # the other thread may wait for a client that sends no more data


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
