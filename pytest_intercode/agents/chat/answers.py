"""What a server answered, however it writes it, and what it says of its errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_intercode.errors import AgentError

__all__ = ["Answer", "Call", "one_line", "read_answer", "words_of"]

_LONGEST = 500  # characters of a server's words


@dataclass(frozen=True)
class Call:
    """A call of a tool as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """What a model answered.

    Attributes:
        text: its message.
        calls: its calls of tools.
        cut_off: it ends where a limit of tokens was reached.
        reasoning: what it thought, where the server tells.
        input_tokens: tokens of the request; None where the server does not tell.
        output_tokens: tokens of the answer.
    """

    text: str
    calls: tuple[Call, ...] = ()
    cut_off: bool = False
    reasoning: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None


def read_answer(completion: Any) -> Answer:
    """Read an answer as servers write it, which is not always as the API has it.

    Raises:
        AgentError: it is none.
    """
    choices = getattr(completion, "choices", None)
    if not choices or getattr(choices[0], "message", None) is None:
        body = completion.model_dump() if hasattr(completion, "model_dump") else completion
        said = one_line(words_of(body) or str(body))
        raise AgentError(f"gave no chat completion: {said}")
    message = choices[0].message
    calls = []
    for number, call in enumerate(getattr(message, "tool_calls", None) or (), 1):
        function = getattr(call, "function", None)
        name, arguments = getattr(function, "name", None), getattr(function, "arguments", None)
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments)
        calls.append(
            Call(str(call.id or f"call_{number}"), _sendable(str(name or "")), _sendable(arguments))
        )
    usage = getattr(completion, "usage", None)
    sent, got = (_count(usage, key) for key in ("prompt_tokens", "completion_tokens"))
    reasoning = next(
        (
            thought
            for key in ("reasoning_content", "reasoning")
            if isinstance(thought := getattr(message, key, None), str)
        ),
        "",
    )
    text = getattr(message, "content", None)
    if isinstance(text, list):  # in parts
        text = "".join(part["text"] for part in text if isinstance(part.get("text"), str))
    return Answer(
        text=_sendable(str(text or getattr(message, "refusal", None) or "")),
        calls=tuple(calls),
        cut_off=getattr(choices[0], "finish_reason", None) == "length",
        reasoning=_sendable(reasoning),
        input_tokens=sent,
        output_tokens=got,
    )


def _sendable(text: str) -> str:
    """Return a text as it can be sent back; half a surrogate pair cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _count(usage: Any, key: str) -> int | None:
    value = getattr(usage, key, None)
    return value if isinstance(value, int) and value >= 0 else None


def words_of(body: Any) -> str:
    """Return the message in the body of an error; servers put it in different places."""
    for _ in range(3):
        if not isinstance(body, Mapping):
            break
        body = next((body[key] for key in ("message", "error", "detail") if body.get(key)), "")
    return body if isinstance(body, str) else str(body or "")


def one_line(text: str) -> str:
    """Return a text as one line of a bearable length."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
