"""The pool's order, its size and its end, with a backend in memory and real threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from pytest_intercode.errors import EngineUnavailable, SandboxError
from pytest_intercode.sandboxes import stock as stock_module
from pytest_intercode.sandboxes.pool import Pool
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.slots import Slots
from tests.support.interrupts import ctrl_c_after

SOON = 10.0
A, B, C = (SandboxSpec(name) for name in "abc")


class Box:
    """Stands for a sandbox."""

    name, host = "box", ""

    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()

    def unpack(self, archive: bytes) -> None:
        self.unpacked = archive

    def admin(self, command: str, timeout: float) -> tuple[int, bytes]:
        return int(command == "false"), b"no"


class Machine:
    """A backend whose starts take as long as the test wants."""

    def __init__(self, starters: int = 3) -> None:
        self.starters = starters
        self.boxes: list[Box] = []
        self.begun: list[SandboxSpec] = []
        self.at_once = self.most_at_once = 0
        self.problems: list[BaseException] = []  # of the next starts
        self._lock = threading.Condition()
        self._allowed: float = float("inf")

    def hold(self) -> None:
        """Let no start end from now on."""
        self._allowed = 0

    def let(self, count: float = float("inf")) -> None:
        """Let some more starts end."""
        with self._lock:
            self._allowed += count
            self._lock.notify_all()

    def launch(self, spec: SandboxSpec) -> Sandbox:
        with self._lock:
            self.begun.append(spec)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._allowed > 0)
            self._allowed -= 1
            self.at_once -= 1
            if self.problems:
                raise self.problems.pop(0)
            box = Box(spec)
            self.boxes.append(box)
            self._lock.notify_all()
        return cast(Sandbox, box)

    def close(self) -> None: ...

    def await_begun(self, *specs: SandboxSpec) -> None:
        """Wait until just these starts have begun, in this order."""
        self.await_true(lambda: len(self.begun) >= len(specs))
        assert self.begun == list(specs)

    def await_true(self, condition: Callable[[], bool]) -> None:
        with self._lock:
            assert self._lock.wait_for(condition, SOON)

    @property
    def left(self) -> list[Box]:
        return [box for box in self.boxes if not box.closed.is_set()]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as executor:
        yield executor


def box_of(sandbox: Sandbox) -> Box:
    return cast(Box, sandbox)


def spec_of(sandbox: Sandbox) -> SandboxSpec:
    return box_of(sandbox).spec


def idle(pool: Pool) -> int:
    with pool._changed:
        return sum(map(len, pool._stock._idle.values()))


def await_true(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < limit, "not in time"
        time.sleep(0.001)


# -- order


def test_no_more_than_the_starters_start_at_once(threads: ThreadPoolExecutor) -> None:
    machine = Machine(starters=3)
    pool = Pool(machine)
    machine.hold()
    acquired = [threads.submit(lambda spec: pool.order(spec).wait(), spec) for spec in [A, B] * 10]
    machine.await_true(lambda: machine.at_once == 3)
    machine.let()
    boxes = [future.result(SOON) for future in acquired]
    assert len(set(map(id, boxes))) == len(machine.boxes) == 20
    assert [spec_of(box) for box in boxes] == [A, B] * 10
    assert machine.most_at_once == 3
    pool.close()


def test_agents_come_before_gold_and_gold_before_what_is_next() -> None:
    machine = Machine(starters=1)
    pool = Pool(machine)
    machine.hold()
    first = pool.order(A)
    machine.await_begun(A)
    pool.expect([C])
    gold, agent = pool.order(B, urgent=False), pool.order(A)
    machine.let()
    assert spec_of(first.wait()) == spec_of(agent.wait()) == A
    assert spec_of(gold.wait()) == B
    machine.await_begun(A, A, B, C)
    pool.close()


def test_gold_is_hurried_when_it_is_waited_for() -> None:
    machine = Machine(starters=1)
    pool = Pool(machine)
    machine.hold()
    first = pool.order(A)
    machine.await_begun(A)
    golds = [pool.order(B, urgent=False), pool.order(C, urgent=False)]
    golds[1].make_urgent()
    machine.let()
    for order in (first, *golds):
        order.wait()
    assert machine.begun == [A, C, B]
    pool.close()


def test_a_start_on_its_way_goes_to_who_asks_for_its_like() -> None:
    machine = Machine(starters=1)
    pool = Pool(machine)
    machine.hold()
    pool.expect([A, B])
    machine.await_begun(A)
    pool.expect([B])
    order = pool.order(A)
    machine.let()
    order.wait()
    assert spec_of(pool.order(B).wait()) == B
    assert machine.begun == [A, B]
    pool.close()


def test_what_was_started_for_gold_goes_to_an_agent_that_came_meanwhile() -> None:
    machine = Machine(starters=1)
    pool = Pool(machine)
    machine.hold()
    gold = pool.order(A, urgent=False)
    machine.await_begun(A)
    agent = pool.order(A)
    machine.let(1)
    assert box_of(agent.wait()) is machine.boxes[0]
    assert gold.take() is None
    machine.let(1)
    assert box_of(gold.wait()) is machine.boxes[1]
    pool.close()


# -- what is started ahead


@pytest.mark.parametrize("own", [True, False], ids=["with its own", "without"])
@pytest.mark.parametrize("beside", [1, 5])
def test_nothing_is_started_that_is_not_used(
    own: bool, beside: int, threads: ThreadPoolExecutor
) -> None:
    machine = Machine(starters=3)
    pool = Pool(machine, size=8)
    items = [[A, A], [A, B], [C], [], [B, B, B]] * 8
    waiting = iter(range(len(items)))
    lock = threading.Lock()

    def episodes() -> int:
        taken = 0
        while True:
            with lock:
                at = next(waiting, None)
                if at is None:
                    return taken
                upcoming = items[at if own else at + 1 :]
                pool.expect(spec for item in upcoming for spec in item)
            orders = [pool.order(spec, urgent=not n) for n, spec in enumerate(items[at])]
            for order in orders:
                order.wait().close()
            taken += len(orders)
            assert idle(pool) <= 8

    taken = sum(future.result(SOON) for future in [threads.submit(episodes) for _ in range(beside)])
    assert taken == len(machine.begun) == len(machine.boxes) == 64
    assert machine.left == []
    pool.close()


def test_what_is_next_is_there_when_it_is_asked_for() -> None:
    machine = Machine()
    pool = Pool(machine)
    pool.expect([A, B])
    machine.await_true(lambda: len(machine.boxes) == 2)
    await_true(lambda: idle(pool) == 2)
    machine.hold()
    assert {spec_of(pool.order(spec).wait()) for spec in (A, B)} == {A, B}
    machine.let()
    pool.close()


def test_no_more_is_idle_than_may_be_and_no_more_is_looked_at() -> None:
    machine = Machine()
    pool = Pool(machine, size=3)
    looked_at = []

    def upcoming() -> Iterator[SandboxSpec]:
        for spec in [A, B, C, A, B, C]:
            looked_at.append(spec)
            yield spec

    pool.expect(upcoming())
    assert looked_at == [A, B, C]
    await_true(lambda: idle(pool) == 3)
    assert Counter(machine.begun) == Counter([A, B, C])
    pool.close()
    assert machine.left == []


def test_no_more_is_looked_at_than_the_demand_asks_for_and_it_says_when_that_is_used() -> None:
    pool = Pool(Machine())
    upcoming = iter([A] * 32)
    assert pool.lacks
    pool.expect(upcoming)
    looked_at = 32 - len(list(upcoming))
    assert stock_module.MIN_STOCK <= looked_at < 32
    assert not pool.lacks
    for _ in range(looked_at):
        pool.order(A).wait()
    assert pool.lacks
    pool.close()


def test_what_is_no_longer_expected_is_given_back_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stock_module, "GRACE_PERIOD", 0.2)
    machine = Machine()
    pool = Pool(machine)
    pool.expect([A, B])
    await_true(lambda: idle(pool) == 2)
    pool.expect([B])
    assert machine.left == machine.boxes
    await_true(lambda: len(machine.left) == 1)
    assert machine.left[0].spec == B
    pool.close()


def test_of_two_calls_at_the_same_time_the_later_counts(threads: ThreadPoolExecutor) -> None:
    machine = Machine()
    pool = Pool(machine)
    reading, read_on = threading.Event(), threading.Event()

    def slow() -> Iterator[SandboxSpec]:
        reading.set()
        assert read_on.wait(SOON)
        yield A

    earlier = threads.submit(pool.expect, slow())
    assert reading.wait(SOON)
    pool.expect([B])
    read_on.set()
    earlier.result(SOON)
    await_true(lambda: idle(pool) == 1)
    assert machine.begun == [B]
    pool.close()


# -- failures


def test_a_start_that_fails_is_told_to_one_who_waits(threads: ThreadPoolExecutor) -> None:
    machine = Machine(starters=2)
    machine.problems = [EngineUnavailable("gone")]
    pool = Pool(machine)
    acquired = [threads.submit(lambda: pool.order(A).wait()) for _ in range(4)]
    problems = [future.exception(SOON) for future in acquired]
    assert [str(problem) for problem in problems if problem] == ["gone"]
    assert len(machine.begun) == 4
    pool.close()


def test_an_early_start_that_fails_is_no_error_and_tried_again_when_asked_for() -> None:
    machine = Machine(starters=1)
    machine.problems = [SandboxError("not told")]
    pool = Pool(machine)
    pool.expect([A, A, B])
    await_true(lambda: idle(pool) == 1)
    assert machine.begun == [A, B]
    machine.problems = [SandboxError("told")]
    with pytest.raises(SandboxError, match=r"^told$"):
        pool.order(A).wait()
    pool.expect([A, B])
    pool.order(A).wait()
    assert machine.begun == [A, B, A, A]
    pool.expect([A, B])  # and now it can be started ahead
    await_true(lambda: idle(pool) == 2)
    assert machine.begun == [A, B, A, A, A]
    pool.close()


def test_close_fails_orders_at_once_and_ends_starts() -> None:
    machine = Machine(starters=2)
    pool = Pool(machine)
    pool.expect([C, C])
    await_true(lambda: idle(pool) == 2)
    machine.hold()
    pool.expect([])
    orders = [pool.order(spec) for spec in (A, A, B)]
    machine.await_true(lambda: machine.at_once == 2)
    closing = threading.Thread(target=pool.close)
    closing.start()
    for order in orders:
        with pytest.raises(SandboxError, match="the run is over"):
            order.wait()
    await_true(lambda: machine.left == [])  # though two are on their way
    machine.let()
    closing.join(SOON)
    assert not closing.is_alive()
    assert len(machine.boxes) == 4
    assert machine.left == []
    with pytest.raises(SandboxError, match="the run is over"):
        pool.order(A)
    pool.expect([A])
    pool.close()
    assert len(machine.begun) == 4


def test_a_pool_that_was_never_used_has_no_threads() -> None:
    before = threading.active_count()
    pool = Pool(Machine())
    pool.expect([])
    assert threading.active_count() == before
    pool.close()


def test_a_cancelled_order_gives_its_sandbox_to_the_next() -> None:
    machine = Machine(starters=1)
    pool = Pool(machine)
    machine.hold()
    first, second, third = (pool.order(A) for _ in range(3))
    machine.await_begun(A)
    second.cancel()
    machine.let(1)
    await_true(first._done.is_set)
    first.cancel()  # it has come, and was not taken
    assert box_of(third.wait()) is machine.boxes[0]
    third.cancel()  # too late to matter
    for order in (first, second):
        with pytest.raises(SandboxError, match="no longer needed"):
            order.wait()
    machine.let()
    pool.close()
    assert len(machine.begun) <= 2
    assert machine.left == machine.boxes[:1]


def test_what_is_expected_no_more_is_closed() -> None:
    machine = Machine(starters=1)
    pool = Pool(machine)
    order = pool.order(A)
    await_true(order._done.is_set)
    order.cancel()
    assert machine.boxes[0].closed.wait(SOON)
    pool.close()


def test_ctrl_c_while_waiting_cancels_the_order() -> None:
    machine = Machine(starters=1)
    pool = Pool(machine)
    machine.hold()
    with ctrl_c_after(lambda: machine.await_begun(A)), pytest.raises(KeyboardInterrupt):
        pool.order(A).wait()
    machine.let()
    await_true(lambda: len(machine.boxes) == 1)
    assert machine.boxes[0].closed.wait(SOON)
    pool.close()


# -- beside other processes


def test_a_pool_that_waits_for_a_slot_closes(tmp_path: Path) -> None:
    file = tmp_path / "slots"
    file.touch()
    others = Slots(file, 1)
    slot = others.take(threading.Event())
    assert slot is not None
    machine = Machine(starters=3)
    pool = Pool(machine, slots=Slots(file, 1))
    orders = [pool.order(A), pool.order(A)]
    await_true(lambda: file.read_bytes()[:1] == b"\2")  # tickets: the other's, and ours
    pool.close()
    for order in orders:
        with pytest.raises(SandboxError, match="the run is over"):
            order.wait()
    assert machine.begun == []
    others.give_back(slot)


def test_slots_whose_file_is_gone_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "slots"
    file.touch()
    slots = Slots(file, 1)
    pool = Pool(Machine(), slots=slots)
    pool.order(A).wait().close()
    file.unlink()
    with pytest.raises(SandboxError, match="the slots that bound how many sandboxes start"):
        pool.order(A).wait()
    pool.close()


def test_what_is_lost_is_dropped_and_replaced() -> None:
    machine = Machine()
    pool = Pool(machine)
    pool.expect([A, A, B])
    await_true(lambda: idle(pool) == 3)
    lost = [box for box in machine.left if box.spec == A]
    pool.drop(lambda sandbox: box_of(sandbox) in lost)
    await_true(lambda: idle(pool) == 3)
    assert all(box.closed.is_set() for box in lost)
    assert box_of(pool.order(A).wait()) not in lost
    pool.close()


def test_content_is_there_before_anybody_gets_the_sandbox() -> None:
    machine = Machine()
    pool = Pool(machine)
    filled = replace(A, content=(b"archive", "true"))
    pool.expect([filled])
    machine.await_begun(filled)
    assert cast(Box, pool.order(filled).wait()).unpacked == b"archive"
    with pytest.raises(SandboxError, match="cannot be made ready"):
        pool.order(replace(A, content=(b"archive", "false"))).wait()
    assert machine.boxes[-1].closed.wait(SOON)
    pool.close()


@pytest.mark.parametrize("running", [0, 1])
def test_a_machine_without_room_for_a_thread(running: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What starts already goes on; where nothing does, orders fail, and a later one may do."""
    machine = Machine()
    pool = Pool(machine)
    if running:
        pool.order(A).wait()
    refused = threading.Event()

    def refuse(thread: threading.Thread) -> None:
        refused.set()
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        machine.hold()
        orders = [pool.order(spec) for spec in (A, B, C)]
        machine.let()
        for order in orders:
            with nullcontext() if running else pytest.raises(SandboxError, match="new thread"):
                order.wait()
        assert refused.is_set()
    assert pool.order(A).wait()
    pool.close()
    assert len(machine.boxes) == (5 if running else 1)
