"""The event loop that all async agents of a run share, and the tasks of each agent.

A client that a module creates once (``client = AsyncOpenAI()``) keeps connections that belong to a
loop, so all episodes need the same loop. The loop runs on its own thread and only schedules: each
step of a coroutine, from one ``await`` to the next, runs on the thread of the agent that it belongs
to, while the loop waits for it. From asyncio's view, only one thread runs at a time, as usual.

``asyncio.run_coroutine_threadsafe`` alone would be far shorter, but break three promises. Steps
would run on the loop's thread, so ``env.step``, which is not a coroutine, would block all episodes
while its action runs. An agent that blocks in C could not be left behind, since nothing can move
the tasks of the others to another loop: one agent would end the run. And it would not be known
whose step blocks. The price is that the agents' threads must do the work of a loop's own thread.
The two functions for that, ``_set_running_loop`` and ``_enter_task``, are those that asyncio
provides for other implementations of loops and tasks.

This module imports asyncio, so agents that are not async must not import it; see ``SharedLoop``.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import os
import queue
import sys
import threading
import time
import types
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, Literal, NamedTuple

from pytest_intercode.rollouts.isolation import thread_location
from pytest_intercode.system.loop_thread import LoopThread

__all__ = ["AgentLoop", "AgentTasks", "TasksGone"]

_SLOW_STEP = 1.0  # seconds that a step may take before it is reported to block the loop
_CLOSE_TIMEOUT = 5.0  # seconds for the loop to end
_AGENT_TASKS: ContextVar[AgentTasks | None] = ContextVar("intercode_tasks", default=None)


class TasksGone(BaseException):
    """The agent's time is up, and its coroutines are not run any further."""


class _Reply(NamedTuple):
    """The state of a step on the agent's thread.

    Attributes:
        kind: ``acting`` means that the step has called ``env.step`` and has not ended.
        value: the awaitable that the coroutine waits for, the value that it returned or the
            exception that it raised; for ``acting``, a future that is done after the action.
    """

    kind: Literal["waits", "returned", "raised", "acting"]
    value: Any


class _Blockage(NamedTuple):
    """A slow step: the tasks it belongs to, its start (monotonic clock), and its location."""

    tasks: AgentTasks
    began: float
    location: str


class AgentLoop:
    """One event loop on one thread, for the agents of this process.

    Attributes:
        loop: the loop.
        process: the id of the process; a fork of it does not have the thread.
        live: the tasks of agents that have not ended.
        blockage: the step that currently blocks the loop.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.live: set[AgentTasks] = set()
        self.blockage: _Blockage | None = None
        self._thread = LoopThread("intercode-loop")
        self.loop = self._thread.loop
        self.loop.set_debug(False)  # in debug mode it refuses calls from agents' threads
        self.loop.set_default_executor(_AgentsExecutor(4, thread_name_prefix="intercode-loop"))
        self.loop.set_task_factory(_make_task)
        atexit.register(self.close)

    def close(self) -> None:
        """Cancel the remaining tasks, and end the loop and its thread."""
        atexit.unregister(self.close)
        if self.process != os.getpid():
            return
        for tasks in list(self.live):  # left by a run that was interrupted
            tasks.abandon()
        with contextlib.suppress(Exception):
            self._thread.begin(_end_all(self.loop)).result(_CLOSE_TIMEOUT)
        self._thread.stop(_CLOSE_TIMEOUT)

    def end_blockage(self) -> None:
        """Record for all affected agents that the step that blocked the loop has ended."""
        assert self.blockage is not None
        tasks, began, location = self.blockage
        seconds = time.monotonic() - began
        waiting = [agent_tasks for agent_tasks in list(self.live) if agent_tasks is not tasks]
        for agent_tasks in waiting:
            agent_tasks.waited += seconds
            agent_tasks.waited_for = (tasks.name, location)
        if waiting:
            tasks.blocked.append(
                f"a blocked event loop: {len(waiting)} other async agent"
                f"{'s' * (len(waiting) > 1)} waited {seconds:.1f} s for {location}"
            )
        self.blockage = None


class AgentTasks:
    """The tasks of one async agent: scheduled by the shared loop, run on the agent's thread.

    It must be created on the agent's thread.

    Args:
        shared: the loop.
        name: the task that the agent works on, for messages about agents that wait for it.

    Attributes:
        name: the same.
        blocked: a line for each time that it blocked the other agents.
        waited: seconds that it was blocked by other agents.
        waited_for: the name and the location of the last agent that blocked it.
    """

    def __init__(self, shared: AgentLoop, name: str) -> None:
        self.name = name
        self.blocked: list[str] = []
        self.waited = 0.0
        self.waited_for = ("", "")
        self._shared = shared
        self._loop = shared.loop
        self._thread_id = threading.get_ident()
        self._turn = asyncio.Lock()  # its tasks take turns on its one thread
        # The steps for the agent's thread to run; None to continue after an action, or to finish.
        self._steps: queue.SimpleQueue[Callable[[], _Reply] | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[_Reply] = queue.SimpleQueue()
        self._stepping = self._gone = False
        self._root: asyncio.Task[Any] | None = None
        self._alive: set[asyncio.Task[Any]] = set()
        self._generators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._pool: ThreadPoolExecutor | None = None
        self._exit: BaseException | None = None
        shared.live.add(self)

    # -- the agent's thread

    def finish(self, value: Awaitable[Any]) -> Any:
        """Run an awaitable of the agent to its end, and return its result or raise its error.

        Raises:
            TasksGone: the agent was abandoned.
        """
        if self._gone:
            _forget(value)
            raise TasksGone

        async def awaited() -> Any:
            return await value

        def begin() -> None:
            self._root = self._loop.create_task(awaited())
            self._root.add_done_callback(lambda _: self._steps.put(None))

        context = copy_context()
        context.run(_AGENT_TASKS.set, self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generators.add, finalizer=self._finalize)
        asyncio._set_running_loop(self._loop)
        try:
            self._loop.call_soon_threadsafe(begin, context=context)
            while (step := self._next_step()) is not None:
                self._stepping = True
                reply = step()
                self._stepping = False
                self._replies.put(reply)
            root = self._root
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            self._root = None
            _forget(value)
        error, self._exit = self._exit, None
        if error is not None:
            raise error
        assert root is not None
        return root.result()

    def end(self, *, wait: bool) -> None:
        """Cancel the remaining tasks of the agent, and wait for their end.

        Args:
            wait: also wait for the work that it runs in threads.
        """
        if not self._gone and (self._alive or self._generators or self._pool):
            self.finish(self._end_others(wait))

    def leave(self) -> None:
        """Let the loop go on, even if a step was under way; the agent's thread ends."""
        self._gone = True
        # The loop may be waiting in `_ask` for this thread, which does not answer any more.
        self._replies.put(_Reply("raised", asyncio.CancelledError()))
        self._shared.live.discard(self)

    @contextlib.contextmanager
    def meanwhile(self) -> Iterator[None]:
        """Let the loop go on while the agent's thread does something else in a step."""
        if not self._stepping or threading.get_ident() != self._thread_id:
            yield
            return
        acted = self._loop.create_future()
        self._stepping = False
        self._replies.put(_Reply("acting", acted))
        try:
            yield
        finally:
            self._call_soon(_resolve, acted)
            self._next_step()
            self._stepping = True

    def _next_step(self) -> Callable[[], _Reply] | None:
        step = self._steps.get()
        if self._gone:
            raise TasksGone
        return step

    def _finalize(self, generator: Any) -> None:
        self._call_soon(self._loop.create_task, generator.aclose())

    async def _end_others(self, wait: bool) -> None:
        unfinished = self._alive - {asyncio.current_task()}
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        closing = [generator.aclose() for generator in list(self._generators)]
        await asyncio.gather(*closing, return_exceptions=True)
        pool, self._pool = self._pool, None
        if pool is not None and wait:
            pool_end = self._loop.create_future()

            def shut_down() -> None:
                pool.shutdown()
                self._call_soon(_resolve, pool_end)

            waiter = threading.Thread(target=shut_down, name="intercode-loop-wait", daemon=True)
            waiter.start()
            await pool_end
            waiter.join()  # it only has to return; afterwards none of our threads is left
        elif pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    # -- any thread

    def cancel(self) -> None:
        """Cancel the awaitable that is being run."""
        self._call_soon(self._cancel)

    def abandon(self) -> None:
        """Let the loop go on without the agent's thread, which may never answer again."""
        if not self._gone:
            self.leave()
            # Its thread may be waiting for a step; wake it up, so that it sees that it is gone.
            self._steps.put(None)
            pool = self._pool
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)

    def delay(self) -> str:
        """Describe in a few words which agent blocked the loop; empty if none did."""
        seconds, (name, location) = self.waited, self.waited_for
        blockage = self._shared.blockage
        if blockage is not None:
            blocked_for = time.monotonic() - blockage.began
            if blockage.tasks is self:
                return f"it has blocked for {blocked_for:.1f} s at {blockage.location}"
            seconds += blocked_for
            name, location = blockage.tasks.name, blockage.location
        if not name:
            return ""
        return (
            f"the event loop was blocked for {seconds:.1f} s by the agent of {name} at {location}"
        )

    def submit(self, work: Callable[[], Any]) -> ThreadFuture[Any]:
        """Run a function on the threads of this agent."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(thread_name_prefix="asyncio")
        return self._pool.submit(work)

    def _call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(callback, *arguments)

    # -- the loop's thread

    def make_task(
        self, coroutine: Coroutine[Any, Any, Any], context: Context, **options: Any
    ) -> asyncio.Task[Any]:
        """Return a task that runs a coroutine on the agent's thread, in a context."""
        task = asyncio.Task(self._drive(coroutine, context), loop=self._loop, **options)
        self._alive.add(task)

        def discard(task: asyncio.Task[Any]) -> None:
            self._alive.discard(task)
            _forget(coroutine)
            if task is self._root and not task.cancelled():
                task.exception()  # nobody may be left to retrieve it, and asyncio would log that

        task.add_done_callback(discard)
        return task

    def _cancel(self) -> None:
        if self._root is not None:
            self._root.cancel()

    async def _drive(self, coroutine: Coroutine[Any, Any, Any], context: Context) -> Any:
        """Run a coroutine step by step on the agent's thread, like a task on the loop's thread."""
        task = asyncio.current_task()
        assert task is not None
        proceed: Callable[[Any], Any] = coroutine.send
        argument: Any = None
        while True:
            nested = threading.get_ident() == self._thread_id  # in a loop that a step itself runs
            while not nested:
                try:
                    await self._turn.acquire()
                    break
                except asyncio.CancelledError as error:
                    proceed, argument = coroutine.throw, error
            step = partial(_take_step, self._loop, task, context, proceed, argument)
            cancellation: asyncio.CancelledError | None = None
            try:
                reply = step() if nested else self._ask(step)
                while reply.kind == "acting":
                    cancellation = await _wait_for_action(reply.value) or cancellation
                    reply = self._ask(None)
            finally:
                if not nested:
                    self._turn.release()
            if reply.kind == "returned":
                return reply.value
            if reply.kind == "raised":
                if isinstance(reply.value, (SystemExit, KeyboardInterrupt)):  # would end the loop
                    self._exit = reply.value
                    self._cancel()
                    raise asyncio.CancelledError
                raise reply.value
            if cancellation is not None:  # cancel the task after the action
                if sys.version_info >= (3, 11):
                    task.uncancel()  # this cancellation was already counted
                task.cancel(*cancellation.args)
            try:
                argument = await _pass_on(reply.value)
                proceed = coroutine.send
            except GeneratorExit:
                raise
            except BaseException as error:
                proceed, argument = coroutine.throw, error

    def _ask(self, step: Callable[[], _Reply] | None) -> _Reply:
        """Let the agent's thread continue, and wait for it; nothing else runs on the loop."""
        if self._gone:
            return _Reply("raised", asyncio.CancelledError())
        self._steps.put(step)
        began = time.monotonic()
        try:
            return self._replies.get(timeout=_SLOW_STEP)
        except queue.Empty:
            pass
        self._shared.blockage = _Blockage(self, began, thread_location(self._thread_id))
        reply = self._replies.get()
        self._shared.end_blockage()
        return reply


class _AgentsExecutor(ThreadPoolExecutor):
    """The default executor of the loop, which gives each agent its own threads."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ThreadFuture[Any]:
        agent_tasks = _AGENT_TASKS.get()
        if agent_tasks is None or agent_tasks._gone:
            return super().submit(fn, *args, **kwargs)
        return agent_tasks.submit(partial(fn, *args, **kwargs))


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Any,
    context: Context | None = None,
    **options: Any,
) -> asyncio.Task[Any]:
    """Make a task; an agent's task runs on the agent's thread, in the context of its creation."""
    options.pop("eager_start", None)
    agent_tasks = _AGENT_TASKS.get() if context is None else context.get(_AGENT_TASKS)
    if agent_tasks is not None and not agent_tasks._gone and asyncio.iscoroutine(coroutine):
        return agent_tasks.make_task(coroutine, context or copy_context(), **options)
    if context is not None:
        options["context"] = context
    return asyncio.Task(coroutine, loop=loop, **options)


def _take_step(
    loop: asyncio.AbstractEventLoop,
    task: asyncio.Task[Any],
    context: Context,
    proceed: Callable[[Any], Any],
    argument: Any,
) -> _Reply:
    """Run a coroutine to its next ``await``, with ``asyncio.current_task()`` as it should be."""
    unknown = asyncio.current_task() is None  # since Python 3.14 each thread has its own one
    if unknown:
        asyncio.tasks._enter_task(loop, task)
    try:
        return _Reply("waits", context.run(proceed, argument))
    except StopIteration as stop:
        return _Reply("returned", stop.value)
    except BaseException as error:
        return _Reply("raised", error)
    finally:
        if unknown:
            asyncio.tasks._leave_task(loop, task)


@types.coroutine
def _pass_on(future: Any) -> Generator[Any, Any, Any]:
    """Make the current task wait for the future that another coroutine waits for."""
    return (yield future)


async def _wait_for_action(acted: asyncio.Future[None]) -> asyncio.CancelledError | None:
    """Wait for the end of an action; return the last cancellation of the task during it."""
    cancellation: asyncio.CancelledError | None = None
    while not acted.done():
        try:
            await asyncio.shield(acted)
        except asyncio.CancelledError as error:
            cancellation = error
    return cancellation


def _forget(value: Any) -> None:
    """Close a coroutine that was cancelled before its first step; otherwise Python warns."""
    if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
        value.close()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _end_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT / 2) if tasks else None
    await loop.shutdown_asyncgens()
    # Connections that are kept alive by clients that were not closed.
    for transport in list(getattr(loop, "_transports", {}).values()):
        transport.abort()
    await asyncio.sleep(0)
    await loop.shutdown_default_executor()
