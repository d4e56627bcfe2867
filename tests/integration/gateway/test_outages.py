"""A model that cannot be reached: what no agent can cause is no fault of its, all else is."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.errors import InfrastructureError
from tests.conftest import results
from tests.integration.agents.test_installed import RECIPE
from tests.integration.gateway.conftest import KEY, ROUTES, Gateways, ask, body, opened
from tests.integration.gateway.test_programs import AGENT, COMMAND
from tests.support.installed import SUPPORT, World
from tests.support.model_server import ModelServer, Step
from tests.support.token_server import claude_login

Serve = Callable[[int, int], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers that answer POST and GET with a status each, and returns their address.

    As proxies, they want a password that they do not take. A limit is reset after an hour.
    """
    servers: list[http.server.HTTPServer] = []

    def start(post: int, get: int) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def _answer(self, status: int) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                data = b'{"error": {"message": "no"}}'
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                if status == 429:
                    self.send_header("retry-after", "4000")
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self) -> None:
                self._answer(post)

            def do_GET(self) -> None:
                assert "attack" not in str(self.headers)
                self._answer(get)

            def do_CONNECT(self) -> None:
                self._answer(407)

            def log_message(self, *_: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        name = "intercode-server"  # as one of ours, or an agent is taken to have left it
        threading.Thread(target=server.serve_forever, name=name, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def closed_address() -> str:
    """Return an address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("api", ROUTES)
def test_a_server_without_a_connection_is_an_outage(api: str, gateways: Gateways) -> None:
    address = closed_address()
    session, _ = opened(gateways(address))
    assert session.outage() == ""  # nothing was asked
    assert ask(session, ROUTES[api], body(api)).status == 502
    session.close()
    assert f"the server {address}/v1 cannot be used: " in session.outage()
    assert "refused" in session.outage()


def test_a_name_that_does_not_exist_is_an_outage(gateways: Gateways) -> None:
    session, _ = opened(gateways("http://no-such-host.invalid"))
    assert ask(session, ROUTES["chat"], body("chat")).status == 502
    assert "the server http://no-such-host.invalid/v1 cannot be used" in session.outage()


@pytest.mark.parametrize(
    ("proxy", "cause"),
    [
        ("http://me:wrong@{host}", "the proxy answered with status 407 Proxy Authentication"),
        ("me:wrong@{host}", "an address such as http://proxy.example:3128 is needed"),
        ("http://me:wrong@{closed_host}", "Connection refused"),
    ],
    ids=["password", "no-scheme", "refused"],
)
def test_a_proxy_that_makes_no_connection_is_an_outage(
    proxy: str,
    cause: str,
    serve: Serve,
    gateways: Gateways,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = {"host": serve(200, 200), "closed_host": closed_address()}
    hosts = {name: address.removeprefix("http://") for name, address in hosts.items()}
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("https_proxy", proxy.format_map(hosts))
    session, _ = opened(gateways("https://model.example"))
    assert ask(session, ROUTES["chat"], body("chat")).status == 502
    outage = session.outage()
    name = proxy.replace("me:wrong@", "").format_map(hosts)
    server = f"the server https://model.example/v1, through the proxy {name}, cannot be used"
    assert outage.startswith(f"{server}: {cause}")
    assert "wrong" not in outage + str(session.refusals)


@pytest.mark.parametrize(
    ("post", "get", "outage"),
    [
        (401, 401, True),
        (403, 403, True),
        (403, 401, True),
        (401, 200, False),  # the agent's own request has led to it
        (403, 404, False),
        (500, 500, False),  # a request may have broken the server
        (503, 401, False),
        (429, 429, False),  # many requests may have
        (400, 401, False),
    ],
)
def test_what_a_status_says(
    post: int, get: int, outage: bool, serve: Serve, gateways: Gateways
) -> None:
    session, _ = opened(gateways(serve(post, get)))
    for _ in range(2):
        answer = ask(session, ROUTES["chat"], body("chat"), headers={"user-agent": "attack"})
        assert answer.status == post
    said = session.outage()
    assert bool(said) == outage
    assert not outage or f"refuses the key: status {get}" in said


def test_a_login_whose_limit_is_reached_shows_a_server_that_works(
    serve: Serve, gateways: Gateways, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    claude_login(tmp_path)
    upstreams = {"anthropic": serve(403, 429)}
    session, _ = opened(gateways("", upstreams=upstreams, keys={}, logins=("claude",)))
    assert ask(session, ROUTES["messages"], body("messages")).status == 403
    assert session.outage() == ""


def test_an_episode_that_was_served_once_has_no_outage(gateways: Gateways) -> None:
    with ModelServer(["hello"]) as server:
        session, _ = opened(gateways(server))
        assert ask(session, ROUTES["chat"], body("chat")).status == 200
    assert ask(session, ROUTES["chat"], body("chat")).status == 502
    assert session.outage() == ""


def test_a_request_that_breaks_the_server_is_no_outage(gateways: Gateways) -> None:
    """The server ends in the middle of the first request, and is gone for all others."""
    with ModelServer([Step(fault="drop")]) as server:
        session, _ = opened(gateways(server))
        assert ask(session, ROUTES["chat"], body("chat")).status == 502
    assert ask(session, ROUTES["chat"], body("chat")).status == 502
    assert session.outage() == ""


def test_the_server_of_another_vendor_is_no_excuse(serve: Serve, gateways: Gateways) -> None:
    """An agent that asks where it knows that the key is refused could have asked elsewhere."""
    with ModelServer(["hello"]) as server:
        upstreams = {"openai": f"{server.url}/v1", "anthropic": serve(401, 401)}
        session, _ = opened(gateways(server, upstreams=upstreams))
        assert ask(session, ROUTES["messages"], body("messages")).status == 401
        assert session.outage() == ""
        keys = {"openai": KEY}
        upstreams = {"openai": f"{server.url}/v1"}
        assert gateways(server, upstreams=upstreams, keys=keys).settings.configured == ("openai",)


def test_requests_are_refused_once_a_server_is_gone_for_long(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_intercode.gateway.session._RECOVERY_TIMEOUT", 0.0)
    session, _ = opened(gateways(closed_address()))
    statuses = [ask(session, ROUTES["chat"], body("chat")).status for _ in range(4)]
    assert statuses == [502, 502, 502, 401]


def test_an_installed_agent_without_a_model_has_no_outcome_of_its_own(
    bubblewrap: None, tmp_path: Path
) -> None:
    (tmp_path / "program").mkdir()
    program = (SUPPORT / "installed_program.py").read_text()
    (tmp_path / "program" / "installed_program.py").write_text(program)
    (tmp_path / "mine.yaml").write_text(RECIPE)
    world = World("bubblewrap", "installed:mine.yaml", {"model": "m"}, tmp_path)
    try:
        world.server.__exit__(None, None, None)
        with pytest.raises(
            InfrastructureError, match=r"^no model could be reached: the server http"
        ):
            world.play()
    finally:
        world.provider.close()
        world.factory.close()


GOES_ON = """\
import json
try:
    ask()
except SystemExit:
    print(json.dumps({"action": "echo hello"}), flush=True)
    input()
    print(json.dumps({"submit": ""}), flush=True)
"""


@pytest.mark.parametrize(
    ("address", "loop", "outcome"),
    [
        ("closed", "ask()", "infrastructure-error"),
        ("closed", GOES_ON, "solved"),
        ("closed", "import sys; sys.exit('it did not even ask')", "agent-error"),
        ("broken", "ask()", "agent-error"),
    ],
    ids=["it-fails", "it-goes-on", "it-asks-nothing", "status-500"],
)
def test_a_program_without_a_model(
    address: str,
    loop: str,
    outcome: str,
    serve: Serve,
    pytester: pytest.Pytester,
    pretend: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = closed_address() if address == "closed" else serve(500, 500)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    program = AGENT[: AGENT.index("while True:")] + loop
    (pytester.path / "agent.py").write_text(program)
    pytester.runpytest(
        *("suite.yaml", "-k=prints", f"--intercode-agent={COMMAND}", "-pno:cacheprovider"),
        *("--intercode-results=r.jsonl", "--intercode-timeout=60", "--intercode-gateway"),
    )
    [row] = results(pytester.path / "r.jsonl")
    assert row["outcome"] == outcome, row["reason"]
    if outcome == "infrastructure-error":
        assert row["reason"].startswith(f"no model could be reached: the server {url}/v1 cannot")
    if address == "broken":
        assert "status 500" in row["reason"]
