"""Where engines are looked for when nobody says where one is, and whom nothing is entrusted to."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.docker import address, backend, places
from pytest_intercode.sandboxes.docker.address import Address, find_address
from pytest_intercode.sandboxes.docker.backend import DockerBackend
from pytest_intercode.sandboxes.docker.engine import connect
from pytest_intercode.sandboxes.settings import SandboxSettings

Listen = Callable[..., Path]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with a path that is short enough for sockets, and no engine at the default one."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "COLIMA_HOME", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory(prefix="icp", dir="/tmp") as name:
        folder = Path(name)
        monkeypatch.setenv("HOME", name)
        monkeypatch.setenv("XDG_RUNTIME_DIR", f"{name}/run")
        monkeypatch.setenv("XDG_CONFIG_HOME", f"{name}/.config")
        for module in (address, backend):
            monkeypatch.setattr(module, "DEFAULT_SOCKET", f"{name}/none.sock")
        yield folder


@pytest.fixture
def listen(home: Path) -> Iterator[Listen]:
    """Return a function that has a socket in the home answer as an engine does, or not."""
    with contextlib.ExitStack() as stack:

        def start(path: str, answer: bytes = b"HTTP/1.0 200 OK\r\n\r\nOK") -> Path:
            place = home / path
            place.parent.mkdir(parents=True, exist_ok=True)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(place))
            listener.listen()
            thread = threading.Thread(target=serve, args=(listener, answer), daemon=True)
            thread.start()
            stack.callback(thread.join, 5)
            stack.callback(listener.close)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            return place

        yield start


def serve(listener: socket.socket, answer: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            with client, contextlib.suppress(OSError):
                if client.recv(1000):
                    client.sendall(answer)


def label() -> str:
    return str(DockerBackend(SandboxSettings()))


def test_an_engine_at_a_usual_place(
    home: Path, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = Address("", f"unix://{home}/none.sock")
    assert find_address() == default
    podman = listen("run/podman/podman.sock")
    monkeypatch.setattr(sys, "platform", "linux")
    assert find_address() == Address("", f"unix://{podman}", place="rootless Podman")
    colima = listen(".colima/default/docker.sock")
    assert find_address() == Address("", f"unix://{colima}", place="Colima")
    assert find_address("default") == Address("default", f"unix://{colima}", place="Colima")
    assert label() == f"docker at unix://{colima} (Colima)"
    # What somebody named, and the default socket, come first.
    monkeypatch.setenv("DOCKER_HOST", "tcp://big:2376")
    assert find_address().place == ""
    assert label() == "docker (DOCKER_HOST=tcp://big:2376)"
    monkeypatch.setenv("DOCKER_HOST", "tcp://ada:secret@big:2376")
    assert label() == "docker (DOCKER_HOST=tcp://ada@big:2376)"
    monkeypatch.delenv("DOCKER_HOST")
    listen("none.sock")
    assert find_address() == default
    assert label().startswith("docker (") is False


def test_each_place_on_its_own_platform(
    home: Path, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", f"{home}/tmp/")
    monkeypatch.setattr(sys, "platform", "darwin")
    listen("run/docker.sock")
    assert find_address().place == ""
    machine = listen("tmp/podman/podman-machine-default-api.sock")
    assert find_address() == Address("", f"unix://{machine}", place="Podman machine")
    for path, name in (
        (".rd/docker.sock", "Rancher Desktop"),
        (".colima/default/docker.sock", "Colima"),
        (".orbstack/run/docker.sock", "OrbStack"),
        (".docker/run/docker.sock", "Docker Desktop"),
    ):
        place = listen(path)
        assert find_address() == Address("", f"unix://{place}", place=name)
    monkeypatch.setattr(backend, "IS_LINUX", False)
    assert DockerBackend(SandboxSettings()).problem() == ""


def test_what_does_not_answer_is_passed_over(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_SEARCH_TIMEOUT", 0.2)
    listen(".colima/default/docker.sock", b"HTTP/1.0 503 no\r\n\r\n")
    rancher = listen(".rd/docker.sock")
    assert find_address().url == f"unix://{rancher}"


def test_auto_has_bubblewrap_before_an_engine_that_nobody_named(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    path = listen("run/podman/podman.sock")
    problem = DockerBackend(SandboxSettings()).problem()
    assert problem.endswith(f"/none.sock, only rootless Podman at unix://{path}")


@pytest.mark.parametrize("place", ["socket", "folder", "link"])
def test_what_another_user_has_put_there_is_not_asked(
    place: str, home: Path, listen: Listen
) -> None:
    path = listen(".colima/default/docker.sock")
    assert find_address().place == "Colima"
    if place == "folder":
        (home / ".colima").chmod(0o777)
        assert find_address().place == ""
        (home / ".colima").chmod(0o1777)  # as /tmp is: nobody can replace what is in it
        assert find_address().place == "Colima"
        return
    if os.geteuid():
        pytest.skip("only root can give a file away")
    if place == "link":
        other = listen("other.sock")
        path.unlink()
        path.symlink_to(other)
        path = other
        assert find_address().place == "Colima"
    os.chown(path, 65534, 65534)
    assert find_address().place == ""


def test_a_message_says_where_was_looked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        connect()
    message = str(caught.value)
    assert "\n" not in message
    assert f"answers at unix://{home}/none.sock: No such file or directory; nor at " in message
    assert f"{home}/.colima/default/docker.sock (Colima)" in message
    assert message.count(".colima/default") == 1
    assert "Start it" in message
    monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/none.sock")
    with pytest.raises(EngineUnavailable) as caught:
        connect()
    assert "Colima" not in str(caught.value)
