"""One agent at work on a thread of its own, and the ways to make it stop.

The turn loop (``turn_loop.py``) starts it and watches it from another thread. Python cannot end a
thread, so an agent is asked in turn: its environment refuses, its own ``abort`` is called, its
tasks are cancelled, an exception is raised in its thread. One that reacts to none of them
waits in code that is not Python, and is left behind.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.ledger import Ledger
from pytest_intercode.agents.protocol import Agent, NeverActed
from pytest_intercode.core.turn import (
    Command,
    CommandResult,
    Observation,
    SandboxInfo,
    StepResult,
    Turn,
)
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import AgentError, BudgetExhausted, InfrastructureError, TaskError
from pytest_intercode.rollouts.budgets import RunBudget

if TYPE_CHECKING:
    from pytest_intercode.environments.shell import ShellEnvironment
    from pytest_intercode.rollouts.agent_loop import AgentLoop, AgentTasks

__all__ = ["AgentRun", "SharedLoop"]

Result = TypeVar("Result")

_COMMAND_STOP_TIMEOUT = 5.0  # seconds of the agent's own command, once a budget is used up
_MAX_LOGGED = 4000  # characters of a command's output that the trajectory keeps

_MAX_REFUSALS = 5  # then the agent is interrupted: it goes on for ever
_MAX_INTERRUPTS = 10_000  # then the agent is detached: it swallows them all


class _Stopped(BaseException):
    """Leaves an agent whose time is up, past its own ``except Exception``."""


class SharedLoop:
    """The event loop of the async agents of a run; there is none until one of them needs it.

    :func:`run_episode` takes one, so that clients which live longer than an episode can be used.
    """

    def __init__(self) -> None:
        self._loop: AgentLoop | None = None
        self._lock = threading.Lock()

    def _tasks_of(self, name: str) -> AgentTasks:
        """Return the tasks of an agent, none so far; called on the agent's thread."""
        with self._lock:
            if self._loop is None:
                # It imports asyncio, which takes long, and most agents need none.
                from pytest_intercode.rollouts.agent_loop import AgentLoop

                self._loop = AgentLoop()
        return self._loop.tasks(name)

    def close(self) -> None:
        """End it; connections that clients keep open end with it."""
        if self._loop is not None:
            self._loop.close()


class AgentActions:
    """What an agent does in its environment: one action at a time, within its budgets.

    Args:
        environment: the environment, after its reset.
        ledger: what the agent reports and may use up.
        run_budget: what the whole run has left.

    Attributes:
        sandbox_fault: what broke in an action, however the agent has reacted.
        done: set when the agent has ended.
        in_environment: whether an action of it runs.
        detached: it swallowed whatever it was refused with, and waits for ever.
    """

    def __init__(self, environment: Environment, ledger: Ledger, run_budget: RunBudget) -> None:
        self.sandbox_fault: InfrastructureError | TaskError | None = None
        self.done = threading.Event()
        self.in_environment = False
        self.detached = False
        self._environment = environment
        self._ledger = ledger
        self._run_budget = run_budget
        self._stopped = False
        self._gate = threading.Lock()  # nothing is raised in the thread while an action runs
        self._turnstile = threading.RLock()  # an agent's threads take turns
        self._thread_id = 0
        self._unresponsive = False
        self._interrupted = False
        self._refused = self._interrupts = 0
        self._since = time.monotonic()
        self._tasks: AgentTasks | None = None
        self._in_command = False
        self._command_timer: threading.Timer | None = None

    def exhaust(self) -> None:
        """Let no further action run, as a budget is used up; from any thread.

        A command of the agent's own has a few seconds left: it may be a whole agent, which was
        asked to stop, and need not react.
        """
        # Without the environment's lock: what runs may be waiting for what has used it up.
        self._environment.episode.end("budget")
        with self._gate:
            if self._in_command and self._command_timer is None:
                self._command_timer = threading.Timer(_COMMAND_STOP_TIMEOUT, self._stop_command)
                self._command_timer.daemon = True
                self._command_timer.start()

    def _stop_command(self) -> None:
        with self._gate:
            if self._in_command:
                self._environment.stop_actions("budget")

    def over(self) -> bool:
        """Whether every action would be refused."""
        return self._stopped or bool(self._environment.over)

    def step(self, action: str) -> StepResult:
        """Run one action."""
        if not isinstance(action, str):
            raise AgentError(f"env.step() was called with {_named(action)}; an action is a str")
        return self._counted(lambda: self._environment.step(action))

    def submit(self, answer: str = "") -> StepResult:
        """End the episode."""
        if not isinstance(answer, str):
            raise AgentError(f"env.submit() was called with {_named(answer)}; an answer is a str")
        return self._counted(lambda: self._environment.submit(answer))

    def pass_turn(self, action: str, observation: str) -> StepResult:
        """Take a turn that runs nothing."""
        for text in (action, observation):
            if not isinstance(text, str):
                raise AgentError(f"env.pass_turn() was called with {_named(text)}; it takes texts")
        return self._counted(lambda: self._environment.pass_turn(action, observation))

    def record_turn(self, turn: Turn) -> None:
        """Add a turn that the agent took by itself, and count it."""
        with self._turnstile:
            self._environment.episode.record_turn(turn)
            self._ledger.attribute(turn.usage)
            exhausted = self._run_budget.charge(turns=1)
            if exhausted:
                self._ledger.exhaust(exhausted)

    def sandbox(self) -> SandboxInfo:
        """Return where the agent's sandbox is."""
        return self._with_shell("env.sandbox").sandbox_info

    def exec(self, command: Command) -> CommandResult:
        """Run a command of the agent's own shell."""
        text = command.text
        if not isinstance(text, str):
            raise AgentError(f"env.exec() was called with {_named(text)}; a command is a str")
        environment = self._with_shell("env.exec()")

        def act() -> CommandResult:
            self._in_command = not command.counts_as_turn
            try:
                return environment.run_command(command)
            finally:
                with self._gate:
                    self._in_command = False
                    if self._command_timer is not None:
                        self._command_timer.cancel()

        result = self._counted(act, takes_turn=command.counts_as_turn)
        if not command.counts_as_turn:
            status = "no status" if result.status is None else f"status {result.status}"
            self._ledger.log(f"$ {text}\n{_clipped(result.output)}[{status}]\n")
        return result

    def upload(self, path: Path, at: str) -> None:
        """Copy a file or a folder into the agent's sandbox."""
        environment = self._with_shell("env.upload()")
        self._counted(lambda: environment.upload(path, at), takes_turn=False)
        self._ledger.log(f"[uploaded {path.name} to {at}]\n")

    def download(self, path: str, to: Path | None) -> bytes:
        """Copy a file or a folder out of the agent's sandbox."""
        from pytest_intercode.environments.access import content_of, extract

        environment = self._with_shell("env.download()")
        archive = self._counted(lambda: environment.download(path), takes_turn=False)
        self._ledger.log(f"[downloaded {path}]\n")
        if to is None:
            return content_of(archive, path)
        extract(archive, to)
        return b""

    def changed_files(self, since: str) -> bytes:
        """Return what has changed in the task's directory, for a copy of it on this machine."""
        environment = self._with_shell("workspace=...")
        return self._counted(lambda: environment.changed_files(since), takes_turn=False)

    def apply_changes(self, archive: bytes, removed: Sequence[bytes], said: str) -> None:
        """Change files in the task's directory, as a copy of it on this machine has changed."""
        environment = self._with_shell("workspace=...")
        self._counted(lambda: environment.apply_changes(archive, removed), takes_turn=False)
        self._ledger.log(f"[{said}]\n")

    def _with_shell(self, asked: str) -> ShellEnvironment:
        """Return the environment, if it takes commands."""
        from pytest_intercode.environments.shell import ShellEnvironment

        environment = self._environment
        if not (isinstance(environment, ShellEnvironment) and environment.takes_commands):
            raise AgentError(f"{asked}: the environment {environment.name} has no shell")
        return environment

    def _counted(self, act: Callable[[], Result], *, takes_turn: bool = True) -> Result:
        if self._tasks is None:
            return self._acted(act, takes_turn)
        with self._tasks.meanwhile():
            return self._acted(act, takes_turn)

    def _acted(self, act: Callable[[], Result], takes_turn: bool) -> Result:
        with self._turnstile:
            with self._gate:
                stopped = self._stopped
                self.in_environment = not stopped
            if stopped:
                self._raise_stopped()
            turn_count = len(self._environment.turns)
            agent_seconds = time.monotonic() - self._since
            counts = False
            try:
                counts = takes_turn and self._begin_turn()
                return act()
            except BudgetExhausted:
                if self._refused >= _MAX_REFUSALS:  # it swallows that, and would go on for ever
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
                    self._run_budget.end_turn(len(self._environment.turns) > turn_count)
                self._annotate_turn(turn_count, agent_seconds)
                self._since = time.monotonic()
                self.in_environment = False

    def _begin_turn(self) -> bool:
        """Take a turn of the run's budget; without one left, the action will be refused."""
        if self._environment.over:
            return False
        exhausted = self._run_budget.begin_turn()
        if exhausted:
            self._ledger.exhaust(exhausted)
        return not exhausted

    def _raise_stopped(self) -> NoReturn:
        """Raise in the agent's loop that it has to end; one that swallows that is held there."""
        self._interrupted = True
        if self._tasks is not None:  # a framework may keep what is raised here from its own loop
            self._tasks.cancel()
        self._interrupts += threading.get_ident() == self._thread_id
        if self._interrupts > _MAX_INTERRUPTS:
            self.detached = self._unresponsive = True
            self.done.set()
            threading.Event().wait()
        raise _Stopped from None

    def _annotate_turn(self, index: int, agent_seconds: float) -> None:
        """Put on the turn that was just taken what belongs to it, and see what is left."""
        if len(self._environment.turns) > index:
            note = self._ledger.take()
            self._environment.episode.amend_turn(
                index,
                thought=note.thought,
                log=note.log,
                usage=note.usage,
                agent_seconds=agent_seconds,
            )
            finished = self._environment.over in ("submitted", "solved")
            exhausted = "" if finished else self._run_budget.charge()
            if exhausted:
                self._ledger.exhaust(exhausted)


class AgentRun(AgentActions):
    """One agent at work; lives on the agent's thread, and is watched from another.

    Args:
        agent: the agent.
        environment: the environment, after its reset.
        first: the observation that the reset returned.
        ledger: what the agent reports and may use up.
        run_budget: what the whole run has left.
        shared_loop: the event loop of async agents.

    Attributes:
        failure: what the agent raised, if it did.
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
        """Play the episode, to its end or to the agent's."""
        self._thread_id = threading.get_ident()
        try:
            try:
                self._play()
            except _Stopped:
                pass
            except BaseException as error:  # an agent's sys.exit must not end our thread unseen
                expected = self._interrupted or _only_of_the_end(error)
                ended_well = self._environment.over and expected
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
            self._unresponsive = True
            if self._tasks is not None:
                self._tasks.leave()
            self.done.set()

    # -- what the watching thread calls

    def stop(self, reason: str) -> None:
        """Let no further action run, stop the one that runs, and ask the agent to end."""
        self._stopped = True
        self._environment.stop_actions(reason)
        with contextlib.suppress(Exception):
            self._agent.abort()
        if self._tasks is not None:
            self._tasks.cancel()

    def cancel(self, reason: str) -> None:
        """End it without waiting: the turn loop goes on although the agent may not react."""
        self.stop(reason)
        self.done.set()
        self.interrupt(0)

    def interrupt(self, timeout: float) -> bool:
        """Raise an exception in the agent's thread; return whether it has ended.

        It takes effect at the next instruction of Python, so not while the thread waits in C.

        Args:
            timeout: seconds to wait for the end.
        """
        with self._gate:
            if not self.in_environment and not self._unresponsive:
                import ctypes

                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread_id), ctypes.py_object(_Stopped)
                )
        if self._tasks is not None:
            self._tasks.abandon()
        return self.done.wait(timeout)

    def blocked(self) -> tuple[str, ...]:
        """Say when it kept other async agents waiting, a line each."""
        return tuple(self._tasks.blocked) if self._tasks is not None else ()

    def delay(self) -> str:
        """Say who blocked the event loop while it was to act, itself included, or nothing."""
        return self._tasks.delay() if self._tasks is not None else ""

    def trailing_notes(self) -> str:
        """Return what the agent said after its last action."""
        note = self._ledger.take()
        return "\n".join(part for part in (note.thought, note.log) if part)

    # -- the agent's thread

    def _play(self) -> None:
        task = self._environment.task
        assert task is not None
        agent, environment = self._agent, self._environment
        view = task.view(environment.max_turns)
        try:
            if self._stopped:  # before it began
                return
            self._since = time.monotonic()
            if agent.style == "loop":
                self._await(agent.run(view, AgentEnvironment(view, self, self._ledger)))
                return
            self._await(agent.reset(view))
            observation = self._first
            while not environment.over and not self._stopped:
                action = self._await(agent.act(observation))
                if not isinstance(action, str):
                    raise AgentError(
                        f"act() returned {_named(action)} on turn {len(environment.turns) + 1}; "
                        "an action is a str, and 'submit' ends the episode"
                    )
                observation = self.step(action)[0]
        finally:
            self._await(agent.close())

    def _await(self, value: Any) -> Any:
        """Finish what an async agent returned, on the run's event loop."""
        if not inspect.isawaitable(value):
            return value
        if self._tasks is None:
            task = self._environment.task
            self._tasks = self._shared_loop._tasks_of(task.id if task is not None else "")
        return self._tasks.finish(value)


def _only_of_the_end(error: BaseException, depth: int = 10) -> bool:
    """Whether an agent raised nothing but that its episode is over.

    It may come from several tasks at once, and in exceptions that a framework raised from it.
    """
    if isinstance(error, (BudgetExhausted, _Stopped)):
        return True
    inner = getattr(error, "exceptions", None)
    if isinstance(inner, tuple) and inner:  # an exception group, which Python 3.10 has not
        return all(_only_of_the_end(member, depth) for member in inner)
    cause = error.__cause__  # causes may go in a circle
    return cause is not None and depth > 0 and _only_of_the_end(cause, depth - 1)


def _clipped(text: str) -> str:
    if len(text) > _MAX_LOGGED:
        text = f"{text[:_MAX_LOGGED]}\n[... {len(text) - _MAX_LOGGED} characters ...]"
    return text if not text or text.endswith("\n") else text + "\n"


def _named(value: object) -> str:
    return "None" if value is None else f"{value!r:.60} ({type(value).__name__})"
