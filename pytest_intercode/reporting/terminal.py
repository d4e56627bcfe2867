"""The reporter: the results file as episodes end, and the table at the end of the run."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_intercode.reporting.results import ResultsFile
from pytest_intercode.settings import Settings

__all__ = ["Reporter", "reporter_of"]

_KEY = pytest.StashKey["Reporter"]()
_HEADINGS = (
    "env",
    "dataset",
    "hardness",
    "tasks",
    "solved",
    "rate",
    "reward",
    "turns",
    "failed actions",
    "seconds",
)
_SPENT = ("tokens", "cost")  # shown where an agent reports any


@dataclass
class _Tally:
    """What the table needs of one episode."""

    group: tuple[str, str, str]
    outcome: str
    reward: float
    turns: int
    failed_actions: int
    seconds: float
    requests: int = 0
    tokens: int = 0
    cost: float | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> _Tally:
        executed = row["turn_history"]["valid_action"]
        usage = row.get("usage") or {}
        return cls(
            (row["environment"].removeprefix("ic_"), row["dataset"], row["hardness"] or "-"),
            row["outcome"],
            row["reward"],
            len(executed),
            executed.count(False),
            row["seconds"],
            usage.get("requests", 0),
            usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
            usage.get("cost"),
        )


def reporter_of(config: pytest.Config) -> Reporter:
    """Return the run's reporter, making it the first time."""
    found = config.stash.get(_KEY, None)
    if found is None:
        found = config.stash[_KEY] = Reporter(config)
        config.pluginmanager.register(found, "intercode-reporter")
    return found


class Reporter:
    """Collects the episodes of a run where pytest reports them: here, or on xdist's controller."""

    def __init__(self, config: pytest.Config) -> None:
        settings = self._settings = Settings.of(config)
        self._file = ResultsFile(settings.results) if settings.results else None
        self._episodes: dict[str, _Tally] = {}
        self._early: set[str] = set()
        self._lock = threading.Lock()
        self._unreported = self._ended = 0

    def take(self, report: pytest.TestReport) -> None:
        """Write an episode down; of one that is rerun the last try is counted."""
        row: dict[str, Any] = vars(report)["intercode"]
        superseded = str(report.outcome) == "rerun"
        if superseded:
            row["superseded"] = True
        self._write(row)
        self._episodes[report.nodeid] = _Tally.of(row)

    def write_early(self, row: Mapping[str, Any]) -> None:
        """Write an episode down that ran ahead, as soon as it is over; any thread may do so."""
        with self._lock:
            if self._file is not None:
                self._file.write(row)
            self._early.add(row["node_id"])

    def take_unreported(self, rows: Iterable[Mapping[str, Any]], ended: int) -> None:
        """Take what ran ahead of a run that has ended before its items' turn.

        Args:
            rows: the episodes that were over.
            ended: how many were running, and have no result.
        """
        for row in rows:
            self._write(row)
            self._unreported += 1
        self._ended += ended

    def _write(self, row: Mapping[str, Any]) -> None:
        with self._lock:
            if row["node_id"] in self._early:
                self._early.discard(row["node_id"])  # a second try has a row of its own
            elif self._file is not None:
                self._file.write(row)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        self._say_what_ran_ahead(terminalreporter)
        tallies = list(self._episodes.values())
        if not tallies:
            return
        terminalreporter.section("intercode")
        for line in table(tallies):
            terminalreporter.write_line(line)
        budget, limits = self._settings.budget, self._settings.run_limits
        for limited, what, option in (
            (budget.tokens, "tokens", "max-tokens"),
            (limits.tokens, "tokens", "run-max-tokens"),
            (budget.cost, "cost", "max-cost"),
            (limits.cost, "cost", "run-max-cost"),
        ):
            if limited and not any(getattr(tally, what) for tally in tallies):
                terminalreporter.write_line(
                    f"--intercode-{option} had no effect: the agent reported no {what} "
                    "(pytest_intercode.spend does it)",
                    yellow=True,
                )
        if self._file is not None:
            terminalreporter.write_line(f"{self._file.rows} episodes in {self._file.path}")

    def _say_what_ran_ahead(self, terminalreporter: pytest.TerminalReporter) -> None:
        said = []
        if self._unreported:
            kept = f", with results in {self._file.path}" if self._file is not None else ""
            said.append(f"{_episodes(self._unreported)} had run ahead and not been reported{kept}")
        if self._ended:
            were = "were" if self._ended != 1 else "was"
            said.append(f"{_episodes(self._ended)} {were} running and ended without a result")
        if said:
            terminalreporter.write_line(f"intercode: {'; '.join(said)}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what an xdist worker ran ahead, and has not reported."""
        ahead = getattr(node, "workeroutput", {}).get("intercode_ahead")
        if ahead:
            self.take_unreported(ahead["rows"], ahead["ended"])

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _episodes(number: int) -> str:
    return f"{number} episode{'s' if number != 1 else ''}"


def table(tallies: Iterable[_Tally]) -> list[str]:
    """Return the table's lines: one for each environment, dataset and hardness, and a total.

    Rates and means leave out episodes that the infrastructure spoiled; they are named below.
    """
    groups: dict[tuple[str, str, str], list[_Tally]] = defaultdict(list)
    for tally in tallies:
        groups[tally.group].append(tally)
    everything = [tally for members in groups.values() for tally in members]
    rows = [_row(group, members) for group, members in sorted(groups.items(), key=_order)]
    if len(rows) > 1:
        rows.append(_row(("all", "", ""), everything))
    spent = (any(tally.tokens for tally in everything), any(tally.cost for tally in everything))
    shown = len(_HEADINGS) + (2 if spent[1] else 1 if spent[0] else 0)
    rows = [row[:shown] for row in [(*_HEADINGS, *_SPENT), *rows]]
    widths = [max(len(row[at]) for row in rows) for at in range(shown)]
    lines = [_line(row, widths) for row in rows]
    outcomes: dict[str, int] = defaultdict(int)
    for tally in everything:
        outcomes[tally.outcome] += 1
    counted = ", ".join(f"{n} {name}" for name, n in sorted(outcomes.items(), key=lambda i: -i[1]))
    lines.append(f"outcomes: {counted}")
    if any(spent):
        lines.append(_spent(everything))
    return lines


_HARDNESS = ("easy", "medium", "hard", "extra")


def _order(item: tuple[tuple[str, str, str], list[_Tally]]) -> tuple[Any, ...]:
    env, dataset, hardness = item[0]
    rank = _HARDNESS.index(hardness) if hardness in _HARDNESS else len(_HARDNESS)
    return env, dataset, rank, hardness


def _row(group: tuple[str, str, str], members: list[_Tally]) -> tuple[str, ...]:
    graded = [tally for tally in members if tally.outcome != "infrastructure-error"]
    solved = sum(tally.outcome == "solved" for tally in graded)
    n = len(graded)
    turns = sum(tally.turns for tally in graded)
    failed = sum(tally.failed_actions for tally in graded)
    return (
        *group,
        str(len(members)),
        str(solved),
        f"{solved / n:.1%}" if n else "-",
        f"{sum(tally.reward for tally in graded) / n:.3f}" if n else "-",
        f"{turns / n:.1f}" if n else "-",
        f"{failed / turns:.1%}" if turns else "-",
        f"{sum(tally.seconds for tally in graded) / n:.2f}" if n else "-",
        f"{sum(tally.tokens for tally in graded) / n:,.0f}" if n else "-",
        f"{sum(tally.cost or 0.0 for tally in graded) / n:.4f}" if n else "-",
    )


def _spent(tallies: list[_Tally]) -> str:
    requests = sum(tally.requests for tally in tallies)
    tokens = sum(tally.tokens for tally in tallies)
    costs = [tally.cost for tally in tallies if tally.cost is not None]
    cost = f", cost {sum(costs):.4f}" if costs else ""
    return f"spent: {requests:,} requests, {tokens:,} tokens{cost}"


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    made = []
    for at, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        made.append(cell.ljust(width) if at < 3 else cell.rjust(width))
    return "  ".join(made).rstrip()
