"""The arguments of the chat agents, as ``--intercode-agent-arg`` and the environment give them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_intercode.errors import AgentLoadError, suggestion

__all__ = ["ChatArguments", "read_arguments"]

# What the agents need to say themselves.
_OURS = ("model", "messages", "tools", "tool_choice", "stream", "n")


@dataclass(frozen=True)
class ChatArguments:
    """What a chat agent is told.

    Attributes:
        model: the model's name.
        base_url: the server; None for what the client itself takes from OPENAI_BASE_URL.
        api_key: the key; None for what the client itself takes from OPENAI_API_KEY.
        sampling: temperature, seed and limits of tokens, as far as they are given. A server's own
            defaults hold for the rest, and some models refuse to be told.
        extra_body: further fields of each request.
        timeout: seconds that a server may be silent.
        retries: how often the client asks again after an error that may pass.
        history: characters of past turns that are sent again.
        observation_limit: characters of an observation that are shown.
        prompts: a folder with the user's own templates.
        prices: of a million tokens of input and of output; None where they are not known.
        refine: turns that plan-solve has after its plan.
    """

    model: str
    base_url: str | None = None
    api_key: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 300.0
    retries: int = 5
    history: int = 100_000
    observation_limit: int = 8_000
    prompts: Path | None = None
    prices: tuple[float, float] | None = None
    refine: int = 3


def read_arguments(name: str, given: Mapping[str, str], folder: Path) -> ChatArguments:
    """Check the arguments of a chat agent.

    Args:
        name: the agent.
        given: the arguments.
        folder: where a relative path starts.

    Raises:
        AgentLoadError: one is unknown or malformed, or what is needed is missing.
    """
    known = [key for key in _PARSERS if key != "refine" or name == "plan-solve"]
    values: dict[str, Any] = {}
    for key, text in given.items():
        if key not in known:
            raise AgentLoadError(
                f"--intercode-agent-arg {key}=...: {name} has no such argument; it takes "
                f"{', '.join(known)}.{suggestion(key, known)}"
            )
        try:
            values[key] = _PARSERS[key](text.strip())
        except ValueError as error:
            shown = "..." if key == "api_key" else text
            raise AgentLoadError(f"--intercode-agent-arg {key}={shown}: {error}") from None
    if {"max_tokens", "max_completion_tokens"} <= values.keys():
        raise AgentLoadError(
            "--intercode-agent-arg max_completion_tokens=...: max_tokens is given as well; models "
            "that reason take the first, others mostly the second"
        )
    sampling = {key: values.pop(key) for key in _SAMPLING if key in values}
    prices = [values.pop(key, None) for key in ("input_price", "output_price")]
    if prices.count(None) == 1:
        missing = "input_price" if prices[0] is None else "output_price"
        raise AgentLoadError(f"--intercode-agent-arg {missing}=... is missing: the other is given")
    if "prompts" in values:
        values["prompts"] = folder / Path(values["prompts"]).expanduser()
    values.setdefault("model", os.environ.get("OPENAI_MODEL", "").strip())
    if not values["model"]:
        raise AgentLoadError(
            f"--intercode-agent={name}: which model? Name it: --intercode-agent-arg model=NAME, or "
            "the environment variable OPENAI_MODEL"
        )
    key_given = "api_key" in values or os.environ.get("OPENAI_API_KEY")
    if not (key_given or "base_url" in values or os.environ.get("OPENAI_BASE_URL")):
        raise AgentLoadError(
            f"--intercode-agent={name}: there is no API key; set the environment variable "
            "OPENAI_API_KEY or, for a server that needs none, --intercode-agent-arg base_url=URL"
        )
    priced = None if None in prices else (prices[0], prices[1])
    return ChatArguments(**values, sampling=sampling, prices=priced)


# -- each returns the value of a text, or raises a ValueError that says what is allowed


def _text(text: str) -> str:
    if not text:
        raise ValueError("a value is needed")
    return text


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("an address with http:// or https:// is needed, mostly ending in /v1")
    return text


def _number(least: float, what: str, *, above: bool = False) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (value > least if above else value >= least) or math.isinf(value):
            raise ValueError(f"{what} is needed")
        return value

    return parse


def _whole(least: int, what: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text.replace("_", ""))
        except ValueError:
            value = least - 1
        if value < least:
            raise ValueError(f"{what} is needed")
        return value

    return parse


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number is needed") from None


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError('a JSON object is needed, as in {"reasoning_effort": "low"}')
    for key in _OURS:
        if key in value:
            raise ValueError(f"{key!r} is what the agent says itself")
    return value


_SAMPLING = ("temperature", "seed", "max_tokens", "max_completion_tokens")
_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "model": _text,
    "base_url": _url,
    "api_key": _text,
    "temperature": _number(0, "a number from 0 up"),
    "seed": _seed,
    "max_tokens": _whole(1, "a whole number of tokens from 1 up"),
    "max_completion_tokens": _whole(1, "a whole number of tokens from 1 up"),
    "timeout": _number(0, "a number of seconds above 0", above=True),
    "retries": _whole(0, "a whole number from 0 up"),
    "history": _whole(1, "a whole number of characters from 1 up"),
    "observation_limit": _whole(100, "a whole number of characters from 100 up"),
    "prompts": _text,
    "input_price": _number(0, "the price of a million tokens, a number from 0 up,"),
    "output_price": _number(0, "the price of a million tokens, a number from 0 up,"),
    "extra_body": _object,
    "refine": _whole(0, "a whole number of turns from 0 up"),
}
