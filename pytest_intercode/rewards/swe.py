"""The reward for swe: which of the tests that should pass do so after the agent's work.

A task counts as resolved exactly when SWE-bench 5 counts it so. Names are looked up exactly, except
for those that the published lists cut inside a parameter. A log that does not describe a complete
run of the tests raises :class:`UngradableState`, as it allows no verdict.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Verification
from pytest_intercode.core.text import clipped, one_line, pluralize
from pytest_intercode.errors import UngradableState
from pytest_intercode.rewards.eval_scripts import END, EXIT_STATUS, START
from pytest_intercode.rewards.test_logs import PASSING, Status, Statuses, junit_name, parse

__all__ = [
    "SweReport",
    "excused_tests",
    "read_results",
    "swe_report",
    "swe_reward",
    "swe_reward_again",
    "swe_state",
]

_UNUSABLE = ("Patch Apply Failed", "Reset Failed", "Tests Errored", "Tests Timed Out")
_RAN = (  # a number above zero in the summary of a runner; compiled when it is first used
    r"Executed [1-9]\d* of \d+|TOTAL: [1-9]\d* (?:SUCCESS|FAILED)|(?<!\d)0*[1-9]\d* passing"
    r"|Tests:\s+[1-9]|Test Suites:\s+(?:\d+ \w+, )*[1-9]\d* total|^# tests [1-9]"
    r"|(?<!\d)0*[1-9]\d* specs?, \d+ failures?|': ok$"
)
_FAILED = (Status.FAILED, Status.ERROR)
_EXCUSED = (Status.XFAIL, Status.SKIPPED)
_MAX_NAME_LENGTH = 200  # characters of a name in a reason


def read_results(
    verification: Verification, log: str, exit_status: int | None = None, *, seal: str = ""
) -> Statuses:
    """Return the status of each test in the log of a verification.

    If the command prints markers, only the part between the first start marker and the next end
    marker is read, or the whole log if that part has no results.

    Args:
        verification: how the log was made.
        log: the whole output, standard error included.
        exit_status: the exit status of the tests, if it is known from elsewhere than the log.
        seal: the secret that ``sealed_script`` added to the markers.

    Raises:
        UngradableState: the log is not of a complete run: it reports a problem itself, a marker is
            missing, no test was run, or the run failed although no test is recorded as failed.
        ConfigurationError: there is no such parser.
    """
    start, end = f"{START}{seal}", f"{END}{seal}"
    part = log
    if START in verification.command:
        for code in _UNUSABLE:
            if f">>>>> {code}" in log:
                raise UngradableState(f"the log of the tests says {code!r}")
        if start not in log or end not in log:
            raise UngradableState("the tests did not run to their end: a marker is missing")
        # A second start marker also ends this part, as in SWE-bench.
        part = log.split(start, 2)[1].partition(end)[0]
    statuses = parse(verification.parser, part)
    if not statuses and part is not log:
        statuses = parse(verification.parser, log)
    if not statuses and not re.search(_RAN, log, re.MULTILINE):
        raise UngradableState("no result of a test is in the log, and no sign that any was run")
    recorded = {
        int(status)
        for status in re.findall(rf"{EXIT_STATUS}{re.escape(seal)}: *(-?\d{{1,9}})", log)
    }
    failed = recorded - {0} or exit_status not in (None, 0)
    if failed and statuses and not any(status in _FAILED for status in statuses.values()):
        raise UngradableState(
            "the tests ended with an error, yet their log has no failure: it is not of this run"
        )
    return statuses


# -- the verdict


@dataclass(frozen=True)
class SweReport:
    """Which of the listed tests are as they should be, in the lists' order.

    Attributes:
        fixed: those of ``fail_to_pass`` that pass.
        unfixed: the others of ``fail_to_pass``.
        kept: those of ``pass_to_pass`` that pass or are skipped.
        broken: the others of ``pass_to_pass``.
    """

    fixed: tuple[str, ...]
    unfixed: tuple[str, ...]
    kept: tuple[str, ...]
    broken: tuple[str, ...]

    @property
    def resolved(self) -> bool:
        """Whether every test is as it should be."""
        return not self.unfixed and not self.broken


def excused_tests(verification: Verification, statuses: Mapping[str, Status]) -> frozenset[str]:
    """Return the tests of a verification that neither passed nor failed.

    They were skipped, or were expected to fail and did. Code under test can do this to any test:
    it calls ``pytest.skip()`` or ``pytest.xfail()``.
    """
    lookup = _Lookup(statuses, verification.parser == "junit")
    names = (*verification.fail_to_pass, *verification.pass_to_pass)
    return frozenset(name for name in names if lookup.status(name) in _EXCUSED)


def swe_report(
    verification: Verification,
    statuses: Mapping[str, Status],
    excused: Container[str] | None = None,
) -> SweReport:
    """Return which of a verification's tests are as they should be.

    A skipped test of ``fail_to_pass`` is not fixed, but one of ``pass_to_pass`` is kept. With
    ``absent: passed``, a test that has no result is as it should be.

    Args:
        verification: the lists of tests.
        statuses: the status of each test that has a result.
        excused: the tests that may be skipped, or fail as expected; None for all, as in SWE-bench.
    """
    lookup = _Lookup(statuses, verification.parser == "junit")
    absent = verification.absent == "passed"

    def partition(
        names: Sequence[str], good: tuple[Status, ...]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        def holds(name: str) -> bool:
            status = lookup.status(name)
            if status in _EXCUSED and not (excused is None or name in excused):
                return False
            return absent if status is None else status in good

        pairs = [(name, holds(name)) for name in names]
        return tuple(n for n, ok in pairs if ok), tuple(n for n, ok in pairs if not ok)

    fixed, unfixed = partition(verification.fail_to_pass, PASSING)
    unbroken, broken = partition(verification.pass_to_pass, (*PASSING, Status.SKIPPED))
    return SweReport(fixed, unfixed, unbroken, broken)


class _Lookup:
    """Statuses by the names in published lists, which may be cut inside a parameter."""

    def __init__(self, statuses: Mapping[str, Status], junit: bool) -> None:
        self._statuses = statuses
        self._junit = junit
        self._names: list[str] | None = None
        self._counts: dict[Status, list[int]] = {}

    def status(self, name: str) -> Status | None:
        """Return the status of a test, or None if it has no result."""
        status = self._statuses.get(name)
        if status is None and self._junit:
            status = self._statuses.get(junit_name(name))
        if status is None and name.count("[") > name.count("]"):
            status = self._of_cut(name)
        return status

    def _of_cut(self, name: str) -> Status | None:
        """Return the joint status of the tests whose names begin with this one.

        They pass only if all do; if one of them was an expected failure, so is the joint status.
        """
        if self._names is None:
            self._names = sorted(self._statuses)
            for status in Status:
                ones = (self._statuses[name] is status for name in self._names)
                # The count before each name, so that a subtraction counts those of a range.
                self._counts[status] = [0, *accumulate(map(int, ones))]
        first = bisect_left(self._names, name)
        # The first name after all those with this beginning.
        end = bisect_left(self._names, name[:-1] + chr(ord(name[-1]) + 1))
        counts = {s: c[end] - c[first] for s, c in self._counts.items() if c[end] > c[first]}
        if not counts:
            return None
        if counts.keys() <= set(PASSING):
            return Status.XFAIL if Status.XFAIL in counts else Status.PASSED
        if counts.keys() == {Status.SKIPPED}:
            return Status.SKIPPED
        return Status.FAILED


# -- the reward


def swe_reward(report: SweReport, tolerance: int = 0) -> Reward:
    """Return 1.0 if every test is as it should be, else the product of both shares.

    Args:
        report: the tests.
        tolerance: how many tests may be broken before that share is 0. A broken test keeps the
            reward below 1.0 in any case.
    """
    fixed_share = _share(len(report.fixed), len(report.unfixed))
    kept_share = _share(len(report.kept), len(report.broken))
    if len(report.broken) > tolerance:
        kept_share = 0.0
    reasons = []
    if report.unfixed:
        reasons.append(
            f"{len(report.fixed)} of {pluralize(len(report.fixed) + len(report.unfixed), 'test')} "
            f"of fail_to_pass pass, not {_clip_name(report.unfixed[0])}"
        )
    if report.broken:
        reasons.append(
            f"{pluralize(len(report.broken), 'test')} that passed before "
            f"{'does' if len(report.broken) == 1 else 'do'} not: {_clip_name(report.broken[0])}"
        )
    parts = {"fail_to_pass": fixed_share, "pass_to_pass": kept_share}
    return Reward(fixed_share * kept_share, parts, "; ".join(reasons))


def _share(good: int, bad: int) -> float:
    return good / (good + bad) if good + bad else 1.0


def _clip_name(name: str) -> str:
    return one_line(clipped(name, _MAX_NAME_LENGTH))


def swe_state(report: SweReport, tolerance: int = 0) -> dict[str, Any]:
    """Return what a reward is computed from, as builtins: names of tests, and the tolerance."""
    state = {name: list(tests) for name, tests in asdict(report).items()}
    return {**state, "tolerance": tolerance}


def swe_reward_again(state: Mapping[str, Any]) -> Reward:
    """Return the reward from a record that :func:`swe_state` made."""
    tests = {name: tuple(value) for name, value in state.items() if name != "tolerance"}
    return swe_reward(SweReport(**tests), state["tolerance"])
