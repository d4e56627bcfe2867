"""Replay: plays the actions of a recorded run, either one of ours or one published by InterCode.

Thoughts are recorded again with their actions, and a turn that ran nothing again runs nothing. The
usage of the recorded agent is not recorded again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_intercode.agents.arguments import read_arguments
from pytest_intercode.agents.ledger import think
from pytest_intercode.agents.protocol import Agent, AgentFactory, NoRecording
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.servers import TRANSPORTS
from pytest_intercode.core.task import Task
from pytest_intercode.errors import AgentLoadError, ConfigurationError
from pytest_intercode.results.files import iterate_records, no_episodes
from pytest_intercode.results.recorded import RecordedRun, had_feedback

__all__ = ["make_factory"]


def make_factory(name: str, rest: str, arguments: Mapping[str, str], folder: Path) -> AgentFactory:
    """Return the factory of ``--intercode-agent=replay:FILE``.

    Raises:
        AgentLoadError: the file cannot be read as results, or contains none.
    """
    read_arguments(name, arguments)
    path = folder / Path(rest.strip()).expanduser()
    try:
        records = [record.without_end_state() for record in iterate_records(path)]
        if not records:
            raise no_episodes(path)
    except ConfigurationError as error:
        raise AgentLoadError(f"--intercode-agent=replay: {error}") from None
    # Infrastructure errors and episodes that were run again do not show what the agent would do.
    played = [record for record in records if record.graded and not record.superseded]
    feedback = any(map(had_feedback, played))
    return AgentFactory(name, _maker(path, RecordedRun(played)), "reward" if feedback else "")


def _maker(path: Path, run: RecordedRun) -> Callable[[Task], Agent]:
    def make(task: Task) -> Agent:
        record = run.record_of(task)
        if record is None:
            raise NoRecording(f"{path.name} holds no episode of task {task.id}")
        for number, turn in enumerate(record.turns, 1):
            if turn.arguments is not None:  # a shell cannot repeat a tool call
                raise NoRecording(
                    f"{path.name}: turn {number} of task {task.id} is a call of the agent's own "
                    f"tool {turn.tool}, which cannot be replayed"
                )
        return Agent(
            "loop",
            run=lambda _, environment: _play(record, environment),
            is_scripted=True,  # the results of replies and servers are in the record
            transports=TRANSPORTS,
        )

    return make


def _play(record: EpisodeRecord, environment: Any) -> None:
    for turn in record.turns:
        think(turn.thought)
        if turn.passed:
            result = environment.pass_turn(turn.action, turn.observation)
        elif turn.answer is not None:
            result = environment.submit(turn.answer)
        else:
            result = environment.step(turn.action)
        _observation, _reward, terminated, truncated, _info = result
        if terminated or truncated:
            return
