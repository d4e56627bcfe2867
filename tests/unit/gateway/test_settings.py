"""Prices, addresses, keys; what is the same in two runs."""

from __future__ import annotations

import pickle
import random
import string
import sys
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from pytest_intercode.core.usage import Usage
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.apis import ROUTES, error_body, find_target, stop_status
from pytest_intercode.gateway.canonical import canonical, digest, first_difference, mask_text
from pytest_intercode.gateway.exchange import Price, parse_price, price_of
from pytest_intercode.gateway.gateway import Gateway
from pytest_intercode.gateway.settings import GatewaySettings

# -- prices


def test_cached_tokens_have_their_own_price() -> None:
    usage = Usage(1, 1_000_000, 100_000, cached_tokens=400_000, cache_write_tokens=100_000)
    assert Price(3, 15).cost(usage) == pytest.approx(3 + 1.5)
    assert Price(3, 15, 0.3).cost(usage) == pytest.approx(0.6 * 3 + 0.4 * 0.3 + 1.5)
    assert Price(3, 15, 0.3, 3.75).cost(usage) == pytest.approx(1.5 + 0.12 + 0.375 + 1.5)
    assert Price(3, 15, 0).cost(Usage(1, 10, 0, cached_tokens=10)) == 0


def test_a_price_is_that_of_the_model_that_answered() -> None:
    small, large, other = Price(1, 1), Price(2, 2), Price(3, 3)
    prices = {"m": large, "m-mini": small, "*": other}
    assert price_of(prices, "m-mini", "m") is small
    assert price_of(prices, "m-2026-01-02", "x") is large
    assert price_of(prices, "m-mini-20260102") is small
    assert price_of(prices, "unknown", "m") is large
    assert price_of(prices, "m-large") is other
    assert price_of({"m": large}, "m-large") is None


@pytest.mark.parametrize("text", ["", "3", "3/", "a/b", "3/15/1/1/1", "-1/2", "nan/1", "inf/1"])
def test_a_price_is_checked(text: str) -> None:
    with pytest.raises(ValueError, match="prices per million tokens are needed, INPUT/OUTPUT or"):
        parse_price(text)


def test_prices_are_read() -> None:
    assert parse_price("3/15") == Price(3, 15)
    assert parse_price("3/15/0.3/3.75") == Price(3, 15, 0.3, 3.75)


# -- settings


def test_settings_come_from_the_environment_and_show_no_key() -> None:
    environment = {
        "OPENAI_BASE_URL": " https://host/api/v4 ",
        "OPENAI_API_KEY": "sk-secret",
        "ANTHROPIC_API_KEY": "",
    }
    settings = GatewaySettings.of_environment(environment)
    assert settings.address("openai", "/v1/responses") == "https://host/api/v4/responses"
    assert settings.address("anthropic", "/v1/messages") == "https://api.anthropic.com/v1/messages"
    assert settings.keys == {"openai": "sk-secret"}
    assert "secret" not in f"{settings!r} {settings}"
    given = GatewaySettings.of_environment(
        environment, upstreams={"anthropic": "http://127.0.0.1:1/v1/"}
    )
    assert given.address("anthropic", "/v1/messages") == "http://127.0.0.1:1/v1/messages"
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    "address",
    [
        *("", "host", "ftp://host", "http://", "http://host:99999", "http://[::1"),
        *("http://user:secret@host", "http://host/v1?key=secret", "http://host/#secret"),
    ],
)
def test_an_address_is_checked_when_a_gateway_is_made(address: str) -> None:
    settings = GatewaySettings(upstreams={"openai": address or " "})
    with pytest.raises(ConfigurationError, match=r"^OPENAI_BASE_URL: the gateway ") as error:
        Gateway(settings)
    assert "secret" not in str(error.value)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(
        ConfigurationError, match=r"needs aiohttp: pip install 'pytest-inter.*\[gat"
    ):
        Gateway(GatewaySettings())


def test_a_gateway_is_made_without_anything_started() -> None:
    gateway = Gateway(GatewaySettings())
    gateway.close()
    with pytest.raises(ConfigurationError, match="the run is over"):
        gateway.open("x", spend=lambda **_: None)


@pytest.mark.parametrize(
    "key",
    [
        *("test", "EMPTY", "sk-none", "ollama", "none", "lm-studio", "token-abc123", "not-needed"),
        *("sk-no-key-required", "sk-" + "x" * 40, "0" * 40),
    ],
)
def test_a_placeholder_is_no_secret(key: str) -> None:
    assert GatewaySettings(keys={"openai": key}).secrets == ()


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-Zk3vQ9dW1xR7tB5nLcY2",  # as OpenAI's
        "sk-ant-api03-h4Tq8ZbNwKfJ2mXs",
        "gsk_9fA2kLm4Qx7Rt1Vb",
        "3f9a1c7e5b2d8064",  # random, of 16
        "QwErTyUiOpAsDfGhJkLzXcVbNm",  # letters alone
    ],
)
def test_a_key_is_a_secret(key: str) -> None:
    assert GatewaySettings(keys={"openai": key, "anthropic": "test"}).secrets == (key,)


# -- the APIs


GOOGLES = ("generateContent", "streamGenerateContent", "countTokens")
STREAMED = ("streamRawPredict",)


def test_routes_and_their_refusals() -> None:
    vertex = "/{version}/projects/{project}/locations/{location}/publishers"
    assert {route.path for route in ROUTES.values()} == {
        *("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
        "/v1/models",
        *("/{version}/models/{model}:generateContent", "/{version}/models/{model}:countTokens"),
        *("/{version}/models/{model}:streamGenerateContent", "/v1beta/models"),
        *("/openai/deployments/{model}/chat/completions", "/openai/v1/chat/completions"),
        *("/openai/responses", "/openai/v1/responses", "/openai/v1/models"),
        *("/model/{model}/converse", "/model/{model}/converse-stream", "/model/{model}/invoke"),
        "/model/{model}/invoke-with-response-stream",
        *(f"{vertex}/google/models/{{model}}:{verb}" for verb in GOOGLES),
        *(f"{vertex}/anthropic/models/{{model}}:{verb}" for verb in ("rawPredict", *STREAMED)),
    }
    assert [stop_status(api) for api in ("chat", "responses", "messages")] == [401, 400, 403]
    assert error_body("anthropic", 403, "no", "x") == {
        "type": "error",
        "error": {"type": "permission_error", "message": "no"},
    }
    assert error_body("openai", 502, "no", "x")["error"]["type"] == "server_error"
    assert error_body("bedrock", 429, "no", "x") == {"message": "no"}
    assert error_body("google", 429, "no", "x") == {
        "error": {"code": 429, "message": "no", "status": "RESOURCE_EXHAUSTED"}
    }


@pytest.mark.parametrize(
    ("path", "query", "upstream", "framing"),
    [
        ("/v1/chat/completions", "x=1", "/v1/chat/completions", "events"),
        ("/v1/v1/messages", "beta=true", "/v1/messages?beta=true", "events"),
        ("/v1/models/g-1.5:generateContent", "key=x", "/v1/models/g-1.5:generateContent", "events"),
        (
            "/v1beta/models/g:streamGenerateContent",
            "alt=json&key=x",
            "/v1beta/models/g:streamGenerateContent?alt=sse",
            "array",
        ),
        (
            "/openai/deployments/a%20b/chat/completions",
            "api-version=2024-10-21",
            "",
            "",
        ),
        (
            "/openai/deployments/d/chat/completions",
            "api-version=2024-10-21&api-version=x",
            "/openai/deployments/d/chat/completions?api-version=2024-10-21",
            "events",
        ),
        ("/openai/v1/responses", "api-version=../x", "/openai/v1/responses", "events"),
    ],
)
def test_what_a_path_and_a_query_lead_to(
    path: str, query: str, upstream: str, framing: str
) -> None:
    target = find_target("POST", path, query)
    if not upstream:
        assert target is None
        return
    assert target is not None
    assert target.path({}) + (f"?{target.query}" if target.query else "") == upstream
    assert target.framing == framing


def test_a_model_of_the_path_is_that_of_the_body() -> None:
    target = find_target("POST", "/v1beta/models/g:streamGenerateContent", "alt=sse")
    assert target is not None
    body = target.body({"contents": [], "model": "dear", "stream": False})
    assert body == {"contents": [], "model": "g", "stream": True}
    assert target.upstream_body(body) == {"contents": []}


# -- the same request in two runs


def _same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    first = canonical(one, lambda text: mask_text(text.replace("tok-1", "<token>")))
    second = canonical(two, lambda text: mask_text(text.replace("tok-2", "<token>")))
    same = digest("POST", "/x", first) == digest("POST", "/x", second)
    assert same == (first_difference(first, second) == "")
    return same


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}),
        ({"metadata": {"user_id": "x"}}, {"metadata": {"user_id": "y"}}),
        ({"prompt_cache_key": "x", "client_metadata": {}}, {}),
        (
            {"input": [{"id": "msg_1", "call_id": "a"}]},
            {"input": [{"id": "msg_2", "call_id": "b"}]},
        ),
        ({"contents": [{"parts": [{"thoughtSignature": "x"}]}]}, {"contents": [{"parts": [{}]}]}),
        ({"labels": {"run": "1"}}, {}),
        ({"m": "Today's date: 2026-11-22"}, {"m": "Today's date: 2027-01-01"}),
        ({"m": "Sun Nov 22 10:00:01 UTC 2026"}, {"m": "Mon Jan  4 23:01:11 UTC 2027"}),
        ({"m": "Wall time: 0.0345 seconds"}, {"m": "Wall time: 1.2 seconds"}),
        ({"m": "commit 3a5d30091d23f3f1"}, {"m": "commit 96c248900aa1b2c3"}),
        ({"m": "/tmp/tmp8x_1/a.txt"}, {"m": "/tmp/tmpzzz/2/a.txt"}),
        ({"m": "projects/-tmp-tmp8x-1-/x"}, {"m": "projects/-tmp-tmpzzz-/x"}),
        ({"m": "key tok-1"}, {"m": "key tok-2"}),
        ({"m": "at 1795341450582"}, {"m": "at 1795341450999"}),
        ({"m": "Chunk ID: 547191\nWall"}, {"m": "Chunk ID: 2aa559\nWall"}),
        ({"m": "session ID 7"}, {"m": "session ID 48213"}),
        ({"m": "[1] done, pid 12"}, {"m": "[1] done, pid 4711"}),
    ],
)
def test_these_are_the_same(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert _same(one, two)


_HEX, _LETTERS = string.hexdigits[:16], string.ascii_letters
_FORMS: dict[str, Callable[[random.Random], str]] = {
    "Chunk ID: {}": lambda chance: _text(chance, _HEX, 6),
    "[main {}] message": lambda chance: _text(chance, _HEX, 7),
    "[main {}] digits alone": lambda chance: _text(chance, string.digits, 7),
    "[main {}] letters alone": lambda chance: _text(chance, "abcdef", 7),
    "container {}": lambda chance: _text(chance, _HEX, 64),
    "digest {}": lambda chance: _text(chance, _HEX.upper(), 40),
    "session_id={}": lambda chance: str(chance.randrange(1, 100_000)),
    '"requestId": "{}"': lambda chance: _text(chance, _LETTERS + string.digits, 9),
    "uuid {}": lambda chance: str(uuid.UUID(int=chance.getrandbits(128))),
    "for call_{}": lambda chance: _text(chance, _LETTERS + string.digits, 24),
    "a ULID: {}": lambda chance: "0" + _text(chance, "0123456789ABCDEFGHJKMNPQRSTVWXYZ", 25),
    "pid={}": lambda chance: str(chance.randrange(1, 4_000_000)),
}


def _text(chance: random.Random, letters: str, length: int) -> str:
    return "".join(chance.choices(letters, k=length))


@pytest.mark.parametrize("form", _FORMS)
def test_a_random_id_is_the_same_whatever_chance_has_picked(form: str) -> None:
    chance = random.Random(form)
    texts = {
        str(canonical({"m": f"first\n{form.format(_FORMS[form](chance))}\nlast"}))
        for _ in range(3000)
    }
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        ({"model": "a"}, {"model": "b"}, "model: recorded 'a', now 'b'"),
        ({"m": "5 passed"}, {"m": "6 passed"}, "m: recorded '5 passed', now '6 passed'"),
        ({"m": "id: 5"}, {"m": "id: 6"}, "m: recorded 'id: 5', now 'id: 6'"),
        ({"m": 1}, {"m": True}, "m: recorded 1, now True"),
        ({"m": [1]}, {"m": [1, 2]}, "m: 1 entries recorded, 2 now"),
        ({"stream": True}, {}, "stream: recorded, and not there now"),
        ({}, {"stream": True}, "stream: not recorded"),
        (
            {"m": [{"c": "x" * 50 + "a"}]},
            {"m": [{"c": "x" * 50 + "b"}]},
            f"m[0].c: recorded '...{'x' * 20}a', now '...{'x' * 20}b'",
        ),
        (
            {"content": [{"type": "tool_use", "input": {"id": "1"}}]},
            {"content": [{"type": "tool_use", "input": {"id": "2"}}]},
            "content[0].input.id: recorded '1', now '2'",
        ),
        (
            {"parts": [{"functionCall": {"name": "f", "args": {"id": "1"}}}]},
            {"parts": [{"functionCall": {"name": "f", "args": {"id": "2"}}}]},
            "parts[0].functionCall.args.id: recorded '1', now '2'",
        ),
    ],
)
def test_these_are_not(one: dict[str, Any], two: dict[str, Any], said: str) -> None:
    assert not _same(one, two)
    assert first_difference(canonical(one), canonical(two)) == said
