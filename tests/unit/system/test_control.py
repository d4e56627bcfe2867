"""Sockets by which other processes of this user ask something."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.system.control import RUN_SOCKET, ControlSocket, NoAnswer, ask, run_sockets
from pytest_intercode.system.private_folder import PrivateFolder
from tests.support.backends import short_temporary_folder


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return where the folders of this test are."""
    with short_temporary_folder(monkeypatch) as folder:
        yield folder


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    if "fail" in request:
        raise RuntimeError("this request cannot be answered")
    return {"asked": request["text"]}


@pytest.fixture
def control(temporary: Path) -> Iterator[ControlSocket]:
    """Return a socket that answers."""
    control = ControlSocket(temporary / "a.sock", answer, name="intercode-test")
    yield control
    control.close()
    control.close()
    assert not (temporary / "a.sock").exists()


@pytest.fixture
def path(control: ControlSocket, temporary: Path) -> Path:
    """Return the path of a socket that answers."""
    return temporary / "a.sock"


def test_requests_are_answered_one_after_the_other(path: Path) -> None:
    for text in ("one", "two\n\u6587", "x" * 60_000):
        assert ask(path, {"text": text}, 10.0) == {"asked": text}


@pytest.mark.parametrize(
    "request_bytes",
    [b"", b"[1]\n", b"no JSON\n", b"[" * 60_000 + b"\n", b"x" * 70_000, b'{"fail": 1}\n'],
    ids=["nothing", "a list", "no JSON", "deep", "too long", "fails"],
)
def test_who_asks_wrongly_gets_no_answer_and_others_do(path: Path, request_bytes: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10.0)
        connection.connect(str(path))
        try:
            connection.sendall(request_bytes)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(10) == b""
        except (BrokenPipeError, ConnectionResetError):  # it was too much
            pass
    assert ask(path, {"text": "one"}, 10.0) == {"asked": "one"}


def test_nobody_answers(temporary: Path) -> None:
    with pytest.raises(NoAnswer):
        ask(temporary / "b.sock", {}, 10.0)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(temporary / "b.sock"))
        silent.listen()
        with pytest.raises(NoAnswer):
            ask(temporary / "b.sock", {}, 0.01)


def test_a_shortage_of_descriptors_passes(
    control: ControlSocket, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short:
        """Accepts nothing the first time."""

        def __init__(self, listener: socket.socket) -> None:
            self._listener, self._errors = listener, [OSError(errno.EMFILE, "too many open files")]

        def accept(self) -> Any:
            if self._errors:
                raise self._errors.pop()
            return self._listener.accept()

        def close(self) -> None:
            self._listener.close()

    monkeypatch.setattr(control, "_listener", Short(control._listener))
    for text in ("one", "two"):  # the first is for the call that waits already
        assert ask(path, {"text": text}, 10.0) == {"asked": text}


def test_a_forked_child_has_no_copy_and_closes_nothing(control: ControlSocket, path: Path) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            control.close()
            status = control._listener.fileno() != -1
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert ask(path, {"text": "one"}, 10.0) == {"asked": "one"}


def test_runs_that_live_are_listed(temporary: Path) -> None:
    assert run_sockets() == []
    folder = PrivateFolder()
    path = folder.make() / RUN_SOCKET
    path.touch()
    dead = folder.make().parents[1] / "dead" / "1"
    dead.mkdir(parents=True)
    (dead / RUN_SOCKET).touch()
    assert run_sockets() == [path]
    folder.close()
    assert run_sockets() == []
