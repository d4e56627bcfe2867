"""What recordings hold of keys and of this machine: nothing."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from pytest_intercode.gateway.apis import ROUTES
from pytest_intercode.gateway.masking import KEY_MASK, Masks, matches_masked
from pytest_intercode.gateway.recording import RecordedAnswer, make_row
from pytest_intercode.gateway.streams import Event, assembler

KEY = "sk-real-0123456789/abc+def"
ESCAPED = "".join(f"\\u{ord(character):04x}" for character in KEY)


@pytest.mark.parametrize(
    "written",
    [
        KEY,
        ESCAPED,
        ESCAPED.upper().replace("\\U", "\\u"),
        json.dumps(ESCAPED)[1:-1],  # arguments of a tool are JSON in JSON
        KEY.replace("/", "\\/"),
        KEY.replace("0", "\\x30").replace("s", "\\u0073"),
        quote(KEY, safe=""),
        "".join(f"%{ord(character):02X}" for character in KEY),
        KEY.replace("k", "&#107;"),
    ],
)
def test_a_known_key_is_masked_however_it_is_written(written: str) -> None:
    assert Masks([KEY]).text(f"before {written} after") == f"before {KEY_MASK} after"


@pytest.mark.parametrize(
    "key",
    [
        "sk-ant-api03-abcdefghij0123456789",
        f"ghp_{'a1' * 18}",
        f"github_pat_{'a1' * 18}",
        "xoxb-1234567890-abc",
        "AKIAIOSFODNN7EXAMPLE",
        f"AIza{'b2' * 17}c",
        f"ya29.{'c4' * 20}",
        f"hf_{'a1' * 17}",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\\nIBAAKC\n-----END RSA PRIVATE KEY",
    ],
)
def test_the_form_of_a_key_is_enough(key: str) -> None:
    assert Masks().text(f"TOKEN={key} ls") == f"TOKEN={KEY_MASK} ls"


def test_a_line_of_json_is_masked_by_known_keys_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE", "postgres://app:opensesame@db/app")
    masks = Masks.of_keys(['two "words"'])
    line = json.dumps({"a": ['two "words"'], "b": "opensesame", "c": "AKIAIOSFODNN7EXAMPLE"})
    masked = {"a": [KEY_MASK], "b": KEY_MASK, "c": "AKIAIOSFODNN7EXAMPLE"}
    assert json.loads(masks.line(line)) == masked
    assert masks.line('{"a":  1}') == '{"a":  1}'


def test_what_is_no_key_stays() -> None:
    text = "task-management sk-learn pip install scikit-learn ghp_ Bearer of news, %20 \\u0073"
    assert Masks([KEY]).text(text) == text


def test_keys_of_the_environment_are_known() -> None:
    environment = {
        "CORP_TOKEN": "Zx81-spectrum-48k-rubber",
        "API_KEY": "EMPTY",
        "SSH_KEY_FILE": "/home/x/.ssh/id_0123456789abcdef",
        "PLAIN": "Qw81-spectrum-48k-rubber",
    }
    masks = Masks.of_machine(environment=environment)
    for name, value in environment.items():
        assert (KEY_MASK in masks.text(value)) == (name == "CORP_TOKEN")


def test_user_and_machine_are_masked_where_they_are_named() -> None:
    masks = Masks(user="mark", host="apollo-7")
    text = masks.text("/home/mark/x, mark@apollo-7.lan, C:\\Users\\mark; pytest.mark: mark it")
    assert text == (
        "/home/intercode-masked-user/x, intercode-masked-user@intercode-masked-host.lan, "
        "C:\\Users\\intercode-masked-user; pytest.mark: mark it"
    )
    same = "the root of ubuntu's runner"
    assert Masks(user="root", host="ubuntu").text(same) == same


def _events(*deltas: Any) -> tuple[str, ...]:
    rows = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return tuple(f"data: {json.dumps(row)}\n\n" for row in rows)


def test_a_key_is_masked_over_the_events_of_a_stream() -> None:
    letters = [{"content": letter} for letter in f"My key is {KEY}, keep it."]
    events = (*_events(*letters), "data: [DONE]\n\n")
    masked = Masks([KEY]).stream(events)
    parts = assembler("chat")
    for event in masked:
        parts.feed(Event(event.encode()))
    [choice] = parts.answer()["choices"]
    assert choice["message"]["content"] == f"My key is {KEY_MASK}, keep it."
    assert masked[:5] == events[:5]  # byte for byte, where nothing is masked
    assert masked[-1] == events[-1]


def test_texts_of_a_stream_that_go_on_at_once_are_kept_apart() -> None:
    def call(index: int, arguments: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}

    half = len(ESCAPED) // 2
    events = _events(
        *(call(0, '{"a": "'), call(1, '{"b": "'), call(0, ESCAPED[:half]), call(1, KEY[:9])),
        *(call(0, ESCAPED[half:] + '"}'), call(1, KEY[9:] + '"}')),
    )
    parts = assembler("chat")
    for event in Masks([KEY]).stream(events):
        parts.feed(Event(event.encode()))
    calls = parts.answer()["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == [
        f'{{"a": "{KEY_MASK}"}}',
        f'{{"b": "{KEY_MASK}"}}',
    ]


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
def test_a_row_has_no_key(content_type: str) -> None:
    token = "sk-intercode-0123456789abcdefghij"
    request = {
        "model": "m",
        "messages": [{"role": "user", "content": f"{KEY} {ESCAPED} {token}"}],
        "metadata": {KEY: [KEY, {"header": f"Bearer {KEY}"}]},
    }
    document = json.dumps({"type": "x", "text": f"{KEY} {token}", "ä": KEY})
    spelled = document.replace("sk-real", "\\u0073k-real")
    pieces = (f"data: {spelled}\n\n",) if "event" in content_type else (spelled,)
    recorded = RecordedAnswer(200, content_type, pieces)
    masks = Masks([KEY])
    row = make_row(ROUTES["POST", "/v1/chat/completions"], request, token, recorded, masks)
    text = json.dumps(row)
    for secret in (KEY, "real-0123456789", token, ESCAPED):
        assert secret not in text
    assert row["request"]["messages"][0]["content"] == f"{KEY_MASK} {KEY_MASK} <token>"


@pytest.mark.parametrize(
    ("recorded", "current", "same"),
    [
        (f"a {KEY_MASK} b", "a anything at all b", True),
        (f"a {KEY_MASK} b {KEY_MASK}", "a 1 b 2", True),
        (f"a {KEY_MASK} b", "a anything c", False),
        (f"{KEY_MASK}aa", "a", False),
        ({"x": [f"{KEY_MASK}."]}, {"x": ["k."]}, True),
        ({"x": 1}, {"x": True}, False),
        ({"x": 1}, {"x": 1, "y": 2}, False),
    ],
)
def test_a_mask_stands_for_any_text(recorded: Any, current: Any, same: bool) -> None:
    assert matches_masked(recorded, current) is same
