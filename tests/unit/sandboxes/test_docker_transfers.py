"""Pulls and builds end with the run, however far they are."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import docker
import pytest

from pytest_intercode.errors import ImageError
from pytest_intercode.sandboxes.docker.transfers import Transfers
from pytest_intercode.testing.fixtures import SOON

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
_EVENT = b'18\r\n{"status":"Downloading"}\r\n'


class _Engine:
    """One that pulls for ever; it answers once it may, and notices when nobody listens."""

    def __init__(self, path: Path) -> None:
        self.was_asked, self.may_answer, self.was_left = (threading.Event() for _ in range(3))
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self.listener.accept()
            with connection:
                connection.recv(65536)
                self.was_asked.set()
                self.may_answer.wait(SOON)
                connection.sendall(_HEAD)
                while True:
                    connection.sendall(_EVENT)
        self.was_left.set()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[_Engine]:
    engine = _Engine(tmp_path / "socket")
    yield engine
    engine.listener.close()


@pytest.mark.parametrize("has_answered", [False, True])
def test_what_is_under_way_ends(engine: _Engine, tmp_path: Path, has_answered: bool) -> None:
    """Also what the engine has not answered to when the run ends."""
    events = threading.Event()
    with (
        closing(docker.APIClient(f"unix://{tmp_path}/socket", version="1.41")) as api,
        ThreadPoolExecutor(1) as threads,
    ):
        transfers = Transfers(api)

        def pull() -> None:
            with transfers.begin():
                for _ in api.pull("image", "tag", stream=True, decode=True):
                    events.set()

        pull_result = threads.submit(pull)
        assert engine.was_asked.wait(SOON)
        if has_answered:
            engine.may_answer.set()
            assert events.wait(SOON)
        transfers.stop()
        engine.may_answer.set()
        error = pull_result.exception(SOON)
        assert engine.was_left.wait(SOON)
        assert has_answered or isinstance(error, ImageError)
        with pytest.raises(ImageError, match="the run is over"), transfers.begin():
            pass
