"""An SSH client that leads to an engine, and what several threads ask of it at the same time.

The client is a program of the test's own, as there need not be a server of SSH here.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.docker.address import Address
from pytest_intercode.sandboxes.docker.link import Tunnel

SSH = """\
#!{python} -SI
import signal, socket, sys

with open({starts!r}, "a") as file:
    file.write("started\\n")
path = next(word for word in sys.argv if ":/" in word).partition(":")[0]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
signal.pause()
"""


class _Client:
    """The program, and how often it was started."""

    def __init__(self, folder: Path) -> None:
        self._starts = folder / "starts"
        program = folder / "ssh"
        program.write_text(SSH.format(python=sys.executable, starts=str(self._starts)))
        program.chmod(0o755)

    @property
    def starts(self) -> int:
        return len(self._starts.read_text().splitlines())


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Client:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return _Client(tmp_path)


@pytest.fixture
def tunnel(client: _Client) -> Iterator[Tunnel]:
    tunnel = Tunnel(Address("host", "ssh://host"))
    yield tunnel
    tunnel.close()


def _end(tunnel: Tunnel) -> None:
    assert tunnel._process is not None
    tunnel._process.kill()
    tunnel._process.wait()


def test_threads_that_find_it_ended_start_it_once(
    client: _Client, tunnel: Tunnel, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = tunnel._stop

    def stop_slowly() -> None:
        time.sleep(0.3)  # between the look whether it has ended, and the start of another one
        stop()

    _end(tunnel)
    monkeypatch.setattr(tunnel, "_stop", stop_slowly)
    threads = [threading.Thread(target=tunnel.renew) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.starts == 2  # the first one, and another in its place


def test_it_is_not_started_again_once_it_is_closed(client: _Client, tunnel: Tunnel) -> None:
    tunnel.close()
    with pytest.raises(EngineUnavailable, match="ssh: it was closed"):
        tunnel.renew()
    assert client.starts == 1
