"""One request to a model, its answer, and the tokens in it. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["NOTHING", "Api", "Exchange", "TokenUsage"]

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
