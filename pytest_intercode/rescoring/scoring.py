"""The reward of a recorded episode under a profile, from its record and nothing else.

Where the record does not hold what a profile compares, :class:`NotRecorded` says what is missing;
nothing is guessed. Calls the reward functions, and touches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import RewardOptions, Task
from pytest_intercode.core.turn import Turn
from pytest_intercode.environments.registered import added_environment
from pytest_intercode.errors import IntercodeError
from pytest_intercode.results.recorded import is_ours
from pytest_intercode.rewards.bash_paper import bash_paper_reward_again
from pytest_intercode.rewards.bash_strict import bash_strict_reward_again, ungradable_reward
from pytest_intercode.rewards.ctf import FlagDigest, ctf_paper_reward, ctf_strict_reward
from pytest_intercode.rewards.python import python_paper_reward_again, python_strict_reward
from pytest_intercode.rewards.recording import options_again
from pytest_intercode.rewards.sql_changes import sql_changes_reward_again
from pytest_intercode.rewards.sql_paper import sql_paper_reward_again
from pytest_intercode.rewards.sql_strict import sql_rows_reward_again
from pytest_intercode.rewards.swe import swe_reward_again

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
    """The record does not hold what the reward is made of; the message says what is missing."""


def played_profile(record: EpisodeRecord) -> str:
    """Return the profile that an episode was played under, whatever it was scored by since."""
    if not is_ours(record):
        return "paper"  # as InterCode plays
    first = record.rescored_from
    return record.profile if first is None else first.profile


def score(
    record: EpisodeRecord, profile: str, task: Task | None = None, *, todays: bool = False
) -> Reward:
    """Return the reward of a recorded episode.

    Args:
        record: the episode.
        profile: ``strict`` or ``paper``.
        task: its task, for what InterCode's own files do not hold.
        todays: go by the reward options of ``task``, not by those that were recorded.

    Raises:
        NotRecorded: the record does not hold enough.
    """
    env, played = record.task.env, played_profile(record)
    state = state_of(record, task)
    options = task.reward if task is not None and todays else None
    score_env = _ENVIRONMENTS.get(env) or _added(env)
    if score_env is None:
        raise NotRecorded(f"{env}: its rewards are not known here")
    try:
        if played == profile == "paper" and _skips(record) and env != "ctf":
            return Reward(0.0)
        reward = score_env(_Scoring(record, state, played, profile, options))
        if not isinstance(reward.reason, str):
            raise TypeError(reward.reason)
        return reward
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        advice = _AGAIN.format(profile=profile)
        problem = f"{env}: the recorded end state is cut, or of another version"
        raise NotRecorded(f"{problem}: {advice}") from None


def state_of(record: EpisodeRecord, task: Task | None = None) -> Mapping[str, Any]:
    """Return the recorded end states of both sides.

    Raises:
        NotRecorded: the record holds none, and they cannot be had from its actions.
    """
    if record.state:
        return record.state
    env = record.task.env
    if is_ours(record) and _skips(record):
        return {}
    if env == "ctf":
        if task is None:
            raise NotRecorded(
                "ctf: the flag is not recorded, and no task was found: name InterCode's data with "
                "--data, or the task's file with --suite"
            )
        gold = asdict(FlagDigest.of(task.gold[0]))
        return {"agent": {"submitted": _paper_flags(record)}, "gold": gold}
    if is_ours(record):
        raise NotRecorded(f"{env}: the record holds no end state")
    contents = {"sql": "gold's rows", "bash": "gold's sandbox", "python": "what the tests gave"}
    raise NotRecorded(
        f"{env}: a file of InterCode's does not hold {contents.get(env, 'the end state')}: "
        "play it again with --intercode-agent=replay:FILE"
    )


def unsubmitted(record: EpisodeRecord) -> bool:
    """Whether a recorded episode ended without a submission, by what its last action says."""
    actions = _actions(record.turns[-1:])
    return not actions or not actions[-1].strip().startswith("submit")


# -- each environment


@dataclass(frozen=True)
class _Scoring:
    """A recorded episode, and how it is to be scored.

    Attributes:
        record: the episode.
        state: the end states of both sides.
        played: the profile that it was played under.
        profile: the one that it is scored by.
        options: the reward options to go by; None for those that were recorded.
    """

    record: EpisodeRecord
    state: Mapping[str, Any]
    played: str
    profile: str
    options: RewardOptions | None

    def check_same(self) -> None:
        """Refuse a profile that compares what another one does not record."""
        if self.played != self.profile:
            env = self.record.task.env
            missing = _MISSING.get((env, self.profile), f"it was played as {self.played}")
            raise NotRecorded(f"{env}: {missing}: {_AGAIN.format(profile=self.profile)}")


def _added(env: str) -> Callable[[_Scoring], Reward] | None:
    """Return how an environment that a user added grades what it recorded."""
    cls = added_environment(env)
    if cls is None:
        return None

    def score_added(of: _Scoring) -> Reward:
        of.check_same()
        graded: Reward | None = cls.graded_again(of.state)
        if graded is None:
            raise NotRecorded(f"{env}: {cls.__name__}.graded_again does not say how it grades")
        return graded

    return score_added


def _bash(of: _Scoring) -> Reward:
    of.check_same()
    if "ungradable" in of.state:
        return ungradable_reward(of.state["ungradable"])
    if of.profile == "strict":
        return bash_strict_reward_again(of.state, of.options)
    if of.state["cut"]:
        raise KeyError("status")
    return bash_paper_reward_again(of.state)


def _python(of: _Scoring) -> Reward:
    of.check_same()
    if of.profile == "strict":
        return python_strict_reward(of.state["tests"])
    return python_paper_reward_again(of.state)


def _sql(of: _Scoring) -> Reward:
    record, paper = of.record, of.profile == "paper"
    if of.played == of.profile:
        if paper:
            return sql_paper_reward_again(of.state)
        if "added" in of.state["agent"]:
            return sql_changes_reward_again(of.state)
        return _sql_rows(of.state, of.options)
    problem = ""
    if paper:
        if _skips(record):
            return Reward(0.0)
    elif not unsubmitted(record) and record.turns[-1].action.strip().rstrip("; ") != "submit":
        problem = "an answer behind submit is run by the strict profile alone"
    elif _skips(record):
        problem = "the episode ended with skip, and was not graded"
    other_state = of.state.get(of.profile, {})
    problem = problem or other_state.get("problem", "")
    if problem:
        raise NotRecorded(f"sql: {problem}: {_AGAIN.format(profile=of.profile)}")
    return sql_paper_reward_again(other_state) if paper else _sql_rows(other_state, of.options)


def _sql_rows(state: Mapping[str, Any], options: RewardOptions | None) -> Reward:
    recorded = options_again(state["options"])
    if options is not None and options != recorded:
        if state["digested"] or options.rows != recorded.rows:
            raise NotRecorded(
                "sql: what reward.rows says was applied when gold was run, and long results are "
                "recorded as digests: play it again with --intercode-agent=replay:FILE"
            )
        recorded = options
    return sql_rows_reward_again(state, recorded)


def _ctf(of: _Scoring) -> Reward:
    gold, strict = FlagDigest(**of.state["gold"]), of.profile == "strict"
    if is_ours(of.record) and of.played == of.profile:
        flags = list(of.state["agent"]["submitted"])
    else:
        flags = (_strict_flags if strict else _paper_flags)(of.record)
    return (ctf_strict_reward if strict else ctf_paper_reward)(flags, gold)


def _swe(of: _Scoring) -> Reward:
    if of.profile != "strict":
        raise NotRecorded("swe: InterCode has no reward for it, so it has no profile 'paper'")
    if not isinstance(of.state.get("tests"), Mapping):
        record = of.record
        return Reward(record.reward, dict(record.parts), record.reason)  # nothing was run
    return swe_reward_again(of.state["tests"])


_ENVIRONMENTS: Mapping[str, Callable[[_Scoring], Reward]] = {
    "bash": _bash,
    "sql": _sql,
    "python": _python,
    "ctf": _ctf,
    "swe": _swe,
}


# -- what the profiles read in an action


def _strict_flags(record: EpisodeRecord) -> list[str]:
    """Return the flags that actions submit, as the strict profile reads them."""
    words = [action.split(None, 1) for action in _actions(record.turns)]
    return [parts[1].strip() for parts in words if len(parts) > 1 and parts[0] == "submit"]


def _paper_flags(record: EpisodeRecord) -> list[str]:
    """Return the flags that actions submit, as InterCode reads them; ``skip`` ends an episode."""
    flags = []
    for action in _actions(record.turns):
        if action == "skip":
            break
        words = action.partition(" ")[2].split()
        if action.startswith("submit") and words:
            flags.append(words[0])
    return flags


def _actions(turns: Iterable[Turn]) -> list[str]:
    """Return the actions, without what was said in turns that ran nothing."""
    return [turn.action for turn in turns if not turn.passed]


def _skips(record: EpisodeRecord) -> bool:
    return "skip" in _actions(record.turns)
