"""The process from which the processes of SQLite's sessions are forked.

Starting Python takes ten times as long as forking one that has imported what is needed. This one
opens no database and runs no SQL, has one thread, and ends with its client. It speaks to
:class:`~pytest_intercode.databases.sqlite.forks.SqliteForks` over a socket (``argv[1]``): ``F``
comes with the three pipes of a session, and is answered with the id of the process that serves it;
``R`` and an id let go of one that has ended.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys

from pytest_intercode.databases.sqlite.worker import serve

__all__ = ["main"]


def main() -> None:
    """Fork a process for each session until the client goes."""
    client = int(sys.argv[2])
    conversation = socket.socket(fileno=int(sys.argv[1]))
    try:
        gone: int | None = os.pidfd_open(client)
    except (AttributeError, OSError):
        gone = None
    waiting = select.poll()
    waiting.register(conversation, select.POLLIN)
    if gone is not None:
        waiting.register(gone, select.POLLIN)
    gc.freeze()
    while os.getppid() == client:
        ready = [number for number, _ in waiting.poll(1000 if gone is None else None)]
        if conversation.fileno() not in ready:
            continue
        message, pipes, _, _ = socket.recv_fds(conversation, 9, 3)
        if message[:1] == b"F" and len(pipes) == 3:
            pid = os.fork()
            if pid == 0:
                _become_worker(conversation, pipes, gone)
            for number in pipes:
                os.close(number)
            conversation.sendall(pid.to_bytes(8, "little"))
        elif message[:1] == b"R":
            os.waitpid(int.from_bytes(message[1:], "little"), 0)
        else:
            return


def _become_worker(conversation: socket.socket, pipes: list[int], gone: int | None) -> None:
    try:
        conversation.close()
        for target, number in enumerate(pipes):
            os.dup2(number, target)
        for number in pipes:
            os.close(number)
        serve(control=2, gone=gone)
    finally:
        os._exit(1)
