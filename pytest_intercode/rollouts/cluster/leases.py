"""The budget of a run on a cluster: the driver counts, and nodes use up what it leases to them.

A lease is some turns, tokens and money that a node may use up without asking. It is a part of what
is left, so leases become smaller as the end comes near, and single turns in the end. What is used
up, what is leased and what is free add up to the limit at any time, so no turn is ever taken that
there is not. Before a node is refused, the others are asked for what they do not use.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pytest_intercode.core.usage import UNSPENT, RunLimits, Usage
from pytest_intercode.rollouts.budgets import NOTHING, Amounts, RunBudget
from pytest_intercode.rollouts.cluster.messages import Message

__all__ = ["Answer", "LeasedBudget", "Leases", "Recall", "amounts_of", "limited_kinds"]

_MOST_TURNS = 16  # of a lease
_PART = 4  # a lease is one of so many parts of a node's share of what is free
_GRAIN = 1000  # a lease has at least one of so many parts of the limit: of tokens and of money
_PATIENCE = 60.0  # seconds in which the driver answers
_KINDS = Amounts._fields


def limited_kinds(limits: RunLimits) -> tuple[str, ...]:
    """Return which of turns, tokens and cost are limited."""
    return tuple(kind for kind in _KINDS if getattr(limits, kind) is not None)


def amounts_of(said: object) -> Amounts:
    """Return the amounts that a node speaks of.

    Raises:
        ValueError: they are none.
    """
    if not isinstance(said, list) or len(said) != len(_KINDS):
        raise ValueError("no amounts")
    turns, tokens, cost = said
    for number in (turns, tokens):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**53:
            raise ValueError(f"no number of turns or tokens: {number!r:.40}")
    if not isinstance(cost, (int, float)) or not (0 <= cost < math.inf):
        raise ValueError(f"no cost: {cost!r:.40}")
    return Amounts(turns, tokens, float(cost))


# -- the driver's side


class Answer(NamedTuple):
    """What a node is told that asked for a lease.

    Attributes:
        node: the node.
        call: its number of the question.
        lease: what it may use up from now on.
        spent: which budget of the run is used up; empty where there is a lease.
    """

    node: str
    call: int
    lease: Amounts
    spent: str


class Recall(NamedTuple):
    """A node is to give back what it does not use."""

    node: str


Order: TypeAlias = "Answer | Recall"


@dataclass
class _Leased:
    """What a node has.

    Attributes:
        left: what it was leased, and has neither used up nor given back, as far as it said.
        spent: all that it has used up, as far as it said.
        in_use: it has said what it does not use since it got its last lease, so that all that is
            left is under way.
        recalled: it is asked to give back.
        silent: it does not answer, so what is left counts as used up.
        under_way: how many turns may have been under way when it fell silent.
    """

    left: Amounts = NOTHING
    spent: Amounts = NOTHING
    in_use: bool = True
    recalled: bool = False
    silent: bool = False
    under_way: int = 0


class Leases:
    """Leases a run's budget to nodes, in parts. Pure: no threads, and no clock but the budget's.

    Args:
        budget: what the run has. Whoever else draws on it finds what is leased still there.
    """

    def __init__(self, budget: RunBudget) -> None:
        self._budget = budget
        self._nodes: dict[str, _Leased] = {}
        self._waiting: list[tuple[str, int]] = []
        self._leased = NOTHING  # what nodes have left, without silent ones

    def spend(self, node: str, total: Amounts) -> None:
        """Take note of all that a node has used up so far.

        Raises:
            ValueError: it is less than before.
        """
        state = self._of(node)
        more = total.minus(state.spent)
        if more != more.positive():
            raise ValueError("a node has used up less than before")
        state.spent = total
        self._change(state, state.left.minus(more).positive())
        self._budget.add(more)

    def ask(self, node: str, call: int, unused: Amounts) -> list[Order]:
        """Give a node another lease in place of what it does not use of the last one.

        Args:
            node: the node.
            call: its number of the question.
            unused: what it gives back.

        Returns:
            What nodes are to be told.
        """
        self._waiting.append((node, call))
        return self.give_back(node, unused)

    def give_back(self, node: str, unused: Amounts) -> list[Order]:
        """Take back what a node does not use; what is left to it is under way there."""
        state = self._of(node)
        self._change(state, state.left.minus(unused).positive())
        state.in_use, state.recalled = True, False
        return self._serve()

    def silence(self, node: str, under_way: int) -> list[Order]:
        """Count what a silent node has left as used up: it may go on using it up.

        Args:
            node: the node.
            under_way: how many turns may be under way there.
        """
        state = self._of(node)
        if not state.silent:
            state.silent, state.under_way = True, under_way
            self._leased = self._leased.minus(state.left)
            self._budget.add(state.left)
        return self._serve()

    def hear(self, node: str) -> list[Order]:
        """Let a node go on with what it has left, as it answers again."""
        state = self._of(node)
        if state.silent:
            self._budget.add(NOTHING.minus(state.left))
            self._leased = self._leased.plus(state.left)
            state.silent = state.in_use = state.recalled = False
        return self._serve()

    def lose(self, node: str, under_way: int) -> list[Order]:
        """Take back what is left to a node whose process has ended.

        Args:
            node: the node.
            under_way: how many turns may have been under way there: they count as used up.
        """
        state = self._nodes.pop(node, None)
        if state is None:
            return []
        lost = min(state.left.turns, state.under_way if state.silent else under_way)
        self._change(state, NOTHING)
        self._budget.add(Amounts(turns=lost))
        self._waiting = [asked for asked in self._waiting if asked[0] != node]
        return self._serve()

    # -- inside

    def _of(self, node: str) -> _Leased:
        return self._nodes.setdefault(node, _Leased())

    def _change(self, state: _Leased, left: Amounts) -> None:
        more, state.left = left.minus(state.left), left
        if state.silent:  # it counts as used up
            self._budget.add(more)
        else:
            self._leased = self._leased.plus(more)

    def _serve(self) -> list[Order]:
        """Answer those who wait, in order, until one has to wait for what others give back."""
        orders: list[Order] = []
        while self._waiting:
            node, call = self._waiting[0]
            used = self._budget.used
            taken = used.plus(self._leased)
            spent = self._budget.used_up(used)
            short = "" if spent else self._budget.used_up(taken)
            if short:
                others = [
                    each
                    for each, state in self._nodes.items()
                    if each != node and self._may_give(state)
                ]
                for other in others:
                    if not self._nodes[other].recalled:
                        self._nodes[other].recalled = True
                        orders.append(Recall(other))
                if others:
                    break
            del self._waiting[0]
            spent = spent or short
            lease = NOTHING if spent else self._part_of(taken)
            state = self._of(node)
            self._change(state, state.left.plus(lease))
            state.in_use = state.in_use and not any(lease)
            orders.append(Answer(node, call, lease, spent))
        return orders

    def _may_give(self, state: _Leased) -> bool:
        return not (state.silent or state.in_use) and any(state.left)

    def _part_of(self, taken: Amounts) -> Amounts:
        """Return a lease out of what is neither used up nor leased."""
        limits = self._budget.limits
        parts = _PART * max(1, len(self._nodes))
        turns, tokens, cost = 0, 0, 0.0
        if limits.turns is not None:
            turns = max(1, min(_MOST_TURNS, (limits.turns - taken.turns) // parts))
        if limits.tokens is not None:
            free = limits.tokens - taken.tokens
            tokens = min(free, max(free // parts, 1 + limits.tokens // _GRAIN))
        if limits.cost is not None:
            rest = limits.cost - taken.cost
            cost = min(rest, max(rest / parts, limits.cost / _GRAIN))
        return Amounts(turns, tokens, cost)


# -- a node's side


class LeasedBudget(RunBudget):
    """The run's budget where rollouts draw on it: what the driver has leased to this process.

    Args:
        limited: which of turns, tokens and cost are limited.
        limits: what this process looks at by itself: the run's time.
        say: sends the driver a message; called with a lock held, and returns at once.
        taken: called with how many turns the rollout of the present thread has taken.
    """

    def __init__(
        self,
        limited: Sequence[str],
        limits: RunLimits,
        say: Callable[[Message], None],
        taken: Callable[[int], None] = lambda turns: None,
    ) -> None:
        super().__init__(limits)
        self._limited = [_KINDS.index(kind) for kind in limited]
        self._say = say
        self._taken = taken
        self._state = threading.Lock()
        self._asking = threading.Lock()  # one thread asks; those beside it take of its lease
        self._lease = NOTHING
        self._spent = NOTHING
        self._recalled = False
        self._calls: dict[int, tuple[Amounts, Future[str]]] = {}  # what it is to have
        self._count = 0
        self._closed = ""

    # -- what rollouts call

    def begin_turn(self) -> str:
        """Take a turn, of the lease if there is one in it."""
        return self._wait_for_lease(Amounts(turns=1))

    def end_turn(self, taken: bool) -> None:
        """Count a turn as used up, or put it back into the lease."""
        if taken:
            self._taken(1)
        if not self._limited:
            return
        with self._state:
            if taken:
                self._spend(Amounts(turns=1))
            elif self._recalled:  # the driver was told that it is under way
                self._say({"what": "give_back", "unused": Amounts(turns=1)})
            else:
                self._lease = self._lease.plus(Amounts(turns=1))

    def charge(self, usage: Usage = UNSPENT, turns: int = 0) -> str:
        """Count what was used up, and say whether there is something left; it may ask for more."""
        if turns:
            self._taken(turns)
        if self._limited and (turns or usage):
            with self._state:
                more = Amounts(turns, usage.tokens, usage.cost or 0.0)
                self._lease = self._lease.minus(more).positive()
                self._spend(more)
        return self._wait_for_lease(NOTHING)

    # -- what the driver says

    def granted(self, message: Message) -> None:
        """Take an answer of the driver's, and the lease that is in it."""
        lease, spent = amounts_of(message["lease"]), str(message["spent"])
        with self._state:
            self._lease = self._lease.plus(lease)
            self._recalled = self._recalled and not any(lease)
            wanted, waiting = self._calls.pop(int(message["call"]), (NOTHING, None))
            if waiting is not None and not spent:
                # Now, as it may be recalled before the thread that waits for it runs again.
                self._lease = self._lease.minus(wanted).positive()
        if waiting is not None:
            waiting.set_result(spent)

    def recall(self) -> None:
        """Give back what is not in use."""
        with self._state:
            self._give_back()

    def close(self) -> None:
        """Let nobody wait for the driver any more."""
        with self._state:
            self._closed = "the run is over"
            calls, self._calls = self._calls, {}
        for _, waiting in calls.values():
            waiting.set_result(self._closed)

    # -- inside

    def _spend(self, more: Amounts) -> None:
        self._spent = self._spent.plus(more)
        self._say({"what": "spend", "total": self._spent})

    def _give_back(self) -> None:
        unused, self._lease = self._lease, NOTHING
        self._recalled = True
        self._say({"what": "give_back", "unused": unused})

    def _wait_for_lease(self, wanted: Amounts) -> str:
        """Take amounts of the lease; say which budget is used up where there is none to be had."""
        while True:
            spent = self.used_up(NOTHING)  # the time
            if spent or self._take(wanted):
                return spent
            with self._asking:
                with self._state:
                    if self._closed:
                        return self._closed
                    if not self._lacks():
                        continue
                    self._count += 1
                    call, answer = self._count, Future[str]()
                    self._calls[call] = wanted, answer
                    unused, self._lease = self._lease, NOTHING
                    self._recalled = True
                    self._say({"what": "ask", "call": call, "unused": unused})
                try:
                    return answer.result(_PATIENCE)
                except NoAnswer:
                    return "the driver, which counts what the run uses up, does not answer"

    def _take(self, wanted: Amounts) -> bool:
        with self._state:
            if self._lacks():
                return False
            self._lease = self._lease.minus(wanted).positive()
            return True

    def _lacks(self) -> bool:
        return any(self._lease[kind] <= 0 for kind in self._limited)
