"""What a test asks of a run whose agent left what could not be read."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.errors import UngradableState
from pytest_intercode.judging.question import describe_episode
from pytest_intercode.page.trajectories import end_state_sections
from pytest_intercode.projects.run import ProjectRun

UNREAD = {"unread": "a process holds a lease on /a\n::error::b, so it cannot be read"}


def record_of(state: dict[str, Any], reason: str = "") -> EpisodeRecord:
    task = TaskRecord(id="t", query="Do it.", env="project")
    return EpisodeRecord(task, "failed", 0.0, (), 10, 1.0, "strict", reason=reason, state=state)


@pytest.mark.parametrize(
    "ask",
    [
        lambda run: run.unchanged("legacy/"),
        lambda run: run.created("x"),
        *map(operator.attrgetter, ("created", "changed", "deleted", "diff", "commits")),
    ],
)
@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (record_of({"project": UNREAD, "message": "Done."}), "a process holds a lease on /a"),
        (record_of({}, "the agent broke its sandbox: x"), "the agent broke its sandbox: x"),
        (record_of({"message": "Done."}), "the record does not have it"),
    ],
)
def test_nothing_is_said_of_what_could_not_be_read(
    record: EpisodeRecord, reason: str, ask: Callable[[ProjectRun], object]
) -> None:
    with pytest.raises(UngradableState) as raised:
        ask(ProjectRun(record, None))
    assert str(raised.value).startswith(f"what the agent left could not be read: {reason}")
    assert "\n" not in str(raised.value)


def test_an_empty_state_is_an_answer() -> None:
    run = ProjectRun(record_of({"project": {}}), None)
    assert run.created == run.changed == run.deleted == ()
    assert run.commits == ()
    assert run.unchanged(".")
    assert run.diff == ""


def test_judges_and_the_page_are_told() -> None:
    record = record_of({"project": UNREAD, "message": "Done."})
    assert "so it cannot be read" in describe_episode(record).text
    sections = end_state_sections(record)
    assert sections[-1]["title"] == "Patch"
    [[_, line]] = sections[-1]["lines"]
    assert line.startswith("what was left could not be read: a process holds a lease on /a")
