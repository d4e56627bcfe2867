"""The tokens of an answer, read as each API reports them, or estimated where it does not. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_intercode.gateway.exchange import Api, TokenUsage

__all__ = ["estimate", "read_usage"]

_TOKEN_LENGTH = 4  # characters, about, in English and in code
_MAX_COUNT = 2**53  # a number above this is not a count


def read_usage(api: Api, usage: Any) -> TokenUsage | None:
    """Return the tokens that an answer reports; None if it reports none that can be true.

    Args:
        api: the API.
        usage: the object ``usage`` of the answer.
    """
    if not isinstance(usage, Mapping):
        return None
    first, last = (
        ("prompt_tokens", "completion_tokens")
        if api == "chat"
        else ("input_tokens", "output_tokens")
    )
    tokens_in, tokens_out = _count(usage, first), _count(usage, last)
    if tokens_in is None or tokens_out is None:
        return None
    if api == "messages":  # whose input does not include what caches hold
        cached = _count(usage, "cache_read_input_tokens") or 0
        cache_write = _count(usage, "cache_creation_input_tokens") or 0
        thought = _count(usage.get("output_tokens_details"), "thinking_tokens") or 0
        tokens_in += cached + cache_write
        return TokenUsage(tokens_in, tokens_out, cached, cache_write, min(thought, tokens_out))
    input_details, output_details = (
        ("prompt_tokens_details", "completion_tokens_details")
        if api == "chat"
        else ("input_tokens_details", "output_tokens_details")
    )
    cached = min(_count(usage.get(input_details), "cached_tokens") or 0, tokens_in)
    cache_write = _count(usage.get(input_details), "cache_write_tokens") or 0
    cache_write = min(cache_write, tokens_in - cached)
    reasoning = min(_count(usage.get(output_details), "reasoning_tokens") or 0, tokens_out)
    return TokenUsage(tokens_in, tokens_out, cached, cache_write, reasoning)


def estimate(sent_bytes: int, answer: Mapping[str, Any]) -> TokenUsage:
    """Return the tokens of an exchange without usage, by the lengths of its texts.

    Args:
        sent_bytes: size of the request.
        answer: the answer, as far as it came.
    """
    characters = sum(map(len, _texts(answer)))
    return TokenUsage(
        -(-sent_bytes // _TOKEN_LENGTH), -(-characters // _TOKEN_LENGTH), estimated=True
    )


def _texts(answer: Mapping[str, Any]) -> list[str]:
    """Return the texts of an answer that a model wrote."""
    parts = [answer.get(key) for key in ("choices", "output", "content")]
    return [json.dumps(part) for part in parts if part]


def _count(usage: Any, key: str) -> int | None:
    value = usage.get(key) if isinstance(usage, Mapping) else None
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_COUNT
    return value if good else None
