"""The turn loop: one agent on one task in one environment, within its budgets, to a record.

The agent runs on a thread of its own, so that one that never answers can be left behind; the
calling thread waits, so that Ctrl-C reaches it. Nothing here imports pytest or knows a backend.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path

from pytest_intercode.agents.ledger import Ledger, current_ledger
from pytest_intercode.agents.protocol import Agent, QuitRun
from pytest_intercode.core.record import EpisodeRecord, Outcome
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.text import first_words
from pytest_intercode.core.turn import Observation
from pytest_intercode.core.usage import Budget, RunLimits
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.episode import call_method
from pytest_intercode.errors import AgentError, InfrastructureError, RolloutCancelled, TaskError
from pytest_intercode.rollouts.agent_thread import AgentRun, SharedLoop
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.rollouts.records import played_record

__all__ = ["Cancellation", "run_episode"]

_ACTION_STOP_TIMEOUT = 10.0  # seconds for an action to be stopped
_AGENT_EXIT_TIMEOUT = 1.0  # seconds to end by itself, and again after it was interrupted
_TRACEBACK_LINES = 12
_MAX_REASON = 300  # characters of an exception


class Cancellation:
    """Ends a rollout from another thread, ungraded, as its result is not wanted any more.

    Attributes:
        reason: why the rollout was cancelled; empty while it was not.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._lock = threading.Lock()
        self._targets: list[Callable[[str], None]] = []

    def cancel(self, reason: str) -> None:
        """End what runs now, and whatever is begun from now on; the first reason stays."""
        with self._lock:
            self.reason = self.reason or reason
            targets = list(self._targets)
        for cancel in targets:
            cancel(self.reason)

    def check(self) -> None:
        """Go on only while the rollout is wanted.

        Raises:
            RolloutCancelled: it was cancelled.
        """
        if self.reason:
            raise RolloutCancelled(self.reason)

    @contextlib.contextmanager
    def reaching(self, cancel: Callable[[str], None]) -> Iterator[None]:
        """Have something cancelled, too, for as long as it goes on.

        Args:
            cancel: ends it, given the reason; quick, and callable from any thread.

        Raises:
            RolloutCancelled: it is not to begin, or was cancelled meanwhile.
        """
        with self._lock:
            self.check()
            self._targets.append(cancel)
        try:
            yield
        except (InfrastructureError, TaskError) as error:
            if self.reason:  # what was ended under its hands is not a fault
                raise RolloutCancelled(self.reason) from error
            raise
        finally:
            with self._lock:
                self._targets.remove(cancel)
        self.check()


def run_episode(
    agent: Agent,
    environment: Environment,
    first: Observation,
    *,
    timeout: float | None = None,
    budget: Budget | None = None,
    run_budget: RunBudget | None = None,
    cancellation: Cancellation | None = None,
    shared_loop: SharedLoop | None = None,
    opened: Callable[[Ledger], object] = lambda _: None,
    earlier: Ledger | None = None,
) -> EpisodeRecord:
    """Let an agent act in an environment that was just reset, and grade what it leaves.

    Args:
        agent: the agent.
        environment: an environment after :meth:`Environment.reset`.
        first: the observation that the reset returned.
        timeout: seconds that the agent has for the whole episode; None for no limit.
        budget: tokens and money that it has, as far as it reports them.
        run_budget: what the whole run has left, if that is limited.
        cancellation: what ends it from another thread.
        shared_loop: the event loop of async agents; None for one of the episode's own.
        opened: is given the episode's ledger, to look at while it runs.
        earlier: the ledger of an attempt that broke; what was used up in it is taken from
            ``budget``, and is in the record.

    Returns:
        The record, whatever the agent did.

    Raises:
        TaskError: nothing can be graded, as gold does not work.
        InfrastructureError: the sandbox broke; nothing can be said of the agent.
        QuitRun: the user, who is the agent, wants to end the run.
        RolloutCancelled: it was cancelled, and is not graded.
    """
    cancellation = cancellation or Cancellation()
    run_budget = run_budget or RunBudget(RunLimits())
    ledger = Ledger(budget, run_budget.charge, lambda: run.exhaust(), earlier)
    opened(ledger)
    run_seconds = run_budget.seconds_left
    run_ends_first = run_seconds is not None and (timeout is None or run_seconds < timeout)
    with contextlib.ExitStack() as stack:
        if shared_loop is None:
            shared_loop = stack.enter_context(contextlib.closing(SharedLoop()))
        stack.callback(ledger.close)  # also of an attempt that breaks, whose sums are carried on
        run = AgentRun(agent, environment, first, ledger, run_budget, shared_loop)
        began = time.monotonic()
        timed_out = _watch(run, ledger, cancellation, run_seconds if run_ends_first else timeout)
        delay = run.delay() if timed_out else ""
        if timed_out:
            run.stop("timed out")
            stack.callback(run.interrupt, 0)  # also where there is no record
            deadline = time.monotonic() + _ACTION_STOP_TIMEOUT
            while run.in_environment and time.monotonic() < deadline and not run.done.wait(0.02):
                pass  # the action that runs is being stopped
        seconds = time.monotonic() - began
        # First: what an agent raises when its sandbox breaks is not its own failure.
        if run.sandbox_fault is not None:
            raise run.sandbox_fault
        if isinstance(run.failure, (InfrastructureError, TaskError, QuitRun)):
            raise run.failure
        with cancellation.reaching(environment.cancel):
            graded = environment.end("stopped")
            if not agent.judges_gold:
                call_method(environment.name, environment.check_gold)
        is_over = (
            not timed_out
            or run.done.wait(_AGENT_EXIT_TIMEOUT)
            or run.interrupt(_AGENT_EXIT_TIMEOUT)
        )
    outcome, reason, detail = _judge(graded, environment, run.failure, timed_out)
    if outcome == "out-of-budget":
        exhausted = ledger.exhausted
    elif outcome == "timed-out" and run_ends_first:
        exhausted = ledger.exhausted or run_budget.charge()
    else:
        exhausted = ""
    if outcome != "timed-out":
        delay = ""
    still_there = run.detached or not is_over
    lingering = ("the agent's own thread, which still runs",) if still_there else ()
    return played_record(
        environment,
        graded,
        outcome,
        reason="; ".join(filter(None, (delay, exhausted, reason))),
        detail=detail,
        seconds=seconds,
        usage=ledger.usage,
        user_usage=ledger.user_usage,
        model_calls=ledger.model_calls,
        log=run.trailing_notes(),
        left_behind=(*run.blocked(), *lingering),
    )


def _watch(
    run: AgentRun, ledger: Ledger, cancellation: Cancellation, timeout: float | None
) -> bool:
    """Start the agent's thread, and wait for its end; return whether its time was up before.

    Args:
        run: the agent at work.
        ledger: where it and what it calls report to.
        cancellation: what ends it from another thread.
        timeout: seconds; None for no limit.
    """
    task = run.environment.task
    assert task is not None
    context = copy_context()
    context.run(current_ledger().set, ledger)
    thread = threading.Thread(
        target=lambda: context.run(run), name=f"intercode-agent-{task.id}", daemon=True
    )
    with cancellation.reaching(run.cancel):
        try:
            thread.start()
            # Longer than 292 years (49 days on Windows) a lock cannot be waited for.
            longest = threading.TIMEOUT_MAX
            return not run.done.wait(None if timeout is None else min(timeout, longest))
        except BaseException:
            run.cancel("interrupted")
            raise


def _judge(
    graded: Reward, environment: Environment, failure: BaseException | None, timed_out: bool
) -> tuple[Outcome, str, str]:
    """Name the outcome, and say why in a few words and at length."""
    if failure is not None:
        if isinstance(failure, AgentError):
            return "agent-error", " ".join(_text_of(failure).splitlines()), ""
        name, text = type(failure).__name__, _text_of(failure)
        reason = first_words(f"{name}: {text}" if text.strip() else name, _MAX_REASON)
        return "agent-error", reason, _short_traceback(failure)
    # First: who solves it with the last turn, or as the time is up, has solved it.
    if graded.value >= 1.0:
        return "solved", "", ""
    if environment.over == "budget":
        return "out-of-budget", graded.reason, ""
    if timed_out and environment.over != "submitted":  # one that only lingers has had its say
        return "timed-out", graded.reason, ""
    return "failed", graded.reason, ""


def _text_of(failure: BaseException) -> str:
    """Return the text of an exception; its class may be the agent's, and its text fail."""
    try:
        return str(failure)
    except (Exception, SystemExit, GeneratorExit):
        return "it raised when asked for its text"


def _short_traceback(failure: BaseException) -> str:
    """Return the agent's own frames; ours only say how it was called."""
    frames = traceback.extract_tb(failure.__traceback__)
    agent_frames = [f for f in frames if not f.filename.startswith(_OWN_FOLDER)] or frames
    lines = traceback.format_list(agent_frames)[-_TRACEBACK_LINES:]
    with contextlib.suppress(Exception):
        lines += traceback.format_exception_only(failure)
    return "".join(lines).rstrip()


_OWN_FOLDER = f"{Path(__file__).parents[1]}/"
