"""The options of a run, read from the command line and the ini file, checked once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pytest_intercode.core.task import ENVIRONMENTS
from pytest_intercode.core.usage import Budget, RunLimits
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.sandboxes.choice import BACKENDS
from pytest_intercode.suites.catalogue import data_folder
from pytest_intercode.suites.registered import environment_names, is_environment
from pytest_intercode.suites.selection import SelectionSettings

if TYPE_CHECKING:
    import pytest

    from pytest_intercode.core.turn import Feedback, Profile

__all__ = ["GATES", "TIMEOUT", "FailUnder", "Settings"]

TIMEOUT = 600.0
"""Seconds an episode has, where neither the task nor the user says so."""


GATES = ("tasks", "verdict")
"""What of a comparison may fail a run: single tasks, or what they say together."""


class FailUnder(NamedTuple):
    """The share of tries that must be solved for a run to pass.

    Attributes:
        rate: the share, in (0, 1].
        lower: it is the lower bound of the rate's interval that must reach it.
    """

    rate: float
    lower: bool


@dataclass(frozen=True, kw_only=True)
class Settings(SelectionSettings):
    """What the user asked for.

    Attributes:
        agent: ``--intercode-agent``, or None.
        agent_arguments: ``--intercode-agent-arg`` by name.
        profile: ``strict`` or ``paper``.
        max_turns: actions an episode has, or None for each task's own.
        timeout: seconds an episode has, or None if none were given (:data:`TIMEOUT`, then).
        action_timeout: seconds an action has, or None for each task's own.
        budget: tokens and money an episode has.
        run_limits: turns, tokens, money and seconds of the whole run.
        feedback: ``observation`` or ``reward``; None for what the agent is made for.
        concurrency: episodes that run at a time in the whole run.
        results: where results go, or None.
        baseline: results to compare with, or None.
        gate: what of the comparison fails the run, ``tasks`` or ``verdict``.
        fail_under: what share of the tries must be solved, or None.
        html: where the page goes, or None.
        resume: what ``results`` holds is not run again.
        audit: the tasks are audited, no agent is run.
        base_images: replacements of base images.
        sandbox: the backend, or ``auto``.
        rootfs: what bubblewrap uses in place of images, or None.
        agent_folder: where relative paths and modules of the agent are looked for.
    """

    agent: str | None
    agent_arguments: Mapping[str, str]
    profile: Profile
    max_turns: int | None
    timeout: float | None
    action_timeout: float | None
    budget: Budget
    run_limits: RunLimits
    feedback: Feedback | None
    concurrency: int
    results: Path | None
    baseline: Path | None
    gate: str
    fail_under: FailUnder | None
    html: Path | None
    resume: bool
    audit: bool
    base_images: Mapping[str, str]
    sandbox: str
    rootfs: Path | None
    agent_folder: Path

    @classmethod
    def of(cls, config: pytest.Config) -> Settings:
        """Read and check the options.

        Raises:
            ConfigurationError: a value is wrong.
        """

        def path(name: str) -> Path | None:
            value = _value(config, name)
            return _folder(config, name) / Path(value).expanduser() if value else None

        audit = _flag(config, "audit")
        repeat = 1 if audit else _number(config, "repeat", int) or 1
        rootfs = path("rootfs")
        if rootfs is not None and not rootfs.is_dir():
            raise ConfigurationError(f"--intercode-rootfs={rootfs}: there is no such folder")
        return cls(
            agent=_value(config, "agent") or None,
            agent_arguments=_pairs(config, "agent-arg", "KEY=VALUE"),
            environments=_environments(_list(config, "env")),
            datasets=tuple(_list(config, "dataset")),
            data=data_folder(path("data"), "--intercode-data"),
            profile=cast("Profile", _choice(config, "profile", ("strict", "paper"), "strict")),
            max_turns=_number(config, "max-turns", int),
            timeout=_number(config, "timeout", float),
            action_timeout=_number(config, "action-timeout", float),
            budget=Budget(
                tokens=_number(config, "max-tokens", int),
                cost=_number(config, "max-cost", float, "an amount"),
            ),
            run_limits=RunLimits(
                turns=_number(config, "run-max-turns", int),
                tokens=_number(config, "run-max-tokens", int),
                cost=_number(config, "run-max-cost", float, "an amount"),
                seconds=_number(config, "run-timeout", float),
            ),
            feedback=cast(
                "Feedback | None", _choice(config, "feedback", ("observation", "reward"), None)
            ),
            limit=_number(config, "limit", int),
            concurrency=_number(config, "concurrency", int) or 1,
            shard=_shard(_value(config, "shard")),
            repeat=repeat,
            results=path("results"),
            baseline=path("baseline"),
            gate=str(_choice(config, "gate", GATES, GATES[repeat > 1])),
            fail_under=_fail_under(_value(config, "fail-under")),
            html=path("html"),
            resume=_flag(config, "resume"),
            audit=audit,
            base_images=_pairs(config, "base-image", "NAME=REPLACEMENT"),
            network=_flag(config, "network"),
            sandbox=str(_choice(config, "sandbox", BACKENDS, "auto")),
            rootfs=rootfs,
            agent_folder=_folder(config, "agent"),
            dataset_folder=_folder(config, "dataset"),
        )


def ini_name(option: str) -> str:
    """Return the ini twin of an option."""
    return "intercode_" + option.replace("-", "_")


def _raw(config: pytest.Config, option: str) -> Any:
    given = config.getoption(ini_name(option))
    return given if given not in (None, []) else config.getini(ini_name(option))


def _folder(config: pytest.Config, option: str) -> Path:
    """Return where an option's relative paths start: here, or where the ini file is."""
    if config.getoption(ini_name(option)) in (None, []):
        return config.inipath.parent if config.inipath else config.rootpath
    return config.invocation_params.dir


def _value(config: pytest.Config, option: str) -> str:
    return str(_raw(config, option) or "").strip()


def _list(config: pytest.Config, option: str) -> list[str]:
    values = _raw(config, option) or []
    parts = [part.strip() for value in values for part in str(value).split(",")]
    return list(dict.fromkeys(part for part in parts if part))


def _flag(config: pytest.Config, option: str) -> bool:
    value = _raw(config, option)
    if isinstance(value, bool):
        return value
    text = str(value or "false").strip().lower()
    if text not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        raise ConfigurationError(f"{ini_name(option)}={value!r}: true or false is needed")
    return text in ("true", "1", "yes", "on")


def _choice(
    config: pytest.Config, option: str, allowed: tuple[str, ...], default: str | None
) -> str | None:
    value = _value(config, option) or default
    if value is not None and value not in allowed:
        raise ConfigurationError(
            f"--intercode-{option}={value}: allowed are {', '.join(allowed)}."
            + suggestion(value, allowed)
        )
    return value


def _environments(values: list[str]) -> tuple[str, ...]:
    for value in values:
        if value != "all" and not is_environment(value):
            allowed = (*environment_names(), "all")
            raise ConfigurationError(
                f"--intercode-env={value}: allowed are {', '.join(allowed)}."
                + suggestion(value, allowed)
            )
    spelled = [name for value in values for name in (ENVIRONMENTS if value == "all" else (value,))]
    return tuple(dict.fromkeys(spelled))


def _number(
    config: pytest.Config,
    option: str,
    kind: Callable[[str], Any],
    what: str = "a number of seconds",
) -> Any:
    value = _value(config, option)
    if not value:
        return None
    needed = "a whole number" if kind is int else what
    try:
        number = kind(value)
    except ValueError:
        number = None
    if number is None or not number > 0 or math.isinf(number):
        raise ConfigurationError(
            f"--intercode-{option}={value}: {needed} above 0 is needed, found {value!r}"
        )
    return number


def _shard(value: str) -> tuple[int, int] | None:
    if not value:
        return None
    part, _, parts = value.partition("/")
    try:
        found = int(part), int(parts)
    except ValueError:
        found = 0, 0
    if not 1 <= found[0] <= found[1]:
        raise ConfigurationError(
            f"--intercode-shard={value}: the form I/N is needed, with I from 1 to N, such as 2/8"
        )
    return found


def _fail_under(value: str) -> FailUnder | None:
    if not value:
        return None
    head, colon, rest = value.rpartition(":")
    number = rest.strip()
    try:
        rate = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 1 or (colon and head.strip() != "lower"):
        raise ConfigurationError(
            f"--intercode-fail-under={value}: a rate above 0 and up to 1 is needed, such as 0.8, "
            "80% or lower:0.8"
        )
    return FailUnder(rate, bool(colon))


def _pairs(config: pytest.Config, option: str, form: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for value in _raw(config, option) or []:
        key, sign, content = str(value).partition("=")
        if not sign or not key.strip():
            raise ConfigurationError(
                f"--intercode-{option} {value}: the form {form} is needed, found {value!r}"
            )
        pairs[key.strip()] = content.strip()
    return pairs
