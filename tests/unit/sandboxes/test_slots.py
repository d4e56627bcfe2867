"""Slots: how many there are, who comes first, and what a child has of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_intercode.sandboxes.slots import Slots

SOON = 10.0


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as executor:
        yield executor


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "slots"
    path.touch()
    return path


def drawn(file: Path) -> int:
    """Return how many have asked for a slot so far."""
    return int.from_bytes(file.read_bytes()[:8], "little")


def await_true(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < limit, "not in time"
        time.sleep(0.001)


def test_slots_bound_what_runs_at_once(file: Path, threads: ThreadPoolExecutor) -> None:
    both = [Slots(file, 2), Slots(file, 2)]  # as two processes would have
    stop = threading.Event()
    inside: list[int] = []
    most = []

    def use(slots: Slots) -> None:
        slot = slots.take(stop)
        assert slot is not None
        inside.append(slot)
        most.append(len(inside))
        time.sleep(0.002)
        inside.remove(slot)
        slots.give_back(slot)

    for future in [threads.submit(use, both[number % 2]) for number in range(24)]:
        future.result(SOON)
    assert max(most) == 2


def test_slots_are_had_in_the_order_of_asking(file: Path, threads: ThreadPoolExecutor) -> None:
    slots = Slots(file, 1)
    stop = threading.Event()
    slot = slots.take(stop)
    assert slot is not None
    waiting: list[Future[int | None]] = []
    for number in range(3):
        waiting.append(threads.submit(slots.take, stop))
        await_true(lambda: drawn(file) == number + 2)  # noqa: B023
    for at in range(3):
        slots.give_back(slot)
        slot = waiting[at].result(SOON)
        assert slot is not None
        assert not any(later.done() for later in waiting[at + 1 :])
    stop.set()
    assert slots.take(stop) is None
    slots.give_back(slot)


def test_a_forked_child_holds_no_slot(file: Path) -> None:
    slots = Slots(file, 1)
    slot = slots.take(threading.Event())
    assert slot is not None
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.fstat(slot)
            os.write(writing, b"open")
        except OSError:
            os.write(writing, b"closed")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 10) == b"closed"
    os.close(reading)
    os.close(writing)
    slots.give_back(slot)


def test_what_is_left_next_to_the_file(file: Path, threads: ThreadPoolExecutor) -> None:
    file.write_bytes((1).to_bytes(8, "little"))
    left_ticket = file.with_name("slots.ticket-0")
    left_ticket.touch()  # of one that was killed
    slots = Slots(file, 2)
    stop = threading.Event()
    taken = [slots.take(stop), slots.take(stop)]
    assert not left_ticket.exists()
    waiting = threads.submit(slots.take, stop)
    await_true(file.with_name("slots.ticket-3").exists)
    stop.set()
    assert waiting.result(SOON) is None
    for slot in taken:
        assert slot is not None
        slots.give_back(slot)
    assert sorted(path.name for path in file.parent.iterdir()) == [
        *("slots", "slots.slot-0", "slots.slot-1")
    ]
