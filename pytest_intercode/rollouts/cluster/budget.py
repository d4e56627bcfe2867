"""The run's budget on a cluster: every turn is asked for, and one actor next to the driver counts.

A turn is counted before it is run, so what a lost node had begun stays used up, and nothing is
shared out that would have to be taken back. It costs a round trip a turn, and none where turns,
tokens and money have no limit.
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

_RESTART_TIMEOUT = 30.0  # seconds in which an actor that has ended is there again
_RETRY_INTERVAL = 0.2  # seconds


def budget_message(budget: RunBudget, path: Path) -> bytes:
    """Return what a :class:`BudgetActor` is made of: a budget that is shared by a file."""
    limits = asdict(budget.limits)
    return encode({"limits": limits, "began": budget.began, "path": str(path)})


class BudgetActor:
    """Counts what nodes use up. It shares the driver's budget by a file, as xdist's workers do.

    Ray makes an actor of it, on the driver's machine, and starts it again should it end. What is
    not an amount raises, in the node that asks.

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
        """Take a turn; return why there is none, and what is used up by now."""
        refused = self._budget.begin_turn()
        self._open_turns[node] += not refused
        return self._answer(refused)

    def end_turn(self, node: str, taken: bool) -> None:
        """Take note of what became of a turn, of those that a node has begun."""
        if not self._open_turns[node]:  # it would gain one
            raise ValueError("a turn that was not begun")
        self._open_turns[node] -= 1
        self._budget.end_turn(taken)

    def charge(self, turns: int, tokens: int, cost: float) -> bytes:
        """Count what was used up; answer as :meth:`begin_turn` does."""
        if not 0 <= cost < math.inf:
            raise ValueError(f"a cost of {cost}")
        return self._answer(self._budget.add(Amounts(whole(turns), whole(tokens), float(cost))))

    def _answer(self, refused: str) -> bytes:
        return encode({"refused": refused, "exhausted": self._budget.add(NOTHING)})


class RemoteBudget(RunBudget):
    """What rollouts on a node ask.

    Args:
        seconds: what is left of the run's time; None for no limit.
        call: calls a method of the actor, and returns what returns its answer, or raises where
            there is none; None where neither turns nor tokens nor cost are limited.
        node: names this process to the actor.
        note_turns: called with how many turns the rollout of the present thread has taken.
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
        self._exhausted = ""  # as far as is known here

    def begin_turn(self) -> str:
        """Ask for a turn."""
        return self.used_up(NOTHING) or self._ask("begin_turn", self._node)

    def end_turn(self, taken: bool) -> None:
        """Report what became of a turn."""
        if taken:
            self._note_turns(1)
        if self._call is not None:
            self._call("end_turn", self._node, taken)  # nobody waits for the end of it

    def charge(self, usage: Usage = UNSPENT, turns: int = 0) -> str:
        """Have counted what was used up; return what is exhausted, as far as is known."""
        if turns:
            self._note_turns(turns)
        exhausted = self.used_up(NOTHING)  # the time
        if turns or usage:
            exhausted = self._ask("charge", turns, usage.tokens, usage.cost or 0.0) or exhausted
        return exhausted or self._exhausted

    def _ask(self, method: str, *arguments: object) -> str:
        """Return why something is refused, or nothing."""
        if self._call is None:
            return ""
        limit = time.monotonic() + _RESTART_TIMEOUT
        while True:
            try:
                answer = decode(self._call(method, *arguments)())
                break
            except Exception:  # whatever Ray raises, also while the actor is started again
                if time.monotonic() > limit:
                    return "the driver, which counts what the run uses up, does not answer"
                time.sleep(_RETRY_INTERVAL)
        self._exhausted = str(answer["exhausted"])
        return str(answer["refused"])
