"""The gate: sets a run's exit code by a baseline and by a rate.

With ``--intercode-baseline``, a task that the baseline did not always solve is expected to fail, so
the failing items are those that got worse; a paired test compares the runs as a whole. Single tries
fail by chance alone, so with several tries at each task and no pass rate, whether the command line,
a mark or a suite asks for the tries, the paired test decides (``--intercode-gate``). With
``--intercode-fail-under``, the exit code depends on the share of solved tries, not on single items.
An infrastructure error makes a run inconclusive, which is never a pass. A fault of a task is named
but does not count: it says nothing about the agent, and would occur again.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_intercode.core.rates import FailUnder
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import one_line
from pytest_intercode.plugin.reports import reported_episode
from pytest_intercode.results.baseline import Baseline
from pytest_intercode.results.gate import (
    Conclusion,
    Judgement,
    conclude,
    is_judged_together,
    judge,
    judge_tests,
)

__all__ = ["Gate"]


class Gate:
    """Sets the exit code at the end of a run; a pytest plugin where all reports arrive.

    Args:
        baseline: the results to compare with, if any.
        gate: what fails the run in this comparison: each of the ``tasks`` that got worse, or the
            ``verdict`` on the whole; None to let :func:`is_judged_together` decide.
        fail_under: the required rate, if any.
        tries: returns the run's tries so far.
    """

    def __init__(
        self,
        baseline: Baseline | None,
        gate: str | None,
        fail_under: FailUnder | None,
        tries: Callable[[], list[EpisodeRecord]],
    ) -> None:
        self._baseline = baseline
        self._gate = gate
        self._fail_under = fail_under
        self._tries = tries
        self._hard_failures = 0  # failures that neither rate nor verdict excuses
        self._complete = True
        self._judgements: list[Judgement] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a failure whose reason is not that the agent did not solve a task."""
        if report.failed and not hasattr(report, "wasxfail"):
            self._hard_failures += not _may_be_judged_together(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count what could not be collected."""
        self._hard_failures += report.failed

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Set the exit code, if the run is complete."""
        judged = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if session.exitstatus not in judged or session.shouldstop or session.shouldfail:
            self._complete = False
            return
        self._judgements = judge(self._tries(), self._baseline, self._fail_under)
        if not all(judgement.passed for judgement in self._judgements):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif self._is_judged_together() and not self._hard_failures:
            session.exitstatus = pytest.ExitCode.OK

    def conclude(self) -> Conclusion:
        """Return whether the run passed, and why."""
        if not self._complete:
            return Conclusion("incomplete", "the run was ended, so the gate was not evaluated")
        together = self._is_judged_together()
        single = [] if together else judge_tests(self._tries(), self._baseline)
        return conclude([*single, *self._judgements])

    def _is_judged_together(self) -> bool:
        return is_judged_together(self._tries(), self._baseline, self._fail_under, self._gate)

    def lines(self, *, verdict: bool = True) -> list[str]:
        """Return the judgements, in sentences.

        Args:
            verdict: include that of the comparison with the baseline.
        """
        if not self._complete:
            return ["incomplete, so the gate was not evaluated"]
        return [
            one_line(judgement.line)
            for judgement in self._judgements
            if verdict or not judgement.compares
        ]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the judgements."""
        passed = self._complete and all(judgement.passed for judgement in self._judgements)
        for line in self.lines():
            terminalreporter.write_line(f"gate: {line}", red=not passed, green=passed)


def _may_be_judged_together(report: pytest.TestReport) -> bool:
    """Whether a failed report is of a task that was not solved, or that has an error itself."""
    record = reported_episode(report)
    if record is None:
        return False
    return record.outcome == "task-error" or (
        report.when == "call" and record.graded and not record.succeeded
    )
