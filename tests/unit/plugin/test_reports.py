"""The episode of a report: taken off once, whether the report was made here or in a worker."""

from __future__ import annotations

import gc
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.gateway.masking import Masks
from pytest_intercode.plugin import masking
from pytest_intercode.plugin.reports import (
    complete,
    detach_episodes,
    keep_episode,
    reported_episode,
)
from pytest_intercode.plugin.run import SUITE_TASKS
from pytest_intercode.results.format import from_row, to_line


def _episode() -> EpisodeRecord:
    turns = {"actions": ["ls", "submit"], "valid_action": [True, None]}
    return from_row({"environment": "ic_bash", "task_id": "a", "turn_history": turns})


def _report() -> pytest.TestReport:
    return pytest.TestReport("x::test[a]", ("x", 0, "test[a]"), {}, "passed", None, "call")


def test_what_is_reported_here_is_taken_off_and_not_kept(pytestconfig: pytest.Config) -> None:
    suite = SimpleNamespace(stash={SUITE_TASKS: ()})
    values = {"stash": pytest.Stash(), "user_properties": [], "config": pytestconfig}
    item = cast(Any, SimpleNamespace(**values, getparent=lambda kind: suite))
    episode, report = _episode(), _report()
    keep_episode(item, episode)
    complete(report, item, cast(Any, SimpleNamespace(excinfo=None)))
    assert reported_episode(report) is episode
    ((detached, line),) = detach_episodes(report)
    assert detached is episode
    assert line == to_line(episode)
    assert reported_episode(report) is None
    del detached
    referrers = gc.get_referrers(episode)
    holders = [holder for holder in referrers if isinstance(holder, (dict, list))]
    assert not holders, "pytest keeps reports, so that nothing may hold their episodes"


def test_other_plugins_find_no_key_on_a_report() -> None:
    suite = SimpleNamespace(stash={SUITE_TASKS: ()})
    config = SimpleNamespace(stash=pytest.Stash())
    config.stash[masking._KEY_MASKS] = Masks.of_keys(["my-own-secret-key"])
    values = {"stash": pytest.Stash(), "user_properties": [], "config": config}
    item = cast(Any, SimpleNamespace(**values, getparent=lambda kind: suite))
    report = _report()
    keep_episode(item, replace(_episode(), detail="with my-own-secret-key"))
    complete(report, item, cast(Any, SimpleNamespace(excinfo=None)))
    (line,) = vars(report)["intercode"]
    assert "with intercode-masked-key" in line


def test_what_a_worker_reports_is_read() -> None:
    report = _report()
    vars(report)["intercode"] = [to_line(_episode())]
    assert detach_episodes(report)[0][0].task.id == "a"
    assert not hasattr(report, "intercode")
