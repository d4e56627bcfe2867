"""The run's budget on a node: every turn is asked for, and the driver's own budget counts.

The driver counts a turn before it is run, and what was used up in its one
:class:`~pytest_intercode.rollouts.budgets.RunBudget`: what a lost node had begun stays used up, and
nothing is shared out that would have to be taken back. It costs a round trip a turn, and none
where turns, tokens and money have no limit.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer

from pytest_intercode.core.usage import UNSPENT, RunLimits, Usage
from pytest_intercode.rollouts.budgets import NOTHING, Amounts, RunBudget
from pytest_intercode.rollouts.cluster.messages import BadMessage, Message, whole

__all__ = ["RemoteBudget", "amounts_of"]

_ANSWER_TIMEOUT = 60.0  # seconds in which the driver answers


def amounts_of(message: Message) -> Amounts:
    """Return the amounts that a node has used up.

    Raises:
        BadMessage: they are not amounts.
    """
    cost = message.get("cost")
    if not isinstance(cost, (int, float)) or not (0 <= cost < math.inf):
        raise BadMessage(f"cost is {cost!r:.40}")
    return Amounts(whole(message, "turns"), whole(message, "tokens"), float(cost))


class RemoteBudget(RunBudget):
    """What rollouts on a node ask; the driver answers.

    Args:
        limited: whether turns, tokens or cost are limited.
        seconds: what is left of the run's time; None for no limit.
        send: sends the driver a message; returns at once.
        note_turns: called with how many turns the rollout of the present thread has taken.
    """

    def __init__(
        self,
        limited: bool,
        seconds: float | None,
        send: Callable[[Message], None],
        note_turns: Callable[[int], None],
    ) -> None:
        super().__init__(RunLimits(seconds=seconds))
        self._limited = limited
        self._send = send
        self._note_turns = note_turns
        self._waiting: dict[int, Future[str]] = {}
        self._calls = itertools.count(1)
        self._answers = threading.Lock()
        self._exhausted = ""  # as far as the driver has said
        self._closed = ""

    def begin_turn(self) -> str:
        """Ask the driver for a turn."""
        return self.used_up(NOTHING) or self._ask({"what": "begin_turn"})

    def end_turn(self, taken: bool) -> None:
        """Let the driver know what became of a turn."""
        if taken:
            self._note_turns(1)
        if self._limited:
            self._send({"what": "end_turn", "taken": taken})

    def charge(self, usage: Usage = UNSPENT, turns: int = 0) -> str:
        """Have the driver count what was used up; return what is exhausted, as far as is known."""
        if turns:
            self._note_turns(turns)
        exhausted = self.used_up(NOTHING)  # the time
        if turns or usage:
            amounts = {"turns": turns, "tokens": usage.tokens, "cost": usage.cost or 0.0}
            exhausted = self._ask({"what": "charge", **amounts}) or exhausted
        return exhausted or self._exhausted

    def take_answer(self, message: Message) -> None:
        """Take an answer of the driver's."""
        self._exhausted = str(message["exhausted"])
        with self._answers:
            future = self._waiting.pop(int(message["call"]), None)
        if future is not None:
            future.set_result(str(message["refused"]))

    def close(self) -> None:
        """Let nobody wait for the driver any more."""
        with self._answers:
            self._closed = "the run is over"
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_result(self._closed)

    def _ask(self, message: Message) -> str:
        """Return why the driver refuses something, or nothing."""
        if not self._limited:
            return ""
        future: Future[str] = Future()
        with self._answers:
            if self._closed:
                return self._closed
            call = next(self._calls)
            self._waiting[call] = future
        self._send({**message, "call": call})
        try:
            return future.result(_ANSWER_TIMEOUT)
        except NoAnswer:
            return "the driver, which counts what the run uses up, does not answer"
