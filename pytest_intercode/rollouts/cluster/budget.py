"""The run's budget on a cluster: nodes ask for every turn, and one actor next to the driver counts.

A turn is counted before it is run, so the turns that a lost node had begun stay used up, and no
share of the budget has to be taken back from a node. This costs one round trip per turn, and none
if turns, tokens and money have no limit.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from pytest_intercode.core.usage import UNSPENT, RunLimits, Usage
from pytest_intercode.rollouts.budgets import NOTHING, Amounts, RunBudget
from pytest_intercode.rollouts.cluster.messages import decode, encode, whole

__all__ = ["BudgetActor", "RemoteBudget", "budget_message"]

_RESTART_TIMEOUT = 30.0  # seconds in which an actor that has ended is restarted
_RETRY_INTERVAL = 0.2  # seconds


def budget_message(budget: RunBudget, path: Path) -> bytes:
    """Return the argument of :class:`BudgetActor` for a budget that is shared by a file."""
    limits = asdict(budget.limits)
    return encode({"limits": limits, "began": budget.began, "path": str(path)})


class BudgetActor:
    """Counts the usage of nodes. It shares the driver's budget by a file, as xdist's workers do.

    Ray runs it as an actor on the driver's machine, and restarts it if it ends. An argument that is
    not an amount raises an exception in the node that asks.

    Args:
        data: what :func:`budget_message` returned.
    """

    def __init__(self, data: bytes) -> None:
        fields = decode(data)
        self._budget = RunBudget(
            RunLimits(**fields["limits"]), began=fields["began"], path=Path(fields["path"])
        )
        self._open_turns: Counter[str] = Counter()  # by node

    def begin_turn(self, node: str) -> bytes:
        """Take a turn; return why it is refused, if it is, and which budget is used up by now."""
        refused = self._budget.begin_turn()
        self._open_turns[node] += not refused
        return self._answer(refused)

    def end_turn(self, node: str, taken: bool) -> None:
        """End a turn that a node has begun; it is given back if it was not taken."""
        if not self._open_turns[node]:  # the node would gain a turn
            raise ValueError("a turn that was not begun")
        self._open_turns[node] -= 1
        self._budget.end_turn(taken)

    def charge(self, turns: int, tokens: int, cost: float) -> bytes:
        """Count usage; answer as :meth:`begin_turn` does."""
        if not 0 <= cost < math.inf:
            raise ValueError(f"a cost of {cost}")
        return self._answer(self._budget.add(Amounts(whole(turns), whole(tokens), float(cost))))

    def _answer(self, refused: str) -> bytes:
        return encode({"refused": refused, "exhausted": self._budget.add(NOTHING)})


class RemoteBudget(RunBudget):
    """The budget that rollouts on a node use.

    Args:
        seconds: the remaining seconds of the run; None for no limit.
        call: calls a method of the actor, and returns a function that returns its answer or raises
            if there is none; None if neither turns nor tokens nor cost are limited.
        node: identifies this process to the actor.
        note_turns: called with the number of turns that the current thread's rollout has taken.
    """

    def __init__(
        self,
        seconds: float | None,
        call: Callable[..., Callable[[], object]] | None,
        node: str,
        note_turns: Callable[[int], None],
    ) -> None:
        super().__init__(RunLimits(seconds=seconds))
        self._call = call
        self._node = node
        self._note_turns = note_turns
        self._exhausted = ""  # as far as it is known here

    def begin_turn(self) -> str:
        """Ask for a turn."""
        return self.used_up(NOTHING) or self._ask("begin_turn", self._node)

    def end_turn(self, taken: bool) -> None:
        """Report the end of a turn, and whether it was taken."""
        if taken:
            self._note_turns(1)
        if self._call is not None:
            self._call("end_turn", self._node, taken)  # without waiting for the answer

    def charge(self, usage: Usage = UNSPENT, turns: int = 0) -> str:
        """Report usage; return which budget is used up, as far as it is known here."""
        if turns:
            self._note_turns(turns)
        exhausted = self.used_up(NOTHING)  # only the time is limited here
        if turns or usage:
            exhausted = self._ask("charge", turns, usage.tokens, usage.cost or 0.0) or exhausted
        return exhausted or self._exhausted

    def _ask(self, method: str, *arguments: object) -> str:
        """Call a method of the actor; return why it refuses, or the empty string."""
        if self._call is None:
            return ""
        limit = time.monotonic() + _RESTART_TIMEOUT
        while True:
            try:
                answer = decode(self._call(method, *arguments)())
                break
            except Exception:  # whatever Ray raises, for example while the actor is restarted
                if time.monotonic() > limit:
                    return "the driver, which counts what the run uses up, does not answer"
                time.sleep(_RETRY_INTERVAL)
        self._exhausted = str(answer["exhausted"])
        return str(answer["refused"])
