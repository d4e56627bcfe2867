"""The index of the page: what its table of tasks shows, and where each trajectory lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_intercode.page.blocks import Blocks
from pytest_intercode.page.comparison import CHANGES, changes
from pytest_intercode.page.episodes import episode
from pytest_intercode.page.figures import turns_of
from pytest_intercode.page.run import OUTCOMES, Run
from pytest_intercode.results.tries import Try

__all__ = ["index_of"]

_LONGEST_QUERY = 1000


class _Names:
    """Numbers names in the order in which they come."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.numbers = {name: at for at, name in enumerate(names)}

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))


def index_of(runs: Sequence[Run], blocks: Blocks) -> dict[str, Any]:
    """Return the index, having put every trajectory into ``blocks``.

    Each task is ``[id, env, suite, hardness, [tag...], query, [try...] of each run...]`` and, where
    there are two runs, its change; each try is ``[number, outcome, reward, turns, seconds, block,
    index]``. Envs, suites, hardness, tags, outcomes and changes are numbers into the lists of
    their names.
    """
    outcomes, envs, suites, hardness, tags = (
        _Names(OUTCOMES),
        _Names(),
        _Names(),
        _Names(),
        _Names(),
    )
    found = [run.tasks() for run in runs]
    kinds = {each.key: each.kind for each in changes(*runs)} if len(runs) == 2 else {}
    tasks = []
    for key in dict.fromkeys(key for tries in found for key in tries):
        row = next(tries[key][0].row for tries in found if key in tries)
        tasks.append(
            [
                key.task,
                envs.number(key.env),
                suites.number(key.suite),
                hardness.number(str(row.get("hardness") or "-")),
                [tags.number(tag) for tag in _tags(row)],
                str(row.get("query") or "")[:_LONGEST_QUERY],
                *([_try(each, outcomes, blocks) for each in tries.get(key, ())] for tries in found),
                *([CHANGES.index(kinds[key])] if kinds else []),
            ]
        )
    blocks.close()
    return {
        "runs": [run.name for run in runs],
        "outcomes": [*outcomes.numbers],
        "envs": [*envs.numbers],
        "suites": [*suites.numbers],
        "hardness": [*hardness.numbers],
        "tags": [*tags.numbers],
        "changes": [*CHANGES],
        "tasks": tasks,
    }


def _tags(row: Mapping[str, Any]) -> list[str]:
    tags = row.get("tags")
    return [str(tag) for tag in tags] if isinstance(tags, list) else []


def _try(each: Try, outcomes: _Names, blocks: Blocks) -> list[Any]:
    return [
        each.repeat,
        outcomes.number(each.outcome),
        round(each.reward, 4),
        turns_of(each),
        each.row.get("seconds"),
        *blocks.add(episode(each)),
    ]
