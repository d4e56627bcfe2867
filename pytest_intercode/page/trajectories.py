"""The data for the page's script: the index of tasks, and the trajectories, packed in blocks.

Both are JSON, packed with gzip and encoded as base64; the page unpacks a block when the reader
opens one of its episodes. Packed data can neither end its script element nor be run, as it consists
of letters, digits and three signs.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from pytest_intercode.core.conversation import Exchange, group_by_turn
from pytest_intercode.core.record import OUTCOMES, EpisodeRecord
from pytest_intercode.core.text import one_line
from pytest_intercode.core.turn import Turn
from pytest_intercode.core.usage import Usage
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.environments.sections import Section, show_lines, show_state
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.page.run import CHANGES, Change, Run, pair_runs
from pytest_intercode.results.cells import Cell, cell_of, group_by_cell, shorten
from pytest_intercode.results.recorded import is_ours

__all__ = ["Blocks", "Place", "end_state_sections", "episode", "index_of", "packed"]

_BLOCK_SIZE = 192 * 1024  # characters of JSON from which a block is full
_MAX_QUERY = 1000  # characters in the index; the trajectory has the whole query
_MAX_REASON = 200  # characters


# -- the index


class _Names:
    """Numbers names in the order in which they first occur."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.numbers = {name: number for number, name in enumerate(names)}

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))


def index_of(runs: Sequence[Run], changes: Sequence[Change], blocks: Blocks) -> dict[str, Any]:
    """Return the index, and put every trajectory into ``blocks``.

    Each task is ``[id, env, suite, hardness, [tag...], query, [try...] of each run...]`` and, for
    two runs, its change, as a number and in words. Each try is ``[number, outcome, reward, turns,
    seconds, reason, block, index, passed]``, where ``passed`` is the verdict of a user's own test,
    and None otherwise. Envs, suites, hardness, tags, outcomes, reasons and changes are indices into
    the lists of their names.

    With several cells, ``cells`` are ``[agent, treatment, label]``. For one run, an index into them
    follows the values of each try. For two runs, each cell has its own tasks, and the index is the
    last of a task's values.

    Args:
        runs: the runs.
        changes: how each task changed, for two runs.
        blocks: takes the trajectories.
    """
    outcomes, reasons, envs, suites, hardness, tags = (
        _Names(OUTCOMES),
        _Names([""]),
        _Names(),
        _Names(),
        _Names(),
        _Names(),
    )
    changed = {(change.cell, change.key): change for change in changes}
    cells: list[Cell] = []
    cell_numbers: dict[Cell, int] = {}  # of the tries of one run
    parts: list[tuple[Cell | None, Sequence[Run]]] = [(None, runs)]
    if len(runs) == 2:
        parts = [(cell, pair) for cell, pair in pair_runs(runs[0], runs[1])]
        cells = [cell for cell, _ in parts if cell is not None]
    elif len(tries_by_cell := group_by_cell(runs[0].tries)) > 1:
        short_cells = shorten(tries_by_cell)
        cells = [short_cells[cell] for cell in tries_by_cell]
        cell_numbers = {cell: number for number, cell in enumerate(tries_by_cell)}
    tasks = []
    for cell, cell_runs in parts:
        tasks_by_run = [run.tasks() for run in cell_runs]
        for key in dict.fromkeys(key for tries in tasks_by_run for key in tries):
            task = next(tries[key][0].task for tries in tasks_by_run if key in tries)
            change = changed.get((cell, key))
            tasks.append(
                [
                    key.task,
                    envs.number(key.env),
                    suites.number(key.suite),
                    hardness.number(task.hardness or "-"),
                    [tags.number(tag) for tag in task.tags],
                    task.query[:_MAX_QUERY],
                    *(
                        [
                            _try(record, outcomes, reasons, blocks, cell_numbers)
                            for record in tries.get(key, ())
                        ]
                        for tries in tasks_by_run
                    ),
                    *([CHANGES.index(change.kind), change.words] if change else []),
                    *([cells.index(cell)] if cell else []),
                ]
            )
    blocks.close()
    index = {
        "runs": [run.name for run in runs],
        "outcomes": [*outcomes.numbers],
        "reasons": [*reasons.numbers],
        "envs": [*envs.numbers],
        "suites": [*suites.numbers],
        "hardness": [*hardness.numbers],
        "tags": [*tags.numbers],
        "changes": [*CHANGES],
        "tasks": tasks,
    }
    if cells:
        index["cells"] = [[cell.agent_label, cell.treatment or "-", str(cell)] for cell in cells]
    return index


def _try(
    record: EpisodeRecord,
    outcomes: _Names,
    reasons: _Names,
    blocks: Blocks,
    cell_numbers: Mapping[Cell, int],
) -> list[Any]:
    return [
        record.task.repeat,
        outcomes.number(record.outcome),
        round(record.reward, 4),
        len(record.turns),
        record.seconds if is_ours(record) else None,
        reasons.number(record.reason[:_MAX_REASON]),
        *blocks.add(episode(record)),
        record.test_passed,
        *([cell_numbers[cell_of(record)]] if cell_numbers else []),
    ]


# -- a trajectory

_MAX_CALLS = 200  # of an episode that the page shows
_MAX_CALL = 500  # characters of a call


def episode(record: EpisodeRecord) -> dict[str, Any]:
    """Return what the page shows of an episode, without empty values."""
    last = len(record.turns) - 1
    dialogue = group_by_turn(record.dialogue, len(record.turns))
    return _filled(
        {
            "query": record.task.query,
            "outcome": record.outcome,
            "reward": record.reward,
            "parts": record.parts,
            "reason": record.reason,
            "detail": record.detail,
            "test_output": record.test_output,
            "log": record.log,
            "seconds": record.seconds if is_ours(record) else None,
            "usage": _usage(record.usage),
            "user_usage": _usage(record.user_usage),
            "said": _exchanges(dialogue.get(0, ())),
            "left": list(record.left_behind),
            "refused": list(record.refused_hosts),
            "calls": _calls(record),
            "attempts": list(record.attempts),
            "node": record.node_id,
            "test_passed": record.test_passed,
            "host": record.host,
            "phases": _phases(record),
            "image": record.image,
            "max_turns": record.max_turns or None,
            "turns": [
                _turn(turn, dialogue.get(number + 1, ()), not is_ours(record) or number == last)
                for number, turn in enumerate(record.turns)
            ],
            "state": [*end_state_sections(record), *_judge_sections(record)],
        }
    )


def _calls(record: EpisodeRecord) -> list[str]:
    """Return the calls of programs that a test faked or watched, each as a line of shell."""
    lines = []
    for call in record.calls[:_MAX_CALLS]:
        status = "?" if call.status is None else str(call.status)
        refused = ", refused" if call.refused else ""
        line = one_line(str(call))[:_MAX_CALL]
        lines.append(f"{line}  ({status}{refused}, {call.seconds:.1f} s)")
    missing = len(record.calls) - len(lines) + record.calls_left_out
    return [*lines, f"and {missing:,} more"] if missing else lines


def _phases(record: EpisodeRecord) -> list[list[Any]]:
    """Return the phases' names and seconds, in the order in which they began."""
    times = sorted(record.phases.items(), key=lambda phase: phase[1][0])
    return [[name, seconds] for name, (_, seconds) in times if math.isfinite(seconds)]


def _exchanges(exchanges: Sequence[Exchange]) -> list[list[Any]]:
    """Return what the agent and the user said, and whether that ended the conversation."""
    return [[exchange.message, exchange.reply, exchange.is_last] for exchange in exchanges]


def _turn(turn: Turn, exchanges: Sequence[Exchange], graded: bool) -> dict[str, Any]:
    """Return what the page shows of a turn, without a reward if its state was not graded.

    Args:
        turn: the turn.
        exchanges: what agent and user said after it.
        graded: whether its state was graded.
    """
    timed = turn.seconds or turn.agent_seconds
    return _filled(
        {
            "action": turn.action,
            "observation": turn.observation,
            "thought": turn.thought,
            "executed": turn.executed,
            "reward": turn.reward if graded or turn.reward or turn.parts else None,
            "seconds": turn.seconds if timed else None,
            "thinking": turn.agent_seconds if timed else None,
            "passed": turn.passed or None,
            "answer": turn.answer,
            "log": turn.log,
            "said": _exchanges(exchanges),
            "parts": turn.parts,
            "usage": _usage(turn.usage),
        }
    )


def _usage(usage: Usage) -> dict[str, Any]:
    """Return the usage, without the parts that were not counted."""
    return {name: value for name, value in asdict(usage).items() if value}


def _filled(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


# -- an end state


def end_state_sections(record: EpisodeRecord) -> list[Section]:
    """Return an episode's end state next to gold's, as sections of lines; none without a record.

    The environment's kind makes the sections; a state of another form, such as that of another
    version, is shown as it is.
    """
    state = record.state
    if not state:
        return []
    try:
        sections = kind_of(record.task.env).end_state_sections(state, record)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ConfigurationError):
        sections = show_state(state)
    golds = state.get("golds")
    alternative = golds.index(None) if isinstance(golds, list) and None in golds else 0
    if sections and alternative:
        sentence = f"Compared with alternative {alternative} of gold, which is the best match."
        sections[0]["note"] = f"{sentence} {sections[0].get('note', '')}".strip()
    turn = state.get("turn")
    if sections and isinstance(turn, int):
        sections[0].setdefault("note", f"The best try's, after turn {turn}.")
    return sections


def _judge_sections(record: EpisodeRecord) -> list[Section]:
    return [show_lines("Judge", votes.describe()) for votes in record.judge_records]


# -- blocks


class Place(NamedTuple):
    """Where an episode is: the number of its block, and its position there."""

    block: int
    position: int


class Blocks:
    """Collects episodes into blocks; ``texts`` has the full ones, and after :meth:`close` all."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._open: list[str] = []
        self._size = 0

    def add(self, episode: dict[str, Any]) -> Place:
        """Add an episode and return where it will be."""
        place = Place(len(self.texts), len(self._open))
        text = _json(episode)
        self._open.append(text)
        self._size += len(text)
        if self._size >= _BLOCK_SIZE:
            self.close()
        return place

    def close(self) -> None:
        """Pack the episodes that are not packed yet."""
        if self._open:
            self.texts.append(_pack(f"[{','.join(self._open)}]"))
        self._open, self._size = [], 0


def packed(value: Any) -> str:
    """Return a value in the packed form that the page reads."""
    return _pack(_json(value))


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    except ValueError:  # Python reads and writes NaN, which is not JSON
        return _json(_finite(value))


def _finite(value: Any) -> Any:
    """Return a value without the numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(member) for member in value]
    return value


def _pack(text: str) -> str:
    # Without a time, so that the same run gives the same page.
    return base64.b64encode(gzip.compress(text.encode("ascii"), 6, mtime=0)).decode("ascii")
