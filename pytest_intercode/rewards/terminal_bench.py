"""The results of a Terminal-Bench 1 test run, read from what it printed. Pure.

Terminal-Bench types the run into a terminal and reads its screen. What the run printed is the same
text without the terminal's line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Container

from pytest_intercode.core.reward import Reward
from pytest_intercode.errors import IntercodeError

__all__ = [
    "NoResults",
    "excused_results",
    "pytest_results",
    "terminal_bench_reward",
]

_SUMMARY = re.compile(r"=\s*short test summary info\s*=+", re.IGNORECASE)
_PASSES = frozenset({"PASSED", "XFAIL", "SKIPPED"})
_EXCUSED = frozenset({"XFAIL", "SKIPPED"})
_FAILS = frozenset({"FAILED", "XPASS", "ERROR"})
_BEGIN, _END = "SWEBench results starts here", "SWEBench results ends here"
_MAX_NAMES = 5  # of failed tests in a reason


class NoResults(IntercodeError):
    """A log has no results, because the tests never ran or their run was cut short."""


def excused_results(parser: str, log: str) -> frozenset[str]:
    """Return the tests that were skipped or failed as expected, which code under test can cause.

    Args:
        parser: as :func:`terminal_bench_reward` takes it.
        log: what the run printed.

    Raises:
        NoResults: the log has no results.
    """
    if parser != "terminal-bench":
        return frozenset()
    return frozenset(name for name, word in _summary_words(log).items() if word in _EXCUSED)


def pytest_results(log: str, excused: Container[str] | None = None) -> dict[str, bool]:
    """Return the tests of pytest's short summary, and whether they passed.

    Tests that were skipped or failed as expected have passed; those that passed unexpectedly have
    not. A test's name is the part after its file.

    Args:
        log: what the run printed.
        excused: the tests that may be skipped, or fail as expected; None for all.

    Raises:
        NoResults: there is no summary.
    """
    return {
        name: word in _PASSES
        and not (word in _EXCUSED and excused is not None and name not in excused)
        for name, word in _summary_words(log).items()
    }


def _summary_words(log: str) -> dict[str, str]:
    parts = _SUMMARY.split(log, maxsplit=1)
    if len(parts) == 1:
        raise NoResults("pytest never ran to its end: there is no short test summary")
    statuses: dict[str, str] = {}
    for line in parts[1].splitlines():
        if line.startswith("FAILED") and " - " in line:
            line = line.rpartition(" - ")[0]
        words = line.split(maxsplit=1)
        status = words[0].strip(":") if len(words) == 2 else ""
        if status not in _PASSES | _FAILS:
            continue
        name = words[1].strip().split("::", 1)[-1]
        if name:
            statuses[name] = status
    return statuses


def _swebench_results(log: str) -> dict[str, bool]:
    """Return the one result between the marks of SWE-bench's own harness."""
    if _BEGIN not in log or _END not in log:
        raise NoResults("the marks of SWE-bench's results are not there")
    block = log.split(_BEGIN, 1)[-1].rsplit(_END, 1)[0]
    return {"tests": block.strip() == "PASSED"}


def terminal_bench_reward(parser: str, log: str, excused: Container[str] | None = None) -> Reward:
    """Return 1 if every test passed, else 0; the share of those that passed is the part ``tests``.

    Args:
        parser: ``terminal-bench`` or ``terminal-bench-swebench``.
        log: what the run printed.
        excused: the tests that may be skipped, or fail as expected; None for all.

    Raises:
        NoResults: the log has no results, or names no test.
    """
    results = pytest_results(log, excused) if parser == "terminal-bench" else _swebench_results(log)
    if not results:
        raise NoResults("the test run names no test")
    failed = [name for name, passed in results.items() if not passed]
    share = 1 - len(failed) / len(results)
    if not failed:
        return Reward(1.0, {"tests": 1.0})
    suffix = f" and {len(failed) - _MAX_NAMES} more" if len(failed) > _MAX_NAMES else ""
    names = ", ".join(failed[:_MAX_NAMES])
    reason = f"{len(failed)} of {len(results)} tests failed: {names}{suffix}"
    return Reward(0.0, {"tests": share}, reason)
