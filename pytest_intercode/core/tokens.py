"""Token ids of an agent's requests to a model, as the server gave them, and sequences to train on.

Pure. Nothing is tokenised here: if the server gave no ids, there are none. A prompt usually begins
with most of an earlier request, so each request is stored as the difference to that one.
"""

from __future__ import annotations

import json
import threading
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

__all__ = [
    "AnswerTokens",
    "CallLog",
    "ModelCall",
    "TokenSequence",
    "describe_missing",
    "full_prompt",
    "full_request",
    "token_sequences",
]

_MAX_CANDIDATES = 16  # earlier calls that a prompt may continue; agents have a few at a time
_MAX_IDS = 8_000_000  # ids of prompts and completions that are kept for an episode
_MAX_REQUEST_CHARACTERS = 64 * 1024 * 1024  # characters of requests that are kept for an episode


@dataclass(frozen=True)
class AnswerTokens:
    """The tokens of one answer.

    Attributes:
        prompt_ids: all ids of the prompt.
        completion_ids: the ids that the model wrote, including the end of its answer.
        logprobs: the log-probability of each of these; empty if the server gave none.
        finish_reason: why the model ended its answer, as the server reports it.
        problem: why there are no ids, in one line; empty if there are ids.
    """

    prompt_ids: Sequence[int] = ()
    completion_ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    finish_reason: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One answered request to a model, with its tokens.

    The part that it shares with an earlier call is not stored again: :func:`full_prompt` and
    :func:`full_request` return the whole.

    Attributes:
        model: the model that answered.
        base: the number of the earlier call whose prompt and completion the prompt begins with, at
            least in part; None if there is none.
        kept_ids: how many ids of the earlier call the prompt begins with.
        prompt_ids: the ids of the prompt after these.
        completion_ids: the ids of the completion, including its end.
        logprobs: the log-probability of each of these; empty if the server gave none.
        finish_reason: why the model ended its answer, as the server reports it; ``length`` if it
            was cut.
        kept_messages: how many messages of the earlier call the request begins with.
        request: the request as it was sent, as JSON: the ``messages`` after these, and the fields
            that differ from the earlier call; null for a field that it no longer has.
        problem: why there are no ids; empty if there are ids.
    """

    model: str
    base: int | None = None
    kept_ids: int = 0
    prompt_ids: tuple[int, ...] = ()
    completion_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish_reason: str = ""
    kept_messages: int = 0
    request: str = ""
    problem: str = ""


@dataclass(frozen=True)
class TokenSequence:
    """One example to train on: calls whose prompts each continue the tokens of the one before.

    Attributes:
        prompt_ids: the prompt of the first call.
        response_ids: all ids after the prompt, from the model and from others.
        loss_mask: for each of these, 1 if the model wrote it, else 0.
        logprobs: for each of these, the log-probability at sampling, 0.0 where the mask is 0; None
            if the server did not give all of them.
        calls: the numbers of the calls.
        cause: why a new sequence begins here, in one line; empty for the first.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    calls: tuple[int, ...]
    cause: str = ""


# -- what is kept


@dataclass(frozen=True)
class _Candidate:
    """A call that a later prompt may continue: its number, its tokens and its request."""

    number: int
    ids: array[int]
    request: Mapping[str, Any]


class CallLog:
    """The calls of an episode, in the order of their answers; safe to use from several threads."""

    def __init__(self) -> None:
        self._calls: list[ModelCall] = []
        self._candidates: deque[_Candidate] = deque(maxlen=_MAX_CANDIDATES)
        self._id_room, self._character_room = _MAX_IDS, _MAX_REQUEST_CHARACTERS
        self._lock = threading.Lock()

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """The calls so far."""
        with self._lock:
            return tuple(self._calls)

    def add(self, model: str, request: Mapping[str, Any], tokens: AnswerTokens) -> int:
        """Keep a call; return its number.

        Args:
            model: the model that answered.
            request: the request as it was sent.
            tokens: the tokens of its answer.
        """
        with self._lock:
            number = len(self._calls)
            if tokens.problem:
                self._calls.append(ModelCall(model, problem=tokens.problem))
                return number
            prompt = array("i", tokens.prompt_ids)
            base, kept_ids = self._find_base(prompt)
            kept_messages, text = _describe_request(request, base.request if base else {})
            self._id_room -= len(prompt) - kept_ids + len(tokens.completion_ids)
            self._character_room -= len(text)
            if self._id_room < 0 or self._character_room < 0:
                limits = (
                    f"{_MAX_IDS:,} token ids, {_MAX_REQUEST_CHARACTERS // 2**20} MiB of requests"
                )
                self._calls.append(ModelCall(model, problem=f"an episode keeps no more: {limits}"))
                return number
            self._calls.append(
                ModelCall(
                    model,
                    base=base.number if base else None,
                    kept_ids=kept_ids,
                    prompt_ids=tuple(prompt[kept_ids:]),
                    completion_ids=tuple(tokens.completion_ids),
                    logprobs=tuple(tokens.logprobs),
                    finish_reason=tokens.finish_reason,
                    kept_messages=kept_messages,
                    request=text,
                )
            )
            prompt.extend(tokens.completion_ids)
            self._candidates.append(_Candidate(number, prompt, request))
            return number

    def _find_base(self, prompt: array[int]) -> tuple[_Candidate | None, int]:
        """Return the call with which a prompt has most ids in common, and their number.

        Of several, prefer one whose ids the prompt has all of, and then the latest.
        """
        base: _Candidate | None = None
        rank = (0, False)
        for candidate in reversed(self._candidates):
            count = _count_common(candidate.ids, prompt)
            if (count, count == len(candidate.ids)) > rank:
                base, rank = candidate, (count, count == len(candidate.ids))
        return base, rank[0]


def _count_common(first: array[int], second: array[int]) -> int:
    """Return the number of ids that two lists have in common at their beginning."""
    low, high = 0, min(len(first), len(second))
    if first[:high] == second[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _describe_request(request: Mapping[str, Any], base: Mapping[str, Any]) -> tuple[int, str]:
    """Return how many first messages two requests have in common, and the difference as JSON."""
    messages, base_messages = (_messages_of(body) for body in (request, base))
    pairs = enumerate(zip(messages, base_messages, strict=False))
    differences = (number for number, (message, earlier) in pairs if message != earlier)
    kept_messages = next(differences, min(len(messages), len(base_messages)))
    changes: dict[str, Any] = {
        key: value
        for key, value in request.items()
        if key != "messages" and (key not in base or base[key] != value)
    }
    changes |= {key: None for key in base if key not in request}
    text = json.dumps({"messages": messages[kept_messages:], **changes}, separators=(",", ":"))
    return kept_messages, text


def _messages_of(request: Mapping[str, Any]) -> list[Any]:
    messages = request.get("messages")
    return messages if isinstance(messages, list) else []


# -- reading the calls of a record


def full_prompt(calls: Sequence[ModelCall], number: int) -> tuple[int, ...]:
    """Return all ids of a call's prompt; empty for a call without ids.

    Args:
        calls: the calls of a record.
        number: the number of the call, from 0.
    """
    call = calls[number]
    kept_ids, parts = call.kept_ids, [call.prompt_ids]
    while kept_ids and call.base is not None:
        call = calls[call.base]
        if kept_ids > call.kept_ids:
            own_ids = call.prompt_ids + call.completion_ids
            parts.append(own_ids[: kept_ids - call.kept_ids])
            kept_ids = call.kept_ids
    return tuple(chain.from_iterable(reversed(parts)))


def full_request(calls: Sequence[ModelCall], number: int) -> dict[str, Any]:
    """Return a call's request as it was sent; empty for a call without ids.

    Args:
        calls: the calls of a record.
        number: the number of the call, from 0.
    """
    earlier_calls = [calls[number]]
    while earlier_calls[-1].base is not None:
        earlier_calls.append(calls[earlier_calls[-1].base])
    request: dict[str, Any] = {}
    for call in reversed(earlier_calls):
        changes = json.loads(call.request) if call.request else {}
        if "messages" in changes:
            changes["messages"] = _messages_of(request)[: call.kept_messages] + changes["messages"]
        request = {key: value for key, value in {**request, **changes}.items() if value is not None}
    return request


def token_sequences(calls: Sequence[ModelCall]) -> list[TokenSequence]:
    """Return the sequences to train on from an episode's calls, in the order of their first calls.

    A call whose prompt begins with all tokens of an earlier call continues that call's sequence:
    the tokens between the two do not come from the model, and are masked. Any other call begins a
    new sequence, with its whole prompt: the agent has shortened its conversation, its template
    leaves thoughts out, or another conversation runs in parallel. Calls without ids are left out.

    Args:
        calls: the calls of a record.
    """
    sequences: list[_Growing] = []
    last_calls: dict[int, _Growing] = {}  # sequences, by their last call so far
    for number, call in enumerate(calls):
        if call.problem:
            continue
        sequence = last_calls.get(-1 if call.base is None else call.base)
        if sequence is None or call.kept_ids < len(sequence.ids):
            cause = _explain_start(calls, number) if sequences else ""
            prompt = full_prompt(calls, number)
            sequence = _Growing(len(prompt), cause, list(prompt))
            sequences.append(sequence)
        else:
            del last_calls[sequence.calls[-1]]
            sequence.add(call.prompt_ids)
        sequence.add(call.completion_ids, call.logprobs, own=True)
        sequence.calls.append(number)
        last_calls[number] = sequence
    return [sequence.finish() for sequence in sequences]


@dataclass(eq=False)
class _Growing:
    """A sequence while calls are added to it: first its prompt, then what follows."""

    prompt_size: int
    cause: str
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] | None = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    def add(self, ids: Sequence[int], logprobs: Sequence[float] = (), *, own: bool = False) -> None:
        """Add tokens, from the model (``own``) or from others."""
        self.ids += ids
        self.mask += [int(own)] * len(ids)
        if own and len(logprobs) != len(ids):
            self.logprobs = None
        elif self.logprobs is not None:
            self.logprobs += logprobs if own else [0.0] * len(ids)

    def finish(self) -> TokenSequence:
        """Return the sequence."""
        return TokenSequence(
            prompt_ids=tuple(self.ids[: self.prompt_size]),
            response_ids=tuple(self.ids[self.prompt_size :]),
            loss_mask=tuple(self.mask),
            logprobs=None if self.logprobs is None else tuple(self.logprobs),
            calls=tuple(self.calls),
            cause=self.cause,
        )


def _explain_start(calls: Sequence[ModelCall], number: int) -> str:
    """Return why a call begins a new sequence."""
    call = calls[number]
    if call.base is None:
        return f"the prompt of call {number} begins in another way than any before it"
    base = calls[call.base]
    size = base.kept_ids + len(base.prompt_ids) + len(base.completion_ids)
    if call.kept_ids == size:
        return f"call {number} goes on from call {call.base}, as another one has done before"
    return (
        f"the prompt of call {number} begins with {call.kept_ids} of the {size} tokens of call "
        f"{call.base}, and not with all"
    )


def describe_missing(calls: Sequence[ModelCall]) -> str:
    """Return in one line what an episode's calls lack to be trained on; empty for nothing.

    Args:
        calls: the calls of a record for which tokens were asked for.
    """
    if not calls:
        return "no request of the agent came through the gateway"
    problems = [call.problem for call in calls if call.problem]
    if problems:
        return f"{len(problems)} of {len(calls)} requests have no token ids: {problems[0]}"
    without = sum(not call.logprobs for call in calls)
    return f"{without} of {len(calls)} requests have no log-probabilities" if without else ""
