"""What the gateway does not serve: another host, another token, more than the budget."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.usage import Budget
from pytest_intercode.gateway.exchange import Price
from pytest_intercode.gateway.request import MAX_BODY_SIZE
from tests.integration.gateway.conftest import KEY, ROUTES, Gateways, ask, body, opened, path_of
from tests.support.model_server import ModelServer

STOPS = {
    "chat": 401,
    "responses": 400,
    "messages": 403,
    "gemini": 403,
    "azure": 401,
    "converse": 403,
}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(["hello"]) as running:
        yield running


# -- budgets


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("api", ROUTES)
def test_the_answer_that_uses_a_budget_up_is_whole_and_the_next_is_refused(
    api: str, stream: bool, server: ModelServer, gateways: Gateways
) -> None:
    session, ledger = opened(gateways(server), Budget(tokens=150))
    given = body(api, stream=stream)
    assert ask(session, ROUTES[api], given).status == 200
    last = ask(session, ROUTES[api], given)
    assert last.status == 200
    assert b'"he' in last.body
    refused = ask(session, ROUTES[api], given)
    assert refused.status == STOPS[api]
    assert refused.headers["x-should-retry"] == "false"
    assert "214 of 150 tokens used" in refused.message
    if api == "messages":
        assert refused.json["type"] == "error"
        assert refused.json["error"]["type"] == "permission_error"
    elif api == "converse":
        assert refused.headers["x-amzn-errortype"] == "AccessDeniedException"
    elif api == "gemini":
        assert refused.json["error"]["status"] == "PERMISSION_DENIED"
    else:
        assert set(refused.json["error"]) == {"message", "type", "param", "code"}
    assert ledger.exhausted == "214 of 150 tokens used"
    assert session.exhausted
    assert len(server.requests) == 2
    [line] = session.refusals
    assert line.startswith(f"POST {path_of(api, stream)}")
    assert ": the episode is over: 214 of 150" in line


def test_money_is_limited_with_prices_and_cannot_be_without(
    server: ModelServer, gateways: Gateways
) -> None:
    prices = {"m": Price(input=100, output=100, cached=0)}
    session, ledger = opened(gateways(server, prices=prices), Budget(cost=0.01))
    assert ask(session, ROUTES["chat"], body("chat")).status == 200
    assert ledger.usage.cost == pytest.approx(67 * 100 / 1e6)
    assert ask(session, ROUTES["chat"], body("chat")).status == 200
    assert ask(session, ROUTES["chat"], body("chat")).status == 401
    assert "0.0134 of 0.01 in cost used" in session.exhausted

    session, _ = opened(gateways(server, prices={"other": prices["m"]}), Budget(cost=0.01))
    assert ask(session, ROUTES["chat"], body("chat")).status == 200
    assert ask(session, ROUTES["chat"], body("chat")).status == 401
    assert session.failure.startswith("the model 'm': it reports tokens without their cost")


def test_who_opened_the_session_may_refuse(server: ModelServer, gateways: Gateways) -> None:
    reasons = ["", "12 of 12 turns used"]
    session, _ = opened(gateways(server), refused=lambda: reasons[len(server.requests)])
    assert ask(session, ROUTES["messages"], body("messages")).status == 200
    refused = ask(session, ROUTES["messages"], body("messages"))
    assert (refused.status, refused.message) == (403, "12 of 12 turns used")


@pytest.mark.parametrize("api", ROUTES)
def test_a_closed_session_is_refused_with_the_words_that_stop_clients(
    api: str, server: ModelServer, gateways: Gateways
) -> None:
    session, _ = opened(gateways(server))
    session.close()
    refused = ask(session, ROUTES[api], body(api))
    assert (refused.status, refused.message) == (STOPS[api], "the episode is over")
    assert refused.headers["x-should-retry"] == "false"
    assert server.requests == []


# -- who asks, and where to

SECRET = "sk-real"
ELSEWHERE = [
    ("CONNECT", "example.org:443", {}),
    ("CONNECT", "127.0.0.1:22", {}),
    ("GET", "http://example.org/v1/models", {}),
    ("POST", "http://example.org/v1/chat/completions", {}),
    ("POST", "https://api.openai.com/v1/chat/completions", {}),
    ("GET", "//example.org/v1/models", {}),
    ("POST", "/v1/chat/completions@example.org", {}),
    ("POST", "/v1/../v1/files", {}),
    ("GET", "/v1/files", {}),
    ("POST", "/v1/chat/completions/../../files", {}),
    ("POST", "/v1/chat%2fcompletions", {}),
    ("POST", "/v1/embeddings", {}),
    ("DELETE", "/v1/responses/resp_1", {}),
    ("GET", "/v1/organizations", {}),
    ("POST", "/v1/messages/batches", {}),
    ("POST", "/v1/chat/completions;x=y", {}),
    ("GET", "/", {}),
    ("GET", "/v1/responses", {"host": "169.254.169.254"}),
    ("PUT", "/v1/messages", {}),
    ("TRACE", "/v1/messages", {}),
    ("GET", "file:///etc/passwd", {}),
    ("GET", "/latest/meta-data", {"host": "169.254.169.254"}),
    ("POST", "/v1beta/models/{model}:generateContent", {}),
    ("POST", "/v1beta/models/m%2F..%2F..%2Ffiles:generateContent", {}),
    ("POST", "/v1beta/models/m%3Fkey=x:generateContent", {}),
    ("POST", "/v1beta/models/m:batchGenerateContent", {}),
    ("POST", "/v1beta/tunedModels/m:generateContent", {}),
    ("POST", "/v1beta/cachedContents", {}),
    ("POST", "/upload/v1beta/files", {}),
    ("POST", "/openai/deployments/m/images/generations", {}),
    ("POST", "/openai/deployments/../files/chat/completions", {}),
    ("POST", "/openai/deployments/m/extensions/chat/completions", {}),
    ("GET", "/openai/deployments", {}),
    ("POST", "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aprompt%2Fx/converse", {}),
    ("POST", "/model/../model-invocation-job", {}),
    ("POST", "/model/m%2F..%2F..%2Fguardrail/converse", {}),
    ("POST", "/model/m/async-invoke", {}),
    ("POST", "/guardrail/g/version/1/apply", {}),
    ("POST", "/v1/projects/p/locations/l/publishers/meta/models/m:rawPredict", {}),
    ("POST", "/v1/projects/p/locations/l/endpoints/m:predict", {}),
    ("POST", "/v1/projects/p/locations/l/publishers/google/models/m:predict", {}),
    ("POST", "/v1/projects/p/../q/locations/l/publishers/google/models/m:generateContent", {}),
    ("GET", "/async-invoke", {}),
]


@pytest.mark.parametrize(("method", "path", "headers"), ELSEWHERE)
def test_nothing_else_can_be_reached(
    method: str, path: str, headers: dict[str, str], server: ModelServer, gateways: Gateways
) -> None:
    session, _ = opened(gateways(server))
    refused = ask(session, path, method=method, headers=headers)
    assert refused.status in (404, 400)
    assert server.requests == []
    if refused.status == 404:  # else it is no HTTP, and ends there
        assert session.refusals == [f"{method} {path}: the gateway does not serve this"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "example.org"},
        {"x-forwarded-host": "example.org", "forwarded": "host=example.org"},
        {"x-original-url": "/v1/files", "x-rewrite-url": "/v1/files"},
        {"proxy-authorization": "Basic eA==", "proxy-connection": "keep-alive"},
        {"connection": "keep-alive, anthropic-version, x-api-key", "te": "trailers"},
        {"x-http-method-override": "DELETE", "cookie": "a=b", "openai-organization": "org-1"},
        {"accept-encoding": "gzip, br", "range": "bytes=0-1", "upgrade-insecure-requests": "1"},
    ],
)
def test_headers_of_a_client_lead_nowhere(
    headers: dict[str, str], server: ModelServer, gateways: Gateways
) -> None:
    session, _ = opened(gateways(server))
    answer = ask(session, ROUTES["chat"], body("chat"), headers=headers)
    assert answer.status == 200
    [request] = server.requests
    assert request.path == "/v1/chat/completions"
    assert set(request.headers) <= {
        *("host", "authorization", "accept-encoding", "content-type", "content-length")
    }
    assert request.headers["host"] == server.url.removeprefix("http://")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["accept-encoding"] == "identity"


def test_a_body_cannot_be_smuggled_behind_another(server: ModelServer, gateways: Gateways) -> None:
    session, _ = opened(gateways(server))
    inner = f"POST /v1/files HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.token}\r\n\r\n"
    data = json.dumps(body("chat")).encode()
    chunked = f"{len(data):x}\r\n".encode() + data + b"\r\n0\r\n\r\n" + inner.encode()
    with _connected(session) as raw:
        raw.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n"
            f"transfer-encoding: chunked\r\nauthorization: Bearer {session.token}\r\n\r\n".encode()
            + chunked
        )
        assert b" 400 Bad Request" in raw.recv(65536)
    assert server.requests == []


def test_what_was_checked_is_what_is_sent(server: ModelServer, gateways: Gateways) -> None:
    session, _ = opened(gateways(server, models=("m",)))
    twice = b'{"model": "dear", "model": "m", "messages": [], "tools": [{"type": "web_search"}], '
    assert ask(session, ROUTES["chat"], twice + b'"tools": []}').status == 200
    assert server.requests[0].body == {"model": "m", "messages": [], "tools": []}


def _connected(session: Any) -> socket.socket:
    port = int(session.url("anthropic").rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def test_a_token_is_needed_and_chooses_the_session(server: ModelServer, gateways: Gateways) -> None:
    gateway = gateways(server)
    one, _ = opened(gateway)
    two, _ = opened(gateway, key="task-2")
    for wrong in ("x", one.token[:-1], one.token + "x", KEY):
        refused = ask(one, ROUTES["chat"], body("chat"), token=wrong)
        assert (refused.status, refused.headers["x-should-retry"]) == (401, "false")
    assert server.requests == []
    for header in ("x-api-key", "x-goog-api-key"):
        given = {"authorization": "Basic eA==", header: two.token}
        assert ask(one, ROUTES["messages"], body("messages"), headers=given).status == 200
    assert (len(one.exchanges), len(two.exchanges)) == (0, 2)


def test_a_socket_of_a_session_takes_no_others_token(
    server: ModelServer, gateways: Gateways, tmp_path: Path
) -> None:
    gateway = gateways(server)
    path = tmp_path / "socket"
    mine, _ = opened(gateway, socket=path)
    other, _ = opened(gateway, key="task-2")
    assert path.stat().st_mode & 0o777 == 0o666

    def send(token: str) -> bytes:
        data = json.dumps(body("chat")).encode()
        head = f"authorization: Bearer {token}\r\ncontent-length: {len(data)}\r\n"
        with socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(20)
            raw.connect(str(path))
            raw.sendall(f"POST {ROUTES['chat']} HTTP/1.1\r\nhost: x\r\n{head}\r\n".encode() + data)
            return raw.recv(65536).split(b"\r\n")[0]

    assert send(mine.token) == b"HTTP/1.1 200 OK"
    assert send(other.token) == b"HTTP/1.1 401 Unauthorized"
    assert send("x") == b"HTTP/1.1 401 Unauthorized"
    assert mine.refusals == ["POST /v1/chat/completions: no token of an episode"]
    assert other.refusals == []
    mine.close()
    assert not path.exists()


def test_a_websocket_is_answered_at_once(server: ModelServer, gateways: Gateways) -> None:
    session, _ = opened(gateways(server))
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    answer = ask(session, "/v1/responses", method="GET", headers=upgrade)
    assert answer.status == 426
    assert session.refusals == []


# -- what is asked


@pytest.mark.parametrize(
    ("api", "more", "said"),
    [
        (
            "responses",
            {"tools": [{"type": "web_search"}]},
            "the type 'web_search' in 'tools' is not passed on: it may run at the provider; "
            "--intercode-gateway-allow=web_search or --intercode-gateway-hosted-tools allows it",
        ),
        (
            "chat",
            {"web_search_options": {}},
            "the field 'web_search_options' is not passed on: it runs at the provider; "
            "--intercode-gateway-allow=web_search_options or --intercode-gateway-hosted-tools "
            "allows it",
        ),
        (
            "chat",
            {"model": "gpt-4o-search-preview"},
            "the model 'gpt-4o-search-preview' searches by itself; "
            "--intercode-gateway-hosted-tools allows it",
        ),
        (
            "messages",
            {"mcp_servers": [{"url": "http://x"}]},
            "the field 'mcp_servers' is not passed on: it runs at the provider; "
            "--intercode-gateway-allow=mcp_servers or --intercode-gateway-hosted-tools allows it",
        ),
        (
            "messages",
            {"fallbacks": [{"model": "dear"}]},
            "the field 'fallbacks' is not passed on: it chooses another model, or another server; "
            "--intercode-gateway-allow=fallbacks allows it",
        ),
        (
            "chat",
            {"service_tier": "priority"},
            "the value 'priority' of the field 'service_tier' is not passed on: it has another "
            "price; allowed: auto and default; --intercode-gateway-allow=service_tier allows it",
        ),
        (
            "responses",
            {"new": 1},
            "the field 'new' is not passed on: the gateway does not know what it does; "
            "--intercode-gateway-allow=new allows it",
        ),
    ],
)
def test_what_is_not_known_is_refused_by_name_unless_it_is_allowed(
    api: str, more: dict[str, Any], said: str, server: ModelServer, gateways: Gateways
) -> None:
    given = {**body(api), **more}
    session, _ = opened(gateways(server))
    refused = ask(session, ROUTES[api], given)
    assert (refused.status, refused.message) == (400, said)
    assert refused.headers["x-should-retry"] == "false"
    if api == "messages":
        assert refused.json["error"]["type"] == "invalid_request_error"
    assert server.requests == []
    assert session.refusals == [f"POST {ROUTES[api]}: {said}"[:300] + "..." * (len(said) > 280)]
    name = next(iter(more))
    allowed = {"hosted_tools": True} if "hosted" in said else {"allowed": (name,)}
    session, _ = opened(gateways(server, **allowed))
    assert ask(session, ROUTES[api], given).status == 200
    assert {**server.requests[0].body, **given} == server.requests[0].body


def test_counts_of_tokens_are_checked_as_messages_are(
    server: ModelServer, gateways: Gateways
) -> None:
    session, _ = opened(gateways(server))
    given = body("messages", mcp_servers=[{"url": "http://x"}])
    assert ask(session, "/v1/messages/count_tokens", given).status == 400
    assert server.requests == []


def test_an_answer_of_the_episode_may_be_referred_to_and_no_other(
    server: ModelServer, gateways: Gateways
) -> None:
    gateway = gateways(server)
    one, _ = opened(gateway)
    two, _ = opened(gateway, key="task-2")
    answer = ask(one, ROUTES["responses"], body("responses")).json
    given = body("responses", previous_response_id=answer["id"])
    assert ask(one, ROUTES["responses"], given).status == 200
    refused = ask(two, ROUTES["responses"], given)
    assert refused.status == 400
    assert "the field 'previous_response_id' is not passed on" in refused.message


@pytest.mark.parametrize(("api", "status"), [("chat", 404), ("responses", 400), ("messages", 404)])
def test_only_the_allowed_models_are_served(
    api: str, status: int, server: ModelServer, gateways: Gateways
) -> None:
    session, _ = opened(gateways(server, models=("m", "n")))
    assert ask(session, ROUTES[api], body(api)).status == 200
    refused = ask(session, ROUTES[api], {**body(api), "model": "dear"})
    assert refused.status == status
    assert refused.message == "the gateway serves no model 'dear'; allowed: m, n"
    listed = ask(session, "/v1/models", method="GET").json
    assert [model["id"] for model in listed["data"]] == ["m", "n"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the request's body is not JSON: "),
        (b"\xff\xfe{", "the request's body is not JSON: "),
        (b"[]", "the request's body is not a JSON object"),
        (b"[" * 200_000, "the request's body is nested more than 200 levels deep"),
        (b'{"a":' * 201 + b"1" + b"}" * 201, "the request's body is nested more than 200 levels"),
        (b'{"model": "m", "temperature": NaN}', "the request's body is not JSON: NaN is not JSON"),
        (b'{"model": "m", "top_p": 1e999}', "the request's body cannot be sent as JSON"),
        (b"[" + b"{}," * 2_000_001, "the request's body has too many parts"),
        (b'{"messages": []}', "the request names no model"),
        (b'{"model": ["m"]}', "the request names no model"),
    ],
)
def test_a_body_that_is_none_is_refused(
    data: bytes, said: str, server: ModelServer, gateways: Gateways
) -> None:
    session, _ = opened(gateways(server))
    refused = ask(session, ROUTES["chat"], data)
    assert refused.status == (413 if "parts" in said else 400)
    assert refused.message.startswith(said)
    assert server.requests == []


def test_a_body_of_megabytes_passes_and_one_without_end_does_not(
    server: ModelServer, gateways: Gateways
) -> None:
    session, _ = opened(gateways(server))
    large = body("chat", messages=[{"role": "user", "content": "x" * 5_000_000}])
    assert ask(session, ROUTES["chat"], large).status == 200
    assert len(server.requests[0].body["messages"][0]["content"]) == 5_000_000
    with _connected(session) as raw:
        raw.sendall(
            f"POST {ROUTES['chat']} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.token}"
            f"\r\ncontent-length: {MAX_BODY_SIZE + 1}\r\n\r\n".encode()
        )
        assert raw.recv(65536).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("path", ["/v1/v1/messages", "/messages", "/v1/messages?beta=true"])
def test_the_prefix_of_a_base_url_does_not_matter(
    path: str, server: ModelServer, gateways: Gateways
) -> None:
    session, _ = opened(gateways(server))
    headers = {"anthropic-beta": "effort-2025-11-24, fast-mode-2026-02-01,pdfs-2024-09-25"}
    assert ask(session, path, body("messages"), headers=headers).status == 200
    [request] = server.requests
    query = "?beta=true" if "?" in path else ""
    assert request.path == f"/v1/messages{query}"
    assert request.headers["anthropic-beta"] == "effort-2025-11-24,pdfs-2024-09-25"
    assert request.headers["x-api-key"] == KEY
    assert session.refusals == [
        "the beta fast-mode-2026-02-01 was not passed on; "
        "--intercode-gateway-allow=fast-mode-2026-02-01 does"
    ]


def test_routes_that_cost_nothing(server: ModelServer, gateways: Gateways) -> None:
    session, ledger = opened(gateways(server))
    assert ask(session, "/v1/messages/count_tokens", body("messages")).json == {"input_tokens": 100}
    assert ask(session, "/v1/models", method="GET").json["data"][0]["id"] == "m"
    assert not ledger.usage
    assert session.exchanges == []


def test_the_notes_of_a_flood_are_bounded(server: ModelServer, gateways: Gateways) -> None:
    session, _ = opened(gateways(server))
    for number in range(105):
        session.note(f"line {number} {'x' * 1000} \x1b[2J {KEY} {session.token}")
    assert len(session.refusals) == 101
    assert session.refusals[-1] == "... and 5 more"
    assert max(map(len, session.refusals)) < 310
    assert "\x1b" not in "".join(session.refusals)
