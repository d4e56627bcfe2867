"""The turn loop: one agent on one task in one environment, within its budgets, to a record.

The agent runs on its own thread, so that an agent that never answers can be left behind; the
calling thread waits, so that Ctrl-C reaches it. Nothing here imports pytest or a backend.
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
_AGENT_EXIT_TIMEOUT = 1.0  # seconds for the agent to end, and again after an interrupt
_TRACEBACK_LINES = 12
_MAX_REASON = 300  # characters of an exception


class Cancellation:
    """Ends a rollout from another thread without grading it, as its result is not needed any more.

    Attributes:
        reason: why the rollout was cancelled; empty if it was not.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._lock = threading.Lock()
        self._targets: list[Callable[[str], None]] = []

    def cancel(self, reason: str) -> None:
        """Cancel the running phase, and all later ones; the first reason is kept."""
        with self._lock:
            self.reason = self.reason or reason
            targets = list(self._targets)
        for cancel in targets:
            cancel(self.reason)

    def check(self) -> None:
        """Raise if the rollout was cancelled.

        Raises:
            RolloutCancelled: it was cancelled.
        """
        if self.reason:
            raise RolloutCancelled(self.reason)

    @contextlib.contextmanager
    def reaching(self, cancel: Callable[[str], None]) -> Iterator[None]:
        """Call a function if the rollout is cancelled in this context.

        Args:
            cancel: called with the reason; it must be fast, and callable from any thread.

        Raises:
            RolloutCancelled: the rollout was cancelled before or in this context.
        """
        with self._lock:
            self.check()
            self._targets.append(cancel)
        try:
            yield
        except (InfrastructureError, TaskError) as error:
            if self.reason:  # an error because of the cancellation is not a fault
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
    """Let an agent act in an environment that was just reset, and grade the end state.

    Args:
        agent: the agent.
        environment: an environment after :meth:`Environment.reset`.
        first: the observation that the reset returned.
        timeout: seconds that the agent has for the whole episode; None for no limit.
        budget: its limits of tokens and money, as far as it reports them.
        run_budget: the budget of the whole run, if there is one.
        cancellation: ends the episode from another thread.
        shared_loop: the event loop of async agents; None for a separate one in this episode.
        opened: called with the episode's ledger, for access to it while the episode runs.
        earlier: the ledger of an earlier attempt whose sandbox broke; its usage counts against
            ``budget``, and is in the record.

    Returns:
        The record, whatever the agent did.

    Raises:
        TaskError: nothing can be graded, because gold does not work.
        InfrastructureError: the sandbox broke, so the result says nothing about the agent.
        QuitRun: the user, who is the agent, wants to end the run.
        RolloutCancelled: the episode was cancelled, and is not graded.
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
        stack.callback(ledger.close)  # also if the attempt breaks, as the next one uses its sums
        run = AgentRun(agent, environment, first, ledger, run_budget, shared_loop)
        began = time.monotonic()
        timed_out = _watch(run, ledger, cancellation, run_seconds if run_ends_first else timeout)
        delay = run.delay() if timed_out else ""
        if timed_out:
            run.stop("timed out")
            stack.callback(run.interrupt, 0)  # also if there is no record
            deadline = time.monotonic() + _ACTION_STOP_TIMEOUT
            while run.in_environment and time.monotonic() < deadline and not run.done.wait(0.02):
                pass  # the running action is being stopped
        seconds = time.monotonic() - began
        # Check this first: an error that an agent raises because its sandbox broke is not its own.
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
    """Start the agent's thread, and wait for its end; return whether it timed out.

    Args:
        run: the agent to run.
        ledger: the ledger to which it and the code that it calls report.
        cancellation: ends it from another thread.
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
            # A lock cannot be waited for longer than 292 years (49 days on Windows).
            longest = threading.TIMEOUT_MAX
            return not run.done.wait(None if timeout is None else min(timeout, longest))
        except BaseException:
            run.cancel("interrupted")
            raise


def _judge(
    graded: Reward, environment: Environment, failure: BaseException | None, timed_out: bool
) -> tuple[Outcome, str, str]:
    """Return the outcome, its reason in a few words, and a detailed one."""
    if failure is not None:
        if isinstance(failure, AgentError):
            return "agent-error", " ".join(_text_of(failure).splitlines()), ""
        name, text = type(failure).__name__, _text_of(failure)
        reason = first_words(f"{name}: {text}" if text.strip() else name, _MAX_REASON)
        return "agent-error", reason, _short_traceback(failure)
    # Check this first: an agent that solves it with its last turn or at its timeout has solved it.
    if graded.value >= 1.0:
        return "solved", "", ""
    if environment.over == "budget":
        return "out-of-budget", graded.reason, ""
    if timed_out and environment.over != "submitted":  # it may have submitted, but not ended
        return "timed-out", graded.reason, ""
    return "failed", graded.reason, ""


def _text_of(failure: BaseException) -> str:
    """Return the text of an exception, whose class may be the agent's and fail to give one."""
    try:
        return str(failure)
    except (Exception, SystemExit, GeneratorExit):
        return "it raised when asked for its text"


def _short_traceback(failure: BaseException) -> str:
    """Return a traceback with the agent's own frames; ours only show how it was called."""
    frames = traceback.extract_tb(failure.__traceback__)
    agent_frames = [f for f in frames if not f.filename.startswith(_OWN_FOLDER)] or frames
    lines = traceback.format_list(agent_frames)[-_TRACEBACK_LINES:]
    with contextlib.suppress(Exception):
        lines += traceback.format_exception_only(failure)
    return "".join(lines).rstrip()


_OWN_FOLDER = f"{Path(__file__).parents[1]}/"
