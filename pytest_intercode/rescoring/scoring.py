"""What a recorded episode earns under a profile, from what its row holds and nothing else.

Where the row does not hold what a profile compares, :class:`NotRecorded` says what is missing;
nothing is guessed. Calls the reward functions, and touches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import RewardOptions, Task
from pytest_intercode.errors import IntercodeError
from pytest_intercode.results.reading import Row, actions_of, env_of, is_ours
from pytest_intercode.rewards.bash_paper import bash_paper_reward_again
from pytest_intercode.rewards.bash_strict import bash_strict_reward_again
from pytest_intercode.rewards.ctf import FlagDigest, ctf_paper_reward, ctf_strict_reward
from pytest_intercode.rewards.python import python_paper_reward_again, python_strict_reward
from pytest_intercode.rewards.recording import options_again
from pytest_intercode.rewards.sql_changes import sql_changes_reward_again
from pytest_intercode.rewards.sql_paper import sql_paper_reward_again
from pytest_intercode.rewards.sql_strict import sql_rows_reward_again
from pytest_intercode.suites.registered import added_environment

__all__ = ["NotRecorded", "played_profile", "score", "state_of", "unsubmitted"]

_AGAIN = "play it again with --intercode-agent=replay:FILE --intercode-profile={profile}"
_MISSING = {
    ("bash", "paper"): "the paper profile compares what git status and md5sum print in both "
    "sandboxes, which a strict run does not record",
    ("bash", "strict"): "the strict profile compares every change on disk, which a paper run does "
    "not record",
    ("python", "paper"): "the paper profile compares what each test does to the agent's function "
    "and to gold's, which a strict run does not record",
    ("python", "strict"): "the strict profile has hidden tests run in a fresh process, which a "
    "paper run does not do",
}


class NotRecorded(IntercodeError):
    """The row does not hold what the reward is made of; the message says what is missing."""


def played_profile(row: Row) -> str:
    """Return the profile that a row was played under, whatever it was scored by since."""
    if not is_ours(row):
        return "paper"  # InterCode's own way
    return str(row.get("rescored_from", row).get("profile", ""))


def score(row: Row, profile: str, task: Task | None = None, *, todays: bool = False) -> Reward:
    """Return what a recorded episode earns.

    Args:
        row: the episode.
        profile: ``strict`` or ``paper``.
        task: its task, for what InterCode's own files do not hold.
        todays: go by the reward options of ``task``, not by those that were recorded.

    Raises:
        NotRecorded: the row does not hold enough.
    """
    env, played = env_of(row), played_profile(row)
    state = state_of(row, task)
    options = task.reward if task is not None and todays else None
    score_env = _ENVIRONMENTS.get(env) or _added(env)
    if score_env is None:
        raise NotRecorded(f"{env}: its rewards are not known here")
    try:
        if played == profile == "paper" and _skips(row) and env != "ctf":
            return Reward(0.0)
        return score_env(row, state, played, profile, options)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        again = _AGAIN.format(profile=profile)
        said = f"{env}: the recorded end state is cut, or of another version"
        raise NotRecorded(f"{said}: {again}") from None


def state_of(row: Row, task: Task | None = None) -> Mapping[str, Any]:
    """Return the recorded end states of both sides.

    Raises:
        NotRecorded: the row holds none, and they cannot be had from its actions.
    """
    state = row.get("end_state")
    if state:
        return dict(state)
    env = env_of(row)
    if is_ours(row) and _skips(row):
        return {}
    if env == "ctf":
        if task is None:
            raise NotRecorded(
                "ctf: the flag is not recorded, and no task was found: name InterCode's data with "
                "--data, or the task's file with --suite"
            )
        gold = asdict(FlagDigest.of(task.gold[0]))
        return {"agent": {"submitted": _paper_flags(actions_of(row), row)}, "gold": gold}
    if is_ours(row):
        raise NotRecorded(f"{env}: the row holds no end state")
    what = {"sql": "gold's rows", "bash": "gold's sandbox", "python": "what the tests gave"}
    raise NotRecorded(
        f"{env}: a file of InterCode's does not hold {what.get(env, 'the end state')}: "
        "play it again with --intercode-agent=replay:FILE"
    )


def unsubmitted(row: Row) -> bool:
    """Whether a recorded episode ended without a submission, by what its last action says."""
    actions = row["turn_history"]["actions"]
    taken = _taken(actions[-1:], {"turn_passed": row.get("turn_passed", [])[-1:]})
    return not taken or not taken[-1].strip().startswith("submit")


# -- each environment


def _added(env: str) -> _Scored | None:
    """Return how an environment that somebody added grades what it recorded."""
    cls = added_environment(env)
    if cls is None:
        return None

    def score_added(
        row: Row, state: Mapping[str, Any], played: str, profile: str, _: RewardOptions | None
    ) -> Reward:
        _same(env, played, profile)
        graded: Reward | None = cls.graded_again(state)
        if graded is None:
            raise NotRecorded(f"{env}: {cls.__name__}.graded_again does not say how it grades")
        return graded

    return score_added


def _bash(
    row: Row, state: Mapping[str, Any], played: str, profile: str, options: RewardOptions | None
) -> Reward:
    _same("bash", played, profile)
    if profile == "strict":
        return bash_strict_reward_again(state, options)
    if state["cut"]:
        raise KeyError("status")
    return bash_paper_reward_again(state)


def _python(
    row: Row, state: Mapping[str, Any], played: str, profile: str, options: RewardOptions | None
) -> Reward:
    _same("python", played, profile)
    if profile == "strict":
        return python_strict_reward(state["tests"])
    return python_paper_reward_again(state)


def _same(env: str, played: str, profile: str) -> None:
    if played != profile:
        said = f"{env}: {_MISSING.get((env, profile), f'it was played as {played}')}"
        raise NotRecorded(f"{said}: {_AGAIN.format(profile=profile)}")


def _sql(
    row: Row, state: Mapping[str, Any], played: str, profile: str, options: RewardOptions | None
) -> Reward:
    if played == profile == "paper":
        return sql_paper_reward_again(state)
    if played == profile:
        if "added" in state["agent"]:
            return sql_changes_reward_again(state)
        return _sql_rows(state, options)
    problem = ""
    if profile == "paper":
        if _skips(row):
            return Reward(0.0)
    elif not unsubmitted(row) and _last(row).rstrip("; ") != "submit":
        problem = "an answer behind submit is run by the strict profile alone"
    elif _skips(row):
        problem = "the episode ended with skip, and was not graded"
    other = state.get(profile, {})
    problem = problem or other.get("problem", "")
    if problem:
        raise NotRecorded(f"sql: {problem}: {_AGAIN.format(profile=profile)}")
    return sql_paper_reward_again(other) if profile == "paper" else _sql_rows(other, options)


def _sql_rows(state: Mapping[str, Any], options: RewardOptions | None) -> Reward:
    then = options_again(state["options"])
    if options is not None and options != then:
        if state["digested"] or options.rows != then.rows:
            raise NotRecorded(
                "sql: what reward.rows says was applied when gold was run, and long results are "
                "recorded as digests: play it again with --intercode-agent=replay:FILE"
            )
        then = options
    return sql_rows_reward_again(state, then)


def _ctf(
    row: Row, state: Mapping[str, Any], played: str, profile: str, options: RewardOptions | None
) -> Reward:
    gold = FlagDigest(**state["gold"])
    if is_ours(row) and played == profile:
        flags = list(state["agent"]["submitted"])
    else:
        read = _strict_flags if profile == "strict" else _paper_flags
        flags = read(actions_of(row), row)
    return (ctf_strict_reward if profile == "strict" else ctf_paper_reward)(flags, gold)


_Scored = Callable[[Row, Mapping[str, Any], str, str, "RewardOptions | None"], Reward]
_ENVIRONMENTS: Mapping[str, _Scored] = {"bash": _bash, "sql": _sql, "python": _python, "ctf": _ctf}


# -- what the profiles read in an action


def _strict_flags(actions: list[str], row: Row) -> list[str]:
    """Return the flags that actions submit, as the strict profile reads them."""
    words = [action.split(None, 1) for action in _taken(actions, row)]
    return [each[1].strip() for each in words if len(each) > 1 and each[0] == "submit"]


def _paper_flags(actions: list[str], row: Row) -> list[str]:
    """Return the flags that actions submit, as InterCode reads them; ``skip`` ends an episode."""
    flags = []
    for action in _taken(actions, row):
        if action == "skip":
            break
        words = action.partition(" ")[2].split()
        if action.startswith("submit") and words:
            flags.append(words[0])
    return flags


def _taken(actions: list[str], row: Row) -> list[str]:
    """Leave out what was said in turns that ran nothing."""
    passed = row.get("turn_passed") or [False] * len(actions)
    return [action for action, p in zip(actions, passed, strict=False) if not p]


def _skips(row: Row) -> bool:
    return "skip" in _taken(row["turn_history"]["actions"], row)


def _last(row: Row) -> str:
    return str(row["turn_history"]["actions"][-1]).strip()
