"""Streams cut at any byte, put together, and the usage in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.usage import Usage
from pytest_intercode.gateway.exchange import Api, estimate, read_usage
from pytest_intercode.gateway.streams import Event, Splitter, StreamTooLong, assembler

APIS: dict[str, Api] = {
    "chat.sse": "chat",
    "chat-without-usage.sse": "chat",
    "responses.sse": "responses",
    "messages.sse": "messages",
    "google.sse": "gemini",
}


def _feed(api: Api, data: bytes, size: int) -> tuple[dict[str, Any], Any, bool, bytes]:
    splitter, parts = Splitter(), assembler(api)
    raw = b""
    for at in range(0, len(data), size):
        for event in splitter.feed(data[at : at + size]):
            raw += event.raw
            parts.feed(event)
    return parts.answer(), parts.usage, parts.complete, raw + splitter.rest()


@pytest.mark.parametrize("name", APIS)
def test_the_usage_of_published_streams(name: str, samples: Path) -> None:
    data = (samples / "wire" / name).read_bytes()
    expected = json.loads((samples / "wire" / "expected-usage.json").read_text())[name]
    api = APIS[name]
    for size in (1, 7, len(data)):
        answer, usage, ended, raw = _feed(api, data, size)
        assert raw == data
        assert ended or api == "gemini"  # in which no event says that it is the last one
        assert "done" in json.dumps(answer)
        found = read_usage(api, usage)
        if expected is None:
            assert found is None
            assert estimate(100, answer).input_tokens == 25
        else:
            assert found == Usage(requests=1, **{f"{key}_tokens": n for key, n in expected.items()})


def _lines(*events: object, end: str = "\n\n") -> bytes:
    return "".join(f"data: {json.dumps(event)}{end}" for event in events).encode()


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
def test_calls_of_chat_are_put_together(end: str) -> None:
    def delta(**of: Any) -> dict[str, Any]:
        return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": of}]}

    def call(index: int, **of: Any) -> dict[str, Any]:
        return delta(tool_calls=[{"index": index, **of}])

    data = _lines(
        delta(role="assistant", content=""),
        delta(reasoning_content="hm"),
        delta(content="Grüß"),
        delta(content="e"),
        call(1, id="b", function={"name": "two", "arguments": ""}),
        call(0, id="a", type="function", function={"name": "one", "arguments": '{"x'}),
        call(0, function={"arguments": '": 1}'}),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        end=end,
    )
    for size in (1, 1000):
        answer, usage, ended, _ = _feed("chat", data + b"data: [DONE]" + end.encode(), size)
        assert ended
        assert usage is None
        [choice] = answer["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] == "Grüße"
        assert choice["message"]["reasoning_content"] == "hm"
        assert [c["function"] for c in choice["message"]["tool_calls"]] == [
            {"name": "one", "arguments": '{"x": 1}'},
            {"name": "two", "arguments": ""},
        ]


def test_a_call_of_the_older_kind_is_put_together() -> None:
    deltas = [
        {"role": "assistant", "function_call": {"name": "one", "arguments": ""}},
        {"function_call": {"arguments": '{"x'}},
        {"function_call": {"arguments": '": 1}'}},
    ]
    data = _lines(*({"choices": [{"index": 0, "delta": delta}]} for delta in deltas))
    answer, _, _, _ = _feed("chat", data, 1000)
    [choice] = answer["choices"]
    call = {"name": "one", "arguments": '{"x": 1}'}
    assert choice["message"] == {"role": "assistant", "content": None, "function_call": call}


def test_blocks_of_messages_are_put_together() -> None:
    data = _lines(
        {
            "type": "message_start",
            "message": {"model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}},
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "hm"},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": "s"},
        },
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "t", "name": "Bash", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"command": '},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '"ls"}'},
        },
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 30},
        },
        {
            "type": "message_delta",
            "delta": {},
            "usage": {"output_tokens": 31, "input_tokens": None},
        },
    )
    answer, usage, ended, _ = _feed("messages", data, 5)
    assert not ended
    assert answer["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}},
    ]
    assert answer["stop_reason"] == "tool_use"
    assert read_usage("messages", usage) == Usage(1, 9, 31)  # overwritten, never added


def test_a_stream_of_responses_that_broke_off_keeps_what_was_there() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"}
    data = _lines(
        {"type": "response.created", "response": {"model": "m", "output": [], "usage": None}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "on"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "ly"},
    )
    answer, usage, ended, _ = _feed("responses", data, 3)
    assert (ended, usage) == (False, None)
    assert answer["output"][0] == item
    assert answer["output"][1]["content"][0]["text"] == "only"


@pytest.mark.parametrize(
    ("api", "event"),
    [
        ("chat", {"choices": [{"delta": {"reasoning_details": [{"type": "t", "text": "TEXT"}]}}]}),
        ("responses", {"type": "response.function_call_arguments.delta", "delta": "TEXT"}),
        ("responses", {"type": "response.custom_tool_call_input.delta", "delta": "TEXT"}),
        ("responses", {"type": "response.reasoning_text.delta", "delta": "TEXT"}),
        ("messages", {"type": "content_block_delta", "delta": {"type": "new", "new": "TEXT"}}),
        ("gemini", {"candidates": [{"content": {"role": "model", "parts": [{"text": "TEXT"}]}}]}),
        ("converse", {"delta": {"reasoningContent": {"redactedContent": "TEXT"}}}),
    ],
)
def test_all_that_comes_counts_for_an_estimate(api: Api, event: dict[str, Any]) -> None:
    parts = assembler(api)
    for _ in range(5):
        frame = Event(_lines(event).replace(b"TEXT", b"x" * 4000))
        frame.kind = "contentBlockDelta"
        parts.feed(frame)
    assert parts.length == 20_000
    assert estimate(100, {}, parts.length) == Usage(1, 25, 5000)


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize(
    "event",
    [
        *(b"data: {", b"data: 1", b"data: []", b": ping", b"event: x", b"", b"data: \xff", b"\xff"),
        b'data: {"choices": 1, "response": [], "delta": 2, "type": 3, "index": "x", "usage": 4}',
        b'data: {"choices": [{"delta": {"tool_calls": [{"function": 1}, 2], "content": 5}}]}',
        b'data: {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta"}}',
        b'data: {"type": "response.output_item.done", "item": 1, "output_index": null}',
        b"data: " + b"[" * 5000,
    ],
)
def test_whatever_a_server_sends_is_taken(api: Api, event: bytes) -> None:
    answer, usage, ended, raw = _feed(api, event + b"\n\n", 1000)
    assert raw == event + b"\n\n"
    assert not ended
    json.dumps(answer)
    assert read_usage(api, usage) is None


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_intercode.gateway.streams._MAX_EVENT_SIZE", 1000)
    splitter = Splitter()
    splitter.feed(b"data: " + b"x" * 900)
    with pytest.raises(StreamTooLong):
        splitter.feed(b"x" * 100)


def test_many_small_pieces_take_time_in_proportion() -> None:
    """A quadratic one takes minutes for this."""
    parts = assembler("chat")
    event = Event(_lines({"choices": [{"index": 0, "delta": {"content": "x" * 40}}]}))
    for _ in range(50_000):
        parts.feed(event)
    assert len(parts.answer()["choices"][0]["message"]["content"]) == 2_000_000
    splitter = Splitter()
    for _ in range(20_000):
        splitter.feed(b"data: no end")


@pytest.mark.parametrize(
    "usage",
    [
        None,
        1,
        {},
        {"prompt_tokens": 1},
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": "1", "completion_tokens": 1},
        {"prompt_tokens": True, "completion_tokens": 1},
        {"prompt_tokens": 1e9, "completion_tokens": 1},
        {"prompt_tokens": 2**60, "completion_tokens": 1},
    ],
)
def test_a_usage_that_cannot_be_true_is_none(usage: object) -> None:
    assert read_usage("chat", usage) is None


def test_parts_of_a_usage_are_never_more_than_the_whole() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 50, "cache_write_tokens": 9},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    assert read_usage("chat", usage) == Usage(1, 10, 5, cached_tokens=10, reasoning_tokens=5)
