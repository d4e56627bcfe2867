"""Logins through the gateway: what a server gets, what nobody else does, and limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_intercode.core.usage import Budget
from pytest_intercode.gateway.exchange import Price
from tests.integration.gateway.conftest import KEY, ROUTES, Gateways, ask, body, opened
from tests.support.model_server import ModelServer, Request, Step
from tests.support.token_server import ACCESS, REFRESH, TokenServer, claude_login, codex_login

API = {"claude": "messages", "codex": "responses"}


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServer]:
    """Where tokens are renewed; both programs have a login."""
    with TokenServer() as server:
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
        monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
        monkeypatch.setenv("INTERCODE_CLAUDE_TOKEN_URL", server.url)
        monkeypatch.setenv("CODEX_REFRESH_TOKEN_URL_OVERRIDE", server.url)
        claude_login(tmp_path / "claude")
        codex_login(tmp_path / "codex")
        yield server


@pytest.mark.parametrize("login", API)
def test_a_login_stands_for_the_key_and_has_no_price(
    login: str, tokens: TokenServer, gateways: Gateways
) -> None:
    with ModelServer(["hello"]) as server:
        prices = {"*": Price(1.0, 1.0)}
        session, ledger = opened(gateways(server, logins=(login,), prices=prices))
        headers = {"anthropic-beta": "effort-2025-11-24,mcp-client-2025-11-20"}
        path, content = ROUTES[API[login]], body(API[login])
        assert ask(session, path, content, headers=headers).status == 200
        [request] = server.requests
        other_api = "messages" if login == "codex" else "chat"  # whose key is asked with
        assert ask(session, ROUTES[other_api], body(other_api)).status == 200
    bearer = request.headers["authorization"]
    assert KEY not in str(request.headers)
    assert KEY in str(server.requests[1].headers)
    assert bearer not in str(server.requests[1].headers)
    betas = request.headers.get("anthropic-beta", "")
    if login == "claude":
        assert (bearer, betas) == (f"Bearer {ACCESS}", "effort-2025-11-24,oauth-2025-04-20")
        assert "x-api-key" not in request.headers
    else:
        assert request.headers["chatgpt-account-id"] == "account-of-the-test"
        assert request.headers["originator"] == "codex_exec"
    first, second = session.exchanges
    assert (first.usage.input_tokens, first.usage.cost) == (100, None)
    assert second.usage.cost is not None
    assert ledger.usage.input_tokens == 200
    assert tokens.requests == []


def test_money_cannot_be_limited_without_a_price(tokens: TokenServer, gateways: Gateways) -> None:
    with ModelServer(["hello"]) as server:
        settings = {"logins": ("claude",), "prices": {"*": Price(1.0, 1.0)}}
        session, _ = opened(gateways(server, **settings), Budget(cost=1.0))
        assert ask(session, ROUTES["messages"], body("messages")).status == 200
        assert ask(session, ROUTES["messages"], body("messages")).status == 403
    assert "it reports tokens without their cost" in session.failure


def test_a_refused_token_is_renewed_once_and_the_client_sees_nothing_of_it(
    tokens: TokenServer, gateways: Gateways, tmp_path: Path
) -> None:
    def play(request: Request) -> Step:
        if ACCESS in request.headers["authorization"]:
            return Step(status=401, text=f"{ACCESS} is revoked")
        text = f"your token is {request.headers['authorization']}"
        if not request.streams:
            return Step(text)
        delta = {"type": "content_block_delta", "index": 0, "delta": {"text": text}}
        events = f"data: {json.dumps(delta)}\n\n", 'data: {"type": "message_stop"}\n\n'
        return Step(body="".join(events), content_type="text/event-stream")

    with ModelServer(play) as server:
        gateway = gateways(server, logins=("claude",), record=tmp_path / "recorded")
        session, _ = opened(gateway)
        for stream in (False, True):
            answer = ask(session, ROUTES["messages"], body("messages", stream=stream))
            assert (answer.status, b"***" in answer.body) == (200, True)
        assert len(server.requests) == 3
    assert len(tokens.requests) == 1
    texts = [str(session.exchanges), str(session.refusals), str(answer)]
    texts += [path.read_text() for path in (tmp_path / "recorded").glob("*/*.json")]
    assert len(texts) == 5
    for text in texts:
        for secret in (ACCESS, REFRESH, "renewed-access", "renewed-refresh"):
            assert secret not in text


def test_a_token_that_is_refused_again_is_an_outage(
    tokens: TokenServer, gateways: Gateways
) -> None:
    with ModelServer([Step(status=401, text="no")]) as server:
        session, _ = opened(gateways(server, logins=("claude",)))
        assert ask(session, ROUTES["messages"], body("messages")).status == 401
        assert len(server.requests) == 2
    assert len(tokens.requests) == 1
    assert "refuses the key: status 401" not in str(session.refusals)


def test_a_login_that_goes_away_is_nobodys_fault(
    tokens: TokenServer, gateways: Gateways, tmp_path: Path
) -> None:
    with ModelServer(["x"]) as server:
        session, _ = opened(gateways(server, logins=("claude",), keys={}, upstreams={}))
        (tmp_path / "claude" / ".credentials.json").unlink()
        refused = ask(session, ROUTES["messages"], body("messages"))
        assert refused.status == 502
        line = f"the login of Claude Code, {tmp_path}/claude/.credentials.json: there is no such"
        assert refused.message.startswith(line)
        assert session.outage().startswith(line)
        assert server.requests == []


def test_codexs_login_serves_responses_alone(tokens: TokenServer, gateways: Gateways) -> None:
    with ModelServer(["x"]) as server:
        session, _ = opened(gateways(server, logins=("codex",)))
        refused = ask(session, ROUTES["chat"], body("chat"))
        assert refused.status == 401
        assert refused.message == "the login of Codex serves the responses API alone"
        assert server.requests == []


@pytest.mark.parametrize("login", API)
def test_a_limit_that_is_soon_reset_is_waited_for(
    login: str, tokens: TokenServer, gateways: Gateways
) -> None:
    api = API[login]
    limit = {"error": {"type": "usage_limit_reached", "message": "limit", "resets_in_seconds": 0}}
    with ModelServer(lambda _: limited if len(server.requests) == 1 else "hello") as server:
        limited = Step(status=429, body=limit)
        session, _ = opened(gateways(server, logins=(login,)))
        assert ask(session, ROUTES[api], body(api)).status == 200
        assert len(server.requests) == 2
    assert session.refusals == []


def test_a_limit_that_is_reached_again_is_waited_for_again_up_to_the_whole_time(
    tokens: TokenServer, gateways: Gateways
) -> None:
    limited = Step(status=429, text="limit", headers={"retry-after": "1"})
    longer = replace(limited, headers={"retry-after": "300"})
    script: list[str | Step] = [limited, limited, "hello", limited, longer]
    with ModelServer(lambda _: script[len(server.requests) - 1]) as server:
        session, _ = opened(gateways(server, logins=("claude",)))
        assert ask(session, ROUTES["messages"], body("messages")).status == 200
        assert (len(server.requests), session.refusals) == (3, [])
        assert ask(session, ROUTES["messages"], body("messages")).status == 403
        assert len(server.requests) == len(script)
    assert session.failure == "the limit of the login of Claude Code is used up for another 5 min"


@pytest.mark.parametrize("login", API)
def test_a_limit_that_is_not_ends_the_episode_with_one_line(
    login: str, tokens: TokenServer, gateways: Gateways
) -> None:
    api = API[login]
    with ModelServer([Step(status=429, text="limit", headers={"retry-after": "7260"})]) as server:
        session, _ = opened(gateways(server, logins=(login,)))
        refused = ask(session, ROUTES[api], body(api))
        program = "Claude Code" if login == "claude" else "Codex"
        line = f"the limit of the login of {program} is used up for another 2 h 1 min"
        assert (refused.status, refused.message) == (403 if login == "claude" else 400, line)
        assert refused.headers["x-should-retry"] == "false"
        assert ask(session, ROUTES[api], body(api)).message == line
        assert len(server.requests) == 1
    assert session.failure == line


def test_a_limit_without_a_time_is_passed_on(tokens: TokenServer, gateways: Gateways) -> None:
    with ModelServer([Step(status=429, text="slow down")]) as server:
        session, _ = opened(gateways(server, logins=("claude",)))
        answer = ask(session, ROUTES["messages"], body("messages"))
    assert (answer.status, json.loads(answer.body)["error"]["message"]) == (429, "slow down")
