"""A request to a model and its answer: its tokens and their cost. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pytest_intercode.core.usage import UNSPENT, Usage

__all__ = [
    *("Api", "Exchange", "Price", "estimate", "model_of", "parse_price", "price_of", "read_usage"),
    "usage_of",
]

_MILLION = 1e6
_DATE = r"[-@]\d{4}-?\d\d-?\d\d$"  # a version's date at the end of a model's name
_TOKEN_LENGTH = 4  # approximate characters per token, in English and in code
_MAX_COUNT = 2**53  # a number above this is not a count

Api: TypeAlias = Literal["chat", "responses", "messages", "gemini", "converse"]
"""OpenAI's chat completions and responses, Anthropic's messages, Gemini's API, Bedrock Converse."""


@dataclass(frozen=True)
class Exchange:
    """A request with the answer of the API's server.

    Attributes:
        api: the API.
        model: the model that the answer names, else the requested one.
        request: the parsed body; only its small fields if the session sends more than is kept.
        answer: the parsed answer; a streamed one is assembled as if it had not been streamed.
        status: the HTTP status.
        usage: the tokens, and their cost in the currency of the prices.
        complete: False for an answer that broke off.
        call: the number of the request among those whose tokens the episode keeps; None if they
            are not kept.
    """

    api: Api
    model: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any]
    status: int
    usage: Usage = UNSPENT
    complete: bool = True
    call: int | None = None


def model_of(answer: Mapping[str, Any]) -> str:
    """Return the model that an answer names; empty if it names none."""
    return str(answer.get("model") or answer.get("modelVersion") or "")


def usage_of(answer: Mapping[str, Any]) -> Any:
    """Return the usage object of an answer."""
    return answer.get("usage", answer.get("usageMetadata"))


def read_usage(api: Api, usage: Any) -> Usage | None:
    """Return the tokens that an answer reports; None if the report is missing or implausible.

    Args:
        api: the API.
        usage: the usage object of the answer, see :func:`usage_of`.
    """
    if api == "gemini":
        return _read_gemini_usage(usage)
    if api == "converse":
        return _read_converse_usage(usage)
    first, last = ("prompt", "completion") if api == "chat" else ("input", "output")
    tokens_in, tokens_out = _count(usage, f"{first}_tokens"), _count(usage, f"{last}_tokens")
    if tokens_in is None or tokens_out is None:
        return None
    input_details = usage.get(f"{first}_tokens_details")
    output_details = usage.get(f"{last}_tokens_details")
    if api == "messages":  # its input count does not include the tokens of caches
        cached = _count(usage, "cache_read_input_tokens") or 0
        cache_write = _count(usage, "cache_creation_input_tokens") or 0
        reasoning = _count(output_details, "thinking_tokens") or 0
        tokens_in += cached + cache_write
    else:
        cached = min(_count(input_details, "cached_tokens") or 0, tokens_in)
        cache_write = min(_count(input_details, "cache_write_tokens") or 0, tokens_in - cached)
        reasoning = _count(output_details, "reasoning_tokens") or 0
    return Usage(
        requests=1,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cached_tokens=cached,
        cache_write_tokens=cache_write,
        reasoning_tokens=min(reasoning, tokens_out),
    )


def _read_gemini_usage(usage: Any) -> Usage | None:
    """Return Gemini's tokens: it counts thoughts and tool prompts separately from the rest."""
    tokens_in = _count(usage, "promptTokenCount")
    if tokens_in is None:
        return None
    tokens_in += _count(usage, "toolUsePromptTokenCount") or 0
    reasoning = _count(usage, "thoughtsTokenCount") or 0
    return Usage(
        requests=1,
        input_tokens=tokens_in,
        output_tokens=(_count(usage, "candidatesTokenCount") or 0) + reasoning,
        cached_tokens=min(_count(usage, "cachedContentTokenCount") or 0, tokens_in),
        reasoning_tokens=reasoning,
    )


def _read_converse_usage(usage: Any) -> Usage | None:
    """Return Converse's tokens: its input count does not include the tokens of caches."""
    tokens_in, tokens_out = _count(usage, "inputTokens"), _count(usage, "outputTokens")
    if tokens_in is None or tokens_out is None:
        return None
    cached = _count(usage, "cacheReadInputTokens") or 0
    cache_write = _count(usage, "cacheWriteInputTokens") or 0
    return Usage(
        requests=1,
        input_tokens=tokens_in + cached + cache_write,
        output_tokens=tokens_out,
        cached_tokens=cached,
        cache_write_tokens=cache_write,
    )


def _count(counts: Any, key: str) -> int | None:
    value = counts.get(key) if isinstance(counts, Mapping) else None
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_COUNT
    return value if good else None


def estimate(sent_bytes: int, answer: Mapping[str, Any], length: int = 0) -> Usage:
    """Estimate the tokens of an exchange without usage from the lengths of its texts.

    Args:
        sent_bytes: the size of the request.
        answer: the answer, as far as it was received.
        length: for a streamed answer, the number of characters received.
    """
    parts = filter(None, map(answer.get, ("choices", "output", "content", "candidates")))
    characters = max(length, sum(len(json.dumps(part)) for part in parts))
    return Usage(
        requests=1,
        input_tokens=-(-sent_bytes // _TOKEN_LENGTH),
        output_tokens=-(-characters // _TOKEN_LENGTH),
    )


@dataclass(frozen=True)
class Price:
    """The price of a model, per million tokens.

    Attributes:
        input: the price of input.
        output: the price of output.
        cached: the price of input that is read from a cache; None for the price of input.
        cache_write: the price of input that is written to a cache; None for the price of input.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for number in (self.input, self.output, self.cached, self.cache_write):
            if number is not None and not (math.isfinite(number) and number >= 0):
                raise ValueError(f"a price has to be a number from 0 up, found {number!r}")

    def cost(self, usage: Usage) -> float:
        """Return the cost of a usage."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        cache_write = min(usage.cache_write_tokens, usage.input_tokens - cached)
        return (
            (usage.input_tokens - cached - cache_write) * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + cache_write * (self.input if self.cache_write is None else self.cache_write)
            + usage.output_tokens * self.output
        ) / _MILLION


def price_of(prices: Mapping[str, Price], *models: str) -> Price | None:
    """Return the price of the first model that has one, else the one for all models (``*``).

    Args:
        prices: the prices by model; a name without a version's date applies to all versions.
        models: names of the model, the most reliable first.
    """
    for model in models:
        for name in (model, re.sub(_DATE, "", model)):
            if name in prices:
                return prices[name]
    return prices.get("*")


def parse_price(text: str) -> Price:
    """Parse a price: ``INPUT/OUTPUT``, ``INPUT/OUTPUT/CACHED`` or ``.../CACHE_WRITE``.

    Raises:
        ValueError: it has another form; the message says what is needed.
    """
    try:
        numbers = [float(part) for part in text.split("/")]
        if not 2 <= len(numbers) <= 4:
            raise ValueError
        return Price(*numbers)
    except ValueError:
        raise ValueError(
            "prices per million tokens are needed, INPUT/OUTPUT or INPUT/OUTPUT/CACHED, such as "
            f"3/15/0.3; found {text!r:.60}"
        ) from None
