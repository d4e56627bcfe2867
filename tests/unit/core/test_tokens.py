"""What is kept of the requests to a model, and the sequences that are made of them."""

from __future__ import annotations

import json
import random
from array import array
from typing import Any

import pytest

from pytest_intercode.core import tokens as module
from pytest_intercode.core.tokens import (
    AnswerTokens,
    CallLog,
    ModelCall,
    describe_missing,
    full_prompt,
    full_request,
    token_sequences,
)


def keep(log: CallLog, prompt: list[int], completion: list[int], **request: Any) -> int:
    logprobs = [-value / 8 for value in completion]
    return log.add("m", request, AnswerTokens(prompt, completion, logprobs, "stop"))


def test_a_conversation_is_one_sequence_with_what_others_wrote_masked() -> None:
    log = CallLog()
    keep(log, [1, 2], [3, 4])
    keep(log, [1, 2, 3, 4, 5], [6])
    keep(log, [1, 2, 3, 4, 5, 6, 7, 8], [9, 9])
    [sequence] = token_sequences(log.calls)
    assert sequence.prompt_ids == (1, 2)
    assert sequence.response_ids == (3, 4, 5, 6, 7, 8, 9, 9)
    assert sequence.loss_mask == (1, 1, 0, 1, 0, 0, 1, 1)
    assert sequence.logprobs == (-3 / 8, -4 / 8, 0.0, -6 / 8, 0.0, 0.0, -9 / 8, -9 / 8)
    assert (sequence.calls, sequence.cause) == ((0, 1, 2), "")
    assert [call.prompt_ids for call in log.calls] == [(1, 2), (5,), (7, 8)]


@pytest.mark.parametrize(
    ("prompt", "cause"),
    [
        ([1, 2, 3, 9], "the prompt of call 1 begins with 3 of the 4 tokens of call 0, and not"),
        ([1, 2, 3], "the prompt of call 1 begins with 3 of the 4 tokens of call 0, and not"),
        ([7, 2, 3, 4, 5], "the prompt of call 1 begins in another way than any before it"),
    ],
)
def test_a_history_that_was_rewritten_begins_a_sequence(prompt: list[int], cause: str) -> None:
    log = CallLog()
    keep(log, [1, 2], [3, 4])
    keep(log, prompt, [6])
    first, second = token_sequences(log.calls)
    assert (first.prompt_ids, first.response_ids, first.calls) == ((1, 2), (3, 4), (0,))
    assert (second.prompt_ids, second.response_ids, second.calls) == (tuple(prompt), (6,), (1,))
    assert second.loss_mask == (1,)
    assert second.cause.startswith(cause)


def test_conversations_that_go_on_from_one_are_two() -> None:
    """An agent that tries twice from the same point trains on its first tokens once."""
    log = CallLog()
    keep(log, [1], [2])
    keep(log, [1, 2, 3], [4])
    keep(log, [1, 2, 5], [6])
    keep(log, [1, 2, 5, 6, 7], [8])
    first, second = token_sequences(log.calls)
    assert (first.calls, second.calls) == ((0, 1), (2, 3))
    assert second.prompt_ids == (1, 2, 5)
    assert second.response_ids == (6, 7, 8)
    assert second.cause == "call 2 goes on from call 0, as another one has done before"


def test_a_request_that_is_sent_again_does_not_end_the_sequence() -> None:
    log = CallLog()
    keep(log, [1], [2])
    keep(log, [1, 2, 3], [4])
    keep(log, [1], [2])
    keep(log, [1, 2, 3, 4, 5], [6])
    assert [sequence.calls for sequence in token_sequences(log.calls)] == [(0, 1, 3), (2,)]


def test_without_some_log_probabilities_a_sequence_has_none() -> None:
    log = CallLog()
    keep(log, [1], [2])
    log.add("m", {}, AnswerTokens([1, 2], [3]))
    assert [sequence.logprobs for sequence in token_sequences(log.calls)] == [None]
    assert describe_missing(log.calls) == "1 of 2 requests have no log-probabilities"
    log.add("m", {}, AnswerTokens(problem="the server sent no token ids"))
    line = "1 of 3 requests have no token ids: the server sent no token ids"
    assert describe_missing(log.calls) == line
    assert [sequence.calls for sequence in token_sequences(log.calls)] == [(0, 1)]


def test_requests_are_kept_by_what_changes() -> None:
    """Whatever an agent changes from one to the next; a message is written once."""
    log = CallLog()
    said = [{"role": "user", "content": f"message {number}"} for number in range(4)]
    requests: list[dict[str, Any]] = [
        {"model": "m", "messages": said[:1], "temperature": 0.5, "tools": [{"name": "bash"}]},
        {"model": "m", "messages": said[:3], "tools": [{"name": "bash"}]},
        {"model": "m", "messages": [said[0], said[3]], "temperature": 1, "tools": []},
        {"model": "n", "messages": []},
        {"model": "m", "messages": said},
    ]
    for number, request in enumerate(requests):
        keep(log, list(range(number + 1)), [100 + number], **request)
    assert [full_request(log.calls, number) for number in range(5)] == requests
    assert json.dumps([call.request for call in log.calls]).count("message 0") <= 2


@pytest.mark.parametrize("seed", range(20))
def test_every_prompt_comes_back_whatever_it_has_in_common(seed: int) -> None:
    """Each token that the model has written is trained on once, behind the prompt it came from."""
    chance = random.Random(seed)
    log = CallLog()
    prompts: list[list[int]] = []
    completions: list[list[int]] = []
    for _ in range(40):
        prompt = [chance.randrange(3)]
        if prompts and chance.random() < 0.9:
            earlier = chance.randrange(len(prompts))
            prompt = prompts[earlier] + completions[earlier]
            if chance.random() < 0.3:
                prompt = prompt[: chance.randrange(1, len(prompt) + 1)]
        prompt = prompt + [chance.randrange(3) for _ in range(chance.randrange(1, 4))]
        completion = [chance.randrange(3) for _ in range(chance.randrange(4))]
        keep(log, prompt, completion)
        prompts.append(prompt)
        completions.append(completion)
    calls = log.calls
    assert [list(full_prompt(calls, number)) for number in range(40)] == prompts
    sequences = token_sequences(calls)
    assert sorted(n for sequence in sequences for n in sequence.calls) == list(range(40))
    for sequence in sequences:
        ids = list(sequence.prompt_ids + sequence.response_ids)
        own = [False] * len(sequence.prompt_ids) + [mask == 1 for mask in sequence.loss_mask]
        for number in sequence.calls:
            start = len(prompts[number])
            assert ids[:start] == prompts[number]
            end = start + len(completions[number])
            assert ids[start:end] == completions[number]
            assert all(own[start:end])
        assert sum(own) == sum(len(completions[number]) for number in sequence.calls)


def test_an_episode_keeps_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond has no ids; what goes on from what is kept is small, and is still kept."""
    monkeypatch.setattr(module, "_MAX_IDS", 10)
    log = CallLog()
    keep(log, [1, 2, 3, 4], [5, 6])
    keep(log, [1, 2, 3, 4, 5, 6, 7], [8])
    keep(log, [9, 9, 9], [9])
    calls = log.calls
    assert [bool(call.problem) for call in calls] == [False, False, True]
    assert calls[2].problem == "an episode keeps no more: 10 token ids, 64 MiB of requests"
    assert full_prompt(calls, 2) == ()
    assert full_request(calls, 2) == {}
    monkeypatch.setattr(module, "_MAX_REQUEST_CHARACTERS", 40)
    log = CallLog()
    keep(log, [1], [2], text="x" * 50)
    assert log.calls[0].problem


def test_no_calls_lack_everything() -> None:
    assert describe_missing(()) == "no request of the agent came through the gateway"
    assert token_sequences(()) == []
    assert token_sequences((ModelCall("m", problem="none"),)) == []


def test_arrays_of_a_reader_are_kept_as_they_are() -> None:
    log = CallLog()
    log.add("m", {}, AnswerTokens(array("i", [1]), array("i", [2]), array("d", [-0.5])))
    assert log.calls == (
        ModelCall(
            "m",
            prompt_ids=(1,),
            completion_ids=(2,),
            logprobs=(-0.5,),
            request=log.calls[0].request,
        ),
    )
