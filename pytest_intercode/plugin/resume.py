"""``--intercode-resume``: what a results file holds already is reported, and not run again.

A result is taken if nothing that it depends on has changed: the task, the agent and its arguments,
the profile, and what the sandbox is made of. Only reads the file; the reporter appends to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from pytest_intercode.core.record import UNGRADED
from pytest_intercode.core.text import harmless
from pytest_intercode.plugin.run import SUITE_TASKS, Run, task_of
from pytest_intercode.results.writing import shown
from pytest_intercode.rollouts.rollout import sandbox_of
from pytest_intercode.suites.digest import digest

__all__ = ["Resumed", "resumed_of"]

_RESUMED = pytest.StashKey["Resumed"]()
_FOUND = pytest.StashKey["Mapping[str, Any] | None"]()


def resumed_of(config: pytest.Config) -> Resumed | None:
    """Return what this run takes from an earlier part of it; None where it begins anew."""
    return config.stash.get(_RESUMED, None)


class Resumed:
    """The results of a run that was begun before; also a pytest plugin.

    Args:
        run: the run that goes on.
        rows: the rows that its results file holds.
    """

    def __init__(self, run: Run, rows: Iterable[Mapping[str, Any]]) -> None:
        self._run = run
        run.config.stash[_RESUMED] = self
        self._rows = {
            str(row["node_id"]): row
            for row in rows
            if row.get("node_id") and row.get("outcome") not in (None, *UNGRADED)
        }

    @property
    def count(self) -> int:
        """How many results there are."""
        return len(self._rows)

    def record_of(self, item: pytest.Item) -> Mapping[str, Any] | None:
        """Return the result that an item need not be run for, or None."""
        if _FOUND not in item.stash:
            row = self._like(item)
            if row is not None:
                task = task_of(item)
                assert task is not None
                environment = self._run.environment(task)
                made_of = sandbox_of(environment, task, self._run.provider)
                row = row if made_of == (row.get("sandbox"), row.get("image")) else None
            item.stash[_FOUND] = row
        return item.stash[_FOUND]

    def _like(self, item: pytest.Item) -> Mapping[str, Any] | None:
        """Return the result of an item, if all but the sandbox is as it was."""
        row, task = self._rows.get(item.nodeid), task_of(item)
        # A test of the user's own may ask more than that the task be solved.
        if row is None or task is None or not _of_suite(item):
            return None
        settings = self._run.settings
        now = {
            "task_digest": digest(task),
            "agent": settings.agent,
            "agent_arguments": shown(settings.agent_arguments),
            "profile": settings.profile,
        }
        return row if all(row.get(name) == value for name, value in now.items()) else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Have what is there reported first, so that the rest may run side by side."""
        from pytest_intercode.plugin.xdist import is_worker

        if not is_worker(self._run.config):  # all of them have to agree on the order
            items.sort(key=lambda item: self._like(item) is None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Report an item's earlier result in place of running it."""
        row = self.record_of(item)
        if row is None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in _reports(item, row):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def _of_suite(item: pytest.Item) -> bool:
    module = item.getparent(pytest.Module)
    return module is not None and SUITE_TASKS in module.stash


def _reports(item: pytest.Item, row: Mapping[str, Any]) -> Iterable[pytest.TestReport]:
    """Make the three reports of an item that is not run."""
    for when in ("setup", "call", "teardown"):
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords=dict.fromkeys(item.keywords, 1),
            outcome="passed",
            longrepr=None,
            when=when,
        )
        if when == "call":
            _grade(report, item, row)
        yield report


def _grade(report: pytest.TestReport, item: pytest.Item, row: Mapping[str, Any]) -> None:
    vars(report)["intercode"] = dict(row)
    vars(report)["intercode_resumed"] = True
    expected = item.get_closest_marker("xfail")
    if expected is not None:
        vars(report)["wasxfail"] = str(expected.kwargs.get("reason", ""))
    if row["outcome"] == "solved":
        return
    report.outcome = "failed" if expected is None else "skipped"
    turns = row["summary"]["turns_taken"]
    why = f": {row['reason']}" if row.get("reason") else ""
    report.longrepr = harmless(
        f"{row['outcome']}, reward {row['reward']:.2f} after {turns} turns{why} "
        "(of the run that is resumed, not run again)"
    )
