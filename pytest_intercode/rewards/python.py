"""The rewards for python: the share of hidden tests that pass.

In the paper profile, a test passes if its result is the same for the agent's function and gold's,
as InterCode 1.0.2 grades. The same failure with the same message passes, too: its published
numbers depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.rewards.recording import sha256

__all__ = [
    "python_paper_reward",
    "python_paper_reward_again",
    "python_paper_state",
    "python_strict_reward",
    "texts_of",
]

_MAX_RESULT_LENGTH = 2000  # characters of a test's result; longer ones are recorded as digests


def python_strict_reward(verdicts: Sequence[str]) -> Reward:
    """Return the share of tests that pass; 1.0 only if all do.

    The reason names the first test that failed by its number. It never reveals what the test does
    or expects.

    Args:
        verdicts: for each test, an empty text if it passed, or how it failed in a few words.
    """
    passed = sum(not verdict for verdict in verdicts)
    share = passed / len(verdicts) if verdicts else 0.0
    reason = ""
    if passed < len(verdicts):
        first = next(number for number, verdict in enumerate(verdicts, start=1) if verdict)
        reason = f"{passed} of {len(verdicts)} tests passed; test {first} {verdicts[first - 1]}"
    return Reward(share, {"tests": share}, reason)


def python_paper_reward(agent: Mapping[str, str], gold: Mapping[str, str]) -> Reward:
    """Return the share of tests with equal results.

    Args:
        agent: the result of each test with the agent's function, by the test's text.
        gold: the same with gold's function.
    """
    if not agent:
        return Reward(0.0, {"tests": 0.0}, "nothing was submitted")
    equal = sum(gold.get(test) == result for test, result in agent.items())
    share = equal / len(agent)
    reason = "" if equal == len(agent) else f"{equal} of {len(agent)} tests do what they do to gold"
    return Reward(share, {"tests": share}, reason)


def texts_of(results: Mapping[str, Any]) -> dict[str, str]:
    """Return each test's result as InterCode compares it: as its ``str``."""
    return {test: str(result) for test, result in results.items()}


# -- the record, from which a reward can be given again


def python_paper_state(agent: Mapping[str, Any], gold: Mapping[str, Any]) -> dict[str, Any]:
    """Return both sides as builtins; long results become digests."""
    return {"agent": _short(agent), "gold": _short(gold)}


def _short(results: Mapping[str, Any]) -> dict[str, Any]:
    recorded = dict(results)
    for test, text in texts_of(results).items():
        if len(text) > _MAX_RESULT_LENGTH:
            recorded[test] = {"sha256": sha256(text)}
    return recorded


def python_paper_reward_again(state: Mapping[str, Any]) -> Reward:
    """Return the reward from a record that :func:`python_paper_state` made."""
    return python_paper_reward(texts_of(state["agent"]), texts_of(state["gold"]))
