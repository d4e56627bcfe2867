"""InterCode's reward for sql, bit for bit (paper, section 3.2; code of release 1.0.2).

Rows are compared as the text of Python tuples: the intersection over the union of both sides'
rows, times Kendall's tau-b of the order of the shared rows. Its defects are part of the ``paper``
profile: the order counts even where gold does not ask for one, 300 right rows of 301 give 1.0, and
rows in reverse order give -1.0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.rewards.recording import MAX_RECORDED_SIZE
from pytest_intercode.rewards.sql_rows import inversions

__all__ = ["kendall_tau_b", "paper_rows_state", "sql_paper_reward", "sql_paper_reward_again"]


def sql_paper_reward(agent: Sequence[str] | None, gold: Sequence[str]) -> Reward:
    """Return InterCode's reward, in [-1, 1], with its parts ``iou`` and ``kendall``.

    Args:
        agent: the rows of the last observation, each as text; None if it holds no rows.
        gold: gold's rows.
    """
    if agent is None:
        return Reward(0.0, {"iou": 0.0}, "the last action gives no rows")
    agent_rows, gold_rows = Counter(agent), Counter(gold)
    shared = agent_rows & gold_rows
    union = (agent_rows | gold_rows).total()
    iou = shared.total() / union if union else 1.0
    parts = {"iou": iou}
    value = iou
    if shared:
        tau = kendall_tau_b(_shared_in_order(agent, shared), _shared_in_order(gold, shared))
        if not math.isnan(tau):
            parts["kendall"] = tau
            value = _rounded(tau * iou)
    return Reward(value, parts, "" if value >= 1 else _reason(shared.total(), union, iou))


def _rounded(value: float) -> float:
    """Round to two places as numpy does; Python's own ``round(value, 2)`` is more exact."""
    return round(value * 100) / 100


def _shared_in_order(rows: Sequence[str], shared: Counter[str]) -> list[str]:
    """Return the shared rows in their order, each as often as both sides have it."""
    remaining = Counter(shared)
    shared_rows = []
    for row in rows:
        if remaining[row] > 0:
            remaining[row] -= 1
            shared_rows.append(row)
    return shared_rows


def _reason(shared: int, union: int, iou: float) -> str:
    if iou < 1:
        return f"{union - shared} of {union} rows differ"
    return "the rows come in another order"


def kendall_tau_b(x: Sequence[str], y: Sequence[str]) -> float:
    """Return Kendall's tau-b of two equally long sequences; NaN where it is not defined.

    After W. R. Knight, "A computer method for calculating Kendall's tau with ungrouped data"
    (1966), with the same steps of floating point as ``scipy.stats.kendalltau``.
    """
    size = len(x)
    pairs = size * (size - 1) // 2
    tied_x, tied_y = _tied_pairs(x), _tied_pairs(y)
    if pairs in (tied_x, tied_y):
        return math.nan
    joint = sorted(zip(x, y, strict=True))
    tied_both = _tied_pairs(joint)
    ranks = {value: rank for rank, value in enumerate(sorted(set(y)))}
    discordant = inversions([ranks[right] for _, right in joint])
    difference = pairs - tied_x - tied_y + tied_both - 2 * discordant
    tau = difference / math.sqrt(pairs - tied_x) / math.sqrt(pairs - tied_y)
    return min(1.0, max(-1.0, tau))


def _tied_pairs(values: Sequence[object]) -> int:
    return sum(count * (count - 1) // 2 for count in Counter(values).values())


# -- the record, from which a reward can be given again


def paper_rows_state(agent: Sequence[str] | None, gold: Sequence[str]) -> dict[str, Any]:
    """Return both sides as builtins.

    If rows are many or long, each is recorded as its rank among all rows: the reward depends only
    on which rows are equal, and on their order.
    """
    rows = [*(agent or ()), *gold]
    ranked = sum(map(len, rows)) > MAX_RECORDED_SIZE
    ranks = {row: rank for rank, row in enumerate(sorted(set(rows)))} if ranked else {}

    def side(rows: Sequence[str] | None) -> dict[str, Any]:
        if rows is None:
            return {"rows": None}
        return {"rows": [ranks[row] for row in rows] if ranked else list(rows), "count": len(rows)}

    return {"agent": side(agent), "gold": side(gold), "ranked": ranked}


def sql_paper_reward_again(state: Mapping[str, Any]) -> Reward:
    """Return the reward from a record that :func:`paper_rows_state` made."""

    def rows(side: Mapping[str, Any]) -> list[str] | None:
        if side["rows"] is None:
            return None
        return [f"{row:012}" if state["ranked"] else row for row in side["rows"]]

    return sql_paper_reward(rows(state["agent"]), rows(state["gold"]) or [])
