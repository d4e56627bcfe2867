"""InterCode's reward for sql: numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.rewards.sql_paper import sql_paper_reward

ABC = ["('a',)", "('b',)", "('c',)"]


@pytest.mark.parametrize(
    ("agent", "gold", "value"),
    [
        (ABC, ABC, 1.0),
        ([], [], 1.0),  # a gold that fails has no rows either
        (None, [], 0.0),  # an error, or a statement without a result
        (None, ABC, 0.0),
        ([], ABC, 0.0),
        (ABC, [], 0.0),
        (["('x',)"], ABC, 0.0),
        # in reverse: tau -1
        (ABC[::-1], ABC, -1.0),
        # one swap of three pairs: tau 1/3
        (["('b',)", "('a',)", "('c',)"], ABC, 0.33),
        # two of three rows, in gold's order: 2/3 * 1
        (ABC[:2], ABC, 0.67),
        # one shared row: tau is not defined, and the share is not rounded
        (ABC[:1], ABC, 1 / 3),
        # all the same: ties only, tau is not defined
        (["('a',)"] * 2, ["('a',)"] * 3, 2 / 3),
        (["('a',)"] * 2, ["('a',)"] * 2, 1.0),
        # 300 of 301 rows: 0.9967, rounded
        ([str(n) for n in range(1000, 1300)], [str(n) for n in range(1000, 1301)], 1.0),
        # a row that one side has twice counts once, where it first is
        (["a", "b", "a"], ["a", "b"], 0.67),
        (["b", "a", "b"], ["a", "b"], -0.67),
        # text is compared: 3 is not 3.0
        (["(3,)"], ["(3.0,)"], 0.0),
    ],
)
def test_worked_examples(agent: list[str] | None, gold: list[str], value: float) -> None:
    reward = sql_paper_reward(agent, gold)
    assert reward.value == value
    assert bool(reward.reason) == (value < 1)


def test_reasons_tell_nothing_of_gold() -> None:
    assert sql_paper_reward(ABC[:2], ABC).reason == "1 of 3 rows differ"
    assert sql_paper_reward(ABC[::-1], ABC).reason == "the rows come in another order"
    assert sql_paper_reward(None, ABC).reason == "the last action gives no rows"


_ROWS = st.lists(st.sampled_from(["(1,)", "(2,)", "(3,)", "(4,)", "(None,)"]), max_size=12)


@given(_ROWS, _ROWS)
def test_against_a_plain_reckoning(agent: list[str], gold: list[str]) -> None:
    """The parts by other means than ours, and numpy's way of rounding."""
    reward = sql_paper_reward(agent, gold)
    names = {*agent, *gold}
    shared = sum(min(agent.count(n), gold.count(n)) for n in names)
    union = sum(max(agent.count(n), gold.count(n)) for n in names)
    iou = shared / union if union else 1.0
    assert reward.parts["iou"] == iou
    tau = reward.parts.get("kendall")
    assert reward.value == (iou if tau is None else float(np.round(tau * iou, 2)))


@given(st.floats(-1, 1))
def test_rounding_is_numpys(value: float) -> None:
    from pytest_intercode.rewards.sql_paper import _rounded

    assert _rounded(value) == float(np.round(np.float64(value), 2))
