"""What is Gemini's own: streams as arrays, an end that no event names, results without ids."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.usage import Budget
from pytest_intercode.gateway.trajectory import final_message, turns
from tests.integration.gateway.conftest import KEY, Gateways, ask, body, opened
from tests.support.model_server import ModelServer, Step, Tool

PATH = "/v1beta/models/m"
GENERATE, STREAM = f"{PATH}:generateContent", f"{PATH}:streamGenerateContent"
TEXT = "one two three four five six"


def test_a_stream_is_an_array_where_the_client_asks_for_no_events(
    gateways: Gateways, tmp_path: Path
) -> None:
    with ModelServer([TEXT]) as server:
        session, ledger = opened(gateways(server, record=tmp_path))
        answer = ask(session, STREAM, body("gemini"))
        assert server.requests[0].path == f"{STREAM}?alt=sse"
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert [chunk["modelVersion"] for chunk in answer.json] == ["m", "m", "m"]
    texts = [chunk["candidates"][0]["content"]["parts"][0]["text"] for chunk in answer.json]
    assert "".join(texts) == TEXT == final_message(session.exchanges)
    assert (ledger.usage.input_tokens, ledger.usage.output_tokens) == (100, 7)
    # Both forms are the same request, with the same recorded answer.
    for query in ("", "?alt=sse"):
        replay_session, _ = opened(gateways("http://127.0.0.1:9", replay=tmp_path))
        replayed = ask(replay_session, STREAM + query, body("gemini"))
        assert replayed.status == 200
        assert (replayed.body == answer.body) == (query == "")
        assert final_message(replay_session.exchanges) == TEXT


def test_the_last_event_waits_for_the_metering(gateways: Gateways) -> None:
    """A client that has read the end may ask again at once: the budget is used up by then."""
    with ModelServer([TEXT]) as server:
        session, ledger = opened(gateways(server), Budget(tokens=100))
        port = int(session.url("google").rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(
            *("POST", f"{STREAM}?alt=sse", json.dumps(body("gemini"))),
            {"x-goog-api-key": session.token},
        )
        response, data = connection.getresponse(), b""
        while b'"STOP"' not in data:
            data += response.read1()
        assert ledger.usage.tokens == 107
        refused = ask(session, GENERATE, body("gemini"))
        connection.close()
    assert (refused.status, refused.json["error"]["status"]) == (403, "PERMISSION_DENIED")


@pytest.mark.parametrize(
    ("given", "returned"),
    [("", ""), ("id-1", "id-1"), ("id-1", ""), ("", "made-by-the-client")],
    ids=["no-ids", "ids", "an-id-left-out", "an-id-of-the-clients"],
)
def test_results_belong_to_calls_with_and_without_ids(
    given: str, returned: str, gateways: Gateways
) -> None:
    def part(kind: str, identity: str, **more: Any) -> dict[str, Any]:
        return {kind: {"name": "bash", **({"id": identity} if identity else {}), **more}}

    calls = [part("functionCall", given and f"{given}-{n}", args={"command": n}) for n in "ab"]
    answer = {"candidates": [{"content": {"parts": calls}, "finishReason": "STOP"}]}
    first = body("gemini", tools=[{"functionDeclarations": [{"name": "bash"}]}])
    results = [
        part("functionResponse", returned and f"{returned}-{n}", response={"output": f"did {n}"})
        for n in "ab"
    ]
    history = [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]
    second = {**first, "contents": [*first["contents"], *history]}
    with ModelServer(lambda r: "done" if r.results else Step(body=answer)) as server:
        session, _ = opened(gateways(server))
        assert ask(session, GENERATE, first).status == 200
        assert ask(session, GENERATE, second).status == 200
    observed = [(turn.action, turn.observation) for turn in turns(session.exchanges)]
    assert observed == [("a", "did a"), ("b", "did b")]


def test_an_answer_of_thoughts_alone_has_its_tokens(gateways: Gateways) -> None:
    usage = {"promptTokenCount": 1000, "thoughtsTokenCount": 9000}
    thoughts = {"usageMetadata": usage, "modelVersion": "g"}
    with ModelServer([Step(body=thoughts)]) as server:
        session, ledger = opened(gateways(server))
        assert ask(session, GENERATE, body("gemini")).json == thoughts
    assert (ledger.usage.input_tokens, ledger.usage.output_tokens) == (1000, 9000)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_a_prompt_that_is_blocked_has_an_answer_and_its_tokens(
    stream: bool, gateways: Gateways
) -> None:
    blocked = {
        "promptFeedback": {"blockReason": "SAFETY"},
        "usageMetadata": {"promptTokenCount": 9},
    }
    step = Step(body=blocked)
    if stream:
        event = f"data: {json.dumps(blocked)}\r\n\r\n"
        step = Step(body=event, content_type="text/event-stream")
    with ModelServer([step]) as server:
        session, ledger = opened(gateways(server))
        answer = ask(session, STREAM if stream else GENERATE, body("gemini"))
        assert answer.json == ([blocked] if stream else blocked)
        assert [exchange.complete for exchange in session.exchanges] == [True]
        assert not session.refusals
    assert (ledger.usage.input_tokens, ledger.usage.output_tokens) == (9, 0)


def test_a_thought_is_not_the_answer(gateways: Gateways) -> None:
    events = [
        {"candidates": [{"content": {"parts": [{"text": "I th", "thought": True}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "ink", "thought": True}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "Y"}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "es"}]}, "finishReason": "STOP"}]},
        {"usageMetadata": {"promptTokenCount": 5, "thoughtsTokenCount": 2}},
    ]
    stream = "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events)
    with ModelServer([Step(body=stream, content_type="text/event-stream")]) as server:
        session, ledger = opened(gateways(server))
        assert len(ask(session, STREAM, body("gemini")).json) == 5
    assert final_message(session.exchanges) == "Yes"
    assert (ledger.usage.output_tokens, ledger.usage.reasoning_tokens) == (2, 2)


def test_a_model_of_the_path_is_checked_and_the_bodys_leads_nowhere(gateways: Gateways) -> None:
    with ModelServer(["x"]) as server:
        session, _ = opened(gateways(server, models=("m",)))
        refused = ask(session, "/v1beta/models/dear:generateContent", body("gemini", model="m"))
        assert (refused.status, refused.json["error"]["status"]) == (404, "NOT_FOUND")
        assert ask(session, GENERATE, body("gemini", model="dear", stream=False)).status == 200
        azure = "/openai/deployments/dear/chat/completions"
        assert ask(session, azure, body("azure")).status == 404
        models = ask(session, "/v1beta/models", method="GET").json
        assert [model["name"] for model in models["models"]] == ["models/m"]
        [request] = server.requests
    assert request.body == body("gemini")
    assert request.headers["x-goog-api-key"] == KEY
    assert "authorization" not in request.headers


def test_azure_has_no_address_of_its_own(gateways: Gateways) -> None:
    session, _ = opened(gateways("http://127.0.0.1:9", upstreams={}))
    refused = ask(session, "/openai/v1/responses", body("responses"))
    assert refused.status == 400
    assert refused.message == "AZURE_OPENAI_ENDPOINT is not set: no server has this API"


def test_counts_of_tokens_are_checked_and_cost_nothing(gateways: Gateways) -> None:
    with ModelServer(["x"]) as server:
        session, ledger = opened(gateways(server))
        count = ask(session, f"{PATH}:countTokens", body("gemini"))
        assert count.json == {"totalTokens": 100}
        refused = ask(session, f"{PATH}:countTokens", body("gemini", tools=[{"googleSearch": {}}]))
        assert refused.status == 400
    assert not ledger.usage


def test_a_tool_of_another_kind_is_described(gateways: Gateways) -> None:
    script: list[Step | str] = [Step(calls=[Tool("read_file", {"path": "x"})]), "done"]
    with ModelServer(script) as server:
        session, _ = opened(gateways(server))
        tools = [{"functionDeclarations": [{"name": "read_file"}]}]
        ask(session, f"{STREAM}?alt=sse", body("gemini", tools=tools))
    assert [turn.action for turn in turns(session.exchanges)] == ['read_file({"path": "x"})']
    assert session.turns == 1
