"""``--intercode-plan``: what would run, and how much it would use up. Runs nothing.

Tokens and cost come from an earlier results file. If it has nothing about an agent, the limits of
an episode are shown as the most that it may use; without limits, the amount is shown as unknown.
Models that judge or play users are included where suites and marks name them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_intercode.agents.choice import AgentChoice
from pytest_intercode.agents.users import has_model
from pytest_intercode.core.text import format_columns, one_line, pluralize
from pytest_intercode.core.usage import Usage
from pytest_intercode.environments.registry import PROJECT
from pytest_intercode.errors import ConfigurationError, TruncatedResultsWarning
from pytest_intercode.gateway.exchange import Price, price_of
from pytest_intercode.gateway.prices import PRICES_DATE, SHIPPED_PRICES
from pytest_intercode.plugin.pass_rates import has_pass_rate
from pytest_intercode.plugin.project_cells import cell_of, mark_arguments, name_test
from pytest_intercode.plugin.project_recordings import is_recorded
from pytest_intercode.plugin.run import Run, agent_of, task_of
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.results.comparison import read_run
from pytest_intercode.results.expectations import EarlierUsage, Expectation, Part
from pytest_intercode.results.tries import TaskKey, task_key

__all__ = ["Plan"]


class _Row(NamedTuple):
    """What distinguishes the rows of the table."""

    agent: str
    model: str
    treatment: str


class _PartRow(NamedTuple):
    """What distinguishes the rows of the other models' table."""

    part: Part
    model: str


@dataclass
class _Sum:
    """The totals of a row's items.

    Attributes:
        tests: the tasks, or tests, by their keys.
        tries: how many items there are.
        recorded: how many of them are answered from a recording, and cost nothing.
        tokens: the expected tokens, as far as they are known.
        cost: the expected cost, likewise.
        limited: how many tries have only known limits.
        unknown_tokens: how many tries have an unknown number of tokens.
        unknown_cost: how many tries have an unknown cost.
    """

    tests: set[TaskKey] = field(default_factory=set)
    tries: int = 0
    recorded: int = 0
    tokens: float = 0.0
    cost: float = 0.0
    limited: int = 0
    unknown_tokens: int = 0
    unknown_cost: int = 0

    def add(self, other: _Sum) -> None:
        """Add another row to this one."""
        self.tests |= other.tests
        for name in set(vars(self)) - {"tests"}:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Plan:
    """Prints the plan in place of the run; a pytest plugin.

    Args:
        run: the run that is planned.

    Raises:
        ConfigurationError: the earlier results cannot be read.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._settings: Settings = run.settings
        self._source = _find_source(run.settings)
        tries = read_run(self._source, self._warn).tries if self._source else []
        self._earlier = EarlierUsage(tries)
        self._items: list[pytest.Item] = []
        self._uses_shipped_prices = False
        self._estimated = 0  # tries that are estimated from the earlier results
        self._guessed = 0  # of them, those whose agent the earlier results have, but not the task

    def _warn(self, line: str) -> None:
        self._run.config.issue_config_time_warning(TruncatedResultsWarning(line), stacklevel=2)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run nothing; if something could not be collected, let pytest report it."""
        if session.testsfailed:
            return None if not session.config.option.continue_on_collection_errors else True
        self._items = session.items
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the plan."""
        terminalreporter.section("intercode plan")
        for line in self._lines():
            terminalreporter.write_line(one_line(line))

    def _lines(self) -> Iterator[str]:
        items = [item for item in self._items if _key_of(item) is not None]
        skipped = [item for item in items if item.get_closest_marker("skip") is not None]
        rows: dict[_Row, _Sum] = defaultdict(_Sum)
        for item in items:
            if item not in skipped:
                row, share = self._plan(item)
                rows[row].add(share)
        if rows:
            recorded = any(share.recorded for share in rows.values())
            yield from _table(_Row._fields, list(rows.items()), recorded=recorded)
            parts = self._parts([item for item in items if item not in skipped])
            if parts:
                yield from _table(_PartRow._fields, list(parts.items()))
            yield from self._notes(rows, parts)
        if skipped:
            yield f"{pluralize(len(skipped), 'item')} would be skipped"
        test_count = len(self._items) - len(items)
        if test_count:
            yield f"{pluralize(test_count, 'other test')} without an agent would run as always"
        yield "nothing was run"

    def _plan(self, item: pytest.Item) -> tuple[_Row, _Sum]:
        key = _key_of(item)
        assert key is not None
        settings = self._settings
        choice = agent_of(item)
        agent = choice.name if choice is not None else ""
        arguments = choice.arguments if choice is not None else {}
        model = arguments.get("model", "")
        row = _Row(agent or "(none)", model or "-", _treatment_of(item) or "-")
        share = _Sum({key}, tries=1)
        if is_recorded(item):
            share.recorded = 1
            return row, share
        expected = self._earlier.expect(agent, arguments, key)
        if expected is not None:
            self._estimated += 1
            self._guessed += not expected.same_task
            share.tokens = expected.tokens
            cost = self._cost(expected, model, _own_price(arguments))
        else:
            budget = settings.budget
            share.limited = int(bool(budget.tokens or budget.cost))
            share.unknown_tokens = int(budget.tokens is None)
            share.tokens = float(budget.tokens or 0)
            cost = budget.cost
        share.unknown_cost = int(cost is None)
        share.cost = cost or 0.0
        return row, share

    def _parts(self, items: Iterable[pytest.Item]) -> dict[_PartRow, _Sum]:
        """Return the estimates for the models that judge or play users."""
        rows: dict[_PartRow, _Sum] = defaultdict(_Sum)
        for item in items:
            key = _key_of(item)
            assert key is not None
            for row in () if is_recorded(item) else self._parts_of(item):
                share = _Sum({key}, tries=1)
                expected = self._earlier.expect_part(row.part, row.model, key)
                cost = None
                if expected is not None:
                    share.tokens = expected.tokens
                    cost = self._cost(expected, row.model)
                share.unknown_tokens = int(expected is None)
                share.unknown_cost = int(cost is None)
                share.cost = cost or 0.0
                rows[row].add(share)
        return rows

    def _parts_of(self, item: pytest.Item) -> Iterator[_PartRow]:
        """Yield the models that an item uses besides its agent's, as far as they are named."""
        task, agent = task_of(item), agent_of(item)
        user_model = self._settings.user_model
        if task is not None:
            if task.judge is not None:
                yield _PartRow("judge", task.judge.model)
            conversation = task.conversation
            if conversation is not None and has_model(task) and _can_talk(agent):
                yield _PartRow("user", user_model or conversation.model or "(none)")
            return
        arguments = mark_arguments(item)
        if model := arguments.get("judge_model"):
            yield _PartRow("judge", str(model))
        if "user" in arguments and "answers" not in arguments:
            agent_model = agent.arguments.get("model", "") if agent is not None else ""
            model = arguments.get("user_model") or user_model or agent_model or "(none)"
            yield _PartRow("user", str(model))

    def _cost(
        self, expected: Expectation, model: str, own_price: Price | None = None
    ) -> float | None:
        """Return an episode's cost: the earlier one, else by the user's prices, else by ours."""
        if expected.cost is not None:
            return expected.cost
        price = own_price or price_of(self._settings.gateway.prices, model)
        if price is None:
            price = price_of(SHIPPED_PRICES, model)
            self._uses_shipped_prices |= price is not None
        if price is None:
            return None
        usage = Usage(
            input_tokens=round(expected.input_tokens),
            output_tokens=round(expected.output_tokens),
            cached_tokens=round(expected.cached_tokens),
        )
        return price.cost(usage)

    def _notes(self, rows: Mapping[_Row, _Sum], parts: Mapping[_PartRow, _Sum]) -> Iterator[str]:
        """Yield lines about where the numbers come from."""
        total = _total(rows.values())
        unknown_parts = [row for row, share in parts.items() if share.unknown_tokens]
        if self._estimated:
            line = f"tokens and cost: means of {self._source}"
            if self._guessed:
                tries = pluralize(self._guessed, "try", "tries")
                line += (
                    f"; for {tries} at tasks that are not in it, the mean of their agent's other "
                    "tries"
                )
            yield line
        if self._uses_shipped_prices:
            yield f"cost: at the shipped list prices of {PRICES_DATE}, in US dollars"
        if total.limited:
            tries = pluralize(total.limited, "try", "tries")
            yield f"for {tries}, only the limits of an episode are known, so these are upper bounds"
        if total.unknown_tokens or total.unknown_cost:
            tries = pluralize(max(total.unknown_tokens, total.unknown_cost), "try", "tries")
            yield (
                f"unknown for {tries}: give --intercode-plan-from=FILE.jsonl, an earlier run of "
                "the agent, or limit an episode with --intercode-max-tokens or --intercode-max-cost"
            )
        if unknown_parts:
            names = ", ".join(f"the {row.part} {row.model}" for row in unknown_parts)
            yield f"nothing is known about {names}: no earlier results have it on these tasks"
        if self._settings.stop_early and any(map(has_pass_rate, self._items)):
            yield (
                "tries with a pass rate: these are upper bounds, as those that change nothing are "
                "skipped"
            )


def _key_of(item: pytest.Item) -> TaskKey | None:
    """Return the key that the records of an item will have; None for an item that has no agent."""
    task = task_of(item)
    if task is not None:
        return task_key(task.env, task.suite_name, task.id, item.nodeid)
    cell = cell_of(item)
    return task_key(PROJECT, *name_test(item, cell), item.nodeid) if cell is not None else None


def _treatment_of(item: pytest.Item) -> str:
    cell = cell_of(item)
    return cell.treatment.name if cell is not None and cell.treatment is not None else ""


def _can_talk(agent: AgentChoice | None) -> bool:
    """Whether an agent talks to a user; gold and recorded actions do not."""
    return agent is None or agent.name.partition(":")[0] not in ("oracle", "replay")


def _table(
    labels: Sequence[str], rows: Sequence[tuple[Sequence[str], _Sum]], *, recorded: bool = False
) -> list[str]:
    heading = (*labels, "tests", "tries", "recorded", "tokens", "cost")
    lines: list[Sequence[str]] = [heading]
    lines += [(*row, *_cells(share)) for row, share in rows]
    if len(rows) > 1:
        total = _total(share for _, share in rows)
        lines.append(("all", *[""] * (len(labels) - 1), *_cells(total)))
    column = heading.index("recorded")
    if not recorded:
        lines = [(*line[:column], *line[column + 1 :]) for line in lines]
    return format_columns(lines, labels=len(labels))


def _cells(share: _Sum) -> tuple[str, ...]:
    live_tries = share.tries - share.recorded
    return (
        str(len(share.tests)),
        str(share.tries),
        str(share.recorded),
        _amount(f"{share.tokens:,.0f}", share.unknown_tokens, live_tries, share.limited),
        _amount(f"{share.cost:,.2f}", share.unknown_cost, live_tries, share.limited),
    )


def _amount(number: str, unknown: int, tries: int, limited: int) -> str:
    """Return an amount, marked if it is a limit or incomplete."""
    if unknown and unknown == tries:
        return "unknown"
    return f"{'<= ' if limited else ''}{number}{' + unknown' if unknown else ''}"


def _total(shares: Iterable[_Sum]) -> _Sum:
    total = _Sum()
    for share in shares:
        total.add(share)
    return total


def _own_price(arguments: Mapping[str, str]) -> Price | None:
    """Return the price that the user sets by the arguments of one of our agents."""
    try:
        cached = arguments.get("cached_price")
        return Price(
            float(arguments["input_price"]),
            float(arguments["output_price"]),
            None if cached is None else float(cached),
        )
    except (KeyError, ValueError):  # the agent reports what is wrong
        return None


def _find_source(settings: Settings) -> Path | None:
    """Return the earlier results that the plan is based on; None if there are none.

    Raises:
        ConfigurationError: the named file does not exist.
    """
    if settings.plan_from is not None:
        if not settings.plan_from.is_file():
            raise ConfigurationError(
                f"--intercode-plan-from={settings.plan_from}: there is no such file"
            )
        return settings.plan_from
    candidates = (settings.baseline, settings.results)
    return next((path for path in candidates if path is not None and path.is_file()), None)
