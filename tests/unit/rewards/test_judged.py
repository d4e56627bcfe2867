"""The reward with a judge's share in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_intercode.core.judge import Judge, JudgeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.rewards.judged import judged_reward


def votes(*scores: float, share: float = 0.4) -> JudgeRecord:
    reasons = tuple(f"because of {score}" for score in scores)
    return JudgeRecord("m-1", "d", share, 0.0, scores, reasons)


@pytest.mark.parametrize(
    ("own", "scores", "share", "value"),
    [
        (1.0, (1.0,), 0.4, 1.0),
        (1.0, (1.0,), 0.1, 1.0),
        (0.0, (1.0, 1.0, 1.0), 0.4, 0.4),
        (1.0, (0.0, 1.0, 0.0), 0.4, 0.6),
        (0.5, (0.5, 0.0, 1.0), 0.4, 0.5),
        (0.99, (1.0,), 0.9999, 0.99),  # no judge makes a wrong state right
        (1.0, (0.999,), 0.01, 0.99),  # and nothing is right that the judge does not find so
        (0.0, (1.0,), 1.0, 1.0),
        (1.0, (0.25,), 1.0, 0.25),
        (-1.0, (1.0,), 0.5, 0.0),  # SQL by the profile `paper`
        (1.0, (), 0.5, 0.5),  # nobody was asked
    ],
)
def test_the_shares(own: float, scores: tuple[float, ...], share: float, value: float) -> None:
    reward = judged_reward(Reward(own, {"output": own}), votes(*scores, share=share))
    assert reward.value == pytest.approx(value, abs=1e-12)
    assert reward.parts["output"] == own
    assert 0 <= reward.parts["judge"] <= 1


@pytest.mark.parametrize(
    ("own", "score", "value"), [(1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.5, 0.5, 0.25)]
)
def test_a_product(own: float, score: float, value: float) -> None:
    judge = replace(votes(score, share=0.0), product=True)
    assert judged_reward(Reward(own), judge).value == value
    assert Judge("r", "m", product=True).find_problem() == ""
    for conflict in (
        Judge("r", "m", product=True, weight=0.5),
        Judge("r", "m", 1, None, True, True),
    ):
        assert "product" in conflict.find_problem()


def test_the_reason_says_who_finds_fault() -> None:
    own = Reward(0.5, {}, "out.txt differs")
    assert judged_reward(own, votes(1.0)).reason == "out.txt differs"
    both = judged_reward(own, votes(0.0, 0.5, 1.0)).reason
    assert both == "out.txt differs; the judge gives 0.50: because of 0.5"
    assert judged_reward(Reward(1.0), votes(0.0)).reason == "the judge gives 0.00: because of 0.0"
    assert judged_reward(own, votes(1.0, share=1.0)).reason == ""


def test_votes_are_of_one_rubric_and_one_model() -> None:
    judge = Judge("Is it plain?", "m-1", weight=0.5)
    assert judge.digest == Judge(" Is it plain?\n", "m-1", 5, alone=True).digest
    assert judge.digest != Judge("Is it plain?", "m-2", weight=0.5).digest
    assert judge.digest != Judge("Is it short?", "m-1", weight=0.5).digest
