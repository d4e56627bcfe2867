"""``--intercode-resume``: results that a file holds already are reported, and not run again.

A result is taken if nothing that it depends on has changed: the task, the agent and its arguments,
the profile, and what the sandbox is made of. Only reads the file; the reporter appends to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import one_line, pluralize
from pytest_intercode.plugin.pass_rates import attach_try
from pytest_intercode.plugin.run import Run, agent_of, is_own_test, spec_of, task_of
from pytest_intercode.results.format import shown_arguments, to_line
from pytest_intercode.rollouts.records import sandbox_of
from pytest_intercode.system.digest import digest

__all__ = ["Resumed", "resumed_of"]

_RESUMED = pytest.StashKey["Resumed"]()
_RECORD = pytest.StashKey["EpisodeRecord | None"]()


def resumed_of(config: pytest.Config) -> Resumed | None:
    """Return what this run takes from an earlier part of it; None where it starts fresh."""
    return config.stash.get(_RESUMED, None)


class _Key(NamedTuple):
    """What an item and its record have in common.

    An agent is called otherwise, and the ids of its items are others, where the run has got or lost
    other agents since.
    """

    function: str
    task: str
    repeat: int
    agent: str
    arguments: tuple[tuple[str, str], ...]

    @classmethod
    def of(
        cls, node_id: str, task: str, repeat: int, agent: str, arguments: Mapping[str, str]
    ) -> _Key:
        """Return the key of an episode; arguments are as results show them."""
        pairs = tuple(sorted(shown_arguments(arguments).items()))
        return cls(node_id.partition("[")[0], task, repeat, agent, pairs)


class Resumed:
    """The results of a run that was begun before; also a pytest plugin.

    Args:
        run: the run that resumes it.
        records: the episodes that its results file holds.
    """

    def __init__(self, run: Run, records: Iterable[EpisodeRecord]) -> None:
        self._run = run
        run.config.stash[_RESUMED] = self
        self._records = {
            _Key.of(
                *(record.node_id, record.task.id, record.task.repeat),
                *(record.agent, record.agent_arguments),
            ): record
            for record in records
            if record.node_id and record.graded
        }

    @property
    def count(self) -> int:
        """How many results there are."""
        return len(self._records)

    def record_of(self, item: pytest.Item) -> EpisodeRecord | None:
        """Return the result that an item need not be run for, or None."""
        if _RECORD not in item.stash:
            record = self._find_unchanged(item)
            if record is not None:
                task = task_of(item)
                assert task is not None
                environment = self._run.composition.environment(spec_of(item, task))
                identity = sandbox_of(environment, task, self._run.composition.provider)
                record = record if identity == (record.sandbox, record.image) else None
            item.stash[_RECORD] = record
        return item.stash[_RECORD]

    def _find_unchanged(self, item: pytest.Item) -> EpisodeRecord | None:
        """Return the result of an item, if all but the sandbox is as it was."""
        task, agent = task_of(item), agent_of(item)
        # A test of the user's own may ask more than that the task be solved.
        if task is None or agent is None or is_own_test(item):
            return None
        key = _Key.of(item.nodeid, task.id, task.repeat, agent.name, agent.arguments)
        record = self._records.get(key)
        if record is None or record.profile != self._run.settings.profile:
            return None
        if record.task.digest != digest(task):
            return None
        return replace(record, node_id=item.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Report what is there first, so that all other items may run concurrently."""
        from pytest_intercode.plugin.xdist import is_worker

        if not is_worker(self._run.config):  # all of them have to agree on the order
            items.sort(key=lambda item: self._find_unchanged(item) is None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Report an item's earlier result instead of running it."""
        record = self.record_of(item)
        if record is None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in _make_reports(item, record):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def _make_reports(item: pytest.Item, record: EpisodeRecord) -> Iterable[pytest.TestReport]:
    """Make the three reports of an item that is not run."""
    for phase in ("setup", "call", "teardown"):
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords=dict.fromkeys(item.keywords, 1),
            outcome="passed",
            longrepr=None,
            when=phase,
        )
        if phase == "call":
            _set_outcome(report, item, record)
        yield report


def _set_outcome(report: pytest.TestReport, item: pytest.Item, record: EpisodeRecord) -> None:
    vars(report)["intercode"] = [to_line(record)]
    vars(report)["intercode_resumed"] = True
    expected = item.get_closest_marker("xfail")
    if expected is not None:
        vars(report)["wasxfail"] = one_line(str(expected.kwargs.get("reason", "")))
    if not record.solved:
        report.outcome = "failed" if expected is None else "skipped"
        reason = f": {record.reason}" if record.reason else ""
        turns = pluralize(len(record.turns), "turn")
        report.longrepr = one_line(
            f"{record.outcome}, reward {record.reward:.2f} after {turns}{reason} (reused from the "
            "resumed run)"
        )
    attach_try(report, item, [record])
