"""The ledger of an episode: the agent's usage, its thoughts, and its other output.

The turn loop opens one for each episode. Agents write into it through their environment
(``env.spend(...)``) or, anywhere on the episode's thread, through the functions here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

from pytest_intercode.core.tokens import AnswerTokens, CallLog, ModelCall
from pytest_intercode.core.usage import UNSPENT, Budget, Usage, reached
from pytest_intercode.errors import AgentError, BudgetExhausted

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Ledger", "ModelUsage", "Note", "current_ledger", "log", "spend", "think"]

_MAX_CHARACTERS = 64 * 1024  # for the thoughts of one turn, and for its log
_TRUNCATED = "\n[... more was not kept ...]\n"


class ModelUsage(TypedDict, total=False):
    """What a request to a model used up: the arguments of every ``spend``, all optional.

    Attributes:
        input_tokens: input tokens, including those of caches.
        output_tokens: output tokens, including those of reasoning.
        cost: the cost in the user's currency; None, the default, if no price is known.
        requests: the number of requests; by default one.
        cached_tokens: input tokens that were read from a cache.
        cache_write_tokens: input tokens that were written to a cache.
        reasoning_tokens: output tokens that are not visible in the answer.
    """

    input_tokens: int
    output_tokens: int
    cost: float | None
    requests: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True)
class Note:
    """The records that belong to one action.

    Attributes:
        thought: the agent's thoughts.
        log: its other output.
        usage: its usage.
        calls: the numbers of the requests to a model whose tokens were kept.
    """

    thought: str = ""
    log: str = ""
    usage: Usage = UNSPENT
    calls: tuple[int, ...] = ()


class Ledger:
    """The ledger of one episode; threads may share it.

    Args:
        budget: the limits of the episode.
        charge: called with each usage, even after the end of the episode; returns why the run must
            end, or the empty string.
        stop: ends the episode when a budget is used up.
        earlier: the ledger of a failed attempt at the same episode, which must be closed. Its usage
            also counts for this attempt.

    Attributes:
        usage: the usage so far.
        user_usage: the usage so far of the model that plays the user.
        exhausted: which budget is used up, in a few words; empty if none is.
    """

    def __init__(
        self,
        budget: Budget | None = None,
        charge: Callable[[Usage], str] = lambda _: "",
        stop: Callable[[], None] = lambda: None,
        earlier: Ledger | None = None,
    ) -> None:
        self.usage: Usage = earlier.usage if earlier is not None else UNSPENT
        self.user_usage: Usage = earlier.user_usage if earlier is not None else UNSPENT
        self.exhausted = ""
        self._budget = budget or Budget()
        self._charge = charge
        self._stop = stop
        self._lock = threading.Lock()
        self._note = Note()
        self._calls = CallLog()
        self._closed = False

    def spend(self, **usage: Unpack[ModelUsage]) -> None:
        """Record what a request to a model used up.

        Args:
            usage: what it used up; see :class:`ModelUsage`.

        Raises:
            BudgetExhausted: a budget of the episode or of the run is used up. The actions in the
                model's answer are no longer run; the state is graded as it is.
            AgentError: a number is negative or malformed, a part is more than its whole, or money
                is limited and the cost is not known.
        """
        expense = _check_usage(usage)
        with self._lock:
            spent_by_run = self._charge(expense)  # it was spent, even if the episode is over
            if self._closed:
                raise BudgetExhausted("the episode is over")
            self.usage += expense
            self._note = replace(self._note, usage=self._note.usage + expense)
            self.exhausted = exhausted = self.exhausted or self._find_exhausted() or spent_by_run
        # Outside the lock: the code that is being stopped may write to this ledger.
        if exhausted:
            self._stop()
            raise BudgetExhausted(f"the episode is over: {exhausted}")
        if self._budget.cost is not None and expense.cost is None and expense.tokens:
            raise AgentError(
                "it reports tokens without their cost, so --intercode-max-cost cannot be kept: "
                "give it prices, or limit tokens with --intercode-max-tokens"
            )

    def spend_for_user(self, **usage: Unpack[ModelUsage]) -> None:
        """Record what a request of the model that plays the user used up.

        It counts toward the budget of the run, but not toward the agent's.

        Raises:
            BudgetExhausted: the budget of the run is used up, or the episode is over.
            AgentError: a number is negative or malformed.
        """
        expense = _check_usage(usage)
        with self._lock:
            spent_by_run = self._charge(expense)
            if self._closed:
                raise BudgetExhausted("the episode is over")
            self.user_usage += expense
            self.exhausted = self.exhausted or spent_by_run
        if spent_by_run:
            self._stop()
            raise BudgetExhausted(f"the episode is over: {spent_by_run}")

    @property
    def model_calls(self) -> tuple[ModelCall, ...]:
        """The requests whose tokens were kept."""
        return self._calls.calls

    def keep(self, model: str, request: Mapping[str, Any], tokens: AnswerTokens) -> int:
        """Keep the tokens of a request with the next action; return the request's number.

        Args:
            model: the model that answered.
            request: the request as it was sent.
            tokens: the tokens of its answer.
        """
        number = self._calls.add(model, request, tokens)
        with self._lock:
            self._note = replace(self._note, calls=(*self._note.calls, number))
        return number

    def exhaust(self, reason: str) -> None:
        """Record that a budget that is counted elsewhere is used up, and end the episode."""
        with self._lock:
            self.exhausted = self.exhausted or reason
        self._stop()

    def think(self, text: str) -> None:
        """Record a thought that belongs to the next action."""
        with self._lock:
            thought = _append(self._note.thought, text, "\n")
            self._note = replace(self._note, thought=thought)

    def log(self, text: str) -> None:
        """Record output of the agent that is not an action."""
        with self._lock:
            self._note = replace(self._note, log=_append(self._note.log, text, ""))

    def take(self) -> Note:
        """Return the note of everything recorded since the last call, and start a new note."""
        with self._lock:
            note, self._note = self._note, Note()
        return note

    def attribute(self, usage: Usage, calls: tuple[int, ...] = ()) -> None:
        """Remove usage and calls that a turn already has from the note for the next action."""
        with self._lock:
            self._note = replace(
                self._note,
                usage=self._note.usage.without(usage),
                calls=tuple(number for number in self._note.calls if number not in calls),
            )

    def close(self) -> None:
        """End the episode: from now on :meth:`spend` raises."""
        with self._lock:
            self._closed = True

    def _find_exhausted(self) -> str:
        budget, usage = self._budget, self.usage
        if budget.tokens is not None and usage.tokens >= budget.tokens:
            return f"{usage.tokens:,} of {budget.tokens:,} tokens used"
        cost = usage.cost
        if budget.cost is not None and cost is not None and reached(cost, budget.cost):
            return f"{cost:.4g} of {budget.cost:.4g} in cost used"
        return ""


def _check_usage(reported: ModelUsage) -> Usage:
    """Return the usage that an agent reports; refuse one that cannot be true."""
    for name in reported:
        if name not in ModelUsage.__annotations__:
            names = ", ".join(ModelUsage.__annotations__)
            raise AgentError(f"spend({name}=...): there is no such argument; allowed: {names}")
    request: ModelUsage = {"requests": 1, **reported}
    usage = Usage(**request)
    cost = usage.cost
    for name, value in asdict(usage).items():
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if name != "cost" and not whole:
            raise AgentError(f"spend({name}={value!r:.40}): a whole number from 0 up is needed")
    number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
    if cost is not None and not (number and 0 <= cost < float("inf")):
        raise AgentError(f"spend(cost={cost!r:.40}): a number from 0 up is needed, or None")
    cache_tokens = usage.cached_tokens + usage.cache_write_tokens
    if cache_tokens > usage.input_tokens:
        raise AgentError(
            f"spend(): {cache_tokens} tokens of caches are a part of input_tokens, which are "
            f"{usage.input_tokens}"
        )
    if usage.reasoning_tokens > usage.output_tokens:
        raise AgentError(
            f"spend(): {usage.reasoning_tokens} tokens of reasoning are a part of output_tokens, "
            f"which are {usage.output_tokens}"
        )
    return usage if cost is None else replace(usage, cost=float(cost))


def _append(recorded: str, text: str, separator: str) -> str:
    if len(recorded) >= _MAX_CHARACTERS or not text:
        return recorded
    combined = f"{recorded}{separator}{text}" if recorded else str(text)
    return combined if len(combined) < _MAX_CHARACTERS else combined[:_MAX_CHARACTERS] + _TRUNCATED


_current: ContextVar[Ledger | None] = ContextVar("intercode_ledger", default=None)


def current_ledger() -> ContextVar[Ledger | None]:
    """Return the variable that holds the ledger of the episode that this code is part of."""
    return _current


def spend(**usage: Unpack[ModelUsage]) -> None:
    """Record what a request to a model used up; do nothing outside of an episode.

    Args:
        usage: what it used up; see :class:`ModelUsage`.

    Raises:
        BudgetExhausted: a budget is used up.
        AgentError: a number is negative or malformed.
    """
    ledger = _current.get()
    if ledger is not None:
        ledger.spend(**usage)


def think(text: str) -> None:
    """Record a thought that belongs to the next action; do nothing outside of an episode."""
    ledger = _current.get()
    if ledger is not None:
        ledger.think(text)


def log(text: str) -> None:
    """Record output that is not an action; do nothing outside of an episode."""
    ledger = _current.get()
    if ledger is not None:
        ledger.log(text)
