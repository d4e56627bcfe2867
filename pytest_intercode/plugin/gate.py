"""The gate: what a run's exit code says of the agent, by a baseline and by a rate.

With ``--intercode-baseline`` a task that the baseline did not always solve is expected to fail, so
that failing items are those that got worse; and the whole is compared by a paired test. Chance
alone makes single tries fail, so with several at each task it is the test that decides
(``--intercode-gate``). With ``--intercode-fail-under`` the exit code goes by the share of solved
tries in place of single items.
What the infrastructure spoiled makes a run inconclusive, which is never a pass. A fault of a task
is named and does not count: it says nothing about the agent, and would be there again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import counted, one_line
from pytest_intercode.options.table import FailUnder
from pytest_intercode.plugin.reports import reported_episode
from pytest_intercode.results.comparison import Baseline
from pytest_intercode.results.summary import summarise
from pytest_intercode.results.tries import key_of

__all__ = ["Gate", "Judgement"]


_NAMED = 3  # tasks with an error


class Judgement(NamedTuple):
    """One judgement of the gate.

    Attributes:
        passed: whether the run may pass.
        line: a sentence for people.
        compares: it is the verdict on this run and the baseline.
    """

    passed: bool
    line: str
    compares: bool = False


class Gate:
    """Sets the exit code at the end of a run; a pytest plugin where all reports arrive.

    Args:
        baseline: what to compare with, if there is something.
        gate: what of that fails the run: ``tasks``, each that got worse, or the ``verdict``.
        fail_under: the rate that is asked for, if one is.
        tries: returns the run's tries so far.
    """

    def __init__(
        self,
        baseline: Baseline | None,
        gate: str,
        fail_under: FailUnder | None,
        tries: Callable[[], list[EpisodeRecord]],
    ) -> None:
        self._baseline = baseline
        self._fail_under = fail_under
        # Whether tasks that are not solved are judged together, and not each for itself.
        self._together = gate == "verdict" if baseline else fail_under is not None
        self._tries = tries
        self._unforgivable = 0  # failures that neither rate nor verdict excuses
        self._complete = True
        self._judgements: list[Judgement] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what failed for another reason than that the agent did not solve a task."""
        if report.failed and not hasattr(report, "wasxfail"):
            self._unforgivable += not (self._together and _is_judged_together(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count what could not be collected."""
        self._unforgivable += report.failed

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Set the exit code, if the run came to its end."""
        judged = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if session.exitstatus not in judged or session.shouldstop or session.shouldfail:
            self._complete = False
            return
        self._judgements = self._judge()
        if not all(each.passed for each in self._judgements):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif self._together and not self._unforgivable:
            session.exitstatus = pytest.ExitCode.OK

    def _judge(self) -> list[Judgement]:
        tries = self._tries()
        return [
            *_of_infrastructure(tries),
            *_of_tasks(tries),
            *(_of_baseline(self._baseline, tries) if self._baseline else ()),
            *(_of_rate(self._fail_under, tries) if self._fail_under else ()),
        ]

    def lines(self, *, verdict: bool = True) -> list[str]:
        """Return the judgements, in sentences.

        Args:
            verdict: also that of the comparison with the baseline.
        """
        if not self._complete:
            return ["incomplete, so the gate was not evaluated"]
        return [one_line(each.line) for each in self._judgements if verdict or not each.compares]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was decided, and why."""
        passed = self._complete and all(each.passed for each in self._judgements)
        for line in self.lines():
            terminalreporter.write_line(f"gate: {line}", red=not passed, green=passed)


def _is_judged_together(report: pytest.TestReport) -> bool:
    """Whether a failed report is of a task that was not solved, or that has an error itself."""
    record = reported_episode(report)
    if record is None:
        return False
    return record.outcome == "task-error" or (
        report.when == "call" and record.graded and not record.succeeded
    )


def _of_infrastructure(tries: Iterable[EpisodeRecord]) -> Iterable[Judgement]:
    spoiled = sum(each.outcome == "infrastructure-error" for each in tries)
    if spoiled:
        were = "episodes were" if spoiled > 1 else "episode was"
        yield Judgement(False, f"inconclusive: {spoiled} {were} spoiled by the infrastructure")


def _of_tasks(tries: Iterable[EpisodeRecord]) -> Iterable[Judgement]:
    broken = dict.fromkeys(str(key_of(each)) for each in tries if each.outcome == "task-error")
    if broken:
        named = ", ".join([*broken][:_NAMED]) + (", ..." if len(broken) > _NAMED else "")
        have = "has an error of its own" if len(broken) == 1 else "have errors of their own"
        yield Judgement(True, f"not counted: {counted(len(broken), 'task')} {have} ({named})")


def _of_baseline(baseline: Baseline, tries: list[EpisodeRecord]) -> Iterable[Judgement]:
    name = baseline.path.name
    verdict = baseline.verdict(tries)
    if verdict is None:
        yield Judgement(False, f"inconclusive: no task of this run has its result in {name}")
        return
    unknown = baseline.unknown(tries)
    are = "is" if unknown == 1 else "are"
    new = f" ({counted(unknown, 'task')} {are} not in it)" if unknown else ""
    line = f"compared with {name}{new}: {verdict.sentence}"
    yield Judgement(verdict.kind != "regressed", line, compares=True)


def _of_rate(asked: FailUnder, tries: list[EpisodeRecord]) -> Iterable[Judgement]:
    summary = summarise(tries)
    if summary.rate is None or summary.rate_interval is None:
        yield Judgement(False, "inconclusive: no episode was graded, so there is no rate")
        return
    low, high = summary.rate_interval
    reached = low if asked.lower else summary.rate
    what = "the rate's lower bound" if asked.lower else "the rate"
    passed = reached >= asked.rate
    verb = "reaches" if passed else "is under"
    yield Judgement(
        passed,
        f"{what}, {reached:.1%}, {verb} {asked.rate:.1%} "
        f"({summary.solved} of {summary.graded} solved, 95 % interval {low:.1%} to {high:.1%})",
    )
