"""What the records of end states have in common: the task's options, and digests of long texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pytest_intercode.core.task import Normaliser, RewardOptions

__all__ = ["options_again", "options_state", "sha256"]


_USUAL = RewardOptions()


def options_state(options: RewardOptions) -> dict[str, Any]:
    """Return the options as builtins, without those that have their default."""
    if options == _USUAL:
        return {}
    usual = asdict(_USUAL)
    given = {name: value for name, value in asdict(options).items() if value != usual[name]}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in given.items()}


def options_again(state: Mapping[str, Any]) -> RewardOptions:
    """Return the options from a record that :func:`options_state` made."""
    given = dict(state)
    if "normalise" in given:
        given["normalise"] = tuple(Normaliser(**each) for each in given["normalise"])
    for name in {"scratch", "lenient"} & given.keys():
        given[name] = tuple(given[name])
    return RewardOptions(**given)


def sha256(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
