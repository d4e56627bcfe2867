"""One agent running on its own thread, and the ways to make it stop.

The turn loop (``turn_loop.py``) starts it and watches it from another thread. Python cannot end a
thread, so an agent is asked to stop in several ways, one after the other: its environment refuses
actions, its own ``abort`` is called, its tasks are cancelled, an exception is raised in its thread.
An agent that reacts to none of them waits in code that is not Python, and is left behind.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pytest_intercode.agents.agent_environment import (
    ActionKind,
    AgentEnvironment,
    describe_value,
)
from pytest_intercode.agents.ledger import Ledger, current_ledger
from pytest_intercode.agents.protocol import Agent, NeverActed
from pytest_intercode.core.conversation import Exchange, Reply
from pytest_intercode.core.text import clipped
from pytest_intercode.core.turn import (
    Observation,
    Turn,
)
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import AgentError, BudgetExhausted, InfrastructureError, TaskError
from pytest_intercode.rollouts.budgets import RunBudget

if TYPE_CHECKING:
    from pytest_intercode.rollouts.agent_loop import AgentLoop, AgentTasks

__all__ = ["AgentRun", "SharedLoop"]

Result = TypeVar("Result")

_COMMAND_STOP_TIMEOUT = 5.0  # seconds left to the agent's own command once a budget is used up

_MAX_SAID = 64 * 1024  # characters of a message and of a reply that the record keeps
_MAX_REFUSALS = 5  # after so many, the agent is interrupted, as it would go on forever
_MAX_INTERRUPTS = 10_000  # after so many, the agent is detached, as it swallows them all


class _Stopped(BaseException):
    """Raised to leave an agent whose time is up, past its own ``except Exception``."""


class _FlagReset(BaseException):
    """Raised in the thread that interrupts another one, and immediately caught there."""


def _raise_in_thread(thread_id: int) -> None:
    """Make a thread raise :class:`_Stopped` at its next Python instruction.

    Args:
        thread_id: what :func:`threading.get_ident` returns in that thread.
    """
    import ctypes

    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    own_id = threading.get_ident()
    reset = ctypes.c_ulong(own_id), ctypes.py_object(_FlagReset)
    raise_in(ctypes.c_ulong(thread_id), ctypes.py_object(_Stopped))
    if sys.version_info[:2] != (3, 11) or thread_id == own_id:
        return
    # CPython 3.11 has one flag for the pending exceptions of all threads. While it is set, a
    # traced thread (for example under coverage) tries forever to enter its next function. Only a
    # thread that raises such an exception resets the flag, and the agent's thread does not while it
    # waits in C. So raise one here. The agent's thread sets the flag again when it takes the GIL.
    # The code below calls no Python function, because this thread could hang entering it.
    interruption: BaseException | None = None
    is_reset = False
    while not is_reset:
        try:
            while True:
                raise_in(*reset)
        except _FlagReset:
            is_reset = True
        except BaseException as error:  # Ctrl-C, which may come first
            interruption = error
    if interruption is not None:
        raise interruption


class SharedLoop:
    """The event loop of the async agents of a run, created when the first of them needs it.

    :func:`run_episode` accepts one, so that clients can live longer than an episode.
    """

    def __init__(self) -> None:
        self._loop: AgentLoop | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the loop; connections that clients keep open end with it."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()

    def _tasks_of(self, name: str) -> AgentTasks:
        """Return a new object for the tasks of an agent; called on the agent's thread."""
        # It imports asyncio, which is slow, and most agents do not need it.
        from pytest_intercode.rollouts.agent_loop import AgentLoop, AgentTasks

        with self._lock:
            # The loop may be closed: an agent that closes foreign descriptors ends its thread.
            loop = self._loop
            if loop is None or loop.process != os.getpid() or loop.loop.is_closed():
                self._loop = loop = AgentLoop()
            return AgentTasks(loop, name)


class AgentActions:
    """The actions of an agent in its environment: one at a time, within its budgets.

    Args:
        environment: the environment, after its reset.
        ledger: the agent's reports and limits of usage.
        run_budget: the remaining budget of the whole run.

    Attributes:
        sandbox_fault: the fault that an action raised, however the agent reacted to it.
        done: set when the agent has ended.
        in_environment: whether one of its actions is running.
        detached: whether it swallowed all exceptions of refused actions; it then waits forever.
    """

    def __init__(self, environment: Environment, ledger: Ledger, run_budget: RunBudget) -> None:
        self.sandbox_fault: InfrastructureError | TaskError | None = None
        self.done = threading.Event()
        self.in_environment = False
        self.detached = False
        self.environment = environment
        self._ledger = ledger
        self._run_budget = run_budget
        self._stopped = False
        self._gate = threading.Lock()  # so that nothing is raised in the thread during an action
        self._turnstile = threading.RLock()  # the agent's threads act one at a time
        self._thread_id = 0
        self._unresponsive = False
        self._interrupted = False
        self._refused = self._interrupts = 0
        self._since = time.monotonic()
        self._tasks: AgentTasks | None = None
        self._in_command = False
        self._command_timer: threading.Timer | None = None
        self._replies = 0  # replies of the user so far

    def exhaust(self) -> None:
        """Refuse further actions, because a budget is used up; may be called from any thread.

        The agent's own command gets a few more seconds: it may be a whole agent, which was asked
        to stop, but may not react.
        """
        # Without the environment's lock: the running action may be waiting for our caller.
        self.environment.episode.end("budget")
        with self._gate:
            if self._in_command and self._command_timer is None:
                self._command_timer = threading.Timer(_COMMAND_STOP_TIMEOUT, self._stop_command)
                self._command_timer.daemon = True
                self._command_timer.start()

    def over(self) -> bool:
        """Whether every action would be refused."""
        return self._stopped or bool(self.environment.over)

    def record_turn(self, turn: Turn) -> None:
        """Add a turn that the agent took with its own tools, and count it."""
        with self._turnstile:
            self.environment.episode.record_turn(turn)
            self._ledger.attribute(turn.usage, turn.model_calls)
            exhausted = self._run_budget.charge(turns=1)
            if exhausted:
                self._ledger.exhaust(exhausted)

    def ask(self, message: str) -> str | None:
        """Hand back to the user, and record the message and the reply.

        Replies are limited, because an agent that is always answered could go on forever.

        Raises:
            BudgetExhausted: the episode is over, or has had as many replies as it has turns.
        """
        return self.act(lambda: self._ask(message), "question")

    def _ask(self, message: str) -> str | None:
        conversation = self.environment.current_task.conversation
        max_replies = (conversation and conversation.max_turns) or self.environment.max_turns
        if self._replies >= max_replies and not self.over():
            self._ledger.exhaust(f"{max_replies} of {max_replies} replies of the user used")
        self.environment.episode.check_open("nobody answers")
        # The usage of a model that plays the user belongs to this episode, and this thread may not
        # be the episode's own.
        context = copy_context()
        context.run(current_ledger().set, self._ledger)
        turn_count, has_user = len(self.environment.turns), self.environment.has_user
        reply = context.run(self.environment.answer, message)
        self._replies += reply is not None
        # Without a user, the reply is the output of tests, which the submission's turn records.
        exchange = Exchange(
            turn_count,
            str(clipped(message, _MAX_SAID)),
            str(clipped(reply, _MAX_SAID)) if reply is not None and has_user else None,
            is_last=isinstance(reply, Reply) and reply.is_last,
        )
        self.environment.episode.dialogue.append(exchange)
        return None if exchange.is_last else reply

    def act(self, action: Callable[[], Result], kind: ActionKind = "turn") -> Result:
        """Run one action, while other async agents continue."""
        if self._tasks is None:
            return self._act(action, kind)
        with self._tasks.meanwhile():
            return self._act(action, kind)

    def _act(self, action: Callable[[], Result], kind: ActionKind) -> Result:
        with self._turnstile:
            with self._gate:
                stopped = self._stopped
                self.in_environment = not stopped
            if stopped:
                self._raise_stopped()
            turn_count = len(self.environment.turns)
            agent_seconds = time.monotonic() - self._since
            counts = False
            self._in_command = kind == "command"
            try:
                counts = kind == "turn" and self._begin_turn()
                return action()
            except BudgetExhausted:
                if self._refused >= _MAX_REFUSALS:  # it swallows the refusals, and would not end
                    self.in_environment = False
                    self._raise_stopped()
                self._refused += 1
                raise
            except (InfrastructureError, TaskError) as error:
                if not self._stopped:
                    self.sandbox_fault = error
                raise
            finally:
                if counts:
                    self._run_budget.end_turn(len(self.environment.turns) > turn_count)
                self._annotate_turn(turn_count, agent_seconds)
                if kind == "command":
                    self._end_command()
                self._since = time.monotonic()
                self.in_environment = False

    def _stop_command(self) -> None:
        with self._gate:
            if self._in_command:
                self.environment.stop_actions("budget")

    def _end_command(self) -> None:
        with self._gate:
            self._in_command = False
            if self._command_timer is not None:
                self._command_timer.cancel()

    def _begin_turn(self) -> bool:
        """Take a turn of the run's budget; if none is left, the action will be refused."""
        if self.environment.over:
            return False
        exhausted = self._run_budget.begin_turn()
        if exhausted:
            self._ledger.exhaust(exhausted)
        return not exhausted

    def _raise_stopped(self) -> NoReturn:
        """Raise the exception that ends the agent; an agent that swallows it is held here."""
        self._interrupted = True
        if self._tasks is not None:  # a framework may not pass this exception on to its own loop
            self._tasks.cancel()
        self._interrupts += threading.get_ident() == self._thread_id
        if self._interrupts > _MAX_INTERRUPTS:
            self.detached = self._unresponsive = True
            self.done.set()
            threading.Event().wait()
        raise _Stopped from None

    def _annotate_turn(self, index: int, agent_seconds: float) -> None:
        """Add the agent's notes and usage to the turn just taken, and check the run's budget."""
        if len(self.environment.turns) > index:
            note = self._ledger.take()
            self.environment.episode.amend_turn(
                index,
                thought=note.thought,
                log=note.log,
                usage=note.usage,
                model_calls=note.calls,
                agent_seconds=agent_seconds,
            )
            finished = self.environment.over in ("submitted", "solved")
            exhausted = "" if finished else self._run_budget.charge()
            if exhausted:
                self._ledger.exhaust(exhausted)


class AgentRun(AgentActions):
    """One running agent; lives on the agent's thread, and is watched from another.

    Args:
        agent: the agent.
        environment: the environment, after its reset.
        first: the observation that the reset returned.
        ledger: the agent's reports and limits of usage.
        run_budget: the remaining budget of the whole run.
        shared_loop: the event loop of async agents.

    Attributes:
        failure: the exception that the agent raised, if any.
    """

    def __init__(
        self,
        agent: Agent,
        environment: Environment,
        first: Observation,
        ledger: Ledger,
        run_budget: RunBudget,
        shared_loop: SharedLoop,
    ) -> None:
        super().__init__(environment, ledger, run_budget)
        self.failure: BaseException | None = None
        self._agent = agent
        self._first = first
        self._shared_loop = shared_loop

    def __call__(self) -> None:
        """Play the episode, until it or the agent ends."""
        self._thread_id = threading.get_ident()
        try:
            try:
                self._play()
            except _Stopped:
                pass
            except BaseException as error:  # an agent's sys.exit must not end our thread unseen
                expected = self._interrupted or _only_of_the_end(error)
                ended_well = self.environment.over and expected
                if isinstance(error, NeverActed) or not (ended_well or self._stopped):
                    self.failure = error
            finally:
                if self._tasks is not None:
                    self._tasks.end(wait=not self._stopped)
        except _Stopped:  # it may come anywhere
            pass
        except BaseException as error:
            if not self._stopped:
                self.failure = self.failure or error
        finally:
            # Before `done`: from now on nothing may be raised in this thread, as it would hit the
            # code that follows.
            self._unresponsive = True
            if self._tasks is not None:
                self._tasks.leave()
            self.done.set()

    @property
    def is_answered(self) -> bool:
        """Whether handing back may get a reply; an agent that cannot continue gets no output."""
        goes_on = self._agent.continues and self.environment.may_submit_again
        return self.environment.has_user or goes_on

    # -- called by the watching thread

    def stop(self, reason: str) -> None:
        """Refuse further actions, stop the running one, and ask the agent to end."""
        self._stopped = True
        self.environment.stop_actions(reason)
        with contextlib.suppress(Exception):
            # This is the user's code: its exceptions must not prevent the cancelling below.
            self._agent.abort()
        if self._tasks is not None:
            self._tasks.cancel()

    def cancel(self, reason: str) -> None:
        """End it without waiting: the turn loop goes on even if the agent does not react."""
        self.stop(reason)
        self.done.set()
        self.interrupt(0)

    def interrupt(self, timeout: float) -> bool:
        """Raise an exception in the agent's thread; return whether it has ended.

        It takes effect at the next Python instruction, so not while the thread waits in C.

        Args:
            timeout: seconds to wait for the end.
        """
        with self._gate:
            # Since Python 3.12 a thread that is being started has the id 0, and would get the
            # exception before it reports that it runs. Its starter would then wait forever. An
            # agent that has not begun checks whether it was stopped.
            has_begun = self._thread_id != 0
            if has_begun and not self.in_environment and not self._unresponsive:
                _raise_in_thread(self._thread_id)
        if self._tasks is not None:
            self._tasks.abandon()
        return self.done.wait(timeout)

    def blocked(self) -> tuple[str, ...]:
        """Return a line for each time that it blocked other async agents."""
        return tuple(self._tasks.blocked) if self._tasks is not None else ()

    def delay(self) -> str:
        """Describe which agent, possibly this one, blocked the event loop; empty if none did."""
        return self._tasks.delay() if self._tasks is not None else ""

    def trailing_notes(self) -> str:
        """Return the agent's thoughts and output after its last action."""
        note = self._ledger.take()
        return "\n".join(part for part in (note.thought, note.log) if part)

    # -- the agent's thread

    def _play(self) -> None:
        task = self.environment.task
        assert task is not None
        agent, environment = self._agent, self.environment
        view = task.view(environment.max_turns)
        try:
            if self._stopped:  # before it began
                return
            self._since = time.monotonic()
            if environment.has_user and task.conversation and task.conversation.opening:
                first_reply = self.ask(task.conversation.opening)
                if first_reply is None:
                    return
                view = replace(view, query=f"{view.query}\n\n{first_reply}")
            env = AgentEnvironment(view, self, self._ledger)
            if agent.style == "loop":
                message = self._await(agent.run(view, env))
                while message and isinstance(message, str) and env.is_answered and not env.over:
                    reply = env.ask(message)
                    if reply is None:
                        break
                    message = self._await(agent.run(replace(view, query=reply), env))
                return
            self._await(agent.reset(view))
            observation = self._first
            while not environment.over and not self._stopped:
                action = self._await(agent.act(observation))
                if not isinstance(action, str):
                    turn = len(environment.turns) + 1
                    raise AgentError(
                        f"act() returned {describe_value(action)} on turn {turn}; an action is a "
                        "str, and 'submit' ends the episode"
                    )
                observation = env.step(action)[0]
        finally:
            self._await(agent.close())

    def _await(self, value: Any) -> Any:
        """Run an awaitable that an async agent returned on the run's event loop, to its end.

        Raises:
            AgentError: the value is a generator, so that none of the agent's code has run.
        """
        if not inspect.isawaitable(value):
            if inspect.isgenerator(value) or inspect.isasyncgen(value):
                raise AgentError(
                    f"{value.__qualname__}() is a generator, whose code nothing runs: write it "
                    "without `yield`"
                )
            return value
        if self._tasks is None:
            task = self.environment.task
            self._tasks = self._shared_loop._tasks_of(task.id if task is not None else "")
        return self._tasks.finish(value)


def _only_of_the_end(error: BaseException, depth: int = 10) -> bool:
    """Whether an agent's error only means that its episode is over.

    Such an error may come from several tasks, and may be the cause of a framework's exception.
    """
    if isinstance(error, (BudgetExhausted, _Stopped)):
        return True
    inner = getattr(error, "exceptions", None)
    if isinstance(inner, tuple) and inner:  # an exception group; Python 3.10 has no such class
        return all(_only_of_the_end(member, depth) for member in inner)
    cause = error.__cause__  # causes may form a cycle, so limit the depth
    return cause is not None and depth > 0 and _only_of_the_end(cause, depth - 1)
