"""The cells of a run, which are pairs of an agent and a treatment. Pure: records in, records out.

A run of one agent without treatments has one cell. A run of several agents, or of one agent with
several sets of arguments or treatments, has several, and every try belongs to one of them. Rates,
tables and tests are then made for each cell.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.results.format import shown_arguments

__all__ = [
    *("ATTRIBUTE", "COMMAND_LINES"),
    *("CONTROL", "Cell", "by_cell", "cell_of", "group_by_cell", "has_one_cell", "make_cell"),
    *("pair_cells", "pair_tries", "program_of", "shorten"),
]

ATTRIBUTE = re.compile(r"(?:[\w.]+|.*\.py):(\w[\w.]*)")
"""A user's own agent: ``module:Attr``, ``path/to/file.py:Attr``."""

COMMAND_LINES = ("command", "mcp", "acp")
"""Agents whose name is followed by a command line."""

CONTROL = "control"
"""The treatment of a project test that lays nothing over the project."""

_INSTALLED = re.compile(r"installed:([\w-]+)")  # a recipe of ours, which needs no prefix
_STYLES = (*COMMAND_LINES, "replay", "installed")  # followed by something else than an attribute
_MAX_KEPT = 1024  # cells that are cached; runs have a few

# Words of a command line that start another program.
_STARTERS = re.compile(
    r"env|exec|sudo|nohup|uv|uvx|npx|run|-.*|\w+=.*|(?:python|node|perl|ruby)[\d.]*|\w*sh"
)


class Cell(NamedTuple):
    """An agent with its arguments, and a treatment.

    Its text is its name in items and columns: ``codex``, ``codex:model=a``, ``codex-control``.

    Attributes:
        agent: the agent's name.
        treatment: the name of the treatment; empty if there is no choice.
        arguments: the agent's arguments, as pairs in the order of their names.
    """

    agent: str
    treatment: str = ""
    arguments: tuple[tuple[str, str], ...] = ()

    @property
    def agent_label(self) -> str:
        """The agent with its arguments, as users write it: ``codex:model=a,effort=high``."""
        arguments = ",".join(f"{name}={value}" for name, value in self.arguments)
        return ":".join(filter(None, (self.agent or "unnamed", arguments)))

    def __str__(self) -> str:
        return "-".join(filter(None, (self.agent_label, self.treatment)))


def cell_of(record: EpisodeRecord) -> Cell:
    """Return the cell of an episode, with all arguments of its agent."""
    return make_cell(record.agent, record.agent_arguments, record.task.treatment)


def make_cell(agent: str, arguments: Mapping[str, str], treatment: str = "") -> Cell:
    """Return the cell of an agent and a treatment, with keys and passwords hidden.

    Args:
        agent: the agent as the user named it.
        arguments: the agent's arguments.
        treatment: the name of the treatment; empty if there is no choice.
    """
    return _make_cell(agent, treatment, tuple(arguments.items()))


@lru_cache(_MAX_KEPT)
def _make_cell(agent: str, treatment: str, arguments: tuple[tuple[str, str], ...]) -> Cell:
    recipe = _INSTALLED.fullmatch(agent)
    visible_arguments = sorted(shown_arguments(dict(arguments)).items())
    return Cell(recipe[1] if recipe else agent, treatment, tuple(visible_arguments))


def shorten(cells: Iterable[Cell]) -> dict[Cell, Cell]:
    """Return the cells of one run with shorter names that still distinguish them.

    ``module:Attr`` and ``path/to/file.py:Attr`` are shortened to the attribute, and a command line
    to its program, unless another agent of the run then has the same name. Only those arguments
    remain that are not the same in all cells with this agent.

    Args:
        cells: all cells of the run, as :func:`cell_of` returns them.
    """
    cells = list(cells)
    argument_sets: dict[str, dict[tuple[tuple[str, str], ...], None]] = defaultdict(dict)
    for cell in cells:
        argument_sets[cell.agent][cell.arguments] = None
    names = {agent: _shorten_name(agent) for agent in argument_sets}
    counts = Counter(names.values())
    short_cells = {}
    for cell in cells:
        name = names[cell.agent] if counts[names[cell.agent]] == 1 else cell.agent
        common = set.intersection(*map(set, argument_sets[cell.agent]))
        arguments = tuple(pair for pair in cell.arguments if pair not in common)
        short_cells[cell] = Cell(name, cell.treatment, arguments)
    return short_cells


def _shorten_name(agent: str) -> str:
    style, _, rest = agent.partition(":")
    if style in COMMAND_LINES:
        return f"{style}:{program_of(rest)}"
    if style in _STYLES:
        return f"{style}:{PurePosixPath(rest).name}" if rest else style
    attribute = ATTRIBUTE.fullmatch(agent)
    return attribute[1] if attribute else agent


def program_of(line: str) -> str:
    """Return the name of the program that a command line runs, without what starts it."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    names = [PurePosixPath(word).name for word in words if word]
    return next(
        (name for name in names if not _STARTERS.fullmatch(name)), names[0] if names else ""
    )


def has_one_cell(records: Sequence[EpisodeRecord]) -> bool:
    """Whether all episodes are of one cell, as in most runs; cheaper than making each cell."""
    if not records:
        return True
    agent, arguments = records[0].agent, records[0].agent_arguments
    treatment = records[0].task.treatment
    return all(
        record.agent == agent
        and record.task.treatment == treatment
        and record.agent_arguments == arguments
        for record in records
    )


def by_cell(tries: Iterable[EpisodeRecord]) -> dict[Cell, list[EpisodeRecord]]:
    """Return the tries of each cell of a run, by the cell's short name.

    They are in the order of :func:`group_by_cell`.
    """
    tries_by_cell = group_by_cell(tries)
    short_cells = shorten(tries_by_cell)
    return {short_cells[cell]: records for cell, records in tries_by_cell.items()}


def group_by_cell(tries: Iterable[EpisodeRecord]) -> dict[Cell, list[EpisodeRecord]]:
    """Return the tries of each cell, by the cell with all of its arguments.

    Agents are in the order of their items, if the records have it, otherwise in the order of the
    records. Treatments are too, but ``control`` is the first.
    """
    tries = list(tries)
    if has_one_cell(tries):
        return {cell_of(tries[0]): tries} if tries else {}
    tries_by_cell: dict[Cell, list[EpisodeRecord]] = {}
    for record in tries:
        tries_by_cell.setdefault(cell_of(record), []).append(record)
    return {cell: tries_by_cell[cell] for cell in _in_order(tries_by_cell)}


def _in_order(tries_by_cell: Mapping[Cell, list[EpisodeRecord]]) -> list[Cell]:
    agents: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    treatments: dict[str, float] = {}
    for cell, records in tries_by_cell.items():
        place = min(math.inf if record.item is None else record.item for record in records)
        agent = cell.agent, cell.arguments
        agents[agent] = min(agents.get(agent, math.inf), place)
        treatments[cell.treatment] = min(treatments.get(cell.treatment, math.inf), place)
    agent_order = sorted(agents, key=agents.__getitem__)  # stable: otherwise in the records' order
    treatment_order = sorted(treatments, key=lambda name: (name != CONTROL, treatments[name]))
    return sorted(
        tries_by_cell,
        key=lambda cell: (
            agent_order.index((cell.agent, cell.arguments)),
            treatment_order.index(cell.treatment),
        ),
    )


def pair_cells(before: Collection[Cell], after: Collection[Cell]) -> dict[Cell, Cell]:
    """Return, for cells of a newer run, the cells of an older run to compare them with.

    If each run has one cell, these two are a pair, whatever their agents are: this is how two
    agents are compared. Otherwise, equal cells are pairs. Of the remaining cells, those with the
    same agent and treatment are a pair if each run has one such cell, so that a newer model is
    compared with the one that it replaces.

    Args:
        before: the cells of the older run, as :func:`cell_of` returns them.
        after: the cells of the newer run, likewise.
    """
    if len(before) == len(after) == 1:
        return dict(zip(after, before, strict=True))
    pairs = {cell: cell for cell in after if cell in before}
    old_cells = _by_name(cell for cell in before if cell not in pairs)
    new_cells = _by_name(cell for cell in after if cell not in pairs)
    for name, cells in new_cells.items():
        candidates = old_cells.get(name, [])
        if len(cells) == len(candidates) == 1:
            pairs[cells[0]] = candidates[0]
    return {cell: pairs[cell] for cell in after if cell in pairs}


def pair_tries(
    before: Iterable[EpisodeRecord], after: Iterable[EpisodeRecord]
) -> dict[Cell, tuple[list[EpisodeRecord], list[EpisodeRecord]]]:
    """Return the tries of two runs for each cell of either, by the cell's short name.

    Cells are paired as by :func:`pair_cells`, and named as in the newer run. If only one run has a
    cell, the other's tries are an empty list. Cells that only the older run has come last.

    Args:
        before: the tries of the older run.
        after: the tries of the newer run.
    """
    old_tries, new_tries = group_by_cell(before), group_by_cell(after)
    pairs = pair_cells(old_tries, new_tries)
    paired = set(pairs.values())
    sides = {
        cell: (old_tries[pairs[cell]] if cell in pairs else [], tries)
        for cell, tries in new_tries.items()
    }
    # A cell of the older run may be equal to a cell of the newer run that is paired with another.
    for cell, tries in old_tries.items():
        if cell not in paired:
            sides[cell] = (tries, [])
    short_cells = shorten(sides)
    return {short_cells[cell]: tries for cell, tries in sides.items()}


def _by_name(cells: Iterable[Cell]) -> dict[tuple[str, str], list[Cell]]:
    cells_by_name: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        cells_by_name[cell.agent, cell.treatment].append(cell)
    return cells_by_name
