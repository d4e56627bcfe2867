"""The strict reward for python: the share of hidden tests that pass."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_intercode.core.reward import Reward

__all__ = ["python_strict_reward"]


def python_strict_reward(verdicts: Sequence[str]) -> Reward:
    """Return the share of tests that pass; 1.0 only if all do.

    The reason names the first test that failed by its number. It never says what the test does or
    expects.

    Args:
        verdicts: for each test nothing if it passed, or how it failed in a few words.
    """
    passed = sum(not verdict for verdict in verdicts)
    share = passed / len(verdicts) if verdicts else 0.0
    reason = ""
    if passed < len(verdicts):
        first = next(number for number, verdict in enumerate(verdicts, start=1) if verdict)
        reason = f"{passed} of {len(verdicts)} tests passed; test {first} {verdicts[first - 1]}"
    return Reward(share, {"tests": share}, reason)
