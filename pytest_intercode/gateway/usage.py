"""The tokens of an answer, read as each API reports them, or estimated where it does not. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_intercode.gateway.exchange import Api, TokenUsage

__all__ = ["estimate", "read_usage"]

_CHARACTERS = 4  # of a token, about, in English and in code
_MOST = 2**53  # a count above this is none


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
    taken, made = _count(usage, first), _count(usage, last)
    if taken is None or made is None:
        return None
    if api == "messages":  # whose input does not include what caches hold
        cached = _count(usage, "cache_read_input_tokens") or 0
        written = _count(usage, "cache_creation_input_tokens") or 0
        thought = _count(usage.get("output_tokens_details"), "thinking_tokens") or 0
        return TokenUsage(taken + cached + written, made, cached, written, min(thought, made))
    into, out = (
        ("prompt_tokens_details", "completion_tokens_details")
        if api == "chat"
        else ("input_tokens_details", "output_tokens_details")
    )
    cached = min(_count(usage.get(into), "cached_tokens") or 0, taken)
    written = min(_count(usage.get(into), "cache_write_tokens") or 0, taken - cached)
    reasoning = min(_count(usage.get(out), "reasoning_tokens") or 0, made)
    return TokenUsage(taken, made, cached, written, reasoning)


def estimate(sent: int, answer: Mapping[str, Any]) -> TokenUsage:
    """Return the tokens of an exchange without usage, by the lengths of its texts.

    Args:
        sent: bytes of the request.
        answer: the answer, as far as it came.
    """
    said = sum(map(len, _texts(answer)))
    return TokenUsage(-(-sent // _CHARACTERS), -(-said // _CHARACTERS), estimated=True)


def _texts(answer: Mapping[str, Any]) -> list[str]:
    """Return the texts of an answer that a model wrote."""
    parts = [answer.get(key) for key in ("choices", "output", "content")]
    return [json.dumps(part) for part in parts if part]


def _count(usage: Any, key: str) -> int | None:
    value = usage.get(key) if isinstance(usage, Mapping) else None
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
    return value if good else None
