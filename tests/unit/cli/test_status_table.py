"""What runs do at the moment, on terminals of any width, whatever agents and suites call things."""

from __future__ import annotations

import pytest

from pytest_intercode.cli.status_table import lines_of
from pytest_intercode.core.status import EpisodeStatus, RunStatus
from tests.support.live_status import RUN


def test_a_wide_terminal_has_it_all() -> None:
    assert lines_of([RUN], 200) == [
        "/home/me/project",
        "run 4711: 1 running, 12 of 40 done, 10 solved, 3/min, 9 min remaining, 1.21M tokens, "
        "cost 0.861",
        "EPISODE                          TURNS        TIME  TOKENS   COST  LAST ACTION",
        "suite.yaml::test_solves[task-1]   3/30  1:23/10:00   12.3k  0.021  grep -rn main src",
    ]


def test_a_narrow_terminal_has_what_matters_most() -> None:
    assert lines_of([RUN], 40) == [
        "/home/me/project",
        "run 4711: 1 running, 12 of 40 done, 10",
        "  solved, 3/min, 9 min remaining, 1.21M",
        "  tokens, cost 0.861",
        "EPISODE          TURNS  LAST ACTION",
        "...lves[task-1]   3/30  grep -rn main...",
    ]


def test_a_long_folder_is_clipped_and_the_name_of_the_run_is_not() -> None:
    status = RunStatus(pid=1, name="nightly", folder="/a/folder/whose/name/is/long/project")
    assert lines_of([status], 40)[0] == "nightly in ...whose/name/is/long/project"


@pytest.mark.parametrize("columns", [1, 10, 25, 40, 79, 80, 200])
def test_no_line_is_longer_than_the_terminal(columns: int) -> None:
    lines = lines_of([RUN, RUN], columns)
    assert len(lines) > 8
    if columns >= 25:
        assert max(map(len, lines)) <= columns


def test_there_are_no_more_lines_than_there_is_room_for() -> None:
    lines = lines_of([RUN, RUN], 200, max_lines=6)
    assert lines[5] == "... 4 more lines"
    assert lines[:5] == [*lines_of([RUN], 200), ""]


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        ("\x1b]0;mine\x07", "\\x1b]0;mine\\x07"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\u202eevil", "\\u202eevil"),
        ("##[group]mine", "##\\x5bgroup]mine"),
        ("", "(nothing yet)"),
    ],
)
def test_what_an_agent_says_drives_no_terminal(action: str, shown: str) -> None:
    status = EpisodeStatus(item=action, task="t", phase="agent", action=action)
    assert lines_of([RunStatus(pid=1, episodes=(status,))], 200)[-1].endswith(f"  {shown}")


def test_letters_of_two_columns_count_as_two() -> None:
    statuses = [
        EpisodeStatus(item=name, task="t", phase="agent", action="x" * 90)
        for name in ("\u6587" * 20, "e\u0301" * 8)
    ]
    wide, marked = lines_of([RunStatus(pid=1, episodes=tuple(statuses))], 60)[-2:]
    assert wide.startswith("..." + "\u6587" * 9 + "     0/?")
    assert marked.startswith("e\u0301" * 8 + " " * 18 + "0/?")


@pytest.mark.parametrize(
    ("phase", "shown"),
    [
        ("build", "(waits for its image)"),
        ("start", "(starts its sandbox)"),
        ("tests", "(is graded)"),
        ("", "ls"),
    ],
)
def test_what_an_episode_waits_for(phase: str, shown: str) -> None:
    status = EpisodeStatus(item="a", task="t", phase=phase, action="ls")
    assert lines_of([RunStatus(pid=1, episodes=(status,))], 80)[-1].endswith(f"  {shown}")


def test_it_survives_json() -> None:
    assert RunStatus.from_json({**RUN.to_json(), "of a later release": 1}) == RUN
    for wrong in ({}, {"episodes": 3}, {"episodes": [1]}, {"episodes": [], "pid": "x"}):
        with pytest.raises(ValueError, match=r"."):
            RunStatus.from_json(wrong)
