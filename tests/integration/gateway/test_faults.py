"""A server that refuses, stalls, answers nonsense or is not there; clients that leave."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.usage import Budget, Usage
from pytest_intercode.gateway.exchange import Exchange
from pytest_intercode.gateway.session import Session
from tests.integration.gateway.conftest import KEY, ROUTES, Gateways, ask, body, opened, path_of
from tests.support.model_server import Command, ModelServer, Spent, Step, Tool

HTML = "<html><body>Sign in first</body></html>"


@pytest.mark.parametrize("api", ROUTES)
@pytest.mark.parametrize(
    ("step", "status", "said"),
    [
        (
            Step(body=HTML, content_type="text/html"),
            502,
            "sent what is not JSON: '<html><body>Sign",
        ),
        (Step(body={"hello": 1}), 502, 'sent what is not an answer of this API: \'{"hello": 1}'),
        (Step(body="[1]"), 502, "sent what is not JSON"),
        (Step(body=""), 502, "sent what is not JSON"),
        (Step(status=302, body="", headers={"location": "http://x/"}), 502, "redirects, which is"),
        (Step(status=503, body=HTML, content_type="text/html"), 503, "the server answered 503: <"),
        (Step(status=429, text="slow down", headers={"retry-after": "7"}), 429, "slow down"),
        (Step(status=401, text=f"no such key: {KEY}"), 401, "no such key: ***"),
    ],
    ids=["html", "another-object", "no-object", "empty", "redirect", "busy", "limit", "key"],
)
def test_a_server_that_answers_otherwise(
    api: str, step: Step, status: int, said: str, gateways: Gateways
) -> None:
    with ModelServer([step]) as server:
        session, ledger = opened(gateways(server))
        answer = ask(session, ROUTES[api], body(api))
        assert answer.status == status
        assert said in answer.message
        if api == "messages" and step.status in (200, 503):
            assert answer.json["type"] == "error"
        assert answer.headers.get("retry-after") == step.headers.get("retry-after")
        assert answer.headers.get("x-should-retry") == ("false" if status == 401 else None)
        [line] = session.refusals
        assert server.url in line
        assert KEY not in line + str(answer.body)
        assert not ledger.usage
        assert len(server.requests) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(
    ("key", "shown"),
    [("test", "test"), ("EMPTY", "EMPTY"), ("sk-none", "sk-none"), (KEY, "***")],
)
def test_a_key_is_masked_only_where_it_can_be_a_secret(
    key: str, shown: str, stream: bool, gateways: Gateways, tmp_path: Path
) -> None:
    part = {"message": {"content": f"pytest tests/ {key}"}, "delta": {"content": f"test {key}"}}
    whole = {"choices": [{**part, "finish_reason": "stop"}]}
    step = Step(body=whole)
    if stream:
        text = f"data: {json.dumps(whole)}\n\ndata: [DONE]\n\n"
        step = Step(body=text, content_type="text/event-stream")
    with ModelServer([step]) as server:
        keys = {"openai": key, "anthropic": key}
        session, _ = opened(gateways(server, keys=keys, record=tmp_path))
        answer = ask(session, ROUTES["chat"], body("chat", stream=stream))
    assert f'"pytest tests/ {shown}"' in answer.body.decode()
    [recorded] = tmp_path.glob("*/*.json")
    assert f"pytest tests/ {shown}" in recorded.read_text()
    assert KEY not in recorded.read_text()


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("api", ROUTES)
def test_a_server_that_is_not_there(api: str, stream: bool, gateways: Gateways) -> None:
    with ModelServer(["x"]) as server:
        url = server.url
    session, _ = opened(gateways(server))
    answer = ask(session, ROUTES[api], body(api, stream=stream))
    assert answer.status == 502
    assert "cannot be used: Connection refused" in answer.message
    address = f"{url}/v1" if api in ("chat", "responses") else url
    assert session.refusals == [f"the server {address} cannot be used: Connection refused"]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_a_server_that_is_silent(stream: bool, gateways: Gateways) -> None:
    with ModelServer([Step("x", fault="silent")]) as server:
        session, ledger = opened(gateways(server, silence=0.2))
        answer = ask(session, ROUTES["messages"], body("messages", stream=stream))
        assert answer.status == 504
        assert answer.message.endswith("was silent for 0.2 s")
        assert answer.json["error"]["type"] == "api_error"
        [exchange] = session.exchanges
        assert (exchange.answer, exchange.complete) == ({}, False)
        # The server took the request, and may have thought for all that time.
        assert ledger.usage == Usage(1, exchange.usage.input_tokens)
        assert ledger.usage.input_tokens > 10


@pytest.fixture
def breaking_server() -> Iterator[Callable[[int, str], str]]:
    """Starts servers that begin with a status and a content type, and break off."""
    with contextlib.ExitStack() as servers:

        def start(status: int, content_type: str) -> str:
            class Handler(http.server.BaseHTTPRequestHandler):
                def do_POST(self) -> None:
                    self.rfile.read(int(self.headers["content-length"]))
                    self.send_response(status)
                    self.send_header("content-type", content_type)
                    self.send_header("content-length", "1000")
                    self.end_headers()
                    self.wfile.write(b'data: {"choices": [')

                def log_message(self, *_: object) -> None:
                    pass

            server = servers.enter_context(http.server.HTTPServer(("127.0.0.1", 0), Handler))
            threading.Thread(target=server.serve_forever, name="intercode-server").start()
            servers.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield start


@pytest.mark.parametrize(
    ("status", "content_type", "is_paid"),
    [
        (200, "application/json", True),
        (200, "text/event-stream", True),
        (503, "application/json", False),
        (307, "application/json", False),
    ],
)
def test_an_answer_that_breaks_off_at_once_is_paid_unless_it_is_a_refusal(
    status: int,
    content_type: str,
    is_paid: bool,
    breaking_server: Callable[[int, str], str],
    gateways: Gateways,
) -> None:
    session, ledger = opened(gateways(breaking_server(status, content_type)))
    streamed = content_type == "text/event-stream"
    assert ask(session, ROUTES["chat"], body("chat", stream=streamed)).status == 502
    assert (ledger.usage.input_tokens > 10) == is_paid
    assert [exchange.complete for exchange in session.exchanges] == [False] * is_paid


@pytest.mark.parametrize(("status", "is_paid"), [(200, True), (500, False)])
def test_an_answer_that_is_too_large_is_paid_unless_it_is_a_refusal(
    status: int, is_paid: bool, gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_intercode.gateway.relay._MAX_ANSWER_SIZE", 10)
    with ModelServer([Step("a long text", status=status)]) as server:
        session, ledger = opened(gateways(server))
        answer = ask(session, ROUTES["chat"], body("chat"))
    assert answer.message == "the answer has more than 64 MiB"
    assert (ledger.usage.input_tokens > 10) == is_paid


@pytest.mark.parametrize("fault", ["stall", "drop"])
@pytest.mark.parametrize("api", ROUTES)
def test_a_stream_that_breaks_off_is_metered_by_an_estimate(
    api: str, fault: Any, gateways: Gateways
) -> None:
    text = "one two three four five six seven eight nine ten"
    with ModelServer([Step(text, fault=fault)]) as server:
        session, ledger = opened(gateways(server, silence=0.3))
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):  # as without a gateway
            ask(session, ROUTES[api], body(api, stream=True))
        deadline = time.monotonic() + 5
        while not session.exchanges and time.monotonic() < deadline:
            time.sleep(0.01)
        [exchange] = session.exchanges
        assert (exchange.status, exchange.complete) == (200, False)
        assert exchange.usage.input_tokens >= 15
        assert exchange.usage.output_tokens >= 7
        assert ledger.usage.tokens == exchange.usage.tokens
        assert "one two three" in json.dumps(exchange.answer)
        assert session.refusals[0].startswith("the stream of the server broke off: ")
        assert session.turns == 0


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("api", ROUTES)
def test_a_server_without_usage_is_metered_by_an_estimate(
    api: str, stream: bool, gateways: Gateways
) -> None:
    with ModelServer([Step("word " * 100, spent=None)]) as server:
        session, ledger = opened(gateways(server), Budget(tokens=100))
        assert ask(session, ROUTES[api], body(api, stream=stream)).status == 200
        [exchange] = session.exchanges
        assert exchange.complete
        assert 100 < exchange.usage.output_tokens < 250
        assert ledger.usage.output_tokens == exchange.usage.output_tokens
        assert ask(session, ROUTES[api], body(api)).status in (400, 401, 403)


def test_an_error_in_a_stream_is_passed_on_and_metered(gateways: Gateways) -> None:
    usage = {"input_tokens": 60, "cache_read_input_tokens": 40, "output_tokens": 1}
    start = {"type": "message_start", "message": {"model": "m", "content": [], "usage": usage}}
    block = {"type": "content_block_start", "index": 0}
    block["content_block"] = {"type": "text", "text": "a longer text than one of a single token"}
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    events = "".join(f"data: {json.dumps(each)}\n\n" for each in (start, block, error))
    with ModelServer([Step(body=events, content_type="text/event-stream")]) as server:
        session, _ = opened(gateways(server))
        answer = ask(session, ROUTES["messages"], body("messages", stream=True))
        assert answer.body.decode() == events
        [exchange] = session.exchanges
        assert not exchange.complete
        assert (exchange.usage.input_tokens, exchange.usage.cached_tokens) == (100, 40)
        assert exchange.usage.output_tokens > 5


def test_a_session_keeps_a_part_of_a_long_episode(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_intercode.gateway.session._MAX_KEPT_SIZE", 5000)
    with ModelServer(["ok"]) as server:
        session, ledger = opened(gateways(server))
        for number in range(4):
            said = [{"role": "user", "content": f"{n} {'x' * 1000}"} for n in range(3 * number + 1)]
            ask(session, ROUTES["chat"], body("chat", messages=said))
    kept = ["messages" in exchange.request for exchange in session.exchanges]
    assert kept == [True, True, False, False]
    assert session.exchanges[3].request == {"model": "m", "not_kept": True}
    one, two = (exchange.request["messages"][0] for exchange in session.exchanges[:2])
    assert one is two  # what is repeated is kept once
    assert ledger.usage.requests == 4


def leave_stream(session: Session, api: str, size: int = 10, **more: Any) -> None:
    """Ask for a stream, and close the connection once so many bytes have come."""
    path = f"{path_of(api, stream=True)}{'?alt=sse' if api == 'gemini' else ''}"
    says_so = api in ("gemini", "converse")
    payload = body(api, **more) if says_so else body(api, stream=True, **more)
    port = int(session.url("anthropic").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", path, json.dumps(payload), {"x-api-key": session.token})
    response = connection.getresponse()
    assert response.status == 200
    assert len(response.read(size)) == size
    connection.close()
    response.close()


def wait_for_exchange(session: Session) -> Exchange:
    deadline = time.monotonic() + 5
    while not session.exchanges and time.monotonic() < deadline:
        time.sleep(0.01)
    [exchange] = session.exchanges
    return exchange


@pytest.mark.parametrize("api", [name for name in ROUTES if name != "azure"])
def test_a_client_that_leaves_a_stream_pays_for_all_of_it(api: str, gateways: Gateways) -> None:
    tokens_spent = Spent(output=30_000)
    with ModelServer(
        [Step("one two three four five six", spent=tokens_spent, pause=0.03)]
    ) as server:
        session, ledger = opened(gateways(server))
        leave_stream(session, api)
        exchange = wait_for_exchange(session)
        assert exchange.complete
        assert (exchange.usage.input_tokens, exchange.usage.output_tokens) == (100, 30_000)
        session.close()
        assert ledger.usage.tokens == 30_100


def test_a_stream_without_its_client_ends_with_the_session(gateways: Gateways) -> None:
    """What came by then is counted, though no text is put together of it."""
    step = Step(calls=[Tool("write", {"text": "x" * 40_000})], fault="stall")
    with ModelServer([step]) as server:
        session, ledger = opened(gateways(server))
        tools = [{"type": "function", "name": "write", "parameters": {}}]
        leave_stream(session, "responses", 13_000, tools=tools)
        began = time.monotonic()
        session.close()
        assert time.monotonic() - began < 15
        [exchange] = session.exchanges
        assert not exchange.complete
        assert 3000 < ledger.usage.output_tokens < 11_000


@pytest.mark.parametrize("bound", ["_UNREAD_TIMEOUT", "_MAX_UNREAD_SIZE"])
def test_a_stream_is_not_read_forever_without_its_client(
    bound: str, gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"pytest_intercode.gateway.relay.{bound}", 0)
    with ModelServer([Step("one two three four five six", pause=0.1)]) as server:
        session, ledger = opened(gateways(server))
        leave_stream(session, "messages")
        exchange = wait_for_exchange(session)
        assert not exchange.complete
        assert ledger.usage.input_tokens == 100  # as the beginning of its stream says
        line = "a stream that its client had left ended before the answer was complete"
        assert session.refusals == [line]


def test_what_runs_at_the_end_of_a_session_is_cancelled_and_metered(gateways: Gateways) -> None:
    with ModelServer([Step("x", fault="silent")]) as server:
        session, ledger = opened(gateways(server))
        port = int(session.url("anthropic").rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        data = json.dumps(body("chat"))
        connection.request("POST", ROUTES["chat"], data, {"x-api-key": session.token})
        assert server.stalled.wait(5)
        began = time.monotonic()
        session.close()
        assert time.monotonic() - began < 15
        [exchange] = session.exchanges
        assert exchange.usage == Usage(1, exchange.usage.input_tokens)
        assert ledger.usage.input_tokens == exchange.usage.input_tokens > 10
        connection.close()


def test_the_order_is_that_of_the_requests_whatever_ends_first(gateways: Gateways) -> None:
    def script(request: Any) -> Step:
        slow = "slow" in request.text
        return Step("slow" if slow else "quick", pause=0.3 if slow else 0)

    with ModelServer(script) as server:
        session, _ = opened(gateways(server))
        slow = threading.Thread(
            target=ask, args=(session, ROUTES["chat"], body("chat", user="slow"))
        )
        slow.start()
        while not server.requests:
            time.sleep(0.005)
        ask(session, ROUTES["chat"], body("chat"))
        slow.join()
        texts = [e.answer["choices"][0]["message"]["content"] for e in session.exchanges]
        assert texts == ["slow", "quick"]


def test_a_call_of_a_stream_that_broke_off_is_no_turn(gateways: Gateways) -> None:
    steps = iter([Step("", [Command("rm x")], fault="drop"), Step("", [Command("ls")])])
    tools = [{"name": "bash", "input_schema": {"properties": {"command": {}}}}]
    with ModelServer(lambda _: next(steps)) as server:
        session, _ = opened(gateways(server))
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            ask(session, ROUTES["messages"], body("messages", stream=True, tools=tools))
        assert ask(session, ROUTES["messages"], body("messages", tools=tools)).status == 200
        assert session.turns == 1


def test_a_request_with_a_null_in_a_list_is_kept(gateways: Gateways) -> None:
    with ModelServer(["ok"]) as server:
        session, _ = opened(gateways(server))
        messages = [{"role": "user", "content": "hello"}, None]
        ask(session, ROUTES["chat"], body("chat", messages=messages))
    assert session.exchanges[0].request["messages"] == messages
