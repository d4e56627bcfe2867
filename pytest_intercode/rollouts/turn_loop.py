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
from pytest_intercode.core.digest import digest
from pytest_intercode.core.record import EpisodeRecord, Outcome, TaskRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.turn import Observation
from pytest_intercode.core.usage import Budget, RunLimits
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import AgentError, InfrastructureError, RolloutCancelled, TaskError
from pytest_intercode.rollouts.agent_thread import AgentRun, SharedLoop
from pytest_intercode.rollouts.budgets import RunBudget

__all__ = ["Cancellation", "run_episode"]

_GRACE = 10.0  # seconds for an action to be stopped
_FAREWELL = 1.0  # seconds for an agent to end by itself, and again after it was interrupted
_TRACEBACK_LINES = 12


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
            if self.reason:  # what was ended under its hands is no fault
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

    Returns:
        The record, whatever the agent did.

    Raises:
        TaskError: nothing can be graded, as gold does not work.
        InfrastructureError: the sandbox broke; nothing can be said of the agent.
        QuitRun: the user, who is the agent, wants to end the run.
        RolloutCancelled: it was cancelled, and is not graded.
    """
    task = environment.task
    assert task is not None
    cancellation = cancellation or Cancellation()
    of_run = run_budget or RunBudget(RunLimits())
    ledger = Ledger(budget, of_run.charge, lambda: run.exhaust())
    loop = shared_loop or SharedLoop()
    run = AgentRun(agent, environment, first, ledger, of_run, loop)
    context = copy_context()
    context.run(current_ledger().set, ledger)
    thread = threading.Thread(
        target=lambda: context.run(run), name=f"intercode-agent-{task.id}", daemon=True
    )
    left = of_run.seconds_left
    by_run = left is not None and (timeout is None or left < timeout)
    began = time.monotonic()
    with cancellation.reaching(run.cancel):
        try:
            thread.start()
            timed_out = not run.done.wait(left if by_run else timeout)
        except BaseException:
            run.cancel("interrupted")
            raise
    delay = ""
    if timed_out:
        delay = run.delay()
        run.call_off("timed out")
        until = time.monotonic() + _GRACE
        while run.in_environment and time.monotonic() < until and not run.done.wait(0.02):
            pass  # the action that runs is being stopped
    seconds = time.monotonic() - began
    if run.spoiled is not None:
        raise run.spoiled
    if isinstance(run.failure, (InfrastructureError, QuitRun)):
        raise run.failure
    with cancellation.reaching(environment.cancel):
        graded = environment.end("stopped")
        if not agent.judges_gold:
            environment.check_gold()
    gone = not timed_out or run.done.wait(_FAREWELL) or run.send_away(_FAREWELL)
    still_there = run.parked or not gone
    ledger.close()
    if shared_loop is None:
        loop.close()
    outcome, reason, detail = _judge(graded, environment, run.failure, timed_out)
    if outcome == "out-of-budget" or (outcome == "timed-out" and by_run):
        spent = ledger.exhausted or (of_run.charge() if outcome == "timed-out" else "")
        reason = "; ".join(part for part in (spent, reason) if part)
    if delay and outcome == "timed-out":
        reason = "; ".join(part for part in (delay, reason) if part)
    return EpisodeRecord(
        task=TaskRecord.of(task, digest(task)),
        outcome=outcome,
        reward=graded.value,
        turns=tuple(environment.turns),
        max_turns=environment.max_turns,
        seconds=seconds,
        profile=environment.profile,
        parts=dict(graded.parts),
        reason=reason,
        detail=detail,
        test_output="" if outcome == "solved" else graded.test_output,
        state=environment.recorded_state(),
        usage=ledger.usage,
        log=run.last_words(),
        refused_hosts=environment.refused_hosts(),
        left_behind=(
            *run.blocked(),
            *(("the agent's own thread, which still runs",) if still_there else ()),
        ),
    )


def _judge(
    graded: Reward, environment: Environment, failure: BaseException | None, timed_out: bool
) -> tuple[Outcome, str, str]:
    """Name the outcome, and say why in a few words and at length."""
    if failure is not None:
        if isinstance(failure, AgentError):
            return "agent-error", " ".join(_said(failure).splitlines()), ""
        said = " ".join(_said(failure).split())
        reason = f"{type(failure).__name__}: {said}" if said else type(failure).__name__
        return "agent-error", reason[:300], _short_traceback(failure)
    if graded.value >= 1.0:
        return "solved", "", ""
    if environment.over == "budget":
        return "out-of-budget", graded.reason, ""
    if timed_out and environment.over != "submitted":  # one that only lingers has had its say
        return "timed-out", graded.reason, ""
    return "failed", graded.reason, ""


def _said(failure: BaseException) -> str:
    """Return the text of an exception; its class may be the agent's, and its text fail."""
    try:
        return str(failure)
    except (Exception, SystemExit, GeneratorExit):
        return "it raised when asked for its text"


def _short_traceback(failure: BaseException) -> str:
    """Return the agent's own frames; ours only say how it was called."""
    frames = traceback.extract_tb(failure.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith(_OWN_FOLDER)] or frames
    lines = traceback.format_list(theirs)[-_TRACEBACK_LINES:]
    with contextlib.suppress(Exception):
        lines += traceback.format_exception_only(failure)
    return "".join(lines).rstrip()


_OWN_FOLDER = f"{Path(__file__).parents[1]}/"
