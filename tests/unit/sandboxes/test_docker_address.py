"""How Docker hosts are written, where contexts lead, and what is said of one that is of no use."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.sandboxes.docker import errors, link
from pytest_intercode.sandboxes.docker.address import Address, find_address
from pytest_intercode.sandboxes.docker.backend import DockerBackend
from pytest_intercode.sandboxes.docker.engine import connect
from pytest_intercode.sandboxes.docker.link import Link
from pytest_intercode.sandboxes.settings import DockerHost, SandboxSettings, parse_docker_host


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


@pytest.mark.parametrize(
    ("written", "name", "slots"),
    [
        ("big", "big", None),
        ("big=24", "big", 24),
        ("unix:///run/podman.sock", "unix:///run/podman.sock", None),
        ("ssh://ada@big:22/run/docker.sock=8", "ssh://ada@big:22/run/docker.sock", 8),
        ("tcp://[::1]:2376", "tcp://[::1]:2376", None),
    ],
)
def test_hosts(written: str, name: str, slots: int | None) -> None:
    assert parse_docker_host(written) == DockerHost(name, slots)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("big=0", "after = a number of sandboxes is needed, found '0'"),
        ("big=many", "after = a number of sandboxes is needed, found 'many'"),
        ("=4", "is needed, found ''"),
        ("../up", "is needed, found '../up'"),
        ("npipe:////./pipe/docker", "is needed, found 'npipe"),
        ("unix://run/docker.sock", "is needed"),
        ("tcp://big", "is needed"),
        ("tcp://big:port", "Port could not be cast"),
        ("tcp://big:2376/path", "is needed"),
        ("ssh://ada:secret@big", "is needed"),
        ("ssh://-oProxyCommand=x", "is needed"),
        ("ssh://-l@big", "is needed"),
        ("ssh://", "is needed"),
    ],
)
def test_what_is_no_host(written: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_docker_host(written)


# -- contexts


def write_context(name: str, host: object, *, certificates: str = "", skip: bool = False) -> Path:
    folder = Path(os.environ["DOCKER_CONFIG"]) / "contexts"
    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = folder / "meta" / digest
    meta.mkdir(parents=True)
    endpoint = {"Host": host, "SkipTLSVerify": skip}
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": endpoint}}))
    tls = folder / "tls" / digest / "docker"
    tls.mkdir(parents=True)
    for each in certificates.split():
        (tls / f"{each}.pem").touch()
    return tls


def test_contexts_lead_to_their_hosts() -> None:
    write_context("big", "ssh://ada@big")
    assert find_address("big") == Address("big", "ssh://ada@big", context="big")
    tls = write_context("safe", "tcp://safe:2376", certificates="ca cert key")
    files = (str(tls / "ca.pem"), str(tls / "cert.pem"), str(tls / "key.pem"))
    safe = find_address("safe")
    assert safe == Address("safe", "tcp://safe:2376", files, context="safe")
    assert Address.from_json(json.loads(json.dumps(safe.to_json()))) == safe
    write_context("lax", "tcp://safe:2376", certificates="ca cert key", skip=True)
    assert not find_address("lax").verify


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "bgi",
            r"there is no such Docker context in .*Did you mean 'big'\? "
            r"Contexts: default, big, half\.",
        ),
        ("half", r"cert\.pem is missing; ca\.pem, cert\.pem and key\.pem must be"),
    ],
)
def test_contexts_that_are_of_no_use(name: str, message: str) -> None:
    write_context("big", "ssh://ada@big")
    write_context("half", "tcp://half:2376", certificates="ca")
    with pytest.raises(ConfigurationError, match=message):
        find_address(name)


def test_a_context_that_leads_elsewhere() -> None:
    write_context("windows", "npipe:////./pipe/docker")
    with pytest.raises(ConfigurationError, match="points to 'npipe"):
        find_address("windows")
    write_context("none", None)
    with pytest.raises(ConfigurationError, match="points to 'None'"):
        find_address("none")


def test_the_environment_names_the_certificates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://here:2376")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"ca\.pem is missing"):
        find_address("default")
    for name in ("ca", "cert", "key"):
        (tmp_path / f"{name}.pem").touch()
    assert str(tmp_path / "ca.pem") in find_address("default").certificates
    assert not find_address("tcp://there:2376").verify
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    assert find_address("tcp://there:2376").verify
    assert not find_address("unix:///there").certificates


# -- the engine that nobody names


def use_context(name: str) -> None:
    folder = Path(os.environ["DOCKER_CONFIG"])
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"currentContext": name}))


def test_the_engine_is_that_of_the_docker_command(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Address("", "unix:///var/run/docker.sock")
    assert find_address() == usual
    write_context("big", "ssh://ada@big")
    write_context("small", "unix:///run/small.sock")
    assert find_address() == usual
    use_context("big")
    assert find_address() == Address("", "ssh://ada@big", context="big")
    assert find_address("default") == Address("default", usual.url)
    monkeypatch.setenv("DOCKER_CONTEXT", "small")
    assert find_address() == Address("", "unix:///run/small.sock", context="small")
    assert str(DockerBackend(SandboxSettings())) == "docker on small"
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    assert find_address() == usual
    monkeypatch.setenv("DOCKER_CONTEXT", "small")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")
    assert find_address() == Address("", "tcp://127.0.0.1:2375")
    assert str(DockerBackend(SandboxSettings())) == "docker (DOCKER_HOST=tcp://127.0.0.1:2375)"


def test_a_current_context_that_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    write_context("big", "ssh://ada@big")
    use_context("bgi")
    message = (
        r"current context is 'bgi', but there is no such Docker context in .* "
        r"Contexts: default, big\."
    )
    with pytest.raises(ConfigurationError, match=message):
        find_address()
    with pytest.raises(EngineUnavailable, match=message):
        connect()
    assert "current context is 'bgi'" in DockerBackend(SandboxSettings()).problem()
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/small.sock")
    assert find_address().url == "unix:///run/small.sock"
    monkeypatch.delenv("DOCKER_HOST")
    config = Path(os.environ["DOCKER_CONFIG"], "config.json")
    for text in ("{", "[]"):
        config.write_text(text)
        with pytest.raises(ConfigurationError, match=r"config\.json cannot be read: .*DOCKER_HOST"):
            find_address()


def test_a_folder_of_contexts_next_to_the_tests_is_not_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "task"
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    write_context("big", "tcp://elsewhere:2375")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigurationError, match="there is no such Docker context"):
        find_address("big")


# -- engines that are of no use

Listen = Callable[..., str]


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Listen]:
    """Return a function that has a socket answer each connection with the same words."""
    listeners: list[socket.socket] = []

    def answer(listener: socket.socket, words: bytes) -> None:
        kept: list[socket.socket] = []
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                for connection in kept:
                    connection.close()
                return
            kept.append(connection)
            if words:
                with connection, contextlib.suppress(OSError):
                    if connection.recv(65536):
                        connection.sendall(words)

    def start(words: bytes, *, tcp: bool = False) -> str:
        listener = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        listener.bind(("127.0.0.1", 0) if tcp else str(tmp_path / "engine.sock"))
        listener.listen()
        listeners.append(listener)
        threading.Thread(target=answer, args=(listener, words), daemon=True).start()
        if tcp:
            return f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        return f"unix://{tmp_path / 'engine.sock'}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def http(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


def said_of(url: str) -> str:
    with pytest.raises(EngineUnavailable) as caught:
        Link(find_address(url))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_engine_that_is_too_old(listen: Listen) -> None:
    url = listen(http("200 OK", b'{"ApiVersion": "1.39", "Version": "18.09"}'))
    assert said_of(url).startswith("the engine is too old: its API is of version 1.39, but 1.40")


def test_an_engine_that_does_not_answer(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (errors, link):
        monkeypatch.setattr(module, "ANSWER_TIMEOUT", 0.2)
    assert said_of(listen(b"")) == "no answer within 0.2 seconds"


@pytest.mark.parametrize("url", ["ssh://ada:secret@big", "ssh://big:port", "ssh://big?x=1"])
def test_an_address_that_cannot_be_one_is_one_line(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", url)
    with pytest.raises(EngineUnavailable, match="is needed, without a password") as error:
        connect()
    assert "secret" not in str(error.value)


def test_nobody_is_there(listen: Listen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = f"unix://{tmp_path}/none.sock"
    assert said_of(there) == "no Docker engine answers there: No such file or directory"
    monkeypatch.setenv("DOCKER_HOST", there)
    with pytest.raises(EngineUnavailable, match=f"answers at {there}: No such file or directory. "):
        connect()
    hangs_up = listen(b"\r\n")
    assert said_of(hangs_up).startswith("no Docker engine answers there: ")


@pytest.mark.skipif(not shutil.which("openssl"), reason="certificates are made by openssl")
def test_tls_that_does_not_match(
    listen: Listen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tests.support.second_engine import make_certificates

    plain = listen(http("200 OK", b"{}"), tcp=True)
    refusing = b"Client sent an HTTP request to an HTTPS server.\n"
    assert said_of(listen(http("400 Bad Request", refusing), tcp=True)).startswith(
        "TLS: the engine requires it; set DOCKER_TLS_VERIFY=1"
    )
    make_certificates(tmp_path)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path / "client"))
    assert said_of(plain).startswith("TLS: the engine does not use it there")
    monkeypatch.setenv("DOCKER_HOST", plain)
    with pytest.raises(EngineUnavailable, match=f"the Docker engine at {plain}: TLS: the engine d"):
        connect()
    (tmp_path / "client" / "key.pem").write_text("no key")
    assert said_of(plain).endswith("client/key.pem is invalid, or they do not match")


@pytest.mark.skipif(not shutil.which("openssl"), reason="certificates are made by openssl")
def test_a_certificate_of_somebody_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tests.support.second_engine import make_certificates

    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
        make_certificates(tmp_path / name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs = tmp_path / "theirs" / "engine"
    context.load_cert_chain(theirs / "cert.pem", theirs / "key.pem")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        try:
            context.wrap_socket(connection, server_side=True)
        except OSError:
            connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path / "ours" / "client"))
    said = said_of(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
    assert said.startswith("TLS: its certificate is not accepted: ")
    assert said.endswith(f"({tmp_path}/ours/client/ca.pem)")
    thread.join(5)
    listener.close()
