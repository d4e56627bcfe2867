"""How large the stock is, and who gets what of it, without threads."""

from __future__ import annotations

from collections import Counter
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_intercode.sandboxes.pool import Pool
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.stock import GRACE_PERIOD, Demand, Order, Stock

A, B, C = (SandboxSpec(name) for name in "abc")


class Box:
    """Stands for a sandbox."""

    place = ""

    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec


def test_the_stock_covers_what_is_asked_for_within_a_start() -> None:
    demand = Demand(max_idle=32)
    assert demand.stock(0.0) == 4
    for _ in range(50):
        demand.started(1.0)
    for number in range(40):
        demand.record_request(10 + number / 8)  # eight in a second
    assert demand.stock(15.0) == 10  # they, and a quarter more
    assert demand.stock(100.0) == 4
    for _ in range(40):
        demand.record_request(200.0)
    assert demand.stock(200.0) == 32
    quick = Demand(max_idle=32)
    for number in range(40):
        quick.started(0.02)
        quick.record_request(10 + number / 8)
    assert quick.stock(15.0) == 4
    assert Demand(max_idle=3).stock(0.0) == 3


class Moves:
    """A run of a few items, in an order of events that hypothesis makes up."""

    def __init__(self, items: list[list[SandboxSpec]], own: bool) -> None:
        self.items, self.own = items, own
        self.stock = Stock(max_idle=6)
        self.now = 0.0
        self.begun = self.started = 0
        self.unasked: list[list[SandboxSpec]] = []
        self.orders: list[Order] = []
        self.starting: list[SandboxSpec] = []

    def begin(self) -> None:
        if self.begun < len(self.items):
            upcoming = self.items[self.begun + (not self.own) :]
            self.stock.expect([spec for item in upcoming for spec in item][:6], self.now)
            self.unasked.append(self.items[self.begun])
            self.begun += 1

    def ask(self, which: int) -> None:
        for spec in self.unasked.pop(which % len(self.unasked)) if self.unasked else []:
            self._order(spec, urgent=bool(which % 2))

    def _order(self, spec: SandboxSpec, urgent: bool) -> None:
        number = len(self.orders)
        order = Order(cast(Pool, None), spec, urgent=urgent, number=number, since=self.now)
        self.orders.append(order)
        self.stock.add(order)

    def start(self) -> None:
        wanted = self.stock.next_starts(self.now)
        waiting = [order for order in self.orders if not order._done.is_set()]
        if not wanted:
            assert len(waiting) <= len(self.starting)
            return
        lacking = Counter(order.spec for order in waiting) - Counter(self.starting)
        if lacking:
            assert wanted[0] in lacking
        self.stock.begin(wanted[0])
        self.starting.append(wanted[0])

    def finish(self, which: int) -> None:
        if self.starting:
            spec = self.starting.pop(which % len(self.starting))
            self.started += 1
            self.stock.started(spec, cast(Sandbox, Box(spec)), self.now, self.now)

    def tick(self) -> None:
        """Let time pass, but not so much that an item that has begun does not ask in time."""
        self.now += GRACE_PERIOD / 1000

    def check(self) -> None:
        assert sum(map(len, self.stock._idle.values())) <= 6
        assert self.stock.take_surplus(self.now) is None
        assert self.stock.starting == len(self.starting)


@settings(max_examples=150, deadline=None)
@given(
    items=st.lists(st.lists(st.sampled_from([A, B, C]), max_size=3), max_size=8),
    own=st.booleans(),
    moves=st.lists(st.tuples(st.sampled_from("baasssfft"), st.integers(0, 7)), max_size=80),
)
def test_whatever_happens_when_all_is_used_and_the_first_in_line_is_served(
    items: list[list[SandboxSpec]], own: bool, moves: list[tuple[str, int]]
) -> None:
    run = Moves(items, own)

    def move(name: str, which: int) -> None:
        if name == "b":
            run.begin()
        elif name == "a":
            run.ask(which)
        elif name == "s":
            run.start()
        elif name == "f":
            run.finish(which)
        else:
            run.tick()
        run.check()

    for name, which in moves:
        move(name, which)
    for _ in range(len(items) * 4 + 8):
        for name in "bassff":
            move(name, 0)
    assert all(order._done.is_set() for order in run.orders)
    for order in run.orders:
        sandbox = order.take()
        assert sandbox is not None
        assert cast(Box, sandbox).spec == order.spec
    assert run.started == len(run.orders) == sum(map(len, items))
