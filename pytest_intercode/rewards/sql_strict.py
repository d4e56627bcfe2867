"""The strict reward for queries: whether the rows are gold's.

Rows are compared as multisets of typed rows; the names of columns never count. The order counts
if gold orders its rows or the task requires it, and only between rows that gold's ORDER BY
distinguishes: gold is a sequence of *runs*, each of rows that are tied. If gold's LIMIT cuts a
run, any of the run's rows are right.

The value is 1.0 only when the answer is right. Otherwise it is below 1: the share of rows that both
have (intersection over union, as multisets); if the order counts, half of that is in proportion to
the share of pairs that are in order. An agent without a result gets 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import RewardOptions
from pytest_intercode.rewards.recording import MAX_PARTIAL_REWARD, MAX_RECORDED_SIZE
from pytest_intercode.rewards.sql_rows import Row, column_orders, inversions

__all__ = [
    "Rows",
    "Run",
    "accepts",
    "rows_state",
    "sql_rows_reward",
    "sql_rows_reward_again",
]


@dataclass(frozen=True)
class Run:
    """Rows of gold that its order does not distinguish.

    Attributes:
        rows: the rows in gold's result.
        tied: rows that are tied with them, and that only gold's LIMIT left out.
    """

    rows: tuple[Row, ...]
    tied: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Rows:
    """The result of a query in the form in which it is compared.

    Attributes:
        width: how many columns it has.
        runs: its rows, in order; an agent's are all in one run.
        ordered: whether the order of the runs counts.
        truncated: whether there were more rows than are compared.
        problem: why there is no result; empty if there is one.
    """

    width: int = 0
    runs: tuple[Run, ...] = ()
    ordered: bool = False
    truncated: bool = False
    problem: str = ""

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, in order."""
        return tuple(row for run in self.runs for row in run.rows)


def sql_rows_reward(answer: Rows, gold: Rows, options: RewardOptions) -> Reward:
    """Return the strict reward of an answer, with its parts ``rows`` and ``order``."""
    if answer.problem:
        return Reward(0.0, {"rows": 0.0}, answer.problem)
    if answer.width != gold.width:
        plural = "column" if answer.width == 1 else "columns"
        reason = f"the answer has {answer.width} {plural}, which is not gold's number"
        return Reward(0.0, {"rows": 0.0}, reason)
    if answer.truncated != gold.truncated:
        less = "more" if answer.truncated else "fewer"
        return Reward(0.0, {"rows": 0.0}, f"the answer has {less} rows than can be right")
    partial_rewards = []
    for rows in _arrangements(answer.rows, gold, options):
        if accepts(rows, gold):
            return Reward(1.0, {"rows": 1.0, **({"order": 1.0} if gold.ordered else {})})
        partial_rewards.append(_partial(rows, gold))
    return max(partial_rewards, key=lambda reward: reward.value)


def _arrangements(
    rows: tuple[Row, ...], gold: Rows, options: RewardOptions
) -> Iterator[tuple[Row, ...]]:
    """Yield rows as they are, then with their columns in the other orders that the task allows."""
    yield rows
    if options.columns == "any-order":
        universe = [row for run in gold.runs for row in (*run.rows, *run.tied)]
        for order in column_orders(rows, universe, gold.width):
            yield tuple(tuple([row[index] for index in order]) for row in rows)


# -- right or not


def accepts(rows: Sequence[Row], gold: Rows) -> bool:
    """Whether rows are gold's, with columns in order, except for ties that gold's order allows."""
    if len(rows) != sum(len(run.rows) for run in gold.runs):
        return False
    if not gold.ordered:
        return not Counter(rows) - _expected_rows(rows, gold)
    start = 0
    for run in gold.runs:
        run_rows = rows[start : start + len(run.rows)]
        start += len(run.rows)
        if len(run.rows) == 1 and not run.tied:
            if run_rows[0] != run.rows[0]:
                return False
        elif Counter(run_rows) - Counter((*run.rows, *run.tied)):
            return False
    return True


def _expected_rows(rows: Sequence[Row], gold: Rows) -> Counter[Row]:
    """Return gold's rows; among the ties that its LIMIT cuts, prefer those that an answer has."""
    expected: Counter[Row] = Counter()
    for run in gold.runs:
        if not run.tied:
            expected.update(run.rows)
    remaining = Counter(rows) - expected
    tied_runs = [run for run in gold.runs if run.tied]
    for index, run in enumerate(tied_runs):
        possible_rows = remaining & Counter((*run.rows, *run.tied))
        later_rows = Counter(
            row
            for later_run in tied_runs[index + 1 :]
            for row in (*later_run.rows, *later_run.tied)
        )
        sole_rows = possible_rows & (remaining - later_rows)  # no later run can have them
        accepted = [*sole_rows.elements(), *(possible_rows - sole_rows).elements()]
        accepted = accepted[: len(run.rows)]
        rest = list((Counter(run.rows) - Counter(accepted)).elements())
        accepted += rest[: len(run.rows) - len(accepted)]
        expected.update(accepted)
        remaining -= Counter(accepted)
    return expected


# -- how far


def _partial(rows: Sequence[Row], gold: Rows) -> Reward:
    answered, expected = Counter(rows), _expected_rows(rows, gold)
    shared = (answered & expected).total()
    union = (answered | expected).total()
    parts = {"rows": shared / union if union else 0.0}
    reason = f"{shared} of the answer's {len(rows)} rows are among gold's"
    if len(rows) == shared:
        reason = "rows are missing" if union > shared else ""
    factor = 1.0
    if gold.ordered:
        parts["order"] = _in_order(rows, gold, expected)
        factor = (1 + parts["order"]) / 2
        if parts["order"] < 1 and not reason:
            reason = "the rows are gold's, in another order"
    return Reward(min(parts["rows"] * factor, MAX_PARTIAL_REWARD), parts, reason)


def _in_order(rows: Sequence[Row], gold: Rows, expected: Counter[Row]) -> float:
    """Return the share of pairs in gold's order, of the pairs that it distinguishes."""
    run_numbers: dict[Row, deque[int]] = defaultdict(deque)
    for number, run in enumerate(gold.runs):
        for row in {*run.rows, *run.tied} if run.tied else run.rows:
            run_numbers[row].append(number)
    remaining = Counter(expected)
    numbers = []
    for row in rows:
        if remaining[row] > 0:
            remaining[row] -= 1
            choices = run_numbers[row]
            # The last number stays, as a run with ties lists each of its rows only once here.
            numbers.append(choices.popleft() if len(choices) > 1 else choices[0])
    sizes = Counter(numbers).values()
    # Rows of the same run are tied, so that their order does not count.
    pairs = (len(numbers) ** 2 - sum(size**2 for size in sizes)) // 2
    return 1 - inversions(numbers) / pairs if pairs else 1.0


# -- the record, from which a reward can be given again


def rows_state(
    answer: Rows, gold: Rows, options: RewardOptions, *, exact: bool = False
) -> dict[str, Any]:
    """Return both sides as builtins; many or long rows become numbers, equal for equal rows.

    Args:
        answer: the agent's result.
        gold: gold's result.
        options: the task's options.
        exact: whether the ties in gold's order are not known; only recorded.
    """
    digest = _size(answer) + _size(gold) > MAX_RECORDED_SIZE
    if digest and options.columns == "any-order" and answer.width == gold.width:
        candidates = []
        for rows in _arrangements(answer.rows, gold, options):
            candidates.append(replace(answer, runs=(Run(rows),)))
            if accepts(rows, gold):
                break
        as_it_is = replace(options, columns="in-order")
        answer = max(
            candidates, key=lambda candidate: sql_rows_reward(candidate, gold, as_it_is).value
        )
    numbers: dict[Row, int] | None = {} if digest else None
    sides = {"agent": _builtins(answer, numbers), "gold": _builtins(gold, numbers)}
    return {**sides, "digested": digest, "exact": exact}


def sql_rows_reward_again(state: Mapping[str, Any], options: RewardOptions) -> Reward:
    """Return the reward from a record that :func:`rows_state` made."""
    if state["digested"]:  # the recorded columns are already in the best order
        options = replace(options, columns="in-order")
    return sql_rows_reward(_from_builtins(state["agent"]), _from_builtins(state["gold"]), options)


def _size(result: Rows) -> int:
    return sum(
        len(cell) if isinstance(cell, str) else 8
        for run in result.runs
        for row in (*run.rows, *run.tied)
        for cell in row
    )


def _builtins(result: Rows, numbers: dict[Row, int] | None) -> dict[str, Any]:
    def encode(row: Row) -> list[Any]:
        return list(row) if numbers is None else [numbers.setdefault(row, len(numbers))]

    runs = [[[encode(row) for row in rows] for rows in (run.rows, run.tied)] for run in result.runs]
    return {**vars(result), "runs": runs}


def _from_builtins(state: Mapping[str, Any]) -> Rows:
    def decode(rows: Sequence[Sequence[Any]]) -> tuple[Row, ...]:
        return tuple(
            tuple([tuple(cell) if isinstance(cell, (list, tuple)) else cell for cell in row])
            for row in rows
        )

    runs = tuple(Run(decode(rows), decode(tied)) for rows, tied in state["runs"])
    return Rows(state["width"], runs, state["ordered"], state["truncated"], state["problem"])
