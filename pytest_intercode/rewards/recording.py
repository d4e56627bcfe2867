"""What strict rewards and the records of end states have in common.

These are the highest partial reward, the record of a task's options, and digests of long texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pytest_intercode.core.task import Normaliser, RewardOptions

__all__ = ["MAX_PARTIAL_REWARD", "MAX_RECORDED_SIZE", "options_again", "options_state", "sha256"]

MAX_PARTIAL_REWARD = 0.99
"""The highest reward of an end state that is not right, however little it lacks."""

MAX_RECORDED_SIZE = 256 * 1024
"""Characters of both sides' rows or changes in a record; above it, digests are recorded."""

_DEFAULTS = RewardOptions()


def options_state(options: RewardOptions) -> dict[str, Any]:
    """Return the options as builtins, without those that have their default value."""
    if options == _DEFAULTS:
        return {}
    defaults = asdict(_DEFAULTS)
    changed = {name: value for name, value in asdict(options).items() if value != defaults[name]}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in changed.items()}


def options_again(state: Mapping[str, Any]) -> RewardOptions:
    """Return the options from a record that :func:`options_state` made."""
    fields = dict(state)
    if "normalise" in fields:
        fields["normalise"] = tuple(Normaliser(**rule) for rule in fields["normalise"])
    for name in {"scratch", "lenient"} & fields.keys():
        fields[name] = tuple(fields[name])
    return RewardOptions(**fields)


def sha256(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
