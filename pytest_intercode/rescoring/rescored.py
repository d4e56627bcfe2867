"""A recorded run scored again, row by row, as Python has it; the command is a face of this."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_intercode.core.record import UNGRADED
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.rescoring.function import RewardFunction
from pytest_intercode.rescoring.scoring import (
    NotRecorded,
    played_profile,
    score,
    state_of,
    unsubmitted,
)
from pytest_intercode.rescoring.tasks import task_among
from pytest_intercode.results.reading import Row, actions_of, env_of, is_ours, of_try_again

__all__ = ["Change", "Rescored", "rescore"]

_KEPT_OUTCOMES = ("out-of-budget", "timed-out")


@dataclass(frozen=True)
class Change:
    """One episode before and after.

    Attributes:
        env: the environment.
        task_id: the task.
        before: the reward in the file.
        after: the reward now.
        was: the outcome in the file.
        outcome: the outcome now.
    """

    env: str
    task_id: str
    before: float
    after: float
    was: str
    outcome: str


@dataclass
class Rescored:
    """A run that was scored again.

    Attributes:
        rows: the rows that could be scored, and those that nothing is to be said of, in order.
        changes: each scored episode before and after, changed or not.
        left: how many rows are as they were: episodes that the infrastructure spoiled, and those
            that were run again.
        problems: why others could not be scored, with the ids of their tasks.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    left: int = 0
    problems: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def rescore(
    rows: Sequence[Row],
    *,
    profile: str | None = None,
    reward: RewardFunction | Callable[..., Any] | None = None,
    tasks: Iterable[Task] | Callable[[Row], Task | None] = (),
    todays: bool = False,
    file: str = "",
) -> Rescored:
    """Score recorded episodes again.

    Args:
        rows: rows as :func:`pytest_intercode.read_results` returns them.
        profile: ``strict`` or ``paper``; by default each row's own.
        reward: a reward function ``(task, agent, gold)``, in place of a profile's.
        tasks: the tasks, for what their rows do not hold, or a function that finds a row's.
        todays: go by the reward options that the tasks have today.
        file: where the rows are from, for ``rescored_from`` and messages.

    Raises:
        ConfigurationError: a row is not one of a results file.
    """
    function = _named(reward)
    task_of = tasks if callable(tasks) else _finder(list(tasks))
    done = Rescored()
    for number, row in enumerate(rows):
        if row.get("superseded") or row.get("outcome") in UNGRADED:
            done.rows.append(dict(row))
            done.left += 1
            continue
        _check(row, f"{file}, row {number}")
        target = profile or played_profile(row)
        try:
            graded = _reward(row, target, function, task_of, todays)
        except NotRecorded as missing:
            done.problems[str(missing)].append(str(row["task_id"]))
            continue
        new = _row(row, graded, target, function, task_of, file)
        done.rows.append(new)
        done.changes.append(
            Change(
                env_of(row),
                str(row["task_id"]),
                _before(row),
                new["reward"],
                str(row.get("outcome", "")),
                new["outcome"],
            )
        )
    return done


def _named(reward: RewardFunction | Callable[..., Any] | None) -> RewardFunction | None:
    if reward is None or isinstance(reward, RewardFunction):
        return reward
    return RewardFunction(getattr(reward, "__qualname__", type(reward).__name__), reward)


def _finder(tasks: Sequence[Task]) -> Callable[[Row], Task | None]:
    return lambda row: task_among(tasks, row)


def _check(row: Row, where: str) -> None:
    kinds = {"end_state": dict, "summary": dict, "reward_parts": dict, "rescored_from": dict}
    for name, kind in kinds.items():
        if not isinstance(row.get(name, {}), kind):
            raise ConfigurationError(f"{where}: {name} is not an object")
    numbers = (row.get("reward", 0.0), row.get("summary", {}).get("max_reward", 0.0))
    if not all(isinstance(n, (int, float)) for n in numbers):
        raise ConfigurationError(f"{where}: its reward is not a number")
    if not isinstance(row.get("turn_parts") or [], list):
        raise ConfigurationError(f"{where}: turn_parts is not a list")
    if of_try_again(row) and not (row["turn_history"].get("rewards") and "reward" in row):
        raise ConfigurationError(f"{where}: its rewards are missing")
    if is_ours(row) and played_profile(row) not in ("strict", "paper"):
        raise ConfigurationError(f"{where}: its profile is neither strict nor paper")


def _reward(
    row: Row,
    target: str,
    function: RewardFunction | None,
    task_of: Callable[[Row], Task | None],
    todays: bool,
) -> Reward:
    env = env_of(row)
    needs_task = function is not None or todays or not is_ours(row)
    task = task_of(row) if needs_task else None
    if task is None and (function is not None or todays):
        raise NotRecorded(
            f"{env}: no task was found for these rows: name their suite with --suite, or their "
            "data with --data"
        )
    if of_try_again(row):
        _check_try_again(row, function is not None or target != played_profile(row) or todays)
    if function is not None:
        assert task is not None
        return function.score(task, row, state_of(row, task))
    return score(row, target, task, todays=todays)


def _check_try_again(row: Row, otherwise: bool) -> None:
    """With rewards as feedback the best try counts; the state of that one alone is recorded."""
    env, again = env_of(row), "play it again with --intercode-agent=replay:FILE"
    if otherwise:
        raise NotRecorded(
            f"{env}: the run had rewards as feedback, and of all its tries only the best is "
            f"recorded: {again} --intercode-feedback=reward"
        )
    last = row["turn_history"]["rewards"][-1]
    if row["reward"] != last and "turn" not in row.get("end_state", {}):
        raise NotRecorded(f"{env}: the best of several tries is not recorded: {again}")


# -- the new row


def _before(row: Row) -> float:
    """Return the reward in the file; InterCode's score is the best of an episode."""
    summary = row.get("summary", {})
    return float(row.get("reward", summary.get("max_reward", 0.0)))


def _row(
    row: Row,
    reward: Reward,
    target: str,
    function: RewardFunction | None,
    task_of: Callable[[Row], Task | None],
    file: str,
) -> dict[str, Any]:
    parts = {name: float(value) for name, value in reward.parts.items()}
    same = (float(reward.value), parts) == (row.get("reward"), row.get("reward_parts"))
    history = {**row["turn_history"]}
    rewards = list(history.get("rewards") or [0.0] * len(history["actions"]))
    turn_parts = list(row.get("turn_parts") or [{}] * len(rewards))
    if rewards and not of_try_again(row):
        rewards[-1] = float(reward.value)
        turn_parts[-1:] = [parts]
    history["rewards"] = rewards
    best = max(range(len(rewards)), key=lambda at: rewards[at] or 0.0, default=0)
    origin = {
        "profile": played_profile(row),
        "reward": _before(row),
        "outcome": row.get("outcome", ""),
        "file": file,
    }
    new = {
        **row,
        "turn_history": history,
        "summary": {
            **row.get("summary", {}),
            "max_reward": max([float(reward.value), *(r or 0.0 for r in rewards)]),
            "max_reward_idx": best,
        },
        "outcome": _outcome(row, reward),
        "reward": float(reward.value),
        "reward_parts": parts,
        "reason": row.get("reason", "") if same else reward.reason,
        "turn_parts": turn_parts,
        "profile": target if function is None else played_profile(row),
        "rescored_from": row.get("rescored_from", origin),
    }
    if new["outcome"] == "agent-error":
        new["reason"] = row.get("reason", "")
    new.pop("reward_function", None)
    if function is not None:
        new["reward_function"] = function.name
    if not is_ours(row):  # from now on it is one of ours, and has what ours have
        history["actions"] = actions_of(row)
        new["end_state"] = state_of(row, task_of(row))
        new["profile"] = new["rescored_from"]["profile"] = target  # as its actions were read
    return new


def _outcome(row: Row, reward: Reward) -> str:
    """Name the outcome as the turn loop does (``episode.py``)."""
    was = str(row.get("outcome", ""))
    if was == "agent-error":
        return was
    if reward.value >= 1.0:
        return "solved"
    if was in _KEPT_OUTCOMES:
        return was
    summary: Mapping[str, Any] = row.get("summary", {})
    turns, most = len(row["turn_history"]["actions"]), summary.get("turns_max") or 0
    used_up = was == "solved" and 0 < most <= turns and unsubmitted(row)
    return "out-of-budget" if used_up else "failed"
