"""Pipes to a container's first process, which may be an image's own program."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import docker
import pytest

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.docker.streams import AttachedStreams, own_pipes
from pytest_intercode.sandboxes.transport import ChannelClosed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it needs /proc")


@contextmanager
def first_process(script: str, *words: str, stdin: int = subprocess.PIPE) -> Iterator[int]:
    """Lend the folder of a bash that has run a script."""
    command = ["bash", "-c", f"{script}; echo; exec sleep 100", *words]
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        folder = os.open(f"/proc/{process.pid}", os.O_RDONLY)
        try:
            yield folder
        finally:
            os.close(folder)
            process.kill()


@contextmanager
def attachment() -> Iterator[tuple[AttachedStreams, socket.socket]]:
    """Lend what is attached, and the engine's end of it."""
    near, far = socket.socketpair()
    with far, closing(AttachedStreams(near)) as attached:
        yield attached, far


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def frame(data: bytes) -> bytes:
    return b"\2\0\0\0" + len(data).to_bytes(4, "big") + data


def test_what_comes_with_the_head_of_the_answer_is_not_lost(tmp_path: Path) -> None:
    """A process that writes at once, of an engine that sends all of it at a time."""
    head = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            while not connection.recv(65536).endswith(b"}"):
                pass
            connection.sendall(head + frame(b"first") + frame(b"second")[:10])
            connection.sendall(frame(b"second")[10:])

    path = str(tmp_path / "engine.sock")
    with socket.socket(socket.AF_UNIX) as listener, closing(_client(path)) as api:
        listener.bind(path)
        listener.listen()
        engine = threading.Thread(target=answer)
        engine.start()
        data = b""
        attached = AttachedStreams(api.exec_start("1", socket=True))
        with closing(attached), contextlib.suppress(ChannelClosed):
            while True:
                data += b"".join(chunk.data for chunk in attached.receive(10))
        engine.join()
    assert data == b"firstsecond"


def _client(path: str) -> docker.APIClient:
    return docker.APIClient(f"unix://{path}", version="1.41", timeout=10)


@pytest.mark.parametrize("said", [b"made\n", b"bash: no such file\n"])
def test_nothing_but_a_pipe_is_opened(tmp_path: Path, said: bytes) -> None:
    file = tmp_path / "device"
    file.write_bytes(b"the host's own")
    script = "exec 210<$0 211<$0"
    with first_process(script, str(file)) as folder, attachment() as (attached, far):
        far.send(frame(said))
        before = open_descriptors()
        with pytest.raises(SandboxError, match="makes no pipes"):
            own_pipes(attached, folder)
        assert open_descriptors() == before


def test_an_input_that_is_no_pipe_is_left_alone() -> None:
    none = subprocess.DEVNULL
    with first_process("true", stdin=none) as folder, attachment() as (attached, far):
        assert own_pipes(attached, folder) is None
        with pytest.raises(BlockingIOError):
            far.recv(1, socket.MSG_DONTWAIT)


def test_a_process_that_has_ended_is_a_sandbox_that_has() -> None:
    with first_process("true") as folder, attachment() as (attached, far):
        far.send(frame(b"made\n"))
        with pytest.raises(SandboxError, match="has ended"):
            own_pipes(attached, folder)  # it has no such descriptors
