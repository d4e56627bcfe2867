"""Creation of records. This module alone determines who sets which field of a record.

- The episode (:func:`played_record`): what the agent did, and how it was graded.
- The rollout (:meth:`RecordBuilder.complete`): where it ran, how often, what was left behind. A
  rollout that the user stops sets what is known (:meth:`RecordBuilder.stopped`).
- The spec (:class:`RecordBuilder`): the task, the agent and the item, in every executor. On a
  cluster the driver's own spec counts, so a node cannot return a record of another task.
- The run adds its fields (the item's index, the shard) to a file's line: ``results/format.py``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord, Outcome, TaskRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.tokens import ModelCall
from pytest_intercode.core.usage import Usage
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.episode import call_method, check_returned
from pytest_intercode.environments.registry import is_builtin, kind_of
from pytest_intercode.errors import (
    AgentError,
    IntercodeError,
    JudgeError,
    RolloutCancelled,
    TaskError,
)
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.digest import digest

__all__ = ["RecordBuilder", "played_record", "sandbox_of", "with_mistake", "with_result"]

_MAX_QUERY = 200  # characters of the query in the reduced form of a record that is too large
_MAX_TURNS = 1000  # turns in that form


def played_record(
    environment: Environment,
    graded: Reward,
    outcome: Outcome,
    *,
    reason: str,
    detail: str,
    seconds: float,
    usage: Usage,
    user_usage: Usage,
    model_calls: tuple[ModelCall, ...],
    log: str,
    left_behind: Sequence[str],
) -> EpisodeRecord:
    """Return a record with the fields that the episode sets.

    Args:
        environment: the environment, after it ended.
        graded: its reward.
        outcome: how the episode ended.
        reason: why, in a few words.
        detail: why, at length.
        seconds: wall time of the agent's part.
        usage: the agent's usage.
        user_usage: the usage of the model that played the user.
        model_calls: the agent's requests whose tokens were kept.
        log: the agent's output after its last action.
        left_behind: a line for each thing that the agent left in this process.
    """
    task = environment.task
    assert task is not None
    return EpisodeRecord(
        task=TaskRecord.of(task, digest(task)),
        outcome=outcome,
        reward=graded.value,
        turns=tuple(environment.turns),
        max_turns=environment.max_turns,
        seconds=seconds,
        profile=environment.profile,
        parts=dict(graded.parts),
        reason=reason,
        detail=detail,
        test_output="" if outcome == "solved" else graded.test_output,
        state=_state_of(environment),
        submissions=environment.submissions,
        usage=usage,
        dialogue=tuple(environment.episode.dialogue),
        user_usage=user_usage,
        model_calls=model_calls,
        log=log,
        refused_hosts=environment.refused_hosts(),
        left_behind=tuple(left_behind),
    )


def _state_of(environment: Environment) -> dict[str, Any]:
    """Return the recorded end state of an episode.

    Raises:
        TaskError: a third-party environment returns a value that a results file cannot hold.
    """
    state = environment.recorded_state()
    if not is_builtin(environment.name):
        try:
            json.dumps({**state})
        except (TypeError, ValueError, RecursionError) as error:
            raise TaskError(
                f"the environment {environment.name!r}: end_state() returned {state!r:.80}; a "
                f"dictionary of JSON values is needed: {error}"
            ) from None
    return state


@dataclass(frozen=True)
class RecordBuilder:
    """Sets the fields of a rollout's record that its spec and its executor determine.

    Args:
        spec: the rollout's spec.
    """

    spec: RolloutSpec

    def complete(
        self,
        record: EpisodeRecord,
        agent: Agent,
        environment: Environment,
        sandboxes: SandboxProvider,
        *,
        attempts: Sequence[str],
        leftovers: Sequence[str],
    ) -> EpisodeRecord:
        """Return the episode's record with the fields that the rollout sets.

        Args:
            record: the episode's record.
            agent: the agent, which may be another one than the spec's.
            environment: the environment.
            sandboxes: the provider of its sandboxes, if it does not have its own.
            attempts: why earlier attempts have no result.
            leftovers: what the agent left in this process.
        """
        provider = getattr(environment, "provider", None) or sandboxes
        backend, image = sandbox_of(environment, self.spec.task, provider)
        return replace(
            record,
            agent=self.spec.agent or agent.name,
            agent_arguments=self.spec.agent_arguments,
            parameters_version=self.spec.parameters_version,
            node_id=self.spec.node_id,
            attempts=tuple(attempts),
            left_behind=(*record.left_behind, *leftovers),
            sandbox=backend,
            image=image,
            image_digest=provider.pinned_image(image) if image else "",
            host=environment.host,
            phases=environment.phases.recorded(),
        )

    def failure(self, error: IntercodeError) -> EpisodeRecord:
        """Return the record of a rollout that ended without a grade.

        Args:
            error: the error that ended it: a fault of the task or of the infrastructure.
        """
        outcome: Outcome = "task-error" if isinstance(error, TaskError) else "infrastructure-error"
        spec = self.spec
        if isinstance(error, JudgeError) and error.record is not None:
            judged: EpisodeRecord = error.record  # complete except for the judge's share
            return replace(judged, outcome=outcome, reward=0.0, reason=str(error))
        return EpisodeRecord(
            task=TaskRecord.of(spec.task, digest(spec.task)),
            outcome="agent-error" if isinstance(error, AgentError) else outcome,
            reward=0.0,
            turns=(),
            max_turns=spec.max_turns or spec.task.max_turns,
            seconds=0.0,
            profile=spec.profile,
            agent=spec.agent,
            agent_arguments=spec.agent_arguments,
            parameters_version=spec.parameters_version,
            reason=str(error),
            test_output=error.test_output,
            node_id=spec.node_id,
        )

    def stopped(
        self, reason: RolloutCancelled, environment: Environment | None, usage: Usage
    ) -> EpisodeRecord:
        """Return the record of a rollout that the user stopped, with what is known of it.

        Args:
            reason: why it ended.
            environment: its environment, if there is one.
            usage: its agent's usage.
        """
        record = replace(self.failure(reason), outcome="stopped", usage=usage)
        if environment is None:
            return record
        phases = environment.phases.recorded()
        return replace(
            record,
            turns=tuple(environment.turns),
            max_turns=environment.max_turns or record.max_turns,
            seconds=phases.get("agent", (0.0, 0.0))[1],
            phases=phases,
        )

    def received(self, record: EpisodeRecord, host: str, losses: Sequence[str]) -> EpisodeRecord:
        """Return a node's record with the fields that only the driver may set.

        Args:
            record: the node's record.
            host: the node's name.
            losses: attempts that were lost with their nodes.
        """
        spec = self.spec
        return replace(
            record,
            task=TaskRecord.of(spec.task, digest(spec.task)),
            profile=spec.profile,
            agent=spec.agent,
            agent_arguments=spec.agent_arguments,
            parameters_version=spec.parameters_version,
            node_id=spec.node_id,
            host=host,
            item=None,
            attempts=(*losses, *record.attempts),
        )

    @staticmethod
    def too_large(record: EpisodeRecord, size: int, limit: int) -> EpisodeRecord:
        """Reduce a record that is too large to be sent, which is its agent's fault.

        Args:
            record: the record.
            size: its size in bytes.
            limit: the maximum size of a record in bytes.
        """
        slim = record.without_trajectory()
        return replace(
            slim,
            task=replace(slim.task, query=slim.task.query[:_MAX_QUERY], tags=()),
            outcome="agent-error",
            reward=0.0,
            reason=f"its record has {size / 1024**2:.0f} MiB, and a record may have "
            f"{limit // 1024**2} MiB",
            parts={},
            attempts=(),
            refused_hosts=(),
            turns=slim.turns[:_MAX_TURNS],
        )


def sandbox_of(environment: Environment, task: Task, provider: SandboxProvider) -> tuple[str, str]:
    """Return the backend and the image of a task's sandboxes; empty if it has none.

    Args:
        environment: the task's environment.
        task: the task.
        provider: the provider of sandboxes, if the environment does not have its own.
    """
    provider = getattr(environment, "provider", None) or provider
    specs = call_method(environment.name, environment.sandboxes, task, provider)
    check_returned(environment.name, "sandboxes", specs, list)
    return (provider.choice.backend, specs[0].image) if specs else ("", "")


def with_result(record: EpisodeRecord, passed: bool) -> EpisodeRecord:
    """Return an episode's record with the result of its test, if only the test grades it.

    Args:
        record: the episode's record.
        passed: whether the test passed. If it failed and turns or time were used up, that stays the
            outcome, because it says more.
    """
    if not _is_graded_by_test(record):
        return record
    outcome = record.outcome if record.outcome != "solved" else "failed"
    return replace(
        record,
        outcome="solved" if passed else outcome,
        reward=float(passed),
        reason="" if passed else record.reason or "the test failed",
    )


def with_mistake(record: EpisodeRecord, message: str) -> EpisodeRecord:
    """Return an episode's record with a mistake of its test, if only the test grades it."""
    if not _is_graded_by_test(record):
        return record
    return replace(record, outcome="task-error", reward=0.0, reason=message)


def _is_graded_by_test(record: EpisodeRecord) -> bool:
    ends: tuple[Outcome, ...] = ("solved", "failed", "out-of-budget", "timed-out")
    return record.outcome in ends and kind_of(record.task.env).graded_by_test
