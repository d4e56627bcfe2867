"""The reward of a test run in a verifier, from what it printed and wrote. Pure."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Verification
from pytest_intercode.core.text import clipped, pluralize
from pytest_intercode.errors import IntercodeError, UngradableState
from pytest_intercode.rewards.reward_file import UnreadableReward, reward_of_files
from pytest_intercode.rewards.swe import (
    excused_tests,
    read_results,
    swe_report,
    swe_reward,
    swe_state,
)
from pytest_intercode.rewards.terminal_bench import (
    NoResults,
    excused_results,
    terminal_bench_reward,
)
from pytest_intercode.rewards.test_logs import PASSING, Statuses, read_junit

__all__ = ["NothingRan", "TestRun", "excused_in", "reward_of_run"]

_NOT_FOUND = 127  # the status of a shell that does not find the command
_OWN_PARSERS = ("reward", "terminal-bench", "terminal-bench-swebench")
_PYTEST_OUTCOME = re.compile(r"\b(?:passed|failed|errors?|no tests ran)\b")
_MAX_TAIL_LINES = 60
_MAX_TAIL_CHARACTERS = 4000
_MAX_SHOWN_CHARACTERS = 16_000


class NothingRan(IntercodeError):
    """The tests gave no result at all, which may be the task's fault; the message explains it."""


@dataclass(frozen=True)
class TestRun:
    """The outcome of running a task's tests.

    Attributes:
        status: the command's exit status; None if it had none.
        ended: how it ended: by itself, by the timeout, by too much output, or cancelled.
        log: what it printed.
        reports: the report files that exist, by their paths.
        passes: a part of the name of the sentinel that must pass; empty if there is none.
        fails: the same for the sentinel that must fail.
        seal: the secret after the markers that the command printed.
    """

    __test__ = False

    status: int | None
    ended: Literal["itself", "timeout", "flood", "cancelled"]
    log: str
    reports: Mapping[str, bytes] = field(default_factory=dict)
    passes: str = ""
    fails: str = ""
    seal: str = ""

    @property
    def tail(self) -> str:
        """The end of the output, for people: 60 lines and 4,000 characters at most.

        The seal is removed. A line before the text counts the missing characters; one after it
        names the sentinels that ran among the task's tests.
        """
        end = self.log[-_MAX_TAIL_CHARACTERS:]
        lines = end.rstrip("\n").split("\n")[-_MAX_TAIL_LINES:]
        tail = "\n".join(lines)
        missing = len(self.log.rstrip("\n")) - len(tail)
        if missing:
            tail = f"[... {pluralize(missing, 'character')} before this]\n{tail}"
        return self._explain_own_tests(tail)

    @property
    def shown(self) -> str:
        """The output for the agent: its beginning and end, at most 16,000 characters."""
        return self._explain_own_tests(clipped(self.log.rstrip("\n"), _MAX_SHOWN_CHARACTERS))

    def _explain_own_tests(self, text: str) -> str:
        """Return a part of the log without the seal, with a line that explains our own tests."""
        own_lines = [
            f"{name} has to {verb}"
            for name, verb in ((self.passes, "pass"), (self.fails, "fail"))
            if name and name in text
        ]
        if own_lines:
            text = f"{text}\n[pytest-intercode's sentinels: {', '.join(own_lines)}]"
        return text.replace(self.seal, "")


def excused_in(verification: Verification, run: TestRun) -> frozenset[str]:
    """Return which tests of a run neither passed nor failed; see :func:`excused_tests`.

    The set is empty for a command whose exit status or reward alone is read.

    Raises:
        NothingRan: there is no result of any test.
    """
    if verification.parser in ("reward", "status"):
        return frozenset()
    if verification.parser in _OWN_PARSERS:
        try:
            return excused_results(verification.parser, run.log)
        except NoResults as nothing:
            raise NothingRan(f"{nothing}; it printed last: {_last(run.log)}") from None
    return excused_tests(verification, _statuses(verification, run))


def reward_of_run(
    verification: Verification, run: TestRun, excused: Container[str] | None = None
) -> tuple[Reward, dict[str, Any]]:
    """Return the reward, and as builtins what it was computed from.

    Args:
        verification: how the tests were run.
        run: the outcome of the run.
        excused: the tests that may be skipped, or fail as expected; None for all.

    Raises:
        NothingRan: there is no result of any test.
        UngradableState: the results are too many, or contradict each other.
    """
    if run.ended == "timeout":
        raise UngradableState(f"the tests did not end within {verification.timeout:g} s")
    if run.ended != "itself" or run.status is None:
        raise UngradableState("the tests ended the shell that runs them, or printed too much")
    if verification.parser in _OWN_PARSERS:
        reward = _own_reward(verification, run, excused)
        return reward, {"rewards": {"reward": reward.value, **reward.parts}}
    if verification.parser == "status":
        if run.status == _NOT_FOUND:
            raise NothingRan(f"the tests ended with status {run.status}: {_last(run.log)}")
        right = run.status == 0
        reason = "" if right else f"the tests ended with status {run.status}: {_last(run.log)}"
        return Reward(float(right), {"status": float(right)}, reason), {"status": run.status}
    statuses = _statuses(verification, run)
    problem = _tampering(run, statuses)
    if problem:
        return Reward(0.0, {}, f"the results are not honest: {problem}"), {"tampering": problem}
    report = swe_report(verification, statuses, excused)
    tolerance = verification.tolerance
    return swe_reward(report, tolerance), {"tests": swe_state(report, tolerance)}


def _own_reward(verification: Verification, run: TestRun, excused: Container[str] | None) -> Reward:
    """Return the reward of tests that report it themselves, or that all have to pass."""
    try:
        if verification.parser != "reward":
            return terminal_bench_reward(verification.parser, run.log, excused)
        reward = reward_of_files({path.rpartition("/")[2]: d for path, d in run.reports.items()})
    except (UnreadableReward, NoResults) as nothing:
        raise NothingRan(f"{nothing}; it printed last: {_last(run.log)}") from None
    asks = any(name.startswith("pytest") for name in verification.kit or ())
    if reward.value < 1.0 and asks and not any(map(_ends_pytest, run.log.split("\n"))):
        # Test scripts write the reward 0 if they could not install their requirements.
        raise NothingRan(f"pytest never ran; the test script printed last: {_last(run.log)}")
    return reward


def _statuses(verification: Verification, run: TestRun) -> Statuses:
    if verification.parser == "junit":
        if not run.reports:
            raise NothingRan(f"the tests wrote no {verification.report}: {_last(run.log)}")
        return read_junit(next(iter(run.reports.values())))
    try:
        return read_results(verification, run.log, run.status, seal=run.seal)
    except UngradableState as nothing:
        raise NothingRan(str(nothing)) from None


def _tampering(run: TestRun, statuses: Statuses) -> str:
    """Return how the results are wrong about the sentinels; empty if they are right."""
    for name, right in ((run.passes, True), (run.fails, False)):
        verdicts = {status in PASSING for test, status in statuses.items() if name in test}
        if name and not verdicts:
            return "one of our own tests, which ran as well, is not in them"
        if name and verdicts != {right}:
            return f"one of our own tests, which must {'pass' if right else 'fail'}, did not"
    # A runner with a failed test does not end with status 0, so this report is not its own.
    if run.fails and run.status == 0:
        return "one of our own tests must fail, and the run ended with status 0"
    return ""


def _ends_pytest(line: str) -> bool:
    """Whether a line is pytest's last one, such as ``=== 1 passed in 0.01s ===``."""
    line = line.rstrip()
    words = line.strip("=")
    is_framed = line.startswith("=") and line.endswith("=") and words[:1] == words[-1:] == " "
    return is_framed and _PYTEST_OUTCOME.search(words) is not None


def _last(log: str) -> str:
    return log.strip().rpartition("\n")[2][:200] or "it printed nothing"
