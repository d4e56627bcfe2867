"""A port of a sandbox that leads to a socket here, by the streams of one process in it.

The engine is this machine's, reached by TCP. What the process of an agent may write instead is
played by a program that stands in the place of the sandbox's perl.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_intercode.core.task import Limits
from pytest_intercode.errors import CommandFailed, SandboxError
from pytest_intercode.sandboxes.docker import container
from pytest_intercode.sandboxes.docker.carrier import _MAX_CONNECTIONS, _WINDOW, Carrier
from pytest_intercode.sandboxes.docker.container import Container
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.docker.streams import AttachedStreams
from pytest_intercode.sandboxes.listing import ListingProbe
from pytest_intercode.sandboxes.protocol import SandboxSpec
from tests.support.backends import SOURCE
from tests.support.tcp_engine import engine_by_tcp

_SOON = 20.0
_PORT = 23456

Answer = Callable[[socket.socket], None]
Forward = Callable[[Container, Answer], Carrier]


@pytest.fixture(scope="module")
def engine(docker_engine: DockerEngine) -> Iterator[DockerEngine]:
    with engine_by_tcp(), contextlib.closing(DockerEngine()) as remote_engine:
        assert not remote_engine.is_local
        yield remote_engine


@pytest.fixture
def launch(engine: DockerEngine) -> Iterator[Callable[[], Container]]:
    """Return a function that starts sandboxes."""
    image = DockerImages(engine.api).resolve(SOURCE)
    with contextlib.ExitStack() as stack:

        def start() -> Container:
            return stack.enter_context(contextlib.closing(engine.launch(SandboxSpec(image))))

        yield start


@pytest.fixture
def sandbox(launch: Callable[[], Container]) -> Container:
    return launch()


@pytest.fixture
def forward() -> Iterator[Forward]:
    """Return a function that has a port of a sandbox lead to a socket that answers so."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:

        def serve(listener: socket.socket, answer: Answer) -> None:
            def talk(connection: socket.socket) -> None:
                with connection, contextlib.suppress(OSError):
                    answer(connection)

            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=talk, args=listener.accept()[:1], daemon=True).start()

        def start(sandbox: Container, answer: Answer) -> Carrier:
            listener = socket.socket(socket.AF_UNIX)
            path = Path(folder) / sandbox.name
            path.unlink(missing_ok=True)
            listener.bind(str(path))
            listener.listen(256)
            stack.callback(listener.close)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
            end = sandbox.forward_port(_PORT, path)
            carrier = sandbox._carriers[-1]
            assert end == carrier.close
            return carrier

        yield start


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def run(sandbox: Container, script: str) -> str:
    """Run a script of Perl in the sandbox, with ``dial`` for a connection; return its output."""
    start = f"""
        use strict; use IO::Socket::INET; use Time::HiRes qw(sleep time); $| = 1;
        sub dial {{ IO::Socket::INET->new(PeerAddr => "127.0.0.1:{_PORT}") }}
    """
    execution = sandbox.run(f"perl - <<'END'\n{start}{script}\nEND", _SOON)
    return execution.output.decode()


def await_end(carrier: Carrier) -> None:
    carrier._thread.join(_SOON)
    assert not carrier._thread.is_alive()
    assert all(connection.socket.fileno() == -1 for connection in carrier._connections.values())


def test_bytes_go_both_ways(sandbox: Container, forward: Forward) -> None:
    forward(sandbox, echo)
    script = """
        my @children = map { my $letter = $_; my $pid = fork; if (!$pid) {
            my $text = $letter x 2_000_000; my $socket = dial(); my $answer = "";
            if (!fork) { print $socket $text; shutdown $socket, 1; exit }
            $answer .= $_ while <$socket>;
            print $answer eq $text ? "same " : "other "; exit } $pid } "a".."f";
        waitpid $_, 0 for @children;
    """
    assert run(sandbox, script).split() == ["same"] * 6


def test_pieces_arrive_as_they_are_sent(sandbox: Container, forward: Forward) -> None:
    def speak(connection: socket.socket) -> None:
        connection.recv(100)
        for _ in range(4):
            connection.sendall(b"data: x\n\n")
            time.sleep(0.25)

    forward(sandbox, speak)
    script = """
        my $socket = dial(); print $socket "go"; $socket->flush; my @times;
        while (sysread $socket, my $data, 100) { push @times, time }
        print join " ", map { $times[$_] - $times[$_ - 1] } 1 .. $#times;
    """
    gaps = list(map(float, run(sandbox, script).split()))
    assert len(gaps) == 3
    assert all(0.1 < gap < 0.6 for gap in gaps), gaps


def test_one_direction_ends_before_the_other(sandbox: Container, forward: Forward) -> None:
    def answer_at_the_end(connection: socket.socket) -> None:
        request = b""
        while data := connection.recv(100):
            request += data
        connection.sendall(b"you said " + request)

    forward(sandbox, answer_at_the_end)
    script = 'my $s = dial(); print $s "abc"; $s->flush; shutdown $s, 1; print <$s>'
    assert run(sandbox, script) == "you said abc"


def test_who_does_not_read_holds_up_nobody_else(sandbox: Container, forward: Forward) -> None:
    sent_bytes = [0]

    def pour(connection: socket.socket) -> None:
        wish = connection.recv(4)
        if wish == b"talk":
            connection.sendall(b"well")
            return
        if wish == b"hold":
            time.sleep(_SOON)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        while True:
            sent_bytes[0] += connection.send(b"x" * 65536)

    carrier = forward(sandbox, pour)
    script = """
        my $idle = dial(); print $idle "pour"; $idle->flush; sleep 1;
        my $other = dial(); print $other "talk"; $other->flush; print <$other>;
        my @held = map { my $s = dial(); $s->blocking(0);
            syswrite $s, "hold" x 1e5 for 1 .. 100; $s } 1 .. 3;
        my $last = dial(); print $last "talk"; $last->flush; print <$last>;
    """
    assert run(sandbox, script) == "wellwell"
    # A socket of the sandbox holds some megabytes, too.
    assert sent_bytes[0] < 16 * 1024**2
    assert carrier._streams.queued_bytes <= 8 * _WINDOW


@pytest.mark.slow
def test_a_thousand_connections(
    launch: Callable[[], Container], sandbox: Container, forward: Forward
) -> None:
    carrier, neighbour = forward(sandbox, echo), launch()
    forward(neighbour, echo)
    flood = """
        my @open; for (1 .. 1000) { my $s = IO::Socket::INET->new(
            PeerAddr => "127.0.0.1:%d", Blocking => 0) or last; push @open, $s }
        sleep 1; print scalar @open; sleep 2;
    """
    assert int(run(sandbox, flood % _PORT)) > _MAX_CONNECTIONS
    assert carrier._last >= _MAX_CONNECTIONS
    ask = 'my $s = dial(); print $s "hi"; $s->flush; shutdown $s, 1; print <$s>'
    assert run(neighbour, ask) == "hi"
    assert run(sandbox, ask) == "hi"


def test_it_leads_nowhere_else_and_ends(sandbox: Container, forward: Forward) -> None:
    carrier = forward(sandbox, echo)
    assert b"eth" not in sandbox.run("cat /proc/net/dev", _SOON).output
    status, _ = sandbox.admin(f"grep -q 0100007F:{_PORT:04X} /proc/net/tcp", _SOON)
    assert status == 0
    carrier.close()
    await_end(carrier)
    start = time.monotonic()
    assert sandbox.settle(30.0) == b""  # what it was is gone
    assert time.monotonic() - start < 15
    assert run(sandbox, 'print dial() ? "open" : "closed"') == "closed"
    carrier.close()


def test_it_ends_with_its_sandbox(sandbox: Container, forward: Forward) -> None:
    carrier = forward(sandbox, echo)
    sandbox.close()
    await_end(carrier)


def test_the_agent_ends_it(sandbox: Container, forward: Forward) -> None:
    carrier = forward(sandbox, echo)
    sandbox.run("for p in /proc/[0-9]*; do grep -q perl $p/comm && kill -9 ${p#/proc/}; done", 5)
    await_end(carrier)
    assert sandbox.run("echo on", 5).output == b"on\n"


def test_nothing_of_this_machine_is_looked_at(
    launch: Callable[[], Container],
    engine: DockerEngine,
    forward: Forward,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a virtual machine, whose processes are not in this machine's /proc."""
    monkeypatch.setattr(container, "_local_process", lambda *_: 0)
    sandbox = launch()
    assert isinstance(sandbox.probe, ListingProbe)
    assert isinstance(sandbox._transport, AttachedStreams)
    sandbox.mark()
    carrier = forward(sandbox, echo)
    assert sandbox.run("echo x >/root/file", 5).status == 0
    carrier.close()
    assert list(sandbox.changes().entries) == ["/root/file"]
    spec = replace(sandbox.spec, limits=Limits(hosts=("good.test",)))
    with pytest.raises(SandboxError, match=r"limited network on Docker: .* on a Mac; remove"):
        engine.launch(spec)


def test_it_does_not_start(sandbox: Container, forward: Forward) -> None:
    forward(sandbox, echo)
    with pytest.raises(CommandFailed, match=f"127.0.0.1:{_PORT}: .*in use"):
        forward(sandbox, echo)
    sandbox.admin("mv $(readlink -f /usr/bin/perl) /root", 5)
    with pytest.raises(CommandFailed, match="perl"):
        forward(sandbox, echo)


LISTENS = r"\x4c\0\0\0\0\0\0\0\0"
OPENS = r"\x4f\0\0\0\x01\0\0\0\0"
RUBBISH = {
    "noise": "cat /dev/urandom",
    "an unknown letter": r"printf 'Z\0\0\0\x01\0\0\0\0'",
    "a connection that is not the next": r"printf 'O\0\0\0\x02\0\0\0\0'",
    "data of none": r"printf 'D\0\0\0\x05\0\0\0\x01x'",
    "four gigabytes": rf"printf '{OPENS}D\0\0\0\x01\xff\xff\xff\xff'; cat /dev/zero",
    "nothing": rf"printf '{OPENS}D\0\0\0\x01\0\0\0\0'",
    "more than is allowed": rf"printf '{OPENS}'; "
    r"while printf 'D\0\0\0\x01\0\0\x80\0'; do head -c 32768 /dev/zero; done",
    "more acknowledged than sent": rf"printf '{OPENS}A\0\0\0\x01\xff\xff\xff\xff'",
    "words after the end": rf"printf '{OPENS}E\0\0\0\x01\0\0\0\0E\0\0\0\x01\0\0\0\0'",
    "it listens twice": rf"printf '{LISTENS}'",
    "connections without end": "perl.real -e 'print pack q(aNN), q(O), $_, 0 for 1 .. 1e8'",
}


EVERY_DAY = ("noise", "more than is allowed", "connections without end")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=name, marks=() if name in EVERY_DAY else pytest.mark.slow)
        for name, words in RUBBISH.items()
    ],
)
def test_rubbish_ends_its_own_connections(
    words: str, launch: Callable[[], Container], sandbox: Container, forward: Forward
) -> None:
    def hold(connection: socket.socket) -> None:
        time.sleep(_SOON)

    neighbour = launch()
    forward(neighbour, echo)
    sandbox.admin(
        "cd /usr/bin && mv perl perl.real && cat >perl <<'E' && chmod +x perl\n"
        f"#!/bin/bash\nprintf '{LISTENS}'; sleep 0.2\n{words}\nsleep 60\nE\n",
        5,
    )
    carrier = forward(sandbox, hold)
    start = time.monotonic()
    ask = 'my $s = dial(); print $s "hi"; $s->flush; shutdown $s, 1; print <$s>'
    assert run(neighbour, ask) == "hi"
    assert time.monotonic() - start < 15  # what it does not wait for takes a minute
    await_end(carrier)
    assert len(carrier._input) < 2**20
    assert sandbox.run("echo on", 5).output == b"on\n"
