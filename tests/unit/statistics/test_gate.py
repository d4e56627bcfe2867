"""How often comparing two runs errs: the simulations of ``benchmarks/gate.py``, fewer and fixed."""

from __future__ import annotations

from math import sqrt

import pytest

from benchmarks.gate import DROPS, LEVEL, MIXES, POWER, judged, measure
from benchmarks.measuring import Scale

_RUNS = 150
_MARGIN = 3 * sqrt(LEVEL * (1 - LEVEL) / _RUNS)


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("repeats", [1, 3])
def test_false_alarms_keep_to_the_level(mix: str, repeats: int) -> None:
    found = judged(3, _RUNS, tasks=100, repeats=repeats, chance=MIXES[mix])
    assert found["regressed"] + found["improved"] <= LEVEL + _MARGIN


def test_a_looser_level_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gate.LEVEL", 0.3)
    found = judged(3, _RUNS, tasks=100, repeats=3, chance=MIXES["all alike"])
    assert found["regressed"] + found["improved"] > LEVEL + _MARGIN
    assert min(found["regressed"], found["improved"]) > 0.05  # to both sides alike


@pytest.mark.parametrize("drop", DROPS)
def test_ten_points_less_are_found(drop: str) -> None:
    three, one = (
        judged(
            5,
            100,
            repeats=repeats,
            chance=lambda random: 0.3 + 0.7 * random.random(),
            change=lambda chance, random: DROPS[drop](chance, 0.1, random),
        )
        for repeats in (3, 1)
    )
    assert three["regressed"] >= POWER
    assert one["regressed"] < three["regressed"]  # fewer tries find less
    assert three["improved"] == one["improved"] == 0
    assert max(three["no difference"], one["no difference"]) <= LEVEL + _MARGIN


def test_the_table() -> None:
    part = measure(Scale(quick=True))
    names = [row.what for row in part.rows]
    assert len(set(names)) > 15
    assert "false alarms, 1 before and 3 tries after, all alike" in names
    bounds = {row.what: str(row.bound or "") for row in part.rows}
    assert bounds["10 points found, 3 tries, all tasks a little"] == "at least 80%"
    assert bounds["10 points found, 1 try, all tasks a little"] == ""
    assert bounds["false alarms, 3 tries, all alike"] == "at most 5.0% + 14.6%"
