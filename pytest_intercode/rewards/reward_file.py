"""The reward that a task's own verifier wrote into a file, as Harbor reads it. Pure.

It is a number in ``reward.txt``, or an object of names and numbers in ``reward.json``, which takes
precedence if both exist. The value is that of the key ``reward``, or the mean of all numbers if
there is no such key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.errors import IntercodeError

__all__ = ["NO_REWARD", "UnreadableReward", "missing", "reward_of_files", "reward_of_steps"]

NO_REWARD = "the verifier wrote no reward: neither reward.json nor reward.txt"
"""The message if there is no reward file."""

_MAX_SIZE = 2**20  # bytes of a file
_MAX_SHOWN = 60  # characters of an excerpt in a message
_KEY = "reward"
_JSON, _TEXT = "reward.json", "reward.txt"


class UnreadableReward(IntercodeError):
    """A verifier's file does not hold a reward; the message says which file, and why.

    It does not say whose fault that is: only the caller knows the verifier's result for the task's
    own solution.
    """


def reward_of_files(files: Mapping[str, bytes]) -> Reward:
    """Return the reward in a verifier's files.

    Args:
        files: the content of ``reward.json`` and ``reward.txt``, if they exist.

    Raises:
        UnreadableReward: there is none, or it is empty, not a number, nan, infinite, outside of 0
            to 1, or given twice with different values.
    """
    if _TEXT in files and _JSON not in files:
        return _make_reward(_check(_TEXT, "", _parse_number(files[_TEXT])), {})
    if _JSON not in files:
        raise UnreadableReward(NO_REWARD)
    parts = _parse_object(files[_JSON])
    value = parts[_KEY] if _KEY in parts else sum(parts.values()) / len(parts)
    if _TEXT in files and _KEY in parts:
        text_value = _parse_number(files[_TEXT])
        if text_value != value:
            raise UnreadableReward(f"{_JSON} says {value:g}, and {_TEXT} says {text_value:g}")
    return _make_reward(value, {} if set(parts) == {_KEY} else parts)


def _make_reward(value: float, parts: Mapping[str, float]) -> Reward:
    return Reward(value, parts, "" if value >= 1 else f"the task's tests gave the reward {value:g}")


def _decode(name: str, data: bytes) -> str:
    if len(data) > _MAX_SIZE:
        raise UnreadableReward(f"{name} is too large for a reward file ({len(data)} bytes)")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableReward(f"{name} is not text") from None
    if not text.strip():
        raise UnreadableReward(f"{name} is empty")
    return text


def _parse_number(data: bytes) -> float:
    text = _decode(_TEXT, data)
    try:
        return float(text)  # as Harbor does, so that 1e-1 and _ in digits are read alike
    except ValueError:
        raise UnreadableReward(f"{_TEXT} does not hold a number, but {_excerpt(text)}") from None


def _parse_object(data: bytes) -> dict[str, float]:
    text = _decode(_JSON, data)

    def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, value in pairs:
            if key in members and members[key] != value:
                raise UnreadableReward(f"{_JSON} says {_excerpt(key)} twice, and not the same")
            members[key] = value
        return members

    try:
        document = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise UnreadableReward(f"{_JSON} is not JSON: {_excerpt(text)}") from None
    if not isinstance(document, dict) or not document:
        raise UnreadableReward(
            f"{_JSON} does not hold an object of names and numbers, "
            f"but {_excerpt(json.dumps(document))}"
        )
    parts = {}
    for key, value in document.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UnreadableReward(
                f"{_JSON}: {_excerpt(key)} is not a number, but {_excerpt(repr(value))}"
            )
        parts[key] = _check(_JSON, key, value)
    return parts


def _check(name: str, key: str, value: float) -> float:
    label = f"{name}: {_excerpt(key)}" if key else name
    if isinstance(value, float) and not math.isfinite(value):
        raise UnreadableReward(f"{label} is {value}, which is not a reward")
    if not 0 <= value <= 1:
        number = f"{value:.6g}" if abs(value) < 1e300 else "a number without end"
        raise UnreadableReward(f"{label} is {number}, and a reward is from 0 to 1")
    return float(value)


def _excerpt(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}...")


# -- tasks of several steps


def missing(reward: Reward, minimums: Iterable[tuple[str, float]]) -> str:
    """Return why a step's reward does not allow the next step, or an empty text.

    Args:
        reward: the reward of the step.
        minimums: the parts that it needs, with their minimum values; ``reward`` is the reward
            itself, unless it has a part of that name. A missing part is below any minimum.
    """
    values = {_KEY: reward.value, **reward.parts}
    for name, value in minimums:
        if name not in values:
            return f"the step's reward has no {_excerpt(name)}, of which {value:g} is needed"
        if values[name] < value:
            return f"the step's {name} is {values[name]:g}, and {value:g} is needed to go on"
    return ""


def reward_of_steps(rewards: Sequence[Reward], overall: str) -> Reward:
    """Return the reward of a task of several steps.

    Args:
        rewards: the rewards of the graded steps, in order.
        overall: ``mean`` of each part, where a step without it counts 0, or ``final`` for the last.
    """
    if not rewards:
        return Reward(0.0, {}, "no step was graded")
    if overall == "final":
        return rewards[-1]
    names = sorted({name for reward in rewards for name in reward.parts})
    count = len(rewards)
    parts = {name: sum(r.parts.get(name, 0.0) for r in rewards) / count for name in names}
    value = sum(reward.value for reward in rewards) / count
    reason = "; ".join(reward.reason for reward in rewards if reward.reason)
    return Reward(value, parts, reason, rewards[-1].test_output)
