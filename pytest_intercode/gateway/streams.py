"""Streamed answers: splits bytes into server-sent events, and assembles the answer from them.

Pure. Assemblers accept whatever a server sends, and ignore what does not conform to the API.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from pytest_intercode.gateway.apis import is_blocked, objects, parse_object
from pytest_intercode.gateway.exchange import Api

__all__ = ["Assembler", "Event", "Splitter", "StreamBroken", "StreamTooLong", "assembler"]

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINES = re.compile(rb"\r\n|\n|\r")
_MAX_EVENT_SIZE = 64 * 1024 * 1024  # bytes of one event
_MAX_ANSWER_LENGTH = 32 * 1024 * 1024  # characters of an answer that are assembled
_MAX_PARTS = 10_000  # calls, blocks or choices of an answer
# Fields that some servers repeat in each event, and that cost nothing.
_LABELS = frozenset({"id", "role", "type"})


class StreamBroken(ValueError):
    """A stream does not conform to its media type."""


class StreamTooLong(StreamBroken):
    """An event has no end."""


class Event:
    """One event as it was received.

    Attributes:
        raw: its bytes, including the empty line at its end.
        data: its parsed data; None if it has none that is a JSON object.
        is_last: whether it is OpenAI's ``[DONE]``.
        kind: its name; empty if it has none.
    """

    __slots__ = ("data", "is_last", "kind", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        lines = _LINES.split(raw)
        names = (line[6:] for line in lines if line.startswith(b"event:"))
        self.kind = next(names, b"").strip().decode("utf-8", "replace")
        text = b"\n".join(
            line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")
        )
        self.is_last = text.strip() == b"[DONE]"
        self.data = parse_object(text)


class Splitter:
    """Splits a stream of bytes into events.

    Args:
        mask: the function that masks the bytes of each event, and the rest after the last one.
    """

    def __init__(self, mask: Callable[[bytes], bytes] = bytes) -> None:
        self._mask = mask
        self._rest = bytearray()
        self._searched = 0

    def feed(self, piece: bytes) -> list[Event]:
        """Add a piece of the stream; return the events that are now complete.

        Raises:
            StreamTooLong: an event has more than 64 MiB.
        """
        self._rest += piece
        events = []
        # An end of four bytes may have begun in the previous piece.
        while end := _END.search(self._rest, max(0, self._searched - 3)):
            events.append(Event(self._mask(bytes(self._rest[: end.end()]))))
            del self._rest[: end.end()]
            self._searched = 0
        self._searched = len(self._rest)
        if self._searched > _MAX_EVENT_SIZE:
            raise StreamTooLong("an event of its stream has no end")
        return events

    def rest(self) -> bytes:
        """Return the bytes after the last complete event."""
        return self._mask(bytes(self._rest))


class Assembler(ABC):
    """Assembles the answer of a stream.

    Attributes:
        usage: the last usage in the stream, in the API's form.
        complete: whether the event that ends the answer was received.
        ending: whether any event from now on may be the last one, in an API that does not mark it.
        length: the number of characters received, including those that are not assembled.
    """

    def __init__(self) -> None:
        self.usage: Mapping[str, Any] | None = None
        self.complete = False
        self.ending = False
        self.length = 0
        self._room = _MAX_ANSWER_LENGTH

    def feed(self, event: Event) -> None:
        """Process the next event."""
        if event.data is not None:
            self._read(event.kind, event.data)

    @abstractmethod
    def _read(self, kind: str, data: dict[str, Any]) -> None:
        """Process the name and the data of an event."""

    @abstractmethod
    def answer(self) -> dict[str, Any]:
        """Return the answer as far as it was received, in the form of an unstreamed answer."""

    def _take(self, text: Any) -> str:
        """Return the part of a text to assemble; bounded, as a hostile server may never stop."""
        if not isinstance(text, str):
            return ""
        excerpt = text[: max(0, self._room)]
        self._room -= len(excerpt)
        return excerpt


def _text_length(value: Any) -> int:
    """Return the number of characters in the texts of a part of an event."""
    length, values = 0, [value]
    while values:
        value = values.pop()
        if isinstance(value, str):
            length += len(value)
        elif isinstance(value, list):
            values += value
        elif isinstance(value, dict):
            values += [entry for key, entry in value.items() if key not in _LABELS]
    return length


def assembler(api: Api) -> Assembler:
    """Return a new assembler for an API's streams."""
    kinds: Mapping[Api, type[Assembler]] = {
        "chat": _Chat,
        "responses": _Responses,
        "messages": _Messages,
        "gemini": _Gemini,
        "converse": _Converse,
    }
    return kinds[api]()


class _Chat(Assembler):
    _TEXTS = ("content", "refusal", "reasoning_content", "reasoning")

    def __init__(self) -> None:
        super().__init__()
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def feed(self, event: Event) -> None:
        self.complete = self.complete or event.is_last
        super().feed(event)

    def _read(self, kind: str, data: dict[str, Any]) -> None:
        if isinstance(data.get("error"), dict):
            self._head.setdefault("error", data["error"])
            self.complete = True
        for key in ("id", "created", "model", "system_fingerprint", "service_tier"):
            if data.get(key) is not None:
                self._head.setdefault(key, data[key])
        if isinstance(data.get("usage"), dict):
            self.usage = data["usage"]
        for choice in objects(data.get("choices")):
            self._add(choice)

    def _add(self, choice: dict[str, Any]) -> None:
        self.length += _text_length(choice.get("delta"))
        index = _number(choice.get("index"))
        if index not in self._choices and len(self._choices) >= _MAX_PARTS:
            return
        state = self._choices.setdefault(
            index, {"texts": {}, "calls": {}, "function": _new_function(), "finish": None}
        )
        state["finish"] = choice.get("finish_reason") or state["finish"]
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        for key in self._TEXTS:
            if isinstance(delta.get(key), str):
                state["texts"].setdefault(key, []).append(self._take(delta[key]))
        for call in objects(delta.get("tool_calls")):
            # Some servers omit the index, and send a call in one piece.
            position = call.get("index")
            calls = state["calls"]
            number = position if isinstance(position, int) else len(calls)
            if number not in calls and len(calls) >= _MAX_PARTS:
                continue
            whole = calls.setdefault(number, {"id": "", **_new_function()})
            whole["id"] = whole["id"] or self._take(call.get("id"))
            self._add_function(whole, call.get("function"))
        self._add_function(state["function"], delta.get("function_call"))

    def _add_function(self, pieces: dict[str, list[str]], function: Any) -> None:
        if isinstance(function, dict):
            for key in ("name", "arguments"):
                pieces[key].append(self._take(function.get(key)))

    def answer(self) -> dict[str, Any]:
        choices = []
        for index, state in sorted(self._choices.items()):
            texts = {key: "".join(pieces) for key, pieces in state["texts"].items()}
            message: dict[str, Any] = {"role": "assistant", "content": None, **texts}
            if state["calls"]:
                message["tool_calls"] = [_call(call) for _, call in sorted(state["calls"].items())]
            if any(state["function"]["name"]):
                message["function_call"] = _function(state["function"])
            choices.append({"index": index, "message": message, "finish_reason": state["finish"]})
        completion = {"object": "chat.completion", **self._head, "choices": choices}
        return {**completion, "usage": self.usage} if self.usage is not None else completion


def _new_function() -> dict[str, list[str]]:
    return {"name": [], "arguments": []}


def _function(pieces: Mapping[str, Any]) -> dict[str, str]:
    return {key: "".join(pieces[key]) for key in ("name", "arguments")}


def _call(pieces: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": pieces["id"], "type": "function", "function": _function(pieces)}


class _Responses(Assembler):
    _LAST = ("response.completed", "response.incomplete", "response.failed")

    def __init__(self) -> None:
        super().__init__()
        self._response: dict[str, Any] = {"object": "response", "status": "incomplete"}
        self._items: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, list[str]] = {}

    def _read(self, kind: str, data: dict[str, Any]) -> None:
        kind = str(data.get("type", ""))
        self.length += _text_length(data.get("delta"))  # part of a text, a call or a thought
        response = data.get("response")
        if isinstance(response, dict):
            self._response = response
            if isinstance(response.get("usage"), dict):
                self.usage = response["usage"]
        self.complete = self.complete or kind in (*self._LAST, "error")
        if kind == "error":
            self._response = {**self._response, "status": "failed", "error": data}
        index = _number(data.get("output_index"))
        if kind == "response.output_item.done" and isinstance(data.get("item"), dict):
            if len(self._items) < _MAX_PARTS:
                self._items[index] = data["item"]
        elif kind == "response.output_text.delta" and len(self._texts) < _MAX_PARTS:
            self._texts.setdefault(index, []).append(self._take(data.get("delta")))

    def answer(self) -> dict[str, Any]:
        if self._response.get("output"):
            return self._response
        unfinished = {
            index: {
                "type": "message",
                "role": "assistant",
                "status": "incomplete",
                "content": [{"type": "output_text", "text": "".join(pieces), "annotations": []}],
            }
            for index, pieces in self._texts.items()
        }
        items = {**unfinished, **self._items}
        return {**self._response, "output": [item for _, item in sorted(items.items())]}


# The field that the text of each kind of delta belongs to.
_DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


class _Messages(Assembler):
    def __init__(self) -> None:
        super().__init__()
        self._message: dict[str, Any] = {"type": "message", "role": "assistant"}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}

    def _read(self, kind: str, data: dict[str, Any]) -> None:
        kind = str(data.get("type", ""))
        self.length += _text_length([data.get("content_block"), data.get("delta")])
        index = _number(data.get("index"))
        if kind == "message_start" and isinstance(data.get("message"), dict):
            self._message = {**data["message"]}
            self._use(self._message.get("usage"))
        elif kind == "content_block_start" and isinstance(data.get("content_block"), dict):
            if len(self._blocks) < _MAX_PARTS:
                self._blocks[index] = {**data["content_block"]}
        elif kind == "content_block_delta" and isinstance(data.get("delta"), dict):
            self._add(index, data["delta"])
        elif kind == "message_delta":
            delta = data.get("delta")
            if isinstance(delta, dict):
                self._message.update(
                    {key: delta[key] for key in ("stop_reason", "stop_sequence") if key in delta}
                )
            self._use(data.get("usage"))
        elif kind in ("message_stop", "error"):
            self.complete = True
            if kind == "error":
                self._message["error"] = data.get("error")

    def _use(self, usage: Any) -> None:
        """Overwrite earlier counts, as each usage counts the whole answer so far."""
        if isinstance(usage, dict):
            counts = {key: value for key, value in usage.items() if value is not None}
            self.usage = {**(self.usage or {}), **counts}

    def _add(self, index: int, delta: dict[str, Any]) -> None:
        key = _DELTAS.get(str(delta.get("type")))
        if key is not None and index in self._blocks:
            pieces = self._pieces.setdefault(index, {}).setdefault(key, [])
            pieces.append(self._take(delta.get(key)))

    def answer(self) -> dict[str, Any]:
        content = [self._block(index) for index in sorted(self._blocks)]
        message = {**self._message, "content": content}
        return {**message, "usage": self.usage} if self.usage is not None else message

    def _block(self, index: int) -> dict[str, Any]:
        block = {**self._blocks[index]}
        for key, pieces in self._pieces.get(index, {}).items():
            text = "".join(pieces)
            if key != "partial_json":
                initial = block.get(key)
                block[key] = (initial if isinstance(initial, str) else "") + text
            elif text:
                block["input"] = _parse_input(text)
        return block


class _Gemini(Assembler):
    """Gemini's parts are complete, except for texts, which continue; no event is marked as last.

    The finish reason may come with the last part or after it, and the usage grows with each event.
    """

    def __init__(self) -> None:
        super().__init__()
        self._head: dict[str, Any] = {}
        self._candidates: dict[int, dict[str, Any]] = {}

    def _read(self, kind: str, data: dict[str, Any]) -> None:
        for key in ("modelVersion", "responseId", "promptFeedback", "error"):
            if data.get(key) is not None:
                self._head[key] = data[key]
        if isinstance(data.get("usageMetadata"), dict):
            self.usage = data["usageMetadata"]
        for candidate in objects(data.get("candidates")):
            index = _number(candidate.get("index"))
            if index in self._candidates or len(self._candidates) < _MAX_PARTS:
                self._add(self._candidates.setdefault(index, {"parts": []}), candidate)
        self.complete = "error" in self._head
        ends = (state.get("finishReason") for state in self._candidates.values())
        self.ending = any(ends) or is_blocked(self._head)

    def _add(self, state: dict[str, Any], candidate: dict[str, Any]) -> None:
        self.length += _text_length(candidate.get("content"))
        state["finishReason"] = candidate.get("finishReason") or state.get("finishReason")
        content = candidate.get("content")
        for part in objects(content.get("parts") if isinstance(content, dict) else None):
            parts = state["parts"]
            last = parts[-1] if parts else {}
            text = self._take(part.get("text"))
            if "text" in last and "text" in part and last.get("thought") == part.get("thought"):
                last.update(part, text=last["text"] + [text])
            elif len(parts) < _MAX_PARTS:
                parts.append({**part, "text": [text]} if "text" in part else part)

    def answer(self) -> dict[str, Any]:
        candidates = [
            {
                "index": index,
                "finishReason": state.get("finishReason"),
                "content": {"role": "model", "parts": list(map(_joined, state["parts"]))},
            }
            for index, state in sorted(self._candidates.items())
        ]
        response = {**self._head, "candidates": candidates}
        return {**response, "usageMetadata": self.usage} if self.usage is not None else response


class _Converse(Assembler):
    """Bedrock's usage comes after the end of the message, in a separate event."""

    def __init__(self) -> None:
        super().__init__()
        self._head: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, list[Any]]] = {}

    def _read(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "metadata":
            self.usage = data["usage"] if isinstance(data.get("usage"), dict) else None
            self.complete = True
        elif kind == "messageStop":
            self._head["stopReason"] = data.get("stopReason")
            self.ending = True
        elif kind.endswith("Exception"):
            self._head["error"] = data
            self.complete = True
        elif kind in ("contentBlockStart", "contentBlockDelta"):
            self._add(data)

    def _add(self, data: Mapping[str, Any]) -> None:
        self.length += _text_length([data.get("start"), data.get("delta")])
        index = _number(data.get("contentBlockIndex"))
        if index not in self._blocks and len(self._blocks) >= _MAX_PARTS:
            return
        block = self._blocks.setdefault(index, {"text": [], "call": [], "input": [], "thought": []})
        start, delta = data.get("start"), data.get("delta")
        if isinstance(start, dict) and isinstance(start.get("toolUse"), dict):
            block["call"].append(start["toolUse"])
        if isinstance(delta, dict):
            block["text"].append(self._take(delta.get("text")))
            for key, name, field in (
                ("input", "toolUse", "input"),
                ("thought", "reasoningContent", "text"),
            ):
                if isinstance(delta.get(name), dict):
                    block[key].append(self._take(delta[name].get(field)))

    def answer(self) -> dict[str, Any]:
        content = [self._block(block) for _, block in sorted(self._blocks.items())]
        message = {"role": "assistant", "content": content}
        response = {"output": {"message": message}, **self._head}
        return {**response, "usage": self.usage} if self.usage is not None else response

    def _block(self, block: Mapping[str, list[Any]]) -> dict[str, Any]:
        if block["call"]:
            value = _parse_input("".join(block["input"]) or "{}")
            return {"toolUse": {**block["call"][0], "input": value}}
        if any(block["thought"]):
            return {"reasoningContent": {"reasoningText": {"text": "".join(block["thought"])}}}
        return {"text": "".join(block["text"])}


def _parse_input(text: str) -> Any:
    """Parse a tool's input; return an object that contains the text if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"unreadable": text}


def _joined(part: Mapping[str, Any]) -> dict[str, Any]:
    return {**part, "text": "".join(part["text"])} if "text" in part else {**part}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
