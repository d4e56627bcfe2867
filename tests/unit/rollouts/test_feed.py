"""What is next, what is looked ahead for, and the records that wait to be taken."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.core.task import Task
from pytest_intercode.errors import SandboxError
from pytest_intercode.rollouts.feed import LookAhead, RecordQueue, Tries
from pytest_intercode.rollouts.spec import RolloutSpec

TASK = Task("t", "Do something.", ("true",), "bash", "s", "d")
RECORD = EpisodeRecord(TaskRecord("t", "q", "bash"), "solved", 1.0, (), 10, 1.0, "strict")


class Provider:
    """Runs what is to be done behind somebody's back when it is asked to."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], object]] = []

    def background(self, job: Callable[[], object]) -> None:
        self.jobs.append(job)

    def expect(self, specs: Iterator[object]) -> None:
        list(specs)

    def provides_for(self, environment: Environment) -> bool:
        return environment.provider is self


class Environment:
    def __init__(self, provider: object) -> None:
        self.provider = provider


def test_it_looks_ahead_once_at_a_time_for_environments_of_its_own() -> None:
    provider = Provider()
    looks: list[int] = []

    def upcoming() -> list[Task]:
        looks.append(1)
        return []

    ahead: Any = LookAhead(lambda: provider, upcoming, "strict")  # type: ignore[arg-type, return-value]
    ahead.look(Environment(object()))
    assert not provider.jobs, "its sandboxes are somebody else's"
    ahead.look(Environment(provider))
    ahead.look(Environment(provider))
    assert len(provider.jobs) == 1
    provider.jobs.pop()()
    ahead.look(Environment(provider))
    assert len(provider.jobs) == 1
    assert len(looks) == 1


def test_a_look_that_cannot_begin_is_none() -> None:
    class Closed(Provider):
        def background(self, job: Callable[[], object]) -> None:
            raise SandboxError("the run is over")

    provider = Closed()
    ahead: Any = LookAhead(lambda: provider, list, "strict")  # type: ignore[arg-type, return-value]
    for _ in range(2):
        with pytest.raises(SandboxError):
            ahead.look(Environment(provider))


def _tries(tasks: Any, count: int, concurrency: int) -> Tries:
    return Tries(lambda task: RolloutSpec(task), tasks, count, lambda task: None, concurrency)


def test_tries_come_one_after_the_other_and_are_foreseen() -> None:
    tasks = [replace(TASK, id=str(number)) for number in range(3)]
    tries = _tries(tasks, 2, 4)
    assert [task.id for task in tries.upcoming()] == ["0", "0", "1", "1"]
    first = [next(tries).task for _ in range(3)]
    assert [(task.id, task.repeat) for task in first] == [("0", 1), ("0", 2), ("1", 1)]
    assert [task.id for task in tries.upcoming()] == ["1", "1", "2", "2"]
    assert len(list(tries)) == 3


def test_of_tasks_that_nobody_can_foresee_it_expects_those_that_came() -> None:
    tries = _tries((replace(TASK, id=str(number)) for number in itertools.count()), 1, 2)
    assert tries.upcoming() == []
    for _ in range(3):
        next(tries)
    assert [task.id for task in tries.upcoming()] == ["1", "2"]


@pytest.mark.parametrize(("ordered", "wanted"), [(True, [0, 1, 2]), (False, [2, 0, 1])])
def test_records_come_in_order_or_as_they_end(ordered: bool, wanted: list[int]) -> None:
    queue = RecordQueue(ordered=ordered, more_to_come=lambda: False)
    with queue.changed:
        for number in (2, 0, 1):
            queue.put(number, RECORD)
    assert len(queue) == 3
    assert [record.item for _ in range(3) if (record := queue.take())] == wanted
    assert queue.take() is None


def test_an_error_is_met_once_no_record_is_left() -> None:
    queue = RecordQueue(ordered=False, more_to_come=lambda: True)
    with queue.changed:
        queue.put(0, RECORD)
        queue.error = SandboxError("gone")
    assert queue.take() is not None
    with pytest.raises(SandboxError, match="gone"):
        queue.take()


def test_whoever_waits_is_woken_by_a_record_and_by_the_end() -> None:
    queue = RecordQueue(ordered=True, more_to_come=lambda: True)

    async def take() -> int | None:
        record = await queue.take_async()
        return None if record is None else record.item

    def put() -> None:
        with queue.changed:
            queue.put(0, RECORD)
            queue.notify()

    threading.Timer(0.05, put).start()
    assert asyncio.run(take()) == 0
    threading.Timer(0.05, queue.close).start()
    assert queue.take() is None
    with queue.changed:
        queue.put(1, RECORD)
    assert len(queue) == 0, "nobody will take it"
