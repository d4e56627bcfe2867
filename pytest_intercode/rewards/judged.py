"""The reward of a task that a judge grades in part: the environment's reward and the votes."""

from __future__ import annotations

from pytest_intercode.core.judge import JudgeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.rewards.recording import MAX_PARTIAL_REWARD

__all__ = ["judged_reward"]


def judged_reward(own_reward: Reward, judge: JudgeRecord) -> Reward:
    """Return the environment's reward with the judge's share in it.

    ``own_reward + share * (score - own_reward)``, or ``own_reward * score`` for a product. Unless
    the judge decides alone, only a state that both find right is worth 1.0: otherwise the sum is
    0.99 at most.

    Args:
        own_reward: the environment's reward.
        judge: the votes, whose median is the score.
    """
    score = float(judge.score)
    if judge.share >= 1.0:
        value = score
    elif judge.product:
        value = own_reward.value * score
    else:
        value = own_reward.value + judge.share * (score - own_reward.value)
        if own_reward.value < 1.0 or score < 1.0:
            value = min(value, MAX_PARTIAL_REWARD)
    reasons = [own_reward.reason] if own_reward.value < 1.0 and judge.share < 1.0 else []
    if score < 1.0 and judge.scores:
        reasons.append(f"the judge gives {score:.2f}: {judge.reason}".rstrip(": "))
    return Reward(
        value,
        {**own_reward.parts, "judge": score},
        "" if value >= 1.0 else "; ".join(filter(None, reasons)),
        "" if value >= 1.0 else own_reward.test_output,
    )
