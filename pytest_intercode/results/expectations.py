"""Estimates what episodes will use up, from what they used up before. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.usage import UNSPENT, Usage
from pytest_intercode.results.tries import TaskKey, key_of

__all__ = ["EarlierUsage", "Expectation", "Part"]

Part: TypeAlias = Literal["judge", "user"]
"""The part of a model other than the agent's."""


class Expectation(NamedTuple):
    """What one episode is expected to use up.

    Attributes:
        input_tokens: input tokens, including cached ones.
        output_tokens: output tokens.
        cached_tokens: input tokens that are read from a cache.
        cost: in the currency of the earlier run; None if it had no prices.
        same_task: whether it comes from the task itself, and not from the agent's other tasks.
    """

    input_tokens: float
    output_tokens: float
    cached_tokens: float
    cost: float | None
    same_task: bool

    @property
    def tokens(self) -> float:
        """The input and output tokens together."""
        return self.input_tokens + self.output_tokens


class EarlierUsage:
    """What the items of earlier results used up; several episodes of one item are summed.

    Args:
        records: the records that count; those without usage are ignored.
    """

    def __init__(self, records: Iterable[EpisodeRecord]) -> None:
        by_item: dict[object, list[EpisodeRecord]] = {}
        for index, record in enumerate(records):
            by_item.setdefault(record.node_id or index, []).append(record)
        self._by_agent: dict[tuple[str, str], dict[TaskKey, list[Usage]]] = defaultdict(dict)
        self._by_part: dict[tuple[Part, str], dict[TaskKey, list[Usage]]] = defaultdict(dict)
        for episodes in by_item.values():
            usage = sum((record.usage for record in episodes), UNSPENT)
            if usage.tokens or usage.cost:
                name = _name_agent(episodes[0].agent, episodes[0].agent_arguments)
                self._by_agent[name].setdefault(key_of(episodes[0]), []).append(usage)
            for part, usage in _usage_by_part(episodes).items():
                self._by_part[part].setdefault(key_of(episodes[0]), []).append(usage)

    def expect(self, agent: str, arguments: Mapping[str, str], key: TaskKey) -> Expectation | None:
        """Return what an agent will use up on a task; None if nothing is known about the agent.

        It is the mean for this agent, with this model, on the same task. For a task that it has not
        played, it is the mean over all tasks that it has played, each of which counts once.
        """
        return _expect(self._by_agent.get(_name_agent(agent, arguments), {}), key)

    def expect_part(self, part: Part, model: str, key: TaskKey) -> Expectation | None:
        """Return likewise what a model will use up as a judge or as a user.

        Records do not name the model that played the user, so for users any model counts.
        """
        return _expect(self._by_part.get((part, model if part == "judge" else ""), {}), key)


def _usage_by_part(episodes: Sequence[EpisodeRecord]) -> dict[tuple[Part, str], Usage]:
    """Return what models used up as judges or users in the episodes of one item."""
    sums: dict[tuple[Part, str], Usage] = defaultdict(lambda: UNSPENT)
    for record in episodes:
        for votes in record.judge_records:
            sums["judge", votes.model] += votes.usage
        sums["user", ""] += record.user_usage
    return {part: usage for part, usage in sums.items() if usage.tokens or usage.cost}


def _expect(tasks: Mapping[TaskKey, Sequence[Usage]], key: TaskKey) -> Expectation | None:
    if key in tasks:
        return _mean([tasks[key]], same_task=True)
    return _mean(list(tasks.values()), same_task=False) if tasks else None


def _name_agent(agent: str, arguments: Mapping[str, str]) -> tuple[str, str]:
    return agent, arguments.get("model", "")


def _mean(tasks: Sequence[Sequence[Usage]], *, same_task: bool) -> Expectation:
    sums = [(sum(usages, UNSPENT), len(usages)) for usages in tasks]
    costs = [total.cost / count for total, count in sums if total.cost is not None]
    return Expectation(
        input_tokens=sum(total.input_tokens / count for total, count in sums) / len(sums),
        output_tokens=sum(total.output_tokens / count for total, count in sums) / len(sums),
        cached_tokens=sum(total.cached_tokens / count for total, count in sums) / len(sums),
        cost=sum(costs) / len(costs) if costs else None,
        same_task=same_task,
    )
