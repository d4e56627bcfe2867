"""What a model is sent of its own past."""

from __future__ import annotations

import pytest

from pytest_intercode.agents.chat.history import History, Message, clip


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


HEAD = [{"role": "system", "content": "setting"}, user("task")]


def test_all_is_sent_while_it_fits() -> None:
    history = History(40, HEAD)
    for number in range(4):
        history.add(assistant(f"a{number}234"), [user(f"u{number}234")])
    contents = [message["content"] for message in history.messages()]
    assert contents == ["setting", "task", *(f"{w}{n}234" for n in range(4) for w in "au")]


def test_the_oldest_turns_are_left_out_and_the_model_is_told() -> None:
    history = History(29, HEAD)
    for number in range(4):
        history.add(assistant(f"a{number}234"), [user(f"u{number}234")])
    contents = [message["content"] for message in history.messages()]
    told = "task\n\n[2 earlier turns left out here]"
    assert contents == ["setting", told, "a2234", "u2234", "a3234", "u3234"]
    assert HEAD[1]["content"] == "task"


def test_the_latest_turn_and_what_is_pinned_are_always_sent() -> None:
    history = History(1, HEAD)
    history.pin(assistant("plan"), user("step 1"))
    history.add(assistant("a"), [user("u" * 50)])
    history.add(assistant("b"), [user("v" * 50)])
    contents = [message["content"] for message in history.messages()]
    assert contents[2:] == ["plan", "step 1\n\n[1 earlier turn left out here]", "b", "v" * 50]


@pytest.mark.parametrize("limit", range(1, 200, 7))
def test_a_tool_call_is_never_parted_from_its_result(limit: int) -> None:
    history = History(limit, HEAD)
    for turn in range(5):
        made = [
            {"id": f"{turn}-{n}", "function": {"name": "execute", "arguments": "x" * 10}}
            for n in range(turn % 3 + 1)
        ]
        results = [{"role": "tool", "tool_call_id": c["id"], "content": "y" * 5} for c in made]
        history.add({"role": "assistant", "content": None, "tool_calls": made}, results)
    messages = history.messages()
    asked = [c["id"] for message in messages for c in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert asked == answered
    assert asked[-1] == "4-1"


def test_an_endless_answer_is_clipped() -> None:
    history = History(100, HEAD)
    history.add(assistant("x" * 1000), [user("no code")])
    assert len(history.messages()[2]["content"]) < 200


def test_telling_adds_to_the_latest_message() -> None:
    history = History(100, HEAD)
    history.add(assistant("a"), [user("u")])
    history.extend("step 2")
    assert history.messages()[-1]["content"] == "u\n\nstep 2"


def test_a_text_is_clipped_in_its_middle() -> None:
    assert clip("x" * 10, 10) == "x" * 10
    clipped = clip("a" * 50 + "b" * 51, 100)
    assert clipped == f"{'a' * 50}\n[... 1 characters are left out here ...]\n{'b' * 50}"
