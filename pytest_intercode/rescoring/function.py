"""A user's own reward function: how it is found and called, and what it may return.

::

    def reward(task, agent, gold):
        return agent["reward"] * 0.9 ** (len(agent["actions"]) - 1)

``agent`` and ``gold`` are the recorded end states; docs/rescoring.md has their keys.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward, is_recordable
from pytest_intercode.core.task import Task
from pytest_intercode.environments.recorded import NotRecorded
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.recorded import is_ours
from pytest_intercode.system.imports import describe_error, import_attribute

__all__ = ["RewardFunction", "load_function"]


@dataclass(frozen=True)
class RewardFunction:
    """A reward function with the name that the user gave it.

    Attributes:
        name: the name.
        call: the function: it takes the task, the agent's end state and gold's, and returns a
            number in [0, 1] or a ``Reward``.
    """

    name: str
    call: Callable[[Task, dict[str, Any], dict[str, Any]], Any]

    def score(self, task: Task, record: EpisodeRecord, state: Mapping[str, Any]) -> Reward:
        """Call the function for a recorded episode.

        Raises:
            NotRecorded: it raised an error or returned anything else, or the end state was cut.
        """
        if is_cut(state):
            raise NotRecorded(
                f"{record.task.env}: long outputs and results are truncated or only digests in "
                "the record, so your own function cannot score them"
            )
        agent, gold = _sides(record, state)
        try:
            value = self.call(task, agent, gold)
        except Exception as error:
            raise NotRecorded(f"{self.name} raised {describe_error(error)}") from None
        reward = value if isinstance(value, Reward) else Reward(value)
        in_range = isinstance(reward.value, Real) and 0.0 <= reward.value <= 1.0
        if not (in_range and is_recordable(reward)):
            raise NotRecorded(f"{self.name} returned {value!r:.60}: {_NEEDED}")
        return reward


_NEEDED = "a number in [0, 1] or a pytest_intercode.Reward, whose parts are numbers, is needed"


def is_cut(state: Mapping[str, Any]) -> bool:
    """Whether a recorded end state is incomplete."""
    sides = [state.get(side) or {} for side in ("agent", "gold")]
    return (
        any(state.get(mark) for mark in ("digested", "ranked", "counted", "cut", "ungradable"))
        or any(side.get("digest") for side in sides)
        or any(
            isinstance(entry, Mapping) and "sha256" in entry
            for side in sides
            for entry in side.values()
        )
    )


def _sides(
    record: EpisodeRecord, state: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    episode = {
        "actions": [turn.action for turn in record.turns],
        "observations": [turn.observation for turn in record.turns],
        "executed": [turn.executed for turn in record.turns],
        "reward": record.reward,
        "parts": dict(record.parts),
        "outcome": record.outcome if is_ours(record) else "",
    }
    tests = {"tests": state["tests"]} if "tests" in state else {}
    agent = {**tests, **state.get("agent", {}), **episode}
    return copy.deepcopy(agent), copy.deepcopy(dict(state.get("gold", {})))


def load_function(name: str, folder: Path) -> RewardFunction:
    """Return the function that ``--reward`` names.

    Args:
        name: ``module:function`` or ``path/to/file.py:function``.
        folder: where relative paths and modules are looked up.

    Raises:
        ConfigurationError: it cannot be found, imported or called.
    """
    function = import_attribute(name, folder, "--reward")
    if not callable(function):
        raise ConfigurationError(f"--reward={name}: {function!r:.60} is not a function")
    try:
        inspect.signature(function).bind(None, {}, {})
    except ValueError:
        pass  # no signature to check
    except TypeError:
        raise ConfigurationError(
            f"--reward={name}: it cannot be called as {name.rpartition(':')[2]}(task, agent, gold)"
        ) from None
    return RewardFunction(name, function)
