"""The books of a pool: what it has, what it should have, and which order gets it; no threads.

No sandbox is reserved before it has started. Whenever a sandbox can be started,
:meth:`Stock.next_starts` returns what is needed most, from the orders and the idle sandboxes at
that moment. A sandbox that has started goes to the first order for its spec.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec

__all__ = ["GRACE_PERIOD", "MIN_STOCK", "Demand", "Order", "Stock"]

GRACE_PERIOD = 2.0
"""Seconds for which a sandbox is kept that was expected until a moment ago: the item that it was
for has begun, and will ask for it."""

MIN_STOCK = 4
"""The smallest stock: two items with two sandboxes each. That is enough for an agent that thinks,
and for requests that were not observed."""

_MARGIN = 1.25
_MAX_TAKEN = 8  # sandboxes taken between two calls of `Pool.expect`
_RECENT_PERIOD = 30.0  # seconds
_WEIGHT = 0.2  # weight of the latest start in the average


class Demand:
    """How many sandboxes should be idle, from past requests and the time that starts take.

    A stock covers what is asked for while its replacement starts. So its size is the highest recent
    number of requests within the time of one start. Times are in seconds, of any one clock.

    Args:
        max_idle: the largest stock.
    """

    def __init__(self, max_idle: int) -> None:
        self._max_idle = max_idle
        self._start = 0.25  # the time of a start, until one is measured
        self._requests: deque[float] = deque()  # within the time of a start
        self._peaks: deque[tuple[float, int]] = deque()  # in falling order; the first is highest

    def record_request(self, now: float) -> None:
        """Note that a sandbox was asked for."""
        self._requests.append(now)
        while self._requests[0] < now - self._start:
            self._requests.popleft()
        count = len(self._requests)
        # An earlier peak that is not higher can never become the highest.
        while self._peaks and self._peaks[-1][1] <= count:
            self._peaks.pop()
        self._peaks.append((now, count))

    def started(self, seconds: float) -> None:
        """Note how long a start took, or how long an order waited for it."""
        self._start += _WEIGHT * (seconds - self._start)

    def stock(self, now: float) -> int:
        """Return how many should be idle."""
        while self._peaks and self._peaks[0][0] < now - _RECENT_PERIOD:
            self._peaks.popleft()
        peak = self._peaks[0][1] if self._peaks else 0
        return min(self._max_idle, max(MIN_STOCK, math.ceil(_MARGIN * peak)))


class _Pool(Protocol):
    def cancel(self, order: Order) -> None: ...


class Order:
    """A sandbox that was asked for.

    Attributes:
        spec: the spec of the sandbox.
        urgent: its caller does nothing but wait for it.
        number: orders of equal urgency are served in the order of their numbers.
        since: when it was asked for.
        host: the Docker host of the sandbox, after the wait; empty for this machine's engine.
    """

    def __init__(
        self, pool: _Pool, spec: SandboxSpec, *, urgent: bool, number: int, since: float
    ) -> None:
        self.spec = spec
        self.urgent = urgent
        self.number = number
        self.since = since
        self.host = ""
        self._pool = pool
        self._done = threading.Event()
        self._filled: list[Sandbox] = []
        self._error: BaseException | None = None

    def wait(self) -> Sandbox:
        """Wait for the sandbox and take it; call this only once.

        Raises:
            SandboxError: it could not be started, was cancelled, or the run is over.
            EngineUnavailable: the backend is gone.
        """
        try:
            self._done.wait()
        except BaseException:  # Ctrl-C
            self.cancel()
            raise
        sandbox = self.take()
        if sandbox is None:
            raise self._error or SandboxError("this sandbox was taken before")
        self.host = sandbox.host
        return sandbox

    def make_urgent(self) -> None:
        """Put it before all orders that are not urgent."""
        self.urgent = True

    def cancel(self) -> None:
        """Give up: a waiting thread gets a ``SandboxError``. Does nothing after :meth:`take`."""
        self._pool.cancel(self)

    @property
    def is_over(self) -> bool:
        """Whether its sandbox was taken, or it failed, so that it does not change any more."""
        return self._done.is_set() and not self._filled

    # -- for the pool

    def fill(self, sandbox: Sandbox) -> None:
        """Pass the sandbox on."""
        self._filled.append(sandbox)
        self._done.set()

    def fail(self, error: BaseException) -> None:
        """Report why there is no sandbox."""
        self._error = self._error or error
        self._done.set()

    def take(self) -> Sandbox | None:
        """Return the sandbox from :meth:`fill`, once; None for further callers."""
        try:
            return self._filled.pop()
        except IndexError:
            return None


class Stock:
    """The books of one pool, which calls this with its lock held. Times are of any one clock.

    Args:
        max_idle: how many sandboxes may be idle at a time. How many are idle depends on the demand.
    """

    def __init__(self, max_idle: int) -> None:
        self._max_idle = max_idle
        self._demand = Demand(max_idle)
        self._orders: list[Order] = []  # not filled yet
        self._idle: dict[SandboxSpec, deque[Sandbox]] = {}
        self._starting: Counter[SandboxSpec] = Counter()
        self._expected: list[SandboxSpec] = []
        self._recent: list[tuple[float, SandboxSpec]] = []  # expected, until a moment ago
        self._failing: set[SandboxSpec] = set()

    @property
    def starting(self) -> int:
        """How many are being started."""
        return self._starting.total()

    def useful(self, now: float) -> int:
        """Return how many to expect: those to be idle, and those taken until the next call."""
        return min(self._max_idle, self._demand.stock(now) + _MAX_TAKEN)

    def lacks(self, now: float) -> bool:
        """Whether fewer are expected than should be idle."""
        return len(self._expected) < self._demand.stock(now)

    # -- what is asked for

    def expect(self, specs: Sequence[SandboxSpec], now: float) -> None:
        """Note what will be asked for from now on, in order."""
        dropped = Counter(self._expected) - Counter(specs)
        self._recent += [(now + GRACE_PERIOD, spec) for spec in dropped.elements()]
        self._expected = list(specs)

    def add(self, order: Order) -> None:
        """Fill an order, or note it."""
        self._demand.record_request(order.since)
        self._no_longer_expect(order.spec)
        if order.spec in self._idle:
            order.fill(self._take_idle(order.spec))
        else:
            self._orders.append(order)

    def remove(self, order: Order) -> None:
        """Forget an order, if it is not filled yet."""
        with contextlib.suppress(ValueError):
            self._orders.remove(order)

    def next_starts(self, now: float) -> list[SandboxSpec]:
        """Return what to start in addition to what is being started, most urgent first."""
        specs = []
        # What is being started goes to the orders first, as in :meth:`put`; no order waits for a
        # spec with an idle sandbox.
        available = self._starting.copy()
        for order in self._queue():
            if available[order.spec] > 0:
                available[order.spec] -= 1
            else:
                specs.append(order.spec)
        # The rest of these, and the idle ones, count for what is expected.
        available.update({spec: len(idle) for spec, idle in self._idle.items()})
        room = self._demand.stock(now) - available.total()
        # Some of them are for items that have begun and are about to ask, and are not expected any
        # more.
        available.subtract(spec for _, spec in self._recent)
        for spec in self._expected:
            if room <= 0:
                break
            if available[spec] > 0:
                available[spec] -= 1
            elif spec not in self._failing:
                specs.append(spec)
                room -= 1
        return specs

    # -- what there is

    def begin(self, spec: SandboxSpec) -> None:
        """Note that one is being started."""
        self._starting[spec] += 1

    def started(self, spec: SandboxSpec, sandbox: Sandbox, began: float, now: float) -> None:
        """Pass on what was started, or keep it."""
        self._starting -= Counter([spec])
        self._failing.discard(spec)
        order = self.put(spec, sandbox)
        self._demand.started(now - (began if order is None else order.since))

    def failed(self, spec: SandboxSpec, problem: BaseException) -> None:
        """Fail the first order for it. If there is none, start the spec only when it is ordered."""
        self._starting -= Counter([spec])
        order = self._next_order(spec)
        if order is None:
            self._failing.add(spec)
        else:
            order.fail(problem)

    def put(self, spec: SandboxSpec, sandbox: Sandbox) -> Order | None:
        """Fill the first order for a sandbox, or keep it; return the order."""
        order = self._next_order(spec)
        if order is None:
            self._idle.setdefault(spec, deque()).append(sandbox)
        else:
            order.fill(sandbox)
        return order

    def take_surplus(self, now: float) -> Sandbox | None:
        """Return a sandbox that is not expected any more, if there is one."""
        self._recent = [recent for recent in self._recent if recent[0] > now]
        if not self._idle:
            return None
        expected = Counter([*self._expected, *(spec for _, spec in self._recent)])
        surplus = (spec for spec, idle in self._idle.items() if len(idle) > expected[spec])
        spec = next(surplus, None)
        return None if spec is None else self._take_idle(spec)

    def drop(self, lost: Callable[[Sandbox], bool]) -> list[Sandbox]:
        """Take out the idle sandboxes for which ``lost`` is true, and return them."""
        dropped = []
        for spec, idle in list(self._idle.items()):
            dropped += [sandbox for sandbox in idle if lost(sandbox)]
            remaining = deque(sandbox for sandbox in idle if not lost(sandbox))
            if remaining:
                self._idle[spec] = remaining
            else:
                del self._idle[spec]
        return dropped

    def next_surplus(self) -> float | None:
        """Return when there may be a surplus even if nothing happens; None for never."""
        return min(expiry for expiry, _ in self._recent) if self._idle and self._recent else None

    def clear(self) -> list[Order]:
        """Expect nothing any more, so that everything is surplus; return the waiting orders."""
        orders, self._orders = self._orders, []
        self._expected, self._recent = [], []
        return orders

    # -- inside

    def _queue(self) -> Iterator[Order]:
        return iter(sorted(self._orders, key=lambda order: (not order.urgent, order.number)))

    def _next_order(self, spec: SandboxSpec) -> Order | None:
        order = next((candidate for candidate in self._queue() if candidate.spec == spec), None)
        if order is not None:
            self._orders.remove(order)
        return order

    def _no_longer_expect(self, spec: SandboxSpec) -> None:
        # The recent one first: the item that asks now is probably the one for which it was kept.
        for index, (_, recent) in enumerate(self._recent):
            if recent == spec:
                del self._recent[index]
                return
        with contextlib.suppress(ValueError):
            self._expected.remove(spec)

    def _take_idle(self, spec: SandboxSpec) -> Sandbox:
        idle = self._idle[spec]
        sandbox = idle.popleft()
        if not idle:
            del self._idle[spec]
        return sandbox
