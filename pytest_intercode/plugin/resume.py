"""``--intercode-resume``: reports results that a file already holds, instead of running again.

A result is reused if nothing that it depends on has changed: the task, the agent and its arguments,
the profile, and what the sandbox is made of. The result of a project test is reused if its code,
its parameters and what it copies are unchanged, and the file has all of its runs. This module only
reads the file; the reporter appends to it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Literal, NamedTuple

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import one_line, pluralize
from pytest_intercode.plugin.marks import expect_failure
from pytest_intercode.plugin.masking import key_masks_of
from pytest_intercode.plugin.project_cells import ProjectCell, cell_of, name_test
from pytest_intercode.plugin.project_digests import explain_changes
from pytest_intercode.plugin.project_recordings import is_recorded
from pytest_intercode.plugin.reports import RAN_AGAIN, keep_episode
from pytest_intercode.plugin.run import Run, agent_of, is_own_test, spec_of, task_of
from pytest_intercode.results.format import shown_arguments
from pytest_intercode.rollouts.records import sandbox_of
from pytest_intercode.system.digest import digest

__all__ = ["Resumed", "resumed_of"]

_RESUMED = pytest.StashKey["Resumed"]()
_RECORDS = pytest.StashKey[tuple[EpisodeRecord, ...]]()
_RUN_NUMBER = re.compile(r" #([0-9]+)$")  # the number of a run in its test, from 2


def resumed_of(config: pytest.Config) -> Resumed | None:
    """Return what this run reuses from an earlier part of it; None if it starts fresh."""
    return config.stash.get(_RESUMED, None)


class _Key(NamedTuple):
    """Identifies an item and its record.

    It has neither the label of an agent nor the ids of items, because these change when other
    agents are added to the run or removed from it.
    """

    function: str
    task: str
    treatment: str
    repeat: int
    agent: str
    arguments: tuple[tuple[str, str], ...]


class Resumed:
    """The results of an earlier part of a run; also a pytest plugin.

    Args:
        run: the run that resumes it.
        records: the episodes that its results file holds.
    """

    def __init__(self, run: Run, records: Iterable[EpisodeRecord]) -> None:
        self._run = run
        run.config.stash[_RESUMED] = self
        tests: dict[_Key, list[EpisodeRecord]] = defaultdict(list)
        for record in records:
            if not record.node_id or record.superseded:
                continue
            number = _number_of_run(record) if record.test_digest else 1
            key = self._key(
                *(record.node_id, record.task.id.removesuffix(f" #{number}")),
                *(record.task.treatment, record.task.repeat),
                *(record.agent, record.agent_arguments),
            )
            if number == 1:  # the later result counts
                tests[key].clear()
            tests[key].append(record)
        self._tests = {key: tuple(runs) for key, runs in tests.items() if _are_whole(runs)}

    def _key(
        self,
        node_id: str,
        task: str,
        treatment: str,
        repeat: int,
        agent: str,
        arguments: Mapping[str, str],
    ) -> _Key:
        """Return the key of an episode; its agent and arguments are as results show them."""
        mask = key_masks_of(self._run.config).text
        shown_values = shown_arguments(arguments)
        pairs = tuple(sorted((name, mask(value)) for name, value in shown_values.items()))
        return _Key(node_id.partition("[")[0], task, treatment, repeat, mask(agent), pairs)

    @property
    def count(self) -> int:
        """How many episodes can be reused."""
        return sum(map(len, self._tests.values()))

    def has_result(self, item: pytest.Item) -> bool:
        """Whether an item need not run, because it already has a result."""
        return bool(self._records_of(item))

    def _records_of(self, item: pytest.Item) -> tuple[EpisodeRecord, ...]:
        """Return the episodes of an item's earlier result; none if the item has to run."""
        if _RECORDS not in item.stash:
            item.stash[_RECORDS] = self._test_records(item) or self._task_records(item)
        return item.stash[_RECORDS]

    def _task_records(self, item: pytest.Item) -> tuple[EpisodeRecord, ...]:
        """Return the result of a task's item, if it still holds."""
        records = self._unchanged_records(item)
        if records:
            task = task_of(item)
            assert task is not None
            composition = self._run.composition
            try:
                with closing(composition.environment(spec_of(item, task))) as environment:
                    identity = sandbox_of(environment, task, composition.provider)
            except Exception:  # of a hook, an environment or an image: the item itself reports it
                return ()
            if identity != (records[0].sandbox, records[0].image):
                return ()
        return records

    def _unchanged_records(self, item: pytest.Item) -> tuple[EpisodeRecord, ...]:
        """Return the result of a task's item, if nothing except maybe the sandbox has changed."""
        task, agent = task_of(item), agent_of(item)
        # A user's own test may require more than a solved task.
        if task is None or agent is None or is_own_test(item):
            return ()
        key = self._key(
            *(item.nodeid, task.id, task.treatment, task.repeat),
            *(agent.name, agent.arguments),
        )
        for record in self._tests.get(key, ()):
            if record.profile == self._run.settings.profile and record.task.digest == digest(task):
                return (replace(record, node_id=item.nodeid),)
        return ()

    def _test_records(self, item: pytest.Item) -> tuple[EpisodeRecord, ...]:
        """Return the result of a project test, if it still holds; otherwise note why not."""
        cell = cell_of(item)
        if cell is None:
            return ()
        key = self._key(
            *(item.nodeid, name_test(item, cell)[1]),
            *(cell.treatment.name if cell.treatment is not None else "", cell.repeat),
            *(cell.agent.name, cell.agent.arguments),
        )
        records = self._tests.get(key, ())
        if not records:
            return ()
        reason = self._reason_to_run(item, cell, records)
        if reason:
            item.stash[RAN_AGAIN] = reason
            return ()
        return tuple(replace(record, node_id=item.nodeid) for record in records)

    def _reason_to_run(
        self, item: pytest.Item, cell: ProjectCell, records: Sequence[EpisodeRecord]
    ) -> str:
        """Return why a project test runs although it has a result; empty if the result holds."""
        for record in records:
            if reason := explain_changes(item, cell, record.test_digest):
                return reason
        if self._run.settings.record in ("missing", "all") and not is_recorded(item):
            return "it has no recording"
        expected_errors = [mark.kwargs.get("raises") for mark in item.iter_markers("xfail")]
        if any(expected_errors) and not records[-1].succeeded:
            return "its xfail mark expects an error, and errors are not recorded"
        return ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Report existing results first, so that all other items may run concurrently."""
        from pytest_intercode.plugin.xdist import is_worker

        if not is_worker(self._run.config):  # all workers have to agree on the order
            items.sort(key=lambda item: not self._unchanged_records(item))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Report an item's earlier result instead of running it."""
        records = self._records_of(item)
        if not records:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._make_reports(item, records):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _make_reports(
        self, item: pytest.Item, records: Sequence[EpisodeRecord]
    ) -> Iterable[pytest.TestReport]:
        """Make the reports of an item that does not run, as pytest does for one that runs."""
        if is_own_test(item):
            expect_failure(item, self._run, records[0])
        # This plugin knows which marks apply, and how they change a report.
        skipping = item.config.pluginmanager.get_plugin("skipping")
        phases: dict[Literal["setup", "call", "teardown"], Callable[[], None]] = {
            "setup": lambda: skipping and skipping.pytest_runtest_setup(item),
            "call": lambda: _repeat_result(item, records),
            "teardown": lambda: None,
        }
        passed = True
        for phase, action in phases.items():
            if passed or phase == "teardown":
                call = pytest.CallInfo.from_call(action, phase)
                report = item.ihook.pytest_runtest_makereport(item=item, call=call)
                vars(report)["intercode_resumed"] = True
                passed = report.passed
                yield report


def _repeat_result(item: pytest.Item, records: Sequence[EpisodeRecord]) -> None:
    """Pass or fail as an item did before.

    Raises:
        Failed: the item failed before.
    """
    for record in records:
        keep_episode(item, record)
    record = records[-1]
    if not record.succeeded:
        reason = f": {record.reason}" if record.reason else ""
        turns = pluralize(len(record.turns), "turn")
        message = (
            f"{record.outcome}, reward {record.reward:.2f} after {turns}{reason} (reused from the "
            "resumed run)"
        )
        pytest.fail(one_line(message), pytrace=False)


def _are_whole(records: Sequence[EpisodeRecord]) -> bool:
    """Whether records are complete for an item, and say something about its agent.

    A killed run of pytest may have written the first run of a test but not the second.
    """
    if not all(record.graded for record in records):
        return False
    if not records[0].test_digest:
        return len(records) == 1
    numbers = [_number_of_run(record) for record in records]
    return (
        numbers == list(range(1, len(records) + 1))
        and {record.test_runs for record in records} == {len(records)}
        and all(record.test_passed is not None for record in records)
    )


def _number_of_run(record: EpisodeRecord) -> int:
    number = _RUN_NUMBER.search(record.task.id)
    return int(number[1]) if number is not None else 1
