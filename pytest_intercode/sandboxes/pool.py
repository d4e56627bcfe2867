"""Starts all sandboxes, in one order: what agents wait for, then gold's, then what comes next.

Starting a container takes 50 to 150 ms, most of it waiting for the engine, and an engine that gets
many requests simultaneously is slower at all of them. So a few threads start what is needed most;
while agents think, that is what is expected next. A sandbox is used once: each episode gets a fresh
one, and starting early makes it fast.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable
from itertools import islice

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.protocol import Launcher, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.slots import Slots
from pytest_intercode.sandboxes.stock import Order, Stock

__all__ = ["RUN_IS_OVER", "Pool", "fill"]

_CLOSE_TIMEOUT = 10.0
"""Seconds that starts may take to end when the pool closes; the engine ends the rest."""

_FILL_TIMEOUT = 60.0  # seconds

RUN_IS_OVER = "the run is over, and no sandbox is started any more"


def fill(sandbox: Sandbox, archive: bytes, command: str) -> None:
    """Unpack an archive in a sandbox, and run one of our commands.

    Raises:
        SandboxError: the unpacking or the command fails.
    """
    sandbox.unpack(archive)
    failed, output = sandbox.admin(command, _FILL_TIMEOUT)
    if failed:
        raise SandboxError(f"sandbox {sandbox.name} cannot be made ready: {output[-300:]!r}")


class Pool:
    """Starts sandboxes, if possible before they are asked for.

    Args:
        launcher: the backend; it reports how many simultaneous starts are useful.
        size: how many sandboxes may be idle at a time. How many are idle depends on the demand.
        slots: bounds the starts of several processes together.
    """

    def __init__(self, launcher: Launcher, size: int = 32, *, slots: Slots | None = None) -> None:
        self._launcher = launcher
        self._size = size
        self._slots = slots
        self._closed = threading.Event()
        self._changed = threading.Condition()  # its lock guards all that follows
        self._stock = Stock(size)
        self._numbers = itertools.count(1)
        self._latest = 0  # the number of the last call of `expect`
        self._threads: list[threading.Thread] = []
        self._waiting = 0  # the threads that are about to start something

    # -- for episodes

    def expect(self, specs: Iterable[SandboxSpec]) -> None:
        """Note what will be asked for from now on, in order, and close other idle sandboxes.

        What an episode that has begun is about to ask for may be included; what was ordered already
        must not be. Of simultaneous calls, the one that began last counts.

        Args:
            specs: no more is taken from it than may be idle until the next call.
        """
        with self._changed:
            number = next(self._numbers)
            limit = self._stock.useful(time.monotonic())
        expected = list(islice(specs, limit))  # without the lock, as it may take a while
        with self._changed:
            if number > self._latest and not self._closed.is_set():
                self._latest = number
                self._stock.expect(expected, time.monotonic())
                self._wake()

    @property
    def lacks(self) -> bool:
        """Whether it is time to call :meth:`expect` again."""
        with self._changed:
            return self._stock.lacks(time.monotonic())

    def order(self, spec: SandboxSpec, *, urgent: bool = True) -> Order:
        """Ask for a fresh sandbox without waiting for it.

        Args:
            spec: the spec of the sandbox.
            urgent: the caller waits for it; else it comes after all urgent orders.

        Raises:
            SandboxError: the pool is closed.
        """
        with self._changed:
            if self._closed.is_set():
                raise SandboxError(RUN_IS_OVER)
            number = next(self._numbers)
            order = Order(self, spec, urgent=urgent, number=number, since=time.monotonic())
            self._stock.add(order)
            self._wake()
        return order

    def cancel(self, order: Order) -> None:
        """Cancel an order, and keep its sandbox for others if that was not taken yet."""
        if order.is_over:
            return
        with self._changed:
            self._stock.remove(order)
            order.fail(SandboxError("the sandbox is no longer needed"))
            sandbox = order.take()
            if sandbox is not None and not self._closed.is_set():
                self._stock.put(order.spec, sandbox)
                sandbox = None
            self._wake()
        if sandbox is not None:
            sandbox.close()

    def drop(self, lost: Callable[[Sandbox], bool]) -> None:
        """Close the idle sandboxes for which ``lost`` is true, and start others where needed."""
        with self._changed:
            dropped = self._stock.drop(lost)
            self._wake()
        for sandbox in dropped:
            sandbox.close()

    def close(self) -> None:
        """Close every idle sandbox, and fail every order."""
        with self._changed:
            self._closed.set()
            for order in self._stock.clear():
                order.fail(SandboxError(RUN_IS_OVER))
            self._changed.notify_all()
        while True:  # the starters do the same
            with self._changed:
                sandbox = self._stock.take_surplus(time.monotonic())
            if sandbox is None:
                break
            sandbox.close()
        deadline = time.monotonic() + _CLOSE_TIMEOUT
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # -- starters

    def _wake(self) -> None:
        """Start and wake as many starters as there is work for; call this with the lock held."""
        if not self._closed.is_set() and len(self._threads) < self._launcher.starters:
            free = len(self._threads) - self._stock.starting
            lacking = len(self._stock.next_starts(time.monotonic())) - free
            for _ in range(min(lacking, self._launcher.starters - len(self._threads))):
                name = f"intercode-pool-{len(self._threads) + 1}"
                # A daemon: a process that forgets to close the pool ends nevertheless, and its
                # sandboxes end with it.
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the machine has no room for it
                    # The running starters do the work; without any, nobody ever would.
                    for order in self._stock.clear() if not self._threads else ():
                        order.fail(SandboxError(f"no sandbox can be started: {error}"))
                    break
                self._threads.append(thread)
        self._changed.notify()  # a starter that finds work wakes the next one

    def _work(self) -> None:
        while True:
            with self._changed:
                current_time = time.monotonic()
                # First, and even after the end: whoever closes the pool wants them all closed, and
                # several threads are faster.
                surplus = self._stock.take_surplus(current_time)
                if surplus is None:
                    if self._closed.is_set():
                        return
                    # One thread at a time waits for a slot; when it has the slot, the next one
                    # waits.
                    limit = 1 if self._slots else len(self._threads)
                    if self._waiting >= min(limit, len(self._stock.next_starts(current_time))):
                        surplus_time = self._stock.next_surplus()
                        self._changed.wait(
                            None if surplus_time is None else max(0.0, surplus_time - current_time)
                        )
                        continue
                    self._waiting += 1
                self._changed.notify()
            # Without the lock, as both take a while.
            if surplus is None:
                self._start()
            else:
                with contextlib.suppress(Exception):  # or this starter would end
                    surplus.close()

    def _start(self) -> None:
        """Start what is needed most, as soon as a slot is free."""
        slot: int | None = None
        problem: BaseException | None = None
        try:
            if self._slots is not None:
                slot = self._slots.take(self._closed)
        except OSError as error:
            problem = SandboxError(f"the slots that bound how many sandboxes start: {error}")
        # Chosen only now: what is needed most may have changed during the wait for the slot.
        with self._changed:
            self._waiting -= 1
            specs = [] if self._closed.is_set() else self._stock.next_starts(time.monotonic())
            if specs:
                self._stock.begin(specs[0])
            self._changed.notify()
        try:
            if specs:
                self._launch(specs[0], problem)
        finally:
            if slot is not None and self._slots is not None:
                self._slots.give_back(slot)

    def _launch(self, spec: SandboxSpec, problem: BaseException | None) -> None:
        """Start a sandbox, unless there is a problem already."""
        began = time.monotonic()
        sandbox: Sandbox | None = None
        try:
            if problem is None:
                sandbox = self._launcher.launch(spec)
                if spec.content is not None:
                    fill(sandbox, *spec.content)
        except BaseException as error:
            problem = error
        with self._changed:
            if problem is not None:
                # A sandbox that could not be filled still exists, and is closed below, like one
                # that starts after the end.
                self._stock.failed(spec, problem)
            elif sandbox is not None and not self._closed.is_set():
                self._stock.started(spec, sandbox, began, time.monotonic())
                sandbox = None
            self._wake()
        if sandbox is not None:
            sandbox.close()
