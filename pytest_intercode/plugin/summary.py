"""What is written at the end of a run: statistics, GitHub's summary, the page, and warnings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import first_names, markdown_text, one_line, pluralize
from pytest_intercode.errors import IntercodeError
from pytest_intercode.plugin.reports import reported_episode
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.results.cells import COMMAND_LINES, by_cell, program_of
from pytest_intercode.results.differences import differences
from pytest_intercode.results.gate import Conclusion, conclude, judge_tests
from pytest_intercode.results.summary import summarise
from pytest_intercode.results.tables import markdown, summaries
from pytest_intercode.system.files import statistics_path, write_file

if TYPE_CHECKING:
    from pytest_intercode.plugin.gate import Gate

__all__ = [
    "Ending",
    "conclude_run",
    "name_run",
    "warn_of_limits",
    "write_page",
    "write_statistics",
    "write_step_summary",
]

_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
_MAX_NAMED = 3  # agents or suites
_MAX_AGENT_LENGTH = 60  # characters


def warn_of_limits(
    terminal: pytest.TerminalReporter, settings: Settings, tries: Sequence[EpisodeRecord]
) -> None:
    """Warn of limits that had no effect, because the agent did not report what they limit."""
    budget, limits = settings.budget, settings.run_limits
    for limit, measure, option in (
        (budget.tokens, "tokens", "max-tokens"),
        (limits.tokens, "tokens", "run-max-tokens"),
        (budget.cost, "cost", "max-cost"),
        (limits.cost, "cost", "run-max-cost"),
    ):
        if limit and not any(getattr(record.usage, measure) for record in tries):
            terminal.write_line(
                f"--intercode-{option} had no effect: the agent reported no {measure} "
                "(pytest_intercode.spend does it)",
                yellow=True,
            )


def write_step_summary(
    terminal: pytest.TerminalReporter, name: str, tries: list[EpisodeRecord], gate: Gate | None
) -> None:
    """Add the table to the summary of a GitHub job, if the run is a step of one."""
    target = os.environ.get(_STEP_SUMMARY)
    if not target:
        return
    judgements = gate.lines() if gate is not None else []
    lines = [f"### {markdown_text(name)}", "", *markdown(tries), ""]
    text = "\n".join([*lines, *(f"- {markdown_text(line)}" for line in judgements), ""])
    try:
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        terminal.write_line(
            f"${_STEP_SUMMARY}={target}: cannot be written: {error.strerror}", yellow=True
        )


def write_statistics(
    terminal: pytest.TerminalReporter, tries: list[EpisodeRecord], results: Path
) -> None:
    """Write the run's statistics next to its results, for programs."""
    statistics: dict[str, Any] = {"all": asdict(summarise(tries))}
    for column, groups in summaries(tries).items():
        statistics[column] = {value: asdict(summary) for value, summary in groups}
    tries_by_cell = by_cell(tries)
    if len(tries_by_cell) > 1:
        statistics["cell"] = {
            str(cell): asdict(summarise(tries_of_cell))
            for cell, tries_of_cell in tries_by_cell.items()
        }
        statistics["differences"] = [pair.data() for pair in differences(tries_by_cell)]
    path = statistics_path(results)
    try:
        write_file(path, json.dumps(statistics, indent=1) + "\n")
    except IntercodeError as error:
        terminal.write_line(one_line(str(error)), red=True)


class Ending:
    """pytest's own result of a run; a plugin where all reports arrive.

    Attributes:
        failures: node ids of failures whose reason is not the outcome of their episode.
    """

    def __init__(self) -> None:
        self.failures: dict[str, None] = {}
        self._session: pytest.Session | None = None

    @property
    def exit_status(self) -> int:
        """The exit status of pytest; known only at the end, as plugins such as the gate set it."""
        return int(self._session.exitstatus) if self._session is not None else 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure whose reason is not an episode."""
        if report.failed and not hasattr(report, "wasxfail"):
            record = reported_episode(report)
            if record is None or record.succeeded:
                self.failures[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected."""
        if report.failed:
            self.failures[report.nodeid] = None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep the session, which has the exit status."""
        self._session = session


def conclude_run(tries: Sequence[EpisodeRecord], gate: Gate | None, ending: Ending) -> Conclusion:
    """Return whether a run passed; the verdict never contradicts the exit status.

    Args:
        tries: the run's tries.
        gate: the run's gate, if it has one.
        ending: pytest's own result of the run.
    """
    exit_status = ending.exit_status
    if gate is not None:
        conclusion = gate.conclude()
    elif exit_status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return Conclusion("incomplete", "the run was ended before all of its tests had run")
    else:
        conclusion = conclude(judge_tests(tries, None))
    if conclusion.kind == "incomplete":
        return conclusion
    if exit_status == pytest.ExitCode.OK:
        if conclusion.kind == "passed":
            return conclusion
        return Conclusion("passed", f"pytest passed the run; of its tasks: {conclusion.sentence}")
    reasons = [] if conclusion.kind == "passed" else [conclusion.sentence]
    if ending.failures:
        tests = pluralize(len(ending.failures), "test")
        names = first_names(ending.failures)
        reasons.append(f"{tests} failed for another reason than an episode's outcome ({names})")
    elif not reasons:
        reasons.append(f"pytest ended with exit status {int(exit_status)}")
    elif conclusion.kind == "inconclusive":
        return conclusion
    return Conclusion("failed", "; ".join(reasons))


def write_page(
    terminal: pytest.TerminalReporter,
    settings: Settings,
    results: Path,
    name: str,
    gate: Gate | None,
    conclusion: Conclusion,
) -> bool:
    """Write the page of ``--intercode-html``; return whether there is one.

    The page is written even if the baseline can no longer be read.

    Args:
        terminal: pytest's, for messages.
        settings: the run's.
        results: the results file.
        name: the name of the run.
        gate: the gate, whose judgements are on the page.
        conclusion: whether the run passed.
    """
    from pytest_intercode.page import write

    target, own_baseline = settings.html, settings.baseline
    assert target is not None
    problems: dict[str, None] = {}
    is_written = False
    for baseline in dict.fromkeys((own_baseline, None)):
        try:
            write(
                results,
                target,
                name,
                names=(own_baseline.name if own_baseline else "", name),
                baseline=baseline,
                notes=gate.lines(verdict=baseline is None) if gate is not None else (),
                conclusion=conclusion,
                option="--intercode-html",
            )
        except (IntercodeError, OSError) as error:
            problems[one_line(str(error))] = None
        else:
            is_written = True
            break
    for problem in problems:
        terminal.write_line(problem, red=True)
    if is_written:
        terminal.write_line(one_line(f"a page to look at: {target}"))
    return is_written


def name_run(agents: Sequence[str], suites: Iterable[str]) -> str:
    """Return a name for a run that has none: its agents and suites, in a few words.

    Args:
        agents: the agents as the user named them; a command line is shortened to its program.
        suites: the suites of its tasks, with repetitions.
    """
    agents_text = _join_few([_shorten(agent) for agent in agents] or ["pytest-intercode"], "agents")
    suites_text = _join_few(list(dict.fromkeys(filter(None, suites))), "suites")
    return f"{agents_text} on {suites_text}" if suites_text else agents_text


def _join_few(names: Sequence[str], noun: str) -> str:
    return ", ".join(names) if len(names) <= _MAX_NAMED else f"{len(names)} {noun}"


def _shorten(agent: str) -> str:
    style, colon, rest = agent.partition(":")
    if colon and style in COMMAND_LINES:
        agent = f"{style}:{program_of(rest)}"
    elif colon and ("/" in rest or "/" in style):
        agent = ":".join(PurePosixPath(part).name for part in (style, rest))
    return agent if len(agent) <= _MAX_AGENT_LENGTH else f"{agent[: _MAX_AGENT_LENGTH - 3]}..."
