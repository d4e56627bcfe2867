"""Converts exchanges of Gemini and Converse to Anthropic's form, to read an agent's turns. Pure.

In all three APIs, contents are made of parts, so that one reader suffices. A Gemini call may lack
an id, and a client may not send back the id of a call. If no result has a call's id, the call's
name is used instead, and results are matched to calls in order.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_intercode.gateway.apis import objects
from pytest_intercode.gateway.exchange import Exchange

__all__ = ["as_messages"]


def as_messages(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Convert exchanges to Anthropic's form; those of OpenAI's APIs do not change."""
    exchanges = [_from_converse(e) if e.api == "converse" else e for e in exchanges]
    of_gemini = [exchange for exchange in exchanges if exchange.api == "gemini"]
    call_ids, result_ids = set[str](), set[str]()
    for exchange in of_gemini:
        call_ids |= {_id_of(part, "Call") for part in _parts(_answer_of(exchange))}
        for content in objects(exchange.request.get("contents")):
            result_ids |= {_id_of(part, "Response") for part in _parts(content)}
    ids = (call_ids & result_ids) - {""}
    return [_from_gemini(e, ids) if e.api == "gemini" else e for e in exchanges]


def _from_gemini(exchange: Exchange, ids: Container[str]) -> Exchange:
    """Convert a Gemini exchange; a call without one of these ids gets its name as its id."""
    request = exchange.request
    messages = [
        {"role": content.get("role"), "content": list(_blocks(content, ids))}
        for content in objects(request.get("contents"))
    ]
    return replace(
        exchange,
        api="messages",
        request={"messages": messages, "tools": request.get("tools")},
        answer={"content": list(_blocks(_answer_of(exchange), ids))},
    )


def _answer_of(exchange: Exchange) -> Any:
    candidates = objects(exchange.answer.get("candidates"))
    return candidates[0].get("content") if candidates else None


def _parts(content: Any) -> list[dict[str, Any]]:
    return objects(content.get("parts")) if isinstance(content, dict) else []


def _function(part: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return a part's function ``Call`` or ``Response``; Google accepts two spellings."""
    value = part.get(f"function{kind}", part.get(f"function_{kind.lower()}"))
    return value if isinstance(value, dict) else None


def _id_of(part: Mapping[str, Any], kind: str) -> str:
    function = _function(part, kind)
    return "" if function is None else str(function.get("id") or "")


def _blocks(content: Any, ids: Container[str]) -> Iterator[dict[str, Any]]:
    for part in _parts(content):
        call, result = _function(part, "Call"), _function(part, "Response")
        if isinstance(part.get("text"), str):
            kind = "thinking" if part.get("thought") else "text"
            yield {"type": kind, kind: part["text"]}
        elif call is not None:
            name, identity = str(call.get("name", "")), str(call.get("id"))
            key = identity if identity in ids else name
            yield {"type": "tool_use", "id": key, "name": name, "input": call.get("args") or {}}
        elif result is not None:
            identity = str(result.get("id"))
            key = identity if identity in ids else str(result.get("name", ""))
            text = _result_text(result.get("response"))
            yield {"type": "tool_result", "tool_use_id": key, "content": text}


def _from_converse(exchange: Exchange) -> Exchange:
    """Convert an exchange of Bedrock's Converse API."""
    request, output = exchange.request, exchange.answer.get("output")
    message = output.get("message") if isinstance(output, dict) else None
    messages = [
        {"role": message.get("role"), "content": list(_converse_blocks(message))}
        for message in objects(request.get("messages"))
    ]
    content = list(_converse_blocks(message)) if isinstance(message, dict) else []
    return replace(
        exchange,
        api="messages",
        request={"messages": messages, "tools": request.get("toolConfig")},
        answer={"content": content},
    )


def _converse_blocks(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for block in objects(message.get("content")):
        call, result, thought = map(block.get, ("toolUse", "toolResult", "reasoningContent"))
        if isinstance(block.get("text"), str):
            yield {"type": "text", "text": block["text"]}
        elif isinstance(call, dict):
            identity, name = call.get("toolUseId"), call.get("name")
            yield {"type": "tool_use", "id": identity, "name": name, "input": call.get("input")}
        elif isinstance(result, dict):
            parts = [_converse_part(part) for part in objects(result.get("content"))]
            identity, is_error = result.get("toolUseId"), result.get("status") == "error"
            yield {"type": "tool_result", "tool_use_id": identity, "content": parts} | (
                {"is_error": True} if is_error else {}
            )
        elif isinstance(thought, dict) and isinstance(thought.get("reasoningText"), dict):
            yield {"type": "thinking", "thinking": thought["reasoningText"].get("text")}


def _converse_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if "json" in part:
        return {"type": "text", "text": _result_text(part["json"])}
    return {"type": "text" if "text" in part else "image", **part}


def _result_text(response: Any) -> str:
    """Return a tool's result; its text is in ``output``, ``result`` or ``error``."""
    if isinstance(response, dict):
        for key in ("output", "result", "error"):
            if isinstance(response.get(key), str):
                return str(response[key])
    return json.dumps(response, ensure_ascii=False)
