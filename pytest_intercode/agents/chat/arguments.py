"""The arguments of the chat agents, from ``--intercode-agent-arg`` and environment variables."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_intercode.agents.arguments import Argument, read_arguments
from pytest_intercode.core.values import amount, text, whole
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.gateway.exchange import Price

__all__ = ["ChatArguments", "read_chat_arguments"]

# Fields of a request that the agents set themselves.
_RESERVED = ("model", "messages", "tools", "tool_choice", "stream", "n")


@dataclass(frozen=True)
class ChatArguments:
    """The arguments of a chat agent.

    Attributes:
        model: the model's name.
        base_url: the server; None to let the client read OPENAI_BASE_URL.
        api_key: the key; None to let the client read OPENAI_API_KEY.
        sampling: temperature, seed and token limits, as far as they are given. For others the
            server has defaults, and some models refuse a request that sets them.
        extra_body: further fields of each request.
        timeout: seconds that a server may be silent.
        retries: how often the client retries after a temporary error.
        history: characters of past turns that are sent again.
        observation_limit: characters of an observation that are shown.
        prompts: a folder with the user's own templates.
        prices: the price of tokens; None if it is not known.
        refine: the number of turns that plan-solve has after its plan.
    """

    model: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    sampling: Mapping[str, float] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 300.0
    retries: int = 5
    history: int = 100_000
    observation_limit: int = 8_000
    prompts: Path | None = None
    prices: Price | None = None
    refine: int = 3


def read_chat_arguments(name: str, arguments: Mapping[str, str], folder: Path) -> ChatArguments:
    """Check the arguments of a chat agent.

    Args:
        name: the agent.
        arguments: the arguments.
        folder: where a relative path starts.

    Raises:
        AgentLoadError: an argument is unknown or malformed, or a required one is missing.
    """
    parameters = (*_ARGUMENTS, _REFINE) if name == "plan-solve" else _ARGUMENTS
    values = read_arguments(name, arguments, parameters)
    if {"max_tokens", "max_completion_tokens"} <= values.keys():
        raise AgentLoadError(
            "--intercode-agent-arg max_completion_tokens=...: max_tokens is given, too; give only "
            "one: reasoning models take the first, most others the second"
        )
    sampling = {key: values.pop(key) for key in _SAMPLING if key in values}
    prices = [values.pop(key, None) for key in ("input_price", "output_price")]
    cached_price = values.pop("cached_price", None)
    if prices.count(None) == 1 or (cached_price is not None and None in prices):
        missing = "input_price" if prices[0] is None else "output_price"
        given_price = "the other" if prices.count(None) == 1 else "cached_price"
        raise AgentLoadError(
            f"--intercode-agent-arg {missing}=... is missing: {given_price} is given"
        )
    if "prompts" in values:
        values["prompts"] = folder / Path(values["prompts"]).expanduser()
    values.setdefault("model", os.environ.get("OPENAI_MODEL", "").strip())
    if not values["model"]:
        raise AgentLoadError(
            f"--intercode-agent={name}: no model is given: give --intercode-agent-arg model=NAME, "
            "or set the environment variable OPENAI_MODEL"
        )
    key_given = "api_key" in values or os.environ.get("OPENAI_API_KEY")
    if not (key_given or "base_url" in values or os.environ.get("OPENAI_BASE_URL")):
        raise AgentLoadError(
            f"--intercode-agent={name}: there is no API key; set the environment variable "
            "OPENAI_API_KEY or, for a server that needs none, --intercode-agent-arg base_url=URL"
        )
    priced = None if None in prices else Price(prices[0], prices[1], cached_price)
    return ChatArguments(**values, sampling=sampling, prices=priced)


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("an address with http:// or https:// is needed, usually ending in /v1")
    return text


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError('a JSON object is needed, as in {"reasoning_effort": "low"}')
    for key in _RESERVED:
        if key in value:
            raise ValueError(f"{key!r} is set by the agent itself")
    return value


_SAMPLING = ("temperature", "seed", "max_tokens", "max_completion_tokens")
_TOKENS = whole("a whole number of tokens from 1 up", 1)
_PRICE = amount("the price of a million tokens, a number from 0 up,", zero=True)
_ARGUMENTS = (
    Argument("model", text),
    Argument("base_url", _url),
    Argument("api_key", text, secret=True),
    Argument("temperature", amount("a number from 0 up", zero=True)),
    Argument("seed", whole("a whole number")),
    Argument("max_tokens", _TOKENS),
    Argument("max_completion_tokens", _TOKENS),
    Argument("timeout", amount("a number of seconds above 0")),
    Argument("retries", whole("a whole number from 0 up", 0)),
    Argument("history", whole("a whole number of characters from 1 up", 1)),
    Argument("observation_limit", whole("a whole number of characters from 100 up", 100)),
    Argument("prompts", text),
    Argument("input_price", _PRICE),
    Argument("output_price", _PRICE),
    Argument("cached_price", _PRICE),
    Argument("extra_body", _json_object),
)
_REFINE = Argument("refine", whole("a whole number of turns from 0 up", 0))
