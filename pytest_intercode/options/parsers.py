"""Parsers for option values that are more than a number or a word.

Every pytest run with the plugin installed loads them, so they import nothing large at the top. A
parser returns the value of a text, or raises a ValueError that says what is needed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.core.values import amount, choice, whole

if TYPE_CHECKING:
    from pytest_intercode.agents.choice import AgentChoice
    from pytest_intercode.core.rates import FailUnder
    from pytest_intercode.gateway.exchange import Price
    from pytest_intercode.sandboxes.settings import DockerHost

__all__ = [
    "parse_agent",
    "parse_backend",
    "parse_count",
    "parse_docker_host",
    "parse_environment",
    "parse_fail_under",
    "parse_host",
    "parse_money",
    "parse_platform",
    "parse_price",
    "parse_rate",
    "parse_registry",
    "parse_seconds",
    "parse_shard",
    "parse_spans_target",
]

parse_count = whole("a whole number above 0", 1)
parse_seconds = amount("a number of seconds above 0")
parse_money = amount("an amount above 0")

# The last alternative is an address without a scheme, which would become a file of that name.
_NO_FILE = re.compile(r"env|.*://.*|[\w.-]+:\d+(/.*)?", re.DOTALL)


def parse_agent(value: str) -> AgentChoice:
    """Return an agent with its own arguments."""
    from pytest_intercode.agents.choice import parse_agent

    return parse_agent(value)


def parse_environment(value: str) -> str:
    """Return the name of an environment, or ``all``."""
    from pytest_intercode.environments.registry import (
        environment_names,
        environment_suggestion,
        is_environment,
    )

    if value == "all" or is_environment(value):
        return value
    names = [*environment_names(), "all"]
    raise ValueError(f"allowed are {', '.join(names)}.{environment_suggestion(value)}")


def parse_host(value: str) -> str:
    """Return a host that sandboxes may reach."""
    from pytest_intercode.core.hosts import parse_host as parse

    return str(parse(value))


def parse_backend(value: str) -> str:
    """Return the name of a backend, or ``auto``."""
    from pytest_intercode.sandboxes.choice import backend_names

    return choice(*backend_names())(value)


def parse_docker_host(value: str) -> DockerHost:
    """Return a Docker host with its slots."""
    from pytest_intercode.sandboxes.settings import parse_docker_host as parse

    return parse(value)


def parse_registry(value: str) -> str:
    """Return a registry's address."""
    from pytest_intercode.sandboxes.settings import parse_registry

    return parse_registry(value)


def parse_platform(value: str) -> str:
    """Return a platform."""
    from pytest_intercode.core.platforms import parse_platform

    return str(parse_platform(value))


def parse_price(value: str) -> Price | str:
    """Return the price of a model, or the word that stands for its shipped price."""
    from pytest_intercode.gateway.exchange import parse_price
    from pytest_intercode.gateway.prices import SHIPPED

    return value if value == SHIPPED else parse_price(value)


def parse_shard(value: str) -> tuple[int, int]:
    """Return a part and the number of parts."""
    part, _, parts = value.partition("/")
    try:
        shard = int(part), int(parts)
    except ValueError:
        shard = 0, 0
    if not 1 <= shard[0] <= shard[1]:
        raise ValueError("the form I/N is needed, with I from 1 to N, such as 2/8")
    return shard


def parse_spans_target(value: str) -> Path | str:
    """Return the path of the file for spans; an address or ``env`` is returned unchanged."""
    return value if _NO_FILE.fullmatch(value) else Path(value)


def parse_fail_under(value: str) -> FailUnder:
    """Return a rate that all tries of a run must reach together."""
    from pytest_intercode.core.rates import parse_fail_under

    return parse_fail_under(value)


def parse_rate(value: str) -> float:
    """Return a rate above 0 and up to 1."""
    from pytest_intercode.core.rates import parse_rate

    return parse_rate(value)
