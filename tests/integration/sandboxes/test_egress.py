"""A network that is limited to a few hosts, on each backend, against real servers and a real DNS.

The servers are in network namespaces of the tests' own, so nothing here reaches another machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_intercode.agents.loader import adapt
from pytest_intercode.core.task import Limits
from pytest_intercode.errors import SandboxError
from pytest_intercode.plugin.reports import trajectory_tail
from pytest_intercode.results.format import from_line, to_line
from pytest_intercode.rollouts.inline import InlineExecutor
from pytest_intercode.rollouts.rollout import Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.egress.process import LOST
from pytest_intercode.sandboxes.protocol import HOST, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.loader import load_suite
from tests.support.world import GOOD, METADATA, OTHER, PRIVATE, SIX, World, made_world, obstacle

SOON = 20.0
NAMES = {
    "good.test": GOOD,
    "other.test": OTHER,
    "inner.test": PRIVATE,
    "cloud.test": METADATA,
    "six.test": SIX,
    "a.wide.test": GOOD,
}
HOSTS = ("good.test", "good.test:22", "inner.test:80", "cloud.test:80", "six.test:22", "gone.test")
Launch = Callable[..., AttachedSandbox]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Return the network, with this thread in it."""
    if obstacle():
        pytest.skip(obstacle())
    with made_world() as made, made.entered():
        yield made


@pytest.fixture(autouse=True)
def _names(world: World) -> None:
    world.names = {name: [[address]] for name, address in NAMES.items()}
    world.asked.clear()
    world.met.clear()


def begun(name: str, request: pytest.FixtureRequest) -> DockerEngine | Bubblewrap:
    """Return an engine that is begun in the network, as its proxy has to be."""
    if name == "docker":
        request.getfixturevalue("docker_engine")
        return DockerEngine()
    request.getfixturevalue("bubblewrap")
    return Bubblewrap(root=False if name == "bubblewrap-user" else None)


@pytest.fixture(
    scope="module",
    params=[
        "bubblewrap",
        pytest.param("docker", marks=pytest.mark.slow),
        pytest.param("bubblewrap-user", marks=pytest.mark.slow),
    ],
)
def engine(request: pytest.FixtureRequest, world: World) -> Iterator[DockerEngine | Bubblewrap]:
    """Return an engine. What is alike on all is asked of one every day."""
    made = begun(request.param, request)
    yield made
    made.close()


@pytest.fixture(scope="module")
def box(
    engine: DockerEngine | Bubblewrap, request: pytest.FixtureRequest
) -> Iterator[AttachedSandbox]:
    """Return a sandbox that may reach the usual hosts."""
    started = engine.launch(spec_for(engine, request, HOSTS))
    yield started
    started.close()


@pytest.fixture
def launch(engine: DockerEngine | Bubblewrap, request: pytest.FixtureRequest) -> Iterator[Launch]:
    """Return what starts a sandbox that may reach some hosts."""
    started: list[AttachedSandbox] = []

    def start(*hosts: str) -> AttachedSandbox:
        started.append(engine.launch(spec_for(engine, request, hosts)))
        return started[-1]

    yield start
    for each in started:
        each.close()


def spec_for(
    engine: DockerEngine | Bubblewrap, request: pytest.FixtureRequest, hosts: tuple[str, ...]
) -> SandboxSpec:
    docker = isinstance(engine, DockerEngine)
    image = request.getfixturevalue("bash_image") if docker else HOST
    return SandboxSpec(image, Limits(hosts=hosts), hostname="sandbox")


def said(box: AttachedSandbox, action: str) -> str:
    execution = box.run(action, SOON)
    assert execution.ended == "itself", execution
    return execution.output.decode()


def fetched(box: AttachedSandbox, host: str, port: int = 80, words: str = "") -> str:
    """Return what a program gets that knows no proxy."""
    request = words or f"GET /a HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n"
    return said(
        box, f"exec 9<>/dev/tcp/{host}/{port} && printf '{request}' >&9 && cat <&9; exec 9>&-"
    )


# -- what is allowed


@pytest.mark.parametrize("name", ["docker", "bubblewrap-user"])
def test_every_backend(name: str, world: World, request: pytest.FixtureRequest) -> None:
    """The least of all that follows."""
    engine = begun(name, request)
    try:
        box = engine.launch(spec_for(engine, request, ("good.test", f"[{SIX}]:22")))
        assert f"{GOOD}:80 GET /a for good.test" in fetched(box, "good.test")
        assert f"{GOOD}:443 GET / for good.test" in said(box, "curl -sSk https://good.test")
        assert said(box, f"exec 9<>/dev/tcp/{SIX}/22; head -1 <&9; exec 9>&-") == "hello\n"
        assert "refused" in said(
            box, f"exec 9<>/dev/tcp/{METADATA}/80; curl -sS http://other.test/"
        )
        assert box.refused() == ["other.test:80", f"{METADATA}:80"]
        box.close()
    finally:
        engine.close()


def test_programs_that_know_no_proxy(box: AttachedSandbox) -> None:
    assert f"{GOOD}:80 GET /a for good.test" in fetched(box, "good.test")
    echo = "exec 9<>/dev/tcp/{}/22; head -1 <&9; echo one >&9; head -1 <&9; exec 9>&-"
    assert said(box, echo.format("good.test")) == "hello\noneone\n"
    assert said(box, echo.format("six.test")) == "hello\noneone\n"
    big = "curl -sS --noproxy '*' http://good.test/big/3000000 | tr -d '\\n' | wc -c"
    assert said(box, big) == "3000000\n"
    assert box.refused() == []


def test_programs_that_use_the_proxy(box: AttachedSandbox) -> None:
    assert f"{GOOD}:80 GET /b?c=d for good.test with 0" in said(
        box, "curl -sS http://good.test/b?c=d"
    )
    assert f"{GOOD}:80 POST / for good.test with 5000" in said(
        box, "head -c 5000 /dev/zero | curl -sS --data-binary @- http://good.test"
    )
    assert f"{GOOD}:443 GET / for good.test" in said(box, "curl -sSk https://good.test")
    assert f"{GOOD}:443 GET / for good.test" in said(
        box, "curl -sSk --noproxy '*' https://good.test"
    )
    assert box.refused() == []


@pytest.mark.slow
def test_loopback_is_still_there(box: AttachedSandbox) -> None:
    serve = "python3 -m http.server -b 127.0.0.1 8000 >/dev/null 2>&1 & "
    wait = "until curl -sf http://localhost:8000/ >/dev/null; do sleep .05; done; "
    assert (
        said(box, f"{serve}{wait}curl -s http://127.0.0.1:8000/ | head -c 9; kill %1")
        == "<!DOCTYPE"
    )
    assert box.refused() == []


def test_patterns_addresses_and_networks(launch: Launch) -> None:
    box = launch("*.wide.test", f"{OTHER}:80", "10.66.0.0/16:80", f"[{SIX}]:22")
    assert f"{GOOD}:80" in fetched(box, "a.wide.test")
    assert f"{GOOD}:443" in said(box, "curl -sSk --noproxy '*' https://a.wide.test")
    assert f"{OTHER}:80" in fetched(box, OTHER)
    assert f"{PRIVATE}:80" in fetched(box, PRIVATE)
    assert f"{PRIVATE}:80" in said(box, f"curl -sS http://{PRIVATE}/")
    assert said(box, f"exec 9<>/dev/tcp/{SIX}/22; head -1 <&9; exec 9>&-") == "hello\n"
    assert box.refused() == []
    for name in ("wide.test", "awide.test", "a.wide.test.evil.test"):
        assert "not" in said(box, f"getent hosts {name} || echo not")
        assert name in box.refused()


# -- what is refused, and named


def refusal(box: AttachedSandbox, action: str) -> tuple[str, list[str]]:
    return said(box, action), box.refused()


def test_other_hosts(box: AttachedSandbox, world: World) -> None:
    output, refused = refusal(box, "exec 9<>/dev/tcp/other.test/80")
    assert "other.test" in output
    assert refused == ["other.test"]
    output, refused = refusal(
        box, "curl -sS http://other.test/a; curl -sS https://other.test; true"
    )
    assert "other.test:80 is refused: this sandbox may reach good.test, " in output
    assert "response 403" in output or "code 403" in output
    assert refused == ["other.test:80", "other.test:443"]
    # A name that is allowed, in other places of a request.
    for target in ("http://good.test@other.test/", "http://other.test/http://good.test/"):
        assert "is refused" in said(box, f"curl -sS '{target}'")
        assert any("other.test" in line for line in box.refused())
    assert world.met == []
    assert world.asked == []


def test_other_ports(box: AttachedSandbox, world: World) -> None:
    output, refused = refusal(box, "exec 9<>/dev/tcp/good.test/8080; echo >/dev/udp/good.test/80")
    assert "refused" in output
    assert refused == ["good.test:8080", "good.test:80 (UDP)"]
    output, refused = refusal(box, "curl -sS http://good.test:8080/")
    assert "good.test:8080 is refused" in output
    assert refused == ["good.test:8080"]
    assert world.met == []


@pytest.mark.parametrize("address", [GOOD, METADATA, PRIVATE, "10.77.0.2", f"{SIX}"])
def test_addresses_in_place_of_names(box: AttachedSandbox, world: World, address: str) -> None:
    shown = f"[{address}]" if ":" in address else address
    output, refused = refusal(box, f"exec 9<>/dev/tcp/{address}/80")
    assert "refused" in output
    assert refused == [f"{shown}:80"]
    output, refused = refusal(
        box, f"curl -sS -g 'http://{shown}/'; curl -sSk -g 'https://{shown}/'"
    )
    assert f"{shown}:80 is refused" in output
    assert refused == [f"{shown}:80", f"{shown}:443"]
    assert world.met == []


def test_old_forms_of_addresses(box: AttachedSandbox, world: World) -> None:
    connect = (
        "exec 8<>/dev/tcp/127.88.0.1/3128; printf 'CONNECT {} HTTP/1.1\\r\\n\\r\\n' >&8; "
        "head -1 <&8; exec 8>&-"
    )
    for target in ("2130706433:80", "0x7f.1:22", "127.1:22", "0:22", "[::ffff:127.0.0.1]:22"):
        assert "403" in said(box, connect.format(target)), target
    assert len(box.refused()) == 5
    for target in ("good.test", "good.test:0", "good.test:65536", ":80", "[good.test:80", "a b:80"):
        assert "400" in said(box, connect.format(target)), target
    assert world.met == []


def test_udp_and_other_name_servers(box: AttachedSandbox, world: World) -> None:
    said(box, "echo hi >/dev/udp/8.8.8.8/53")
    assert box.refused() == ["8.8.8.8:53 (UDP)"]
    secret = "c2VjcmV0" * 6
    output, refused = refusal(box, f"getent hosts {secret}.good.test; getent ahosts {secret}.test")
    assert (output, refused) == ("", [f"{secret}.good.test", f"{secret}.test"])
    assert world.asked == []


def test_redirects(box: AttachedSandbox, world: World) -> None:
    output, refused = refusal(box, "curl -sSL http://good.test/to/http://other.test/x")
    assert "other.test:80 is refused" in output
    assert refused == ["other.test:80"]
    assert world.met == [(GOOD, 80)]


def test_another_name_within_tls(box: AttachedSandbox, world: World) -> None:
    front = "curl -skS {} --connect-to other.test:443:good.test:443 https://other.test/"
    for how in ("", "--noproxy '*'"):
        output, refused = refusal(box, front.format(how))
        assert OTHER not in output
        assert "for other.test" not in output
        assert refused == ["other.test:443 (TLS on a connection to good.test:443)"]


def test_another_host_within_http(box: AttachedSandbox, world: World) -> None:
    words = "GET /a HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n"
    assert fetched(box, "good.test", words=words) in ("", "cat: -: Connection reset by peer\n")
    assert box.refused() == ["other.test:80 (HTTP on a connection to good.test:80)"]
    two = f"GET /a HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n{words}"
    assert "other.test" not in fetched(box, "good.test", words=two)
    for odd in (
        "GET /a HTTP/1.1\\r\\nHost: good.test\\r\\nHost: other.test\\r\\n\\r\\n",
        "GET http://other.test/ HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n",
        "POST / HTTP/1.1\\r\\nHost: good.test\\r\\nContent-Length: 3\\r\\n"
        "Transfer-Encoding: chunked\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\n Host: other.test\\r\\nHost: good.test\\r\\n\\r\\n",
        # as servers take it, too
        "GET /a HTTP/1.1\\nHost: other.test\\n\\n",
        "GET /a HTTP/1.1\\r\\nHost: other.test\\n\\n",
        "\\r\\nGET /a HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n",
        "GET  /a HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n",
        "GET /a HTTP/1.2\\r\\nHost: other.test\\r\\n\\r\\n",
        f"GET /{'a' * 9000} HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n",
    ):
        assert "GET" not in fetched(box, "good.test", words=odd)
        assert box.refused() == ["good.test:80 (its HTTP cannot be read)"]
    end = (
        "import socket\ns = socket.create_connection(('good.test', 80))\n"
        r"s.send(b'GET /a HTTP/1.1\r\nHost: other.test\r\n'); s.shutdown(1); print(s.recv(99))"
    )
    assert "for other.test" not in said(box, f"python3 - <<'X' 2>&1\n{end}\nX")
    assert box.refused() == ["good.test:80 (it does not say whom it means)"]


def test_names_with_addresses_of_this_network(box: AttachedSandbox, world: World) -> None:
    for name, address in (("inner.test", PRIVATE), ("cloud.test", METADATA)):
        output, refused = refusal(box, f"curl -sS http://{name}/")
        assert f"{name}:80 (its address {address} is not public" in output
        assert len(refused) == 1
        assert address not in dict(world.met)


def test_a_public_address_of_this_machine(launch: Launch, world: World) -> None:
    world.names["self.test"] = [["10.77.0.1"]]
    world.names["self6.test"] = [["2a00:1450:77::1"]]  # public by its number
    box = launch("self.test", "self6.test")
    for name in ("self.test", "self6.test"):
        assert "is not public" in said(box, f"curl -sS http://{name}/")


def test_a_name_that_changes_its_address(launch: Launch, world: World) -> None:
    box = launch("turns.test:80")
    world.names["turns.test"] = [[GOOD], [PRIVATE], [PRIVATE, GOOD]]
    assert f"{GOOD}:80" in said(box, "curl -sS http://turns.test/")
    assert world.asked == ["turns.test"]  # once, and what was checked is what was connected to
    assert "is not public" in said(box, "curl -sS http://turns.test/")
    assert f"{GOOD}:80" in fetched(box, "turns.test")  # what may not be reached is left out
    assert {address for address, _ in world.met} == {GOOD}


def test_what_cannot_be_reached_is_not_refused(box: AttachedSandbox) -> None:
    assert "gone.test has no address" in said(box, "curl -sS http://gone.test/")
    assert box.refused() == []


# -- limits


@pytest.mark.slow
def test_many_connections_wait(launch: Launch, world: World) -> None:
    box = launch("good.test:22", "good.test:80")
    hold = (
        "import socket\n"
        "held = [socket.create_connection(('good.test', 22), 5) for _ in range(100)]\n"
        "held[0].settimeout(5); held[99].settimeout(.3)\n"
        "print(held[0].recv(9))\n"
        "try: print(held[99].recv(9))\n"
        "except OSError as error: print(type(error).__name__)\n"
        "for each in held[:60]: each.close()\n"
        "held[99].settimeout(5)\n"
        "print(held[99].recv(9))\n"
    )
    output = said(box, f"python3 - <<'X'\n{hold}X")
    assert output.split() == [r"b'hello\n'", "TimeoutError", r"b'hello\n'"]
    assert f"{GOOD}:80" in fetched(box, "good.test")
    assert box.refused() == []


def test_what_is_told_has_an_end(box: AttachedSandbox) -> None:
    flood = (
        "import socket\n"
        "for n in range(300):\n"
        "  try: socket.gethostbyname(f'x{n}.test')\n"
        "  except OSError: pass"
    )
    said(box, f'python3 -c "{flood}"')
    refused = box.refused()
    assert (len(refused), refused[-1]) == (101, "and more")
    odd = "curl -sS $'http://other.test\\x1b[31m::error::/' ; getent hosts '::error::x'; true"
    said(box, odd)
    assert all(line.isprintable() and len(line) <= 280 for line in box.refused())


@pytest.mark.slow
def test_slow_and_broken_requests_are_nobody_elses(launch: Launch) -> None:
    slow, good = launch("good.test"), launch("good.test")
    attack = (
        "import socket, os\n"
        "for n in range(60):\n"
        "  s = socket.create_connection(('127.88.0.1', 3128))\n"
        "  s.send(b'GET http://good.te'); s.detach()\n"
        "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for n in range(2000): u.sendto(os.urandom(40), ('127.88.0.1', 53))\n"
        "os.execlp('sleep', 'sleep', '60')"
    )
    said(slow, f"python3 - <<'X' &\n{attack}\nX\nsleep .3")
    began = time.monotonic()
    assert f"{GOOD}:80" in fetched(good, "good.test")
    assert time.monotonic() - began < 5
    assert good.refused() == []


# -- its life


def proxy_of(engine: DockerEngine | Bubblewrap) -> int:
    process = engine._egress._process
    assert process is not None
    return process.pid


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def until(holds: Callable[[], bool], seconds: float = 5.0) -> bool:
    limit = time.monotonic() + seconds
    while not holds() and time.monotonic() < limit:
        time.sleep(0.01)
    return holds()


def test_it_ends_with_its_sandbox(engine: DockerEngine | Bubblewrap, launch: Launch) -> None:
    launch("good.test:22")  # begins the proxy
    pid = proxy_of(engine)
    before = descriptors(pid)
    box = launch("good.test:22")
    said(box, "exec 9<>/dev/tcp/good.test/22; head -1 <&9")
    assert descriptors(pid) > before
    box.close()
    assert until(lambda: descriptors(pid) <= before)
    assert proxy_of(engine) == pid


def test_the_proxy_has_no_rights(engine: DockerEngine | Bubblewrap, box: AttachedSandbox) -> None:
    status = Path(f"/proc/{proxy_of(engine)}/status").read_text()
    assert "Uid:\t65534\t65534\t65534\t65534" in status
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status


def test_a_lost_proxy_excuses_nobody(engine: DockerEngine | Bubblewrap, launch: Launch) -> None:
    box = launch("good.test:22")
    os.kill(proxy_of(engine), signal.SIGKILL)
    assert engine._egress._process is not None
    engine._egress._process.wait(5)
    # On a busy machine bubblewrap's starter may not have closed its own copies of the sockets yet.
    assert until(lambda: "refused" in said(box, "exec 9<>/dev/tcp/good.test/22"))
    assert box.refused() == [LOST]
    assert box.refused() == []
    assert said(box, "echo on") == "on\n"
    again = launch("good.test:22")
    assert said(again, "exec 9<>/dev/tcp/good.test/22; head -1 <&9; exec 9>&-") == "hello\n"


def test_a_proxy_that_does_not_answer_is_begun_again(
    engine: DockerEngine | Bubblewrap, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_intercode.sandboxes.egress.process._START_TIMEOUT", 1.0)
    launch("good.test:22")
    os.kill(proxy_of(engine), signal.SIGSTOP)
    with pytest.raises(SandboxError, match="the proxy of limited networks does not answer"):
        launch("good.test:22")
    box = launch("good.test:22")
    assert said(box, "exec 9<>/dev/tcp/good.test/22; head -1 <&9; exec 9>&-") == "hello\n"


CLIENT = """
import sys, time
from pytest_intercode.core.task import Limits
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.protocol import HOST, SandboxSpec
engine = Bubblewrap()
box = engine.launch(SandboxSpec(HOST, Limits(hosts=("good.test:22",))))
box.run("exec 9<>/dev/tcp/good.test/22; sleep 1000 <&9 &", 5)
print(engine._egress._process.pid, box.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_it_ends_with_its_client(world: World, bubblewrap: Bubblewrap) -> None:
    with subprocess.Popen([sys.executable, "-c", CLIENT], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        left = [Path("/proc", word) for word in client.stdout.readline().decode().split()]
        assert len(left) == 2
        assert all(map(Path.exists, left))
        client.kill()
    assert until(lambda: not any(map(Path.exists, left)))


def test_nothing_is_begun_without_need(launch: Launch, engine: DockerEngine | Bubblewrap) -> None:
    made = type(engine)()
    try:
        assert made._egress._process is None
    finally:
        made.close()
    box = launch()
    assert "unreachable" in said(box, "exec 9<>/dev/tcp/8.8.8.8/22")
    assert "proxy" not in said(box, "env")
    assert box.refused() == []


# -- in an episode

SUITE = """
env: bash
defaults: {workdir: /work, network: [good.test]}
tasks:
  - id: fetches
    query: Fetch http://good.test/a into out.txt.
    gold: curl -sS http://good.test/a -o out.txt
  - id: alone
    query: Print the word alone.
    gold: echo alone
    network: []
"""


def test_an_episode_says_what_was_refused(world: World, tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE)
    fetches, alone = load_suite(path).tasks
    assert fetches.limits.hosts == ("good.test",)
    assert (alone.limits.hosts, alone.limits.network) == ((), False)
    provider = SandboxProvider(SandboxSettings("bubblewrap"))
    script = ["curl -sS http://other.test/", "exec 9<>/dev/tcp/8.8.8.8/22", *fetches.gold, "submit"]
    try:
        services = Services(provider, lambda spec: adapt(_Scripted(script)))
        handle = InlineExecutor(services).submit(RolloutSpec(fetches, timeout=SOON))
        try:
            record = handle.record(handle.agent(), handle.environment())
        finally:
            handle.close()
    finally:
        provider.close()
    assert record.outcome == "solved", record.reason
    first, second, third, _ = (turn.observation for turn in record.turns)
    assert first.endswith("[refused by the network of this sandbox: other.test:80]\n")
    assert second.endswith("[refused by the network of this sandbox: 8.8.8.8:22]\n")
    assert third == ""
    assert record.refused_hosts == ("other.test:80", "8.8.8.8:22")
    assert from_line(to_line(record)).refused_hosts == record.refused_hosts
    assert "refused by the sandbox's network: other.test:80" in trajectory_tail(record)


class _Scripted:
    def __init__(self, actions: list[str]) -> None:
        self._actions = list(actions)

    def act(self, observation: str) -> str:
        return self._actions.pop(0)
