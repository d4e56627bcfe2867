"""One request to a model, its answer, and its tokens, reported or estimated. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["NOTHING", "Api", "Exchange", "TokenUsage", "estimate", "read_usage"]

_TOKEN_LENGTH = 4  # characters, about, in English and in code
_MAX_COUNT = 2**53  # a number above this is not a count

Api: TypeAlias = Literal["chat", "responses", "messages"]
"""OpenAI's chat completions and responses, Anthropic's messages."""


@dataclass(frozen=True)
class TokenUsage:
    """The tokens of one exchange, in one form for all APIs.

    Attributes:
        input: tokens that went in, those of caches included.
        output: tokens that came out, those of reasoning included.
        cached: tokens of the input that were read from a cache.
        cache_write: tokens of the input that were written to a cache.
        reasoning: tokens of the output that no one sees.
        estimated: the server reported no usage; this is computed from the lengths of the texts.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False


NOTHING = TokenUsage()
"""No tokens."""


@dataclass(frozen=True)
class Exchange:
    """One request that was answered by the server of the API.

    Attributes:
        api: the API.
        model: the model that the answer names, else the one of the request.
        request: the parsed body; of a session that sends more than is kept, only its small fields.
        answer: the parsed answer, a streamed one put together as if it had not been streamed.
        status: the HTTP status.
        usage: the tokens.
        cost: in the currency of the prices; None where no price is known.
        seconds: from the request to the end of the answer.
        complete: False for an answer that broke off.
    """

    api: Api
    model: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any]
    status: int
    usage: TokenUsage = NOTHING
    cost: float | None = None
    seconds: float = field(default=0.0, compare=False)
    complete: bool = True


def read_usage(api: Api, usage: Any) -> TokenUsage | None:
    """Return the tokens that an answer reports; None if it reports none that can be true.

    Args:
        api: the API.
        usage: the object ``usage`` of the answer.
    """
    first, last = ("prompt", "completion") if api == "chat" else ("input", "output")
    tokens_in, tokens_out = _count(usage, f"{first}_tokens"), _count(usage, f"{last}_tokens")
    if tokens_in is None or tokens_out is None:
        return None
    input_details = usage.get(f"{first}_tokens_details")
    output_details = usage.get(f"{last}_tokens_details")
    if api == "messages":  # whose input does not include what caches hold
        cached = _count(usage, "cache_read_input_tokens") or 0
        cache_write = _count(usage, "cache_creation_input_tokens") or 0
        reasoning = _count(output_details, "thinking_tokens") or 0
        tokens_in += cached + cache_write
    else:
        cached = min(_count(input_details, "cached_tokens") or 0, tokens_in)
        cache_write = min(_count(input_details, "cache_write_tokens") or 0, tokens_in - cached)
        reasoning = _count(output_details, "reasoning_tokens") or 0
    return TokenUsage(tokens_in, tokens_out, cached, cache_write, min(reasoning, tokens_out))


def _count(counts: Any, key: str) -> int | None:
    value = counts.get(key) if isinstance(counts, Mapping) else None
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_COUNT
    return value if good else None


def estimate(sent_bytes: int, answer: Mapping[str, Any]) -> TokenUsage:
    """Return the tokens of an exchange without usage, by the lengths of its texts.

    Args:
        sent_bytes: size of the request.
        answer: the answer, as far as it came.
    """
    parts = filter(None, map(answer.get, ("choices", "output", "content")))
    characters = sum(len(json.dumps(part)) for part in parts)
    return TokenUsage(
        -(-sent_bytes // _TOKEN_LENGTH), -(-characters // _TOKEN_LENGTH), estimated=True
    )
