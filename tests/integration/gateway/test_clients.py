"""The real SDKs through the gateway to a server that speaks their APIs, and what is metered."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from pytest_intercode.core.usage import Usage
from pytest_intercode.gateway.exchange import Price
from pytest_intercode.gateway.session import Session
from pytest_intercode.gateway.trajectory import final_message, turns
from tests.integration.gateway.conftest import KEY, Gateways, opened
from tests.support.model_server import Command, ModelServer, Step

SCRIPT: list[str | Command | Step] = [
    Command("echo hi > out.txt", thought="First a file."),
    "It is done.",
]
BASH = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(SCRIPT) as running:
        yield running


# -- one small agent for each API; each returns the texts that it printed


def chat(session: Session, stream: bool, **more: Any) -> str:
    client = openai.OpenAI(base_url=session.url("openai"), api_key=session.token, max_retries=0)
    return _chat(client, stream, **more)


def _chat(client: openai.OpenAI, stream: bool, **more: Any) -> str:
    tool = {"type": "function", "function": {"name": "bash", "parameters": BASH}}
    messages: list[Any] = [{"role": "user", "content": "Make the file."}]
    ask: Any = client.chat.completions.create
    with client:
        while True:
            answer = ask(model="m", messages=messages, tools=[tool], stream=stream, **more)
            if stream:
                text, calls = _collect_chat(answer)
            else:
                message = answer.choices[0].message
                text = message.content or ""
                calls = [c.model_dump() for c in message.tool_calls or ()]
            if not calls:
                return text
            messages.append({"role": "assistant", "content": text, "tool_calls": calls})
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": "made"} for call in calls
            ]


def _collect_chat(chunks: Any) -> tuple[str, list[Any]]:
    text, calls = "", {}
    for chunk in chunks:
        assert chunk.choices, "the chunk of the usage, which was not asked for"
        delta = chunk.choices[0].delta
        text += delta.content or ""
        for call in delta.tool_calls or ():
            if call.index not in calls:
                calls[call.index] = {"id": call.id, "type": "function", "function": {}}
                calls[call.index]["function"] = {"name": call.function.name, "arguments": ""}
            calls[call.index]["function"]["arguments"] += call.function.arguments
    return text, list(calls.values())


def responses(session: Session, stream: bool, **more: Any) -> str:
    client = openai.OpenAI(base_url=session.url("openai"), api_key=session.token, max_retries=0)
    return _responses(client, stream, **more)


def _responses(client: openai.OpenAI, stream: bool, **more: Any) -> str:
    tool = {"type": "function", "name": "bash", "parameters": BASH, "strict": False}
    items: list[Any] = [{"role": "user", "content": "Make the file."}]
    ask: Any = client.responses.create
    with client:
        while True:
            answer = ask(model="m", input=items, tools=[tool], stream=stream, **more)
            if stream:
                answer = next(e for e in answer if e.type == "response.completed").response
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                return str(answer.output_text)
            items += [item.model_dump(exclude_none=True) for item in answer.output]
            items += [
                {"type": "function_call_output", "call_id": call.call_id, "output": "made"}
                for call in calls
            ]


def messages(session: Session, stream: bool, **more: Any) -> str:
    import anthropic  # a thousand modules, which one worker alone is to import

    client = anthropic.Anthropic(
        base_url=session.url("anthropic"), api_key=session.token, max_retries=0
    )
    return use_messages(client, stream, model="m", **more)


def use_messages(client: Any, stream: bool, **more: Any) -> str:
    tool = {"name": "bash", "input_schema": BASH}
    history: list[Any] = [{"role": "user", "content": "Make the file."}]
    arguments: dict[str, Any] = {"max_tokens": 100, "tools": [tool], **more}
    with client:
        while True:
            if stream:
                with client.messages.stream(messages=history, **arguments) as events:
                    answer: Any = events.get_final_message()
            else:
                answer = client.messages.create(messages=history, **arguments)
            calls = [block for block in answer.content if block.type == "tool_use"]
            if not calls:
                return str(answer.content[0].text)
            history.append(
                {"role": "assistant", "content": [b.model_dump() for b in answer.content]}
            )
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": "made"} for call in calls
            ]
            history.append({"role": "user", "content": results})


def azure_client(session: Session) -> openai.AzureOpenAI:
    return openai.AzureOpenAI(
        azure_endpoint=session.url("azure"),
        api_key=session.token,
        api_version="2025-04-01-preview",
        max_retries=0,
    )


def azure(session: Session, stream: bool, **more: Any) -> str:
    return _chat(azure_client(session), stream, **more)


def azure_responses(session: Session, stream: bool, **more: Any) -> str:
    return _responses(azure_client(session), stream, **more)


def gemini(session: Session, stream: bool, **more: Any) -> str:
    from google import genai
    from google.genai import types

    options = types.HttpOptions(base_url=session.url("google"))
    return use_gemini(genai.Client(api_key=session.token, http_options=options), stream, **more)


def use_gemini(client: Any, stream: bool, **more: Any) -> str:
    from google.genai import types

    function = types.FunctionDeclaration(name="bash", parameters_json_schema=BASH)
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[function])], system_instruction="Use bash.", **more
    )
    contents = [types.Content(role="user", parts=[types.Part(text="Make the file.")])]
    with client:
        while True:
            arguments: dict[str, Any] = {"model": "m", "contents": contents, "config": config}
            if stream:
                answers: list[Any] = list(client.models.generate_content_stream(**arguments))
            else:
                answers = [client.models.generate_content(**arguments)]
            parts = [part for a in answers for part in a.candidates[0].content.parts or ()]
            calls = [part.function_call for part in parts if part.function_call]
            if not calls:
                return "".join(part.text for part in parts)
            results = [
                types.Part.from_function_response(name=call.name, response={"result": "made"})
                for call in calls
            ]
            contents += [
                types.Content(role="model", parts=parts),
                types.Content(role="user", parts=results),
            ]


def converse(session: Session, stream: bool, **more: Any) -> str:
    client = bedrock_client(session)
    config = {"tools": [{"toolSpec": {"name": "bash", "inputSchema": {"json": BASH}}}]}
    history: list[Any] = [{"role": "user", "content": [{"text": "Make the file."}]}]
    arguments: dict[str, Any] = {"modelId": "m", "toolConfig": config, "system": [{"text": "x"}]}
    with contextlib.closing(client):
        while True:
            if stream:
                events = client.converse_stream(messages=history, **arguments, **more)["stream"]
                content = _collect_converse(list(events))
            else:
                answer = client.converse(messages=history, **arguments, **more)
                content = answer["output"]["message"]["content"]
            calls = [block["toolUse"] for block in content if "toolUse" in block]
            if not calls:
                return str(content[0]["text"])
            history.append({"role": "assistant", "content": content})
            results = [
                {"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": "made"}]}}
                for call in calls
            ]
            history.append({"role": "user", "content": results})


def bedrock_client(session: Session) -> Any:
    """Return a client that signs with the token of the session."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "bedrock-runtime",
        region_name="eu-west-1",
        endpoint_url=session.url("bedrock"),
        aws_access_key_id=session.token,
        aws_secret_access_key="none",
        config=Config(retries={"total_max_attempts": 1}),
    )


def _collect_converse(events: list[Any]) -> list[Any]:
    assert [next(iter(event)) for event in events[-2:]] == ["messageStop", "metadata"]
    blocks: dict[int, Any] = {}
    for event in events:
        if "contentBlockStart" in event:
            start = event["contentBlockStart"]
            call = {**start["start"]["toolUse"], "input": ""}
            blocks[start["contentBlockIndex"]] = {"toolUse": call}
        elif "contentBlockDelta" in event:
            part = event["contentBlockDelta"]
            block = blocks.setdefault(part["contentBlockIndex"], {"text": ""})
            if "toolUse" in block:
                block["toolUse"]["input"] += part["delta"]["toolUse"]["input"]
            else:
                block["text"] += part["delta"]["text"]
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"])
    return [block for _, block in sorted(blocks.items())]


def invoke(session: Session, stream: bool, **more: Any) -> str:
    import anthropic

    client = anthropic.AnthropicBedrock(
        base_url=session.url("bedrock"),
        aws_region="eu-west-1",
        aws_access_key=session.token,
        aws_secret_key="none",
        max_retries=0,
    )
    return use_messages(client, stream, model="anthropic.m-v1:0", **more)


AGENTS = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
    "azure": azure,
    "azure-responses": azure_responses,
    "gemini": gemini,
    "converse": converse,
    "invoke": invoke,
}
SENT = {"azure": "api-key", "azure-responses": "api-key", "gemini": "x-goog-api-key"}


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("api", AGENTS)
def test_the_sdks_get_what_the_server_says_and_the_ledger_what_it_reports(
    api: str, stream: bool, server: ModelServer, gateways: Gateways
) -> None:
    prices = {"*": Price(input=10.0, output=100.0, cached=1.0)}
    session, ledger = opened(gateways(server, prices=prices))
    assert AGENTS[api](session, stream) == "It is done."
    session.close()
    assert (ledger.usage.input_tokens, ledger.usage.output_tokens) == (200, 14)
    assert (server.spent.input, server.spent.output) == (200, 14)
    assert ledger.usage.requests == 2
    assert ledger.usage.cost == pytest.approx(2 * (60 * 10 + 40 * 1 + 7 * 100) / 1e6)
    first, _second = session.exchanges
    wires = {"azure": "chat", "azure-responses": "responses", "invoke": "messages"}
    wire, model = wires.get(api, api), "anthropic.m-v1:0" if api == "invoke" else "m"
    assert [first.api, first.model, first.status, first.complete] == [wire, model, 200, True]
    thoughts = 3 if api == "gemini" else 0
    assert first.usage == Usage(
        1, 100, 7, first.usage.cost, cached_tokens=40, reasoning_tokens=thoughts
    )
    [turn] = turns(session.exchanges)
    assert (turn.thought, turn.action) == ("First a file.", "echo hi > out.txt")
    assert (turn.observation, turn.usage) == ("made", first.usage)
    assert final_message(session.exchanges) == "It is done."
    assert (session.turns, session.refusals) == (1, [])
    for request in server.requests:
        assert KEY in request.headers.get(SENT.get(api, ""), f"{request.headers}")
        assert session.token not in f"{request}"
        assert request.headers["accept-encoding"] == "identity"
        assert ("api-version=2025-04-01-preview" in request.path) == api.startswith("azure")
        assert request.model == model
    if wire == "chat" and stream:
        assert all(r.body["stream_options"]["include_usage"] for r in server.requests)
