"""What ran where: lanes, the axis and its pauses, and a line for each machine."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.record import EpisodeRecord, TaskRecord, lost_on
from pytest_intercode.page import write
from pytest_intercode.page.timeline import WIDTH, Timeline, timeline
from pytest_intercode.results.format import from_row
from tests.support import page_rows


def record(began: float, seconds: float, host: str = "", **more: Any) -> EpisodeRecord:
    fields: dict[str, Any] = {
        "task": TaskRecord("t", "Do it.", "bash"),
        "outcome": "solved",
        "reward": 1.0,
        "turns": (),
        "max_turns": 10,
        "seconds": seconds,
        "profile": "strict",
        "host": host,
        "phases": {"prepare": (began, 0.0), "run": (began, seconds)},
    }
    return EpisodeRecord(**{**fields, **more})


def drawn(*records: EpisodeRecord) -> Timeline:
    found = timeline(records)
    assert found is not None
    return found


def test_episodes_at_a_time_have_lanes_of_their_own() -> None:
    found = drawn(*(record(100 + n, 2.5) for n in range(40)))
    (band,) = found.bands
    lanes: dict[float, list[tuple[float, float]]] = defaultdict(list)
    for bar in band.bars:
        lanes[bar.y].append((bar.x, bar.x + bar.width))
    assert len(lanes) == 3
    for spans in lanes.values():
        assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert max(bar.x + bar.width for bar in band.bars) == pytest.approx(WIDTH)
    assert found.rows == [["this machine", "40", "40", "0", "57.8", "2.4", "3"]]
    assert found.says == "40 episodes on 1 machine in 41.5 s, at most 3 at a time on one of them."


def test_each_machine_has_a_band_and_a_line() -> None:
    lost = (lost_on("b", "it was killed"), lost_on("gone", "no answer"))
    found = drawn(
        record(100, 10, "a", outcome="failed"),
        record(100, 5, "b", attempts=("no room",)),
        record(105, 5, "b", outcome="infrastructure-error", phases={}),
        record(105, 5, "a", attempts=lost),
    )
    assert [band.name for band in found.bands] == ["a", "b"]
    assert found.bands[0].bottom < found.bands[1].top < found.height
    assert [row[:4] for row in found.rows] == [
        ["a", "2", "1", "0"],
        ["b", "2", "1", "3"],
        ["gone", "0", "0", "1"],
    ]
    assert found.notes[0] == "Each machine has a clock of its own."
    assert [bar.kind for bar in found.bands[0].bars] == ["failed", "solved"]


def test_preparation_is_drawn_before_the_episode() -> None:
    phases = {"prepare": (100.0, 3.0), "run": (104.0, 6.0)}
    (band,) = drawn(record(0, 0, phases=phases)).bands
    first, second = band.bars
    assert (first.kind, first.x, first.width) == ("preparation", 0, 400)
    assert (second.kind, second.x, second.width) == ("solved", 400, 600)
    assert second.says == "t: solved; prepare 3.0 s, run 6.0 s"


def test_grading_is_drawn_at_the_end_and_phases_have_a_table() -> None:
    phases = {
        "build": (100.0, 2.0),
        "start": (101.0, 1.0),
        "agent": (103.0, 5.0),
        "carry": (105.0, 0.5),
        "tests": (106.0, 1.5),
    }
    found = drawn(record(0, 0, phases=phases), record(0, 0, phases={"agent": (103.0, 10.0)}))
    first, second, third, _ = found.bands[0].bars
    assert (first.kind, first.x, round(first.width)) == ("preparation", 0, round(3000 / 13))
    assert (second.kind, round(second.width)) == ("solved", round(5000 / 13))
    assert (third.kind, round(third.width)) == ("solved grading", round(2000 / 13))
    says = "t: solved; build 2.0 s, start 1.0 s, agent 5.0 s, carry 0.5 s, tests 1.5 s"
    assert {first.says, second.says, third.says} == {says}
    assert found.phase_rows == [
        ["build", "2 s", "10.0%", "1 s", "2 s"],
        ["start", "1 s", "5.0%", "0.5 s", "1 s"],
        ["agent", "15 s", "75.0%", "7.5 s", "10 s"],
        ["carry", "0.5 s", "2.5%", "0.25 s", "0.5 s"],
        ["tests", "1.5 s", "7.5%", "0.75 s", "1.5 s"],
    ]


def test_pauses_in_which_nothing_ran_are_left_out() -> None:
    found = drawn(record(100, 60), record(100 + 86_400, 60), record(100 + 86_465, 55))
    assert found.notes[0] == "1 pause in which nothing ran is left out, 24 h altogether."
    assert [round(at, 3) for at in found.pauses] == [33.333]
    assert [tick.text for tick in found.ticks] == [
        *("0", "30 s", "1 min", "1.5 min", "2 min", "2.5 min", "3 min")
    ]
    assert found.rows[0][4] == "1.0"


@pytest.mark.parametrize(
    "phases",
    [
        {"run": (float("nan"), 1.0)},
        {"run": (float("inf"), 1.0)},
        {"run": (1.0, -1.0)},
        {"run": (1e300, 1.0), "prepare": (-5.0, 1.0)},
        {},
    ],
)
def test_what_is_no_time_is_not_drawn(phases: dict[str, tuple[float, float]]) -> None:
    assert timeline([record(0, 0, phases=phases)]) is None
    found = drawn(record(0, 0, phases=phases), record(100, 1), record(1e10, 1))
    assert len(found.bands[0].bars) == 2
    assert found.rows[0][1] == "3"


def test_an_episode_without_duration() -> None:
    found = drawn(record(100, 0))
    assert found.ticks == []
    assert found.rows == [["this machine", "1", "1", "0", "-", "-", "1"]]


def test_many_episodes_are_drawn_together() -> None:
    rows = page_rows.placed(page_rows.run(3000), 3)
    found = drawn(*map(from_row, rows))
    assert [band.bars for band in found.bands] == [[], [], []]
    assert sum(stroke.path.count("M") for band in found.bands for stroke in band.strokes) == 3000
    assert {stroke.kind for stroke in found.bands[0].strokes} == {row["outcome"] for row in rows}
    assert all(int(row[6]) == 8 for row in found.rows)


def test_the_page_has_it_without_a_script(tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    rows = page_rows.placed(page_rows.run(20), 2)
    for row in rows[::2]:
        row["host"] = "<b>evil\u202e"
    write(map(from_row, rows), page, "Placed")
    text = page.read_text()
    section = text.partition("What ran where</h2>")[2].partition("</section>")[0]
    assert section.count("<rect") >= 20
    machines, phases = section.partition('<table class="phases">')[::2]
    assert machines.count('<th scope="row">') == 2
    names = re.findall(r'<th scope="row">(\w+)<', phases)
    assert names == ["start", "agent", "carry", "tests"]
    assert "20 episodes on 2 machines in " in section
    assert "&lt;b&gt;evil" in section
    assert "<b>evil" not in text
    assert "\u202e" not in section
    assert not re.search(r"\sstyle=", section), "the policy of the page refuses it"
    plain = tmp_path / "plain.html"
    write(map(from_row, page_rows.run(20)), plain, "Not placed")
    assert "What ran where" not in plain.read_text()
