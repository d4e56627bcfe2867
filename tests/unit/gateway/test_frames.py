"""AWS's binary streams: as botocore reads them, cut at any byte, and what is hostile in them."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest

from pytest_intercode.gateway.frames import FrameSplitter, encode_frame, make_event
from pytest_intercode.gateway.streams import Event, StreamBroken, assembler

EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("messageStart", {"role": "assistant"}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "hm"}}}),
    ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "Grüß"}}),
    ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "e"}}),
    (
        "contentBlockStart",
        {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "t", "name": "bash"}}},
    ),
    ("contentBlockDelta", {"contentBlockIndex": 2, "delta": {"toolUse": {"input": '{"x"'}}}),
    ("contentBlockDelta", {"contentBlockIndex": 2, "delta": {"toolUse": {"input": ": 1}"}}}),
    ("messageStop", {"stopReason": "tool_use"}),
    ("metadata", {"usage": {"inputTokens": 1, "outputTokens": 2}}),
]


@pytest.mark.parametrize("is_chunk", [False, True])
def test_events_are_the_same_through_frames_cut_at_any_byte(is_chunk: bool) -> None:
    events = [(kind, {**data, "type": kind} if is_chunk else data) for kind, data in EVENTS]
    data = b"".join(encode_frame(kind, data, is_chunk=is_chunk) for kind, data in events)
    for size in (1, 7, len(data)):
        splitter = FrameSplitter()
        pieces = (data[start : start + size] for start in range(0, len(data), size))
        received = [event for piece in pieces for event in splitter.feed(piece)]
        assert [(event.kind, event.data) for event in received] == events
        assert splitter.rest() == b""


def test_botocore_reads_our_frames() -> None:
    from botocore.eventstream import EventStreamBuffer

    buffer = EventStreamBuffer()
    for kind, data in EVENTS:
        buffer.add_data(encode_frame(kind, data))
    messages = list(buffer)
    assert [message.headers[":event-type"] for message in messages] == [kind for kind, _ in EVENTS]
    assert [json.loads(message.payload) for message in messages] == [data for _, data in EVENTS]
    buffer.add_data(encode_frame("throttlingException", {"message": "x"}, is_chunk=True))
    [error] = buffer
    assert error.headers[":message-type"] == "exception"
    assert error.headers[":exception-type"] == "throttlingException"


def test_converse_is_put_together() -> None:
    parts = assembler("converse")
    endings = []
    for kind, data in EVENTS:
        parts.feed(Event(make_event(kind, data)))
        endings.append((parts.ending, parts.complete))
    assert endings[-3:] == [(False, False), (True, False), (True, True)]
    assert parts.answer() == {
        "output": {
            "message": {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "hm"}}},
                    {"text": "Grüße"},
                    {"toolUse": {"toolUseId": "t", "name": "bash", "input": {"x": 1}}},
                ],
            }
        },
        "stopReason": "tool_use",
        "usage": {"inputTokens": 1, "outputTokens": 2},
    }


@pytest.mark.parametrize("value", [None, 1, "x", [], [None], {"text": 1}, {"toolUse": []}])
def test_converse_takes_whatever_a_server_sends(value: object) -> None:
    parts = assembler("converse")
    for kind in ("contentBlockStart", "contentBlockDelta", "messageStop", "metadata", "x", ""):
        for key in ("start", "delta", "contentBlockIndex", "usage", "stopReason"):
            parts.feed(Event(make_event(kind, {key: value})))
    json.dumps(parts.answer())


def test_a_name_of_an_event_cannot_be_another_line() -> None:
    event = Event(make_event("x\ndata: {}\n\n", {"a": 1}))
    assert (event.kind, event.data) == ("xdata", {"a": 1})


def test_whatever_bytes_come_it_ends_with_events_or_with_one_error() -> None:
    chance = random.Random(7)
    good = b"".join(encode_frame(kind, data) for kind, data in EVENTS)
    for _ in range(500):
        data = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        splitter = FrameSplitter()
        with contextlib.suppress(StreamBroken):
            assert len(splitter.feed(bytes(data))) <= len(EVENTS)
