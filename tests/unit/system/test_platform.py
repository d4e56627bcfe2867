"""What not every system has: Linux's way and the portable one give the same."""

from __future__ import annotations

import os
import select
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system import platform
from tests.support.second_engine import make_certificates

_SOON = 10.0  # seconds


def await_true(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SOON
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.005)


# -- this process


@pytest.fixture
def umask() -> Iterator[None]:
    umask = os.umask(0o22)
    yield
    os.umask(umask)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("present", [platform.umask_from_status, platform.umask_by_setting])
def test_the_umask_is_told_and_stays(present: Callable[[], int | None]) -> None:
    for value in (0o22, 0o777, 0):
        os.umask(value)
        assert present() == value
        assert platform.umask_from_status() == value


@pytest.mark.usefixtures("umask")
def test_threads_that_ask_for_the_umask_leave_it() -> None:
    with ThreadPoolExecutor(8) as threads:
        values = set(threads.map(lambda _: platform.umask_by_setting(), range(2000)))
    assert values == {0o22}
    assert platform.umask_from_status() == 0o22


def test_a_folder_is_returned_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = platform.open_folder(".")
    os.chdir("/")
    os.fchdir(folder)
    os.close(folder)
    assert Path.cwd() == tmp_path


def test_a_waker_ends_a_wait() -> None:
    for waker in (platform.open_waker(), os.pipe()):  # Linux's, and the one of others
        poll = select.poll()
        poll.register(waker[0], select.POLLIN)
        assert not poll.poll(0)
        threading.Timer(0.05, platform.wake, [waker[1]]).start()
        assert poll.poll(_SOON * 1000)
        assert poll.poll(0), "later waits end as well"
        for descriptor in {*waker}:
            os.close(descriptor)


def test_limits() -> None:
    command = "from pytest_intercode.system.platform import hard_limit; print(hard_limit('nofile'))"
    words = ["sh", "-c", 'ulimit -n 77 && exec "$@"', "sh", sys.executable, "-c", command]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "77\n"


def test_windows_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    platform.check_platform()
    monkeypatch.setattr(platform, "HAS_SANDBOXES", False)
    with pytest.raises(ConfigurationError, match=r"^sandboxes need Linux or macOS; .*WSL 2 .*$"):
        platform.check_platform()


# -- which process, on which machine


@pytest.mark.parametrize("identity", [platform.started_after_boot, platform.started_at])
def test_a_process_is_known_by_its_start(identity: Callable[[int], str]) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        started = identity(process.pid)
        assert started
        assert identity(process.pid) == started
        time.sleep(0.05)  # longer than a tick of the kernel
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as later:
            assert identity(later.pid) not in (started, "")
    assert identity(process.pid) == ""


@pytest.mark.parametrize("identity", [platform.boot_and_namespace, platform.name_and_address])
def test_a_machine_has_two_words_in_all_of_its_processes(identity: Callable[[], str]) -> None:
    words = identity()
    assert len(words.split(" ")) == 2
    name = identity.__name__
    command = f"from pytest_intercode.system import platform; print(platform.{name}())"
    other = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert other.stdout == f"{words}\n"


# -- locks


def test_a_lock_is_had_once(tmp_path: Path) -> None:
    folder = platform.lockable(tmp_path)
    other = platform.lockable(tmp_path)
    assert platform.try_lock(folder)
    assert not platform.try_lock(other)
    platform.unlock(folder)
    assert platform.try_lock(other)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(platform.lock, folder)
        time.sleep(0.05)
        assert not waiting.done()
        os.close(other)
        waiting.result(_SOON)
    os.close(folder)


def test_a_lock_is_freed_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    command = (
        "import os, sys\nfrom pytest_intercode.system.platform import lock\n"
        "lock(os.open(sys.argv[1], os.O_RDWR))\nprint('locked', flush=True)\ninput()"
    )
    words = [sys.executable, "-c", command, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        file = os.open(path, os.O_RDONLY)
        assert not platform.try_lock(file)
        holder.kill()
        holder.wait()
    assert platform.try_lock(file)
    os.close(file)


# -- sockets

_WAYS = [platform.hung_up_anyway, platform.hung_up_once_read]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


@pytest.mark.parametrize("hung_up", _WAYS)
def test_a_closed_connection(
    hung_up: Callable[[socket.socket], bool], pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    assert not hung_up(ours)
    theirs.send(b"words")
    assert not hung_up(ours)
    assert ours.recv(10) == b"words", "nothing was taken by looking"
    theirs.close()
    assert hung_up(ours)
    ours.close()
    assert hung_up(ours)


@pytest.mark.parametrize("hung_up", _WAYS)
def test_a_connection_whose_other_end_only_stops_writing(
    hung_up: Callable[[socket.socket], bool],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        ours.setblocking(False)
        assert not hung_up(ours)
        theirs.send(b"last words")
        theirs.shutdown(socket.SHUT_WR)
        await_true(lambda: bool(select.select([ours], [], [], 0)[0]))
        if hung_up is platform.hung_up_once_read:
            assert ours.recv(100) == b"last words"
        await_true(lambda: hung_up(ours))


@pytest.mark.parametrize("hung_up", _WAYS)
def test_a_connection_with_tls(hung_up: Callable[[socket.socket], bool], tmp_path: Path) -> None:
    make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "engine/cert.pem", tmp_path / "engine/key.pem")
    client = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    client.check_hostname = False
    plain, theirs = socket.socketpair()
    with ThreadPoolExecutor(1) as threads:
        accepted = threads.submit(context.wrap_socket, theirs, server_side=True)
        ours = client.wrap_socket(plain, server_hostname="localhost")
        server = accepted.result(_SOON)
    with ours, server:
        server.send(b"first")
        assert ours.recv(100) == b"first"  # and with it what TLS 1.3 sends after the handshake
        assert not hung_up(ours)
        server.send(b"words")
        assert not hung_up(ours)
        ours.setblocking(False)
        assert ours.recv(100) == b"words", "nothing was taken by looking"
        with pytest.raises(ssl.SSLWantReadError):
            ours.recv(100)
        assert not hung_up(ours)
        server.close()
        await_true(lambda: hung_up(ours))


def test_who_has_connected(pair: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    assert platform.peer_network(pair[0]) == 0, "this process, whosever connections it carries"
    path = tmp_path / "socket"
    program = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        command = [sys.executable, "-c", f"{program}; input()", str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as client:
            accepted, _ = listener.accept()
            with accepted:
                network = platform.peer_network(accepted)
            client.communicate(b"\n")
    assert network == Path("/proc/self/ns/net").stat().st_ino
