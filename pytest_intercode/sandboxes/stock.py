"""What a pool has, what it should have, and who gets it: the bookkeeping, without threads.

Nothing is bound to anybody before it is there. Whenever something can be started, this says what is
wanted most, by who waits and what is missing then; and whenever a sandbox is there, it goes to the
first who waits for its like.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from pytest_intercode.sandboxes.demand import Demand
from pytest_intercode.sandboxes.orders import Order
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec

__all__ = ["GRACE", "Stock"]

GRACE = 2.0
"""Seconds in which a sandbox is still kept that was expected until a moment ago: the item that it
was for has begun, and will ask for it."""


class Stock:
    """The books of one pool, which calls with its lock held. Times are of any one clock.

    Args:
        most: how many sandboxes may be idle at a time. How many are, depends on the demand.
    """

    def __init__(self, most: int) -> None:
        self._demand = Demand(most)
        self._orders: list[Order] = []  # not filled yet
        self._idle: dict[SandboxSpec, deque[Sandbox]] = {}
        self._starting: Counter[SandboxSpec] = Counter()
        self._expected: list[SandboxSpec] = []
        self._lately: list[tuple[float, SandboxSpec]] = []  # expected, until a moment ago
        self._failing: set[SandboxSpec] = set()

    @property
    def starting(self) -> int:
        """How many are being started."""
        return self._starting.total()

    # -- what is asked for

    def expect(self, specs: Sequence[SandboxSpec], now: float) -> None:
        """Note what will be asked for from now on, in order."""
        dropped = Counter(self._expected) - Counter(specs)
        self._lately += [(now + GRACE, spec) for spec in dropped.elements()]
        self._expected = list(specs)

    def add(self, order: Order) -> None:
        """Fill an order, or note it."""
        self._demand.asked(order.since)
        self._no_longer_expect(order.spec)
        if order.spec in self._idle:
            order.fill(self._take_idle(order.spec))
        else:
            self._orders.append(order)

    def remove(self, order: Order) -> None:
        """Forget an order, if it is not filled yet."""
        with contextlib.suppress(ValueError):
            self._orders.remove(order)

    def wanted(self, now: float) -> list[SandboxSpec]:
        """Return what is to be started beside what is being started, most urgent first."""
        wanted = []
        held = self._starting.copy()
        for order in self._line():
            if held[order.spec] > 0:
                held[order.spec] -= 1
            else:
                wanted.append(order.spec)
        held.update({spec: len(idle) for spec, idle in self._idle.items()})
        room = self._demand.stock(now) - held.total()
        held.subtract(spec for _, spec in self._lately)
        for spec in self._expected:
            if held[spec] > 0:
                held[spec] -= 1
            elif room > 0 and spec not in self._failing:
                wanted.append(spec)
                room -= 1
        return wanted

    # -- what there is

    def begin(self, spec: SandboxSpec) -> None:
        """Note that one is being started."""
        self._starting[spec] += 1

    def started(self, spec: SandboxSpec, sandbox: Sandbox, began: float, now: float) -> None:
        """Hand over what was started, or keep it."""
        self._starting -= Counter([spec])
        self._failing.discard(spec)
        order = self.put(spec, sandbox)
        self._demand.started(now - (began if order is None else order.since))

    def failed(self, spec: SandboxSpec, problem: BaseException) -> None:
        """Tell the first who waits for it; or nobody, and do not start the like of it ahead.

        Whoever asks for it then has it started, and is told.
        """
        self._starting -= Counter([spec])
        order = self._next_in_line(spec)
        if order is None:
            self._failing.add(spec)
        else:
            order.fail(problem)

    def put(self, spec: SandboxSpec, sandbox: Sandbox) -> Order | None:
        """Hand a sandbox to the first who waits for its like, or keep it; return the order."""
        order = self._next_in_line(spec)
        if order is None:
            self._idle.setdefault(spec, deque()).append(sandbox)
        else:
            order.fill(sandbox)
        return order

    def take_surplus(self, now: float) -> Sandbox | None:
        """Return a sandbox that nobody will ask for, if there is one."""
        self._lately = [each for each in self._lately if each[0] > now]
        kept = Counter([*self._expected, *(spec for _, spec in self._lately)])
        surplus = (spec for spec, idle in self._idle.items() if len(idle) > kept[spec])
        spec = next(surplus, None)
        return None if spec is None else self._take_idle(spec)

    def next_surplus(self) -> float | None:
        """Return when there may be a surplus though nothing happens; None for never."""
        return min(until for until, _ in self._lately) if self._idle and self._lately else None

    def clear(self) -> list[Order]:
        """Expect nothing any more, so that all is surplus; return who waits."""
        orders, self._orders = self._orders, []
        self._expected, self._lately = [], []
        return orders

    # -- inside

    def _line(self) -> Iterator[Order]:
        return iter(sorted(self._orders, key=lambda order: (not order.urgent, order.number)))

    def _next_in_line(self, spec: SandboxSpec) -> Order | None:
        order = next((each for each in self._line() if each.spec == spec), None)
        if order is not None:
            self._orders.remove(order)
        return order

    def _no_longer_expect(self, spec: SandboxSpec) -> None:
        for at, (_, lately) in enumerate(self._lately):
            if lately == spec:
                del self._lately[at]
                return
        with contextlib.suppress(ValueError):
            self._expected.remove(spec)

    def _take_idle(self, spec: SandboxSpec) -> Sandbox:
        idle = self._idle[spec]
        sandbox = idle.popleft()
        if not idle:
            del self._idle[spec]
        return sandbox
