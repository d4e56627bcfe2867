"""Replay: plays the actions of a recorded run, our own or one published by InterCode.

Thoughts are handed over with their actions, and a turn that ran nothing is taken so again. What
an agent used up is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from pytest_intercode.agents.arguments import read_arguments
from pytest_intercode.agents.ledger import think
from pytest_intercode.agents.protocol import Agent, AgentFactory, NoRecording
from pytest_intercode.core.record import UNGRADED
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.errors import AgentLoadError, ConfigurationError
from pytest_intercode.results.reading import (
    RecordedRun,
    Row,
    actions_of,
    of_try_again,
    read_results,
)

__all__ = ["make_factory"]


def make_factory(name: str, rest: str, arguments: Mapping[str, str], folder: Path) -> AgentFactory:
    """Return the factory of ``--intercode-agent=replay:FILE``.

    Raises:
        AgentLoadError: the file cannot be read as results, or holds none.
    """
    read_arguments(name, arguments)
    path = folder / Path(rest.strip()).expanduser()
    try:
        rows = read_results(path)
    except ConfigurationError as error:
        raise AgentLoadError(f"--intercode-agent=replay: {error}") from None
    if not rows:
        raise AgentLoadError(f"--intercode-agent=replay: {path}: holds no recorded episode")
    # What else there is, is not what the agent would have done.
    played = [
        row for row in rows if not row.get("superseded") and row.get("outcome") not in UNGRADED
    ]
    feedback = any(map(of_try_again, played))
    return AgentFactory(name, _maker(path, RecordedRun(played)), "reward" if feedback else "")


def _maker(path: Path, run: RecordedRun) -> Callable[[Task], Agent]:
    def make(task: Task) -> Agent:
        row = run.row_of(task)
        if row is None:
            raise NoRecording(f"{path.name} holds no episode of task {task.id}")
        return Agent("loop", run=lambda _, env: _play(row, _, env))

    return make


class _Turn(NamedTuple):
    """A turn to take again."""

    action: str
    observation: str
    thought: str
    passed: bool
    answer: str | None


def _turns(row: Row) -> list[_Turn]:
    history = row["turn_history"]
    actions = actions_of(row)
    columns = zip_longest(
        actions,
        (history.get("observations") or [])[: len(actions)],
        (history.get("thoughts") or [])[: len(actions)],
        (row.get("turn_passed") or [])[: len(actions)],
        (row.get("turn_answers") or [])[: len(actions)],
    )
    return [
        _Turn(action, seen or "", thought or "", bool(passed), answer)
        for action, seen, thought, passed, answer in columns
    ]


def _play(row: Row, _: TaskView, env: Any) -> None:
    for turn in _turns(row):
        think(turn.thought)
        if turn.passed:
            result = env.pass_turn(turn.action, turn.observation)
        elif turn.answer is not None:
            result = env.submit(turn.answer)
        else:
            result = env.step(turn.action)
        _observation, _reward, terminated, truncated, _info = result
        if terminated or truncated:
            return
