"""The turn loop: one agent on one task in one environment, within its budgets, to a record.

The agent runs on a thread of its own, so that one that never answers can be left behind; the
calling thread waits, and so hears Ctrl-C. Nothing here imports pytest or knows a backend.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from contextvars import copy_context

from pytest_intercode.agents.ledger import Ledger, current_ledger
from pytest_intercode.agents.protocol import Agent, QuitRun
from pytest_intercode.core.record import EpisodeRecord, Outcome, TaskRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.turn import Observation
from pytest_intercode.core.usage import Budget, RunLimits
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import AgentError, EpisodeHalted, InfrastructureError
from pytest_intercode.rollouts.agent_thread import AgentRun
from pytest_intercode.rollouts.budgets import RunBudget
from pytest_intercode.suites.digest import digest

__all__ = ["Halt", "run_episode"]

_GRACE = 10.0  # seconds for an action to be stopped
_FAREWELL = 1.0  # seconds for an agent to end by itself, and again once it was told to
_TRACEBACK_LINES = 12


class Halt:
    """Ends an episode from another thread, ungraded, as nobody wants its result any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason = ""
        self._run: AgentRun | None = None

    @property
    def reason(self) -> str:
        """Why the episode was ended; empty while it was not."""
        return self._reason

    def halt(self, reason: str) -> None:
        """End the episode, at once if it runs, else as soon as it begins."""
        with self._lock:
            self._reason = self._reason or reason
            run = self._run
        if run is not None:
            run.call_off(reason)
            run.done.set()  # the turn loop does not wait for an agent that is deaf to that
            run.send_away(0)

    def watch(self, run: AgentRun | None) -> None:
        """Remember the agent at work.

        Raises:
            EpisodeHalted: the episode is not to begin.
        """
        with self._lock:
            self._run = run
            if run is not None and self._reason:
                raise EpisodeHalted(self._reason)


def run_episode(
    agent: Agent,
    environment: Environment,
    first: Observation,
    *,
    timeout: float | None = None,
    budget: Budget | None = None,
    run_budget: RunBudget | None = None,
    halt: Halt | None = None,
) -> EpisodeRecord:
    """Let an agent act in an environment that was just reset, and grade what it leaves.

    Args:
        agent: the agent.
        environment: an environment after :meth:`Environment.reset`.
        first: the observation that the reset returned.
        timeout: seconds that the agent has for the whole episode; None for no limit.
        budget: tokens and money that it has, as far as it reports them.
        run_budget: what the whole run has left, if that is limited.
        halt: what ends it from another thread.

    Returns:
        The record, whatever the agent did.

    Raises:
        TaskError: nothing can be graded, as gold does not work.
        InfrastructureError: the sandbox broke; nothing can be said of the agent.
        QuitRun: the user, who is the agent, wants to end the run.
        EpisodeHalted: it was ended from another thread, and is not graded.
    """
    task = environment.task
    assert task is not None
    of_run = run_budget or RunBudget(RunLimits())
    ledger = Ledger(budget, of_run.charge, environment.exhaust)
    run = AgentRun(agent, environment, first, ledger, of_run)
    context = copy_context()
    context.run(current_ledger().set, ledger)
    thread = threading.Thread(
        target=lambda: context.run(run), name=f"intercode-agent-{task.id}", daemon=True
    )
    left = of_run.seconds_left
    by_run = left is not None and (timeout is None or left < timeout)
    halt = halt or Halt()
    halt.watch(run)
    began = time.monotonic()
    thread.start()
    try:
        timed_out = not run.done.wait(left if by_run else timeout)
    except BaseException:
        run.call_off("interrupted")
        raise
    finally:
        halt.watch(None)
    if halt.reason:
        raise EpisodeHalted(halt.reason)
    if timed_out:
        run.call_off("timed out")
        until = time.monotonic() + _GRACE
        while run.in_environment and time.monotonic() < until and not run.done.wait(0.02):
            pass  # the action that runs is being stopped
    seconds = time.monotonic() - began
    if run.spoiled is not None:
        raise run.spoiled
    if isinstance(run.failure, (InfrastructureError, QuitRun)):
        raise run.failure
    graded = environment.end("stopped")
    gone = not timed_out or run.done.wait(_FAREWELL) or run.send_away(_FAREWELL)
    still_there = run.parked or not gone
    ledger.close()
    outcome, reason, detail = _judge(graded, environment, run.failure, timed_out)
    if outcome == "out-of-budget" or (outcome == "timed-out" and by_run):
        spent = ledger.exhausted or (of_run.charge() if outcome == "timed-out" else "")
        reason = "; ".join(part for part in (spent, reason) if part)
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
        state=environment.recorded_state(),
        usage=ledger.usage,
        log=run.rest(),
        left_behind=("the agent's own thread, which still runs",) if still_there else (),
    )


def _judge(
    graded: Reward, environment: Environment, failure: BaseException | None, timed_out: bool
) -> tuple[Outcome, str, str]:
    """Name the outcome, and say why in a few words and at length."""
    if failure is not None:
        if isinstance(failure, AgentError):
            return "agent-error", " ".join(str(failure).splitlines()), ""
        said = " ".join(str(failure).split())
        reason = f"{type(failure).__name__}: {said}" if said else type(failure).__name__
        return "agent-error", reason[:300], _short_traceback(failure)
    if graded.value >= 1.0:
        return "solved", "", ""
    if environment.over == "budget":
        return "out-of-budget", graded.reason, ""
    if timed_out and environment.over != "submitted":  # one that only lingers has had its say
        return "timed-out", graded.reason, ""
    return "failed", graded.reason, ""


def _short_traceback(failure: BaseException) -> str:
    """Return the agent's own frames; ours only say how it was called."""
    frames = traceback.extract_tb(failure.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith(_OWN_FOLDER)] or frames
    lines = traceback.format_list(theirs)[-_TRACEBACK_LINES:]
    with contextlib.suppress(Exception):
        lines += traceback.format_exception_only(failure)
    return "".join(lines).rstrip()


_OWN_FOLDER = __file__.rpartition("/")[0] + "/"
