"""The record of one episode: the result of a rollout, and the source of every report.

Immutable and typed. A field is declared only here: its name, type and default, its meaning (the
section ``Attributes`` of its class), and how it is written in a line of a results file
(:mod:`~pytest_intercode.core.line`). From these declarations ``results/format.py`` makes the reader
and the writer of lines, and ``results/schema.py`` their schema.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from pytest_intercode.core.call import ShimCall
from pytest_intercode.core.conversation import Exchange
from pytest_intercode.core.judge import JudgeRecord
from pytest_intercode.core.line import LineField, in_line
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import clipped, escape_for_terminal
from pytest_intercode.core.tokens import ModelCall
from pytest_intercode.core.turn import Turn
from pytest_intercode.core.usage import UNSPENT, Usage

__all__ = [
    "FORMAT_VERSION",
    "OUTCOMES",
    "UNGRADED",
    "EpisodeRecord",
    "FirstScore",
    "Outcome",
    "ShardRecord",
    "TaskRecord",
    "lost_on",
]

Outcome: TypeAlias = Literal[
    "solved",
    "failed",
    "out-of-budget",
    "timed-out",
    "agent-error",
    "task-error",
    "infrastructure-error",
    "stopped",
]
OUTCOMES: Mapping[Outcome, str] = {
    "solved": "The reward reached 1.0.",
    "failed": "The agent submitted, and the reward is below 1.0.",
    "out-of-budget": "Its turns, tokens or money were used up.",
    "timed-out": "Its time was used up.",
    "agent-error": "It raised, or returned no string.",
    "task-error": "The task cannot be set up, or its gold does not run to its end. With ``xfail`` "
    "in the suite, the item is xfailed.",
    "infrastructure-error": "Docker, an image or a sandbox broke, by no doing of the agent's. It "
    "is tried once more, with the turns, tokens and money that remain.",
    "stopped": "Somebody ended it by ``pytest-intercode top --stop``.",
}
"""Each outcome, and what it means."""
UNGRADED: frozenset[Outcome] = frozenset(("task-error", "infrastructure-error", "stopped"))
"""Outcomes that say nothing about the agent, so rates do not count them."""

_NEXT_LINE = re.compile(r"\n(?=\S)")
_MAX_HEADLINE = 4000  # characters of a headline, which may contain an agent's exception
_MAX_SHARED = 256  # sets of agent arguments that episodes share in memory

FORMAT_VERSION = 2
"""The version of the format that records are written in. Version 1 is the format of earlier
releases, which did not write a version; 0 is the format of InterCode's own result files."""


def lost_on(node: str, reason: str) -> str:
    """Return the entry in a record's ``attempts`` for one that was lost on a cluster's node."""
    return f"lost on node {node}: {reason}"


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The part of a task that a record keeps: what identifies and groups it, never its gold.

    Attributes:
        id: the task's id, unique in its suite.
        query: the instruction.
        env: the environment's name.
        suite: the suite's name; empty in InterCode's own results.
        dataset: the dataset's name or file.
        hardness: the difficulty according to the suite, or the empty string.
        tags: the suite's own labels.
        repeat: which try at the task this is, from 1.
        treatment: the treatment applied to the project of a project test, ``control`` for none;
            empty if there is no choice.
        tries: how many tries at the task its run has; None for one, or if that is not known.
        pass_rate: the share of these tries that must be solved for its tests to pass; None if each
            try counts on its own.
        xfail: the suite's reason why its tries are known to fail; None if they are not.
        digest: changes with everything that the agent gets or is graded by; empty if unknown.
    """

    id: str = field(metadata=in_line("task_id"))
    query: str
    env: str = field(metadata=in_line("environment"))
    suite: str = ""
    dataset: str = ""
    hardness: str = ""
    tags: tuple[str, ...] = ()
    repeat: int = 1
    treatment: str = field(default="", metadata=in_line(optional=True))
    tries: int | None = None
    pass_rate: float | None = None
    xfail: str | None = None
    digest: str = field(default="", metadata=in_line("task_digest"))

    @property
    def suite_name(self) -> str:
        """The suite's name in keys and tables, the same as that of ``Task``."""
        return self.suite or self.dataset

    @classmethod
    def of(cls, task: Task, digest: str = "") -> TaskRecord:
        """Return the part of a task that a record keeps."""
        names = [column.name for column in fields(cls) if column.name != "digest"]
        return cls(**{name: getattr(task, name) for name in names}, digest=digest)


@dataclass(frozen=True)
class ShardRecord:
    """Which part of a run an episode belongs to.

    Attributes:
        part: the number of the part, from 1.
        parts: how many parts there are.
        items: how many items the part has; None if that is not known.
        durations: a digest of the file with the durations by which the run was split; empty if
            there was none.
        options: options that are the same in all parts, with their values.
    """

    part: int
    parts: int
    items: int | None = None
    durations: str = field(default="", metadata=in_line(optional=True))
    options: Mapping[str, str] = field(default_factory=dict, metadata=in_line(optional=True))


@dataclass(frozen=True)
class FirstScore:
    """The score of an episode in its run, if it was scored again later.

    Attributes:
        profile: the profile that it was played under.
        reward: the reward of the run.
        outcome: the outcome of the run; empty in InterCode's own results.
        file: the results file that it was read from.
    """

    profile: str = ""
    reward: float = 0.0
    outcome: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """The record of one episode.

    Attributes:
        task: the part of the task that identifies and groups it.
        outcome: how the episode ended.
        reward: the graded reward; 0.0 if nothing could be graded. In [0, 1], except for ``paper``
            SQL, where it can be as low as -1.
        turns: the trajectory.
        max_turns: the budget of turns.
        seconds: wall time of the agent's part.
        profile: the profile it was graded under; empty if unknown.
        agent: the name of the agent, as the user gave it.
        agent_arguments: the arguments of the agent; keys and passwords are hidden in files.
        parameters_version: the version of the parameters that a trainer gave the agent; 0 if it
            gave none.
        parts: the reward's parts.
        reason: what was wrong, in a few words; empty when solved.
        detail: a traceback of the agent, or the end of a build's log; empty otherwise.
        test_output: the end of the output of the task's tests. It is only for people, as it may
            quote hidden tests. Empty if the episode is solved, or if no tests ran.
        attempts: reasons of earlier attempts that failed because of the infrastructure.
        state: both end states, for grading again.
        submissions: how many submissions were graded, if the task allows several; 0 otherwise.
        usage: the agent's usage.
        dialogue: the messages of the agent and its user, in order.
        user_usage: the usage of the model that played the user.
        model_calls: the agent's requests to a model with their tokens, if these were asked for
            (``--intercode-tokens``).
        log: the agent's output after its last action.
        left_behind: what the agent left in its process, one line each.
        calls: the calls of programs that a project test fakes or watches, in order: the first ones,
            with the beginnings of their texts, without keys.
        calls_left_out: how many further calls there were.
        refused_hosts: the network access that its sandbox was refused, one line each.
        sandbox: the backend of its sandboxes; empty if it needed none.
        image: the image of its sandboxes; empty if it needed none.
        image_digest: the image's permanent name in its registry (``NAME@sha256:...``); empty for an
            image that does not come from a registry.
        host: where its sandboxes were: the name of a cluster's node, or of a Docker host; empty for
            this machine.
        phases: when each of :data:`~pytest_intercode.core.phases.PHASES` first began, in seconds
            since the epoch by the clock of the machine that it ran on, and its total seconds.
            Phases that took no time are left out. Earlier releases wrote only ``prepare`` and
            ``run``.
        judge: how a model graded its part of the reward; None if the task has no judge.
        judgements: the verdicts of models that a project test asked about the episode.
        node_id: the node id of its pytest item; empty outside of pytest.
        test_passed: whether that item passed, if it is the user's own test; None otherwise.
        test_runs: how many runs of its agent that item made, if it is a project test; 0 otherwise.
        test_digest: a digest for each part of that item, if it is a project test: results of a test
            that has changed are not reused. Empty if that is not known.
        item: the index of that item among those of its run, from 0; None if it is not known.
        run_name: the name of the run, if the user gave one (``--intercode-run-name``).
        shard: the part of the run that it belongs to; None if the run has no parts.
        superseded: whether the try was run again, so that the later record counts.
        rescored_from: its first score, if it was scored again.
        reward_function: the name of the user's function that scored it; empty for a profile.
        extra: keys of the line that this version does not know; they are written back.
        format_version: the version of the line that it was read from, or :data:`FORMAT_VERSION`.
    """

    # -- of the rollout: written by rollouts/
    task: TaskRecord
    outcome: Outcome
    reward: float
    turns: tuple[Turn, ...]
    max_turns: int = field(metadata=in_line("summary.turns_max"))
    seconds: float = field(metadata=in_line(digits=3))
    profile: str
    agent: str = ""
    agent_arguments: Mapping[str, str] = field(default_factory=dict, metadata=in_line(secrets=True))
    parameters_version: int = field(default=0, metadata=in_line(optional=True))
    parts: Mapping[str, float] = field(
        default_factory=dict, metadata=in_line("reward_parts", in_statistics=False)
    )
    reason: str = field(default="", metadata=in_line(printed=True, in_statistics=False))
    detail: str = field(default="", metadata=in_line(printed=True, long=True))
    test_output: str = field(default="", metadata=in_line(optional=True, printed=True, long=True))
    attempts: tuple[str, ...] = field(default=(), metadata=in_line(in_statistics=False))
    state: Mapping[str, Any] = field(default_factory=dict, metadata=in_line("end_state", long=True))
    submissions: int = field(default=0, metadata=in_line(optional=True))
    usage: Usage = UNSPENT
    dialogue: tuple[Exchange, ...] = field(
        default=(), metadata=in_line(optional=True, printed=True, long=True)
    )
    user_usage: Usage = field(default=UNSPENT, metadata=in_line(optional=True))
    model_calls: tuple[ModelCall, ...] = field(
        default=(), metadata=in_line(optional=True, long=True)
    )
    log: str = field(default="", metadata=in_line(printed=True, long=True))
    left_behind: tuple[str, ...] = field(default=(), metadata=in_line(printed=True, long=True))
    calls: tuple[ShimCall, ...] = field(default=(), metadata=in_line(optional=True, long=True))
    calls_left_out: int = field(default=0, metadata=in_line(optional=True, in_statistics=False))
    refused_hosts: tuple[str, ...] = field(
        default=(), metadata=in_line(optional=True, printed=True, in_statistics=False)
    )
    sandbox: str = field(default="", metadata=in_line(in_statistics=False))
    image: str = field(default="", metadata=in_line(in_statistics=False))
    image_digest: str = field(
        default="", metadata=in_line(optional=True, printed=True, in_statistics=False)
    )
    host: str = field(
        default="", metadata=in_line(optional=True, printed=True, in_statistics=False)
    )
    phases: Mapping[str, tuple[float, float]] = field(
        default_factory=dict, metadata=in_line(optional=True, digits=3, in_statistics=False)
    )
    judge: JudgeRecord | None = None
    judgements: tuple[JudgeRecord, ...] = field(default=(), metadata=in_line(optional=True))
    node_id: str = ""
    # -- of its item and its run: written by plugin/
    test_passed: bool | None = None
    test_runs: int = field(default=0, metadata=in_line(optional=True, in_statistics=False))
    test_digest: Mapping[str, str] = field(
        default_factory=dict, metadata=in_line(optional=True, in_statistics=False)
    )
    item: int | None = None
    run_name: str = field(default="", metadata=in_line(optional=True, printed=True))
    shard: ShardRecord | None = None
    # -- of files: written by results/ and rescoring/
    superseded: bool = False
    rescored_from: FirstScore | None = None
    reward_function: str = field(default="", metadata=in_line(optional=True))
    extra: Mapping[str, Any] = field(default_factory=dict, metadata=in_line(long=True))
    format_version: int = FORMAT_VERSION

    @property
    def solved(self) -> bool:
        """Whether the reward reached 1.0 and the agent ended without an error."""
        return self.outcome == "solved"

    @property
    def succeeded(self) -> bool:
        """Whether rates, gates and comparisons count it as solved.

        The result of the user's own test decides this; without one, the episode must be solved.
        """
        return self.solved if self.test_passed is None else self.test_passed

    @property
    def judge_records(self) -> tuple[JudgeRecord, ...]:
        """All judgements of models: for a part of the reward, and for a project test."""
        return (*([self.judge] if self.judge is not None else ()), *self.judgements)

    @property
    def graded(self) -> bool:
        """Whether it says something about the agent, unlike faults of task and infrastructure."""
        return self.outcome not in UNGRADED

    @property
    def headline(self) -> str:
        """The result, escaped, for a failing test: one line, or more for a log, indented."""
        return _NEXT_LINE.sub(
            "\n    ", escape_for_terminal(clipped(self._headline(), _MAX_HEADLINE))
        )

    def _headline(self) -> str:
        turns = f"after {len(self.turns)}/{self.max_turns} turns"
        reason = f": {self.reason}" if self.reason else ""
        if self.outcome == "solved":
            return f"reward {self.reward:.2f} {turns}"
        if self.outcome == "agent-error":
            return f"agent error {turns}{reason}"
        if self.outcome == "stopped":
            return f"stopped {turns}{reason}"
        if not self.graded:
            return f"{self.outcome.replace('-', ' ')}{reason}"
        limit = {
            "out-of-budget": ", budget exhausted",
            "timed-out": f", timed out after {self.seconds:.0f} s",
        }.get(self.outcome, "")
        return f"reward {self.reward:.2f} < 1.00 {turns}{limit}{reason}"

    def without_trajectory(self) -> EpisodeRecord:
        """Return the record without texts and end states, which make up most of its size."""
        return replace(self, turns=self._bare_turns(), **_empty(_LONG))

    def without_end_state(self) -> EpisodeRecord:
        """Return the record with its turns, and without the other long parts."""
        return replace(self, **_empty(_LONG))

    def for_statistics(self) -> EpisodeRecord:
        """Return a minimal record with what tables, rates and comparisons need.

        A run keeps one for each episode in memory. Names that many tasks share are stored once,
        even if they were read from JSON.
        """
        task, alone = self.task, self.parts.get("gold_alone")
        values: dict[str, Any] = {
            "task": replace(
                task,
                env=_shared(task.env),
                suite=_shared(task.suite),
                dataset=_shared(task.dataset),
                hardness=_shared(task.hardness),
                tags=tuple(map(_shared, task.tags)),
                treatment=_shared(task.treatment),
            ),
            "turns": self._bare_turns(),
            "seconds": round(self.seconds, 3),  # as it is written
            "profile": _shared(self.profile),
            "agent": _shared(self.agent),
            "agent_arguments": _shared_arguments(tuple(self.agent_arguments.items())),
            "usage": self.usage or UNSPENT,
            "judge": None if self.judge is None else self.judge.without_texts(),
            "judgements": tuple(votes.without_texts() for votes in self.judgements),
        }
        if alone is not None:
            values["parts"] = {"gold_alone": alone}
        return replace(self, **{**_empty([*_LONG, *_NOT_IN_STATISTICS]), **values})

    def _bare_turns(self) -> tuple[Turn, ...]:
        return tuple(_BARE_TURNS[turn.executed] for turn in self.turns)

    def __repr__(self) -> str:  # a debugger's prompt shows it; the fields would fill the screen
        return f"<EpisodeRecord of {self.task.id}: {self.headline}>"


_BARE_TURNS = {executed: Turn("", "", executed) for executed in (True, False, None)}
_NOTHING: Mapping[str, Any] = {}
_LONG = [column.name for column in fields(EpisodeRecord) if LineField.of(column).long]
_NOT_IN_STATISTICS = [
    column.name for column in fields(EpisodeRecord) if not LineField.of(column).in_statistics
]
_EMPTY = {
    column.name: _NOTHING if column.default is MISSING else column.default
    for column in fields(EpisodeRecord)
}


def _empty(names: Iterable[str]) -> dict[str, Any]:
    """Return empty values for these fields; all empty mappings are the same object."""
    return {name: _EMPTY[name] for name in names}


def _shared(name: str) -> str:
    return sys.intern(str(name))  # str(), as an agent or a hook may give a subclass


@lru_cache(_MAX_SHARED)
def _shared_arguments(arguments: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(arguments)  # one object for all episodes of an agent
