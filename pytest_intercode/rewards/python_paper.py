"""InterCode's reward for python: the share of tests that do the same to agent and gold.

Doing the same includes failing with the same message, which its published numbers depend on.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_intercode.rewards.protocol import Reward

__all__ = ["python_paper_reward"]


def python_paper_reward(agent: Mapping[str, str], gold: Mapping[str, str]) -> Reward:
    """Return the share of tests with equal results.

    Args:
        agent: what each test gave with the agent's function, by the test's text.
        gold: the same with gold's.
    """
    if not agent:
        return Reward(0.0, {"tests": 0.0}, "nothing was submitted")
    equal = sum(gold.get(test) == result for test, result in agent.items())
    share = equal / len(agent)
    reason = "" if equal == len(agent) else f"{equal} of {len(agent)} tests do what they do to gold"
    return Reward(share, {"tests": share}, reason)
