"""Scores a recorded run again, episode by episode; ``pytest-intercode rescore`` uses it.

An episode is scored only from its record. If the record does not contain what a profile compares,
:class:`NotRecorded` names what is missing; nothing is guessed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from pytest_intercode.core.judge import JudgeRecord
from pytest_intercode.core.record import FORMAT_VERSION, EpisodeRecord, FirstScore
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.environments.recorded import (
    REPLAY_ADVICE,
    NotRecorded,
    RecordedEpisode,
    ends_with_skip,
    outcome_with,
)
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.rescoring.function import RewardFunction
from pytest_intercode.rescoring.tasks import task_among
from pytest_intercode.results.format import from_row, to_row
from pytest_intercode.results.recorded import had_feedback, is_ours
from pytest_intercode.rewards.judged import judged_reward

__all__ = ["Change", "Rescored", "rescore", "score"]

_ADVICE = "run it again, or replay it with replay:FILE, where a model can be asked"

_TaskOf: TypeAlias = Callable[[EpisodeRecord], "Task | None"]


@dataclass(frozen=True)
class Change:
    """The score of one episode before and after.

    Attributes:
        env: the environment.
        task_id: the task.
        before: the reward in the file.
        after: the reward now.
        was: the outcome in the file; empty in InterCode's files.
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
        records: the episodes that could be scored, and those that are left unchanged, in order.
        changes: each scored episode before and after, changed or not.
        left: how many are left unchanged: episodes that ended through a fault of the task or of
            the infrastructure, and those that were run again.
        problems: why others could not be scored, with the ids of their tasks.
    """

    records: list[EpisodeRecord] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    left: int = 0
    problems: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The episodes as rows of a results file."""
        return [to_row(record) for record in self.records]


def rescore(
    episodes: Sequence[EpisodeRecord | Mapping[str, Any]],
    *,
    profile: str | None = None,
    reward: RewardFunction | Callable[..., Any] | None = None,
    tasks: Iterable[Task] | _TaskOf = (),
    todays: bool = False,
    file: str = "",
) -> Rescored:
    """Score recorded episodes again.

    Args:
        episodes: records, or rows as :func:`pytest_intercode.read_results` returns them.
        profile: ``strict`` or ``paper``; by default the one that each episode was played under.
        reward: a reward function ``(task, agent, gold)``, instead of that of a profile.
        tasks: the tasks, for data that records do not have, or a function that finds a record's.
        todays: whether to use the reward options that the tasks have today.
        file: where the episodes are from, for ``rescored_from`` and messages.

    Raises:
        ConfigurationError: a row is not that of a results file.
    """
    if reward is not None and not isinstance(reward, RewardFunction):
        name = getattr(reward, "__qualname__", type(reward).__name__)
        reward = RewardFunction(name, reward)
    task_of = tasks if callable(tasks) else partial(task_among, list(tasks))
    rescored = Rescored()
    for number, episode in enumerate(episodes):
        if isinstance(episode, EpisodeRecord):
            record, location = episode, ", ".join(filter(None, (file, f"task {episode.task.id}")))
        else:
            location = ", ".join(filter(None, (file, f"row {number}")))
            record = from_row(episode, location)
        if record.superseded or not record.graded:
            rescored.records.append(record)
            rescored.left += 1
            continue
        if is_ours(record) and played_profile(record) not in ("strict", "paper"):
            raise ConfigurationError(f"{location}: its profile is neither strict nor paper")
        target = profile or played_profile(record)
        try:
            graded, votes = _reward(record, target, reward, task_of, todays)
        except NotRecorded as missing:
            rescored.problems[str(missing)].append(record.task.id)
            continue
        new = _rescored_record(record, graded, target, reward, task_of, file)
        new = replace(new, judge=votes)
        rescored.records.append(new)
        former = record.outcome if is_ours(record) else ""
        rescored.changes.append(
            Change(record.task.env, record.task.id, record.reward, new.reward, former, new.outcome)
        )
    return rescored


def _reward(
    record: EpisodeRecord,
    target: str,
    function: RewardFunction | None,
    task_of: _TaskOf,
    todays: bool,
) -> tuple[Reward, JudgeRecord | None]:
    """Return the reward, and the votes of a judge that have a share in it; no model is asked."""
    env = record.task.env
    needs_task = function is not None or todays or not is_ours(record)
    task = task_of(record) if needs_task else None
    if task is None and (function is not None or todays):
        raise NotRecorded(
            f"{env}: no task was found for these rows: name their suite with --suite, or their "
            "data with --data"
        )
    if had_feedback(record):
        _check_best(record, function is not None or target != played_profile(record) or todays)
    if function is not None:
        assert task is not None
        return function.score(task, record, state_of(record, task)), record.judge
    own_reward = score(record, target, task, todays=todays)
    votes = _todays_votes(record, task) if todays and task is not None else record.judge
    if votes is None:
        return own_reward, None
    if not all(0.0 <= vote <= 1.0 for vote in votes.scores):
        raise NotRecorded(f"{env}: a recorded vote of the judge is not a number from 0 to 1")
    votes = replace(votes, reward=own_reward.value)
    return judged_reward(own_reward, votes), votes


def _todays_votes(record: EpisodeRecord, task: Task) -> JudgeRecord | None:
    """Return the recorded votes with the share that the task gives them today.

    Raises:
        NotRecorded: there are no votes on today's rubric by today's model.
    """
    judge, votes, env = task.judge, record.judge, record.task.env
    if judge is None:
        return None
    if votes is None:
        raise NotRecorded(f"{env}: the task has a judge now, but no votes are recorded: {_ADVICE}")
    if votes.digest != judge.digest:
        raise NotRecorded(
            f"{env}: the rubric or the model of the judge was changed, so the recorded votes are "
            f"stale: {_ADVICE}"
        )
    return replace(votes, share=judge.share, product=judge.product)


def _check_best(record: EpisodeRecord, changed: bool) -> None:
    """Check that the best turn of a run with feedback can be scored; only its state is recorded."""
    env, advice = record.task.env, "run it again with --intercode-agent=replay:FILE"
    if changed:
        raise NotRecorded(
            f"{env}: the run had rewards as feedback, and of all its tries only the best is "
            f"recorded: {advice} --intercode-feedback=reward"
        )
    own_reward = record.reward if record.judge is None else record.judge.reward
    if own_reward != record.turns[-1].reward and "turn" not in record.state:
        raise NotRecorded(f"{env}: the best of several tries is not recorded: {advice}")


# -- the reward of a recorded episode under a profile


def played_profile(record: EpisodeRecord) -> str:
    """Return the profile that an episode was played under, even if it was rescored since."""
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
        task: its task, for data that InterCode's own files do not have.
        todays: whether to use the reward options of ``task`` instead of the recorded ones.

    Raises:
        NotRecorded: the record does not contain enough.
    """
    env, played = record.task.env, played_profile(record)
    state = state_of(record, task)
    options = task.reward if task is not None and todays else None
    kind = kind_of(env)
    try:
        if played == profile == "paper" and ends_with_skip(record) and not kind.scores_skipped:
            return Reward(0.0)
        reward = kind.score(RecordedEpisode(record, state, played, profile, options))
        if not isinstance(reward.reason, str):
            raise TypeError(reward.reason)
        return reward
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        advice = REPLAY_ADVICE.format(profile=profile)
        problem = f"{env}: the recorded end state is truncated, or from another version"
        raise NotRecorded(f"{problem}: {advice}") from None


def state_of(record: EpisodeRecord, task: Task | None = None) -> Mapping[str, Any]:
    """Return the recorded end states of both sides.

    Raises:
        NotRecorded: the record has none, and they cannot be derived from its actions.
    """
    if record.state:
        return record.state
    if is_ours(record) and ends_with_skip(record):
        return {}
    return kind_of(record.task.env).state_of_actions(record, task)


# -- the new record


def _rescored_record(
    record: EpisodeRecord,
    reward: Reward,
    target: str,
    function: RewardFunction | None,
    task_of: _TaskOf,
    file: str,
) -> EpisodeRecord:
    value = float(reward.value)
    parts = {name: float(part) for name, part in reward.parts.items()}
    outcome = outcome_with(record, value)
    played = played_profile(record)
    recorded_outcome = record.outcome if is_ours(record) else ""
    first = record.rescored_from or FirstScore(played, record.reward, recorded_outcome, file)
    turns = record.turns
    if turns and not had_feedback(record):
        turns = (*turns[:-1], replace(turns[-1], reward=value, parts=parts))
    unchanged = (value, parts) == (record.reward, record.parts)
    new = replace(
        record,
        turns=turns,
        outcome=outcome,
        reward=value,
        parts=parts,
        reason=record.reason if unchanged or outcome == "agent-error" else reward.reason,
        profile=target if function is None else played,
        rescored_from=first,
        reward_function="" if function is None else function.name,
        test_passed=None,  # the test saw the first score
    )
    if is_ours(record):
        return new
    return replace(  # complete it, so that it has what records of our own runs have
        new,
        state=state_of(record, task_of(record)),
        profile=target,
        rescored_from=replace(first, profile=target),  # its actions were read under it
        format_version=FORMAT_VERSION,
    )
