"""The reward of AgentBench's operating-system tasks: 1.0 for the right answer or state, else 0.

Answers are read in the same way as by its scripts ``integer-match.py`` and ``string-match.py``
(THUDM/AgentBench at 578c5e9f, ``data/os_interaction``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_intercode.core.reward import Reward

__all__ = ["checks_reward", "read_answer"]


def checks_reward(state: Mapping[str, Any]) -> Reward:
    """Return the reward of an end state.

    Args:
        state: ``agent`` with its ``answer``, the exit ``statuses`` of the check scripts, and the
            ``programs`` that it replaced; ``gold`` with the way to read answers (``compare``), the
            right ``answer``, and the number of ``checks``.
    """
    agent, gold = state["agent"], state["gold"]
    if agent["programs"]:
        paths = ", ".join(agent["programs"])
        return Reward(0.0, {"checks": 0.0}, f"what the checks run or load was replaced: {paths}")
    if gold["checks"]:
        passed = sum(status == 0 for status in agent["statuses"])
        reason = "" if passed == gold["checks"] else f"check {passed + 1} of {gold['checks']} fails"
        return Reward(float(not reason), {"checks": passed / gold["checks"]}, reason)
    answer = read_answer(agent["answer"], gold["compare"])
    is_right = answer is not None and answer == read_answer(gold["answer"], gold["compare"])
    reason = "" if is_right else "no answer was given"
    if not is_right and agent["answer"].strip():
        reason = "the answer is wrong" if answer is not None else "the answer is not a whole number"
    return Reward(float(is_right), {"answer": float(is_right)}, reason)


def read_answer(text: str, compare: str) -> str | int | None:
    """Return the value of an answer; None if it cannot be read.

    Args:
        text: the answer.
        compare: ``integer``, ``text``, or empty for text whose line ends are not converted.
    """
    if compare == "integer":
        try:
            return int(text)
        except ValueError:
            return None
    if compare == "text":
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.strip()
