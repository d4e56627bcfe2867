"""The event loop that all async agents of a run share, and the tasks of each.

A client that a module makes once (``client = AsyncOpenAI()``) keeps connections that belong to a
loop, so all episodes need the same one. It runs on a thread of its own and only schedules: each
step of a coroutine, from one ``await`` to the next, runs on the thread of the agent that it belongs
to, while the loop waits for it. To asyncio that is one thread at a time, as ever. And yet an action
lets the others go on although ``env.step`` is not a coroutine, an agent whose time is up ends in
a thread where nobody else is, and one that computes or sleeps instead of awaiting is known by name.

Imports asyncio, so agents that are not async must not import it; see ``agent_thread.py``.
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
from typing import Any, Literal

from pytest_intercode.rollouts.isolation import thread_location

__all__ = ["AgentLoop", "AgentTasks", "TasksGone"]

_SLOW_STEP = 1.0  # seconds that a step may take before it is said to block the loop
_CLOSE_TIMEOUT = 5.0  # seconds for the loop to end

_Step = Callable[[], Any]
_Kind = Literal["yielded", "returned", "raised", "acting"]
_Reply = tuple[_Kind, Any]
_AGENT_TASKS: ContextVar[AgentTasks | None] = ContextVar("intercode_tasks", default=None)


class TasksGone(BaseException):
    """The agent's time is up, and none of its coroutines is run any further."""


class AgentLoop:
    """One event loop on one thread, started when the first async agent needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0
        self._ending = threading.Event()
        self._live: set[AgentTasks] = set()
        self._blocked: tuple[AgentTasks, float, str] | None = None

    def tasks(self, name: str) -> AgentTasks:
        """Return the tasks of an agent, none so far; to be called on the agent's thread.

        Args:
            name: what the agent works at, for those who have to wait for it.
        """
        with self._lock:
            if self._loop is None or self._process != os.getpid():  # a fork has no such thread
                self._start()
            assert self._loop is not None
            agent_tasks = AgentTasks(self, self._loop, name)
            self._live.add(agent_tasks)
        return agent_tasks

    def close(self) -> None:
        """Cancel what is left, and end the loop and its thread; it may be started again."""
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
            atexit.unregister(self.close)
        if loop is None or thread is None or self._process != os.getpid():
            return
        for tasks in list(self._live):  # those of a run that was interrupted
            tasks.abandon()
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(_end_all(loop), loop).result(_CLOSE_TIMEOUT)
        self._ending.set()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSE_TIMEOUT)

    def _start(self) -> None:
        ending = self._ending = threading.Event()
        loop = self._loop = asyncio.new_event_loop()
        loop.set_debug(False)  # it would refuse what is called from an agent's thread
        loop.set_default_executor(_Executors(4, thread_name_prefix="intercode-loop"))
        loop.set_task_factory(_make_task)

        def serve() -> None:
            try:
                while not ending.is_set():  # an agent's callback may leave, or stop the loop
                    with contextlib.suppress(BaseException):
                        loop.run_forever()
            finally:
                loop.close()

        self._process = os.getpid()
        self._blocked = None
        self._live.clear()
        self._thread = threading.Thread(target=serve, name="intercode-loop", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # -- who blocks whom; called on the loop's thread, and read from others

    def _block(self, tasks: AgentTasks, began: float, where: str) -> None:
        self._blocked = (tasks, began, where)

    def _unblock(self) -> None:
        assert self._blocked is not None
        tasks, began, location = self._blocked
        seconds = time.monotonic() - began
        with self._lock:
            waiting = self._live - {tasks}
        for agent_tasks in waiting:
            agent_tasks._waited(seconds, tasks.name, location)
        if waiting:
            tasks.blocked.append(
                f"a blocked event loop: {len(waiting)} other async agent"
                f"{'s' * (len(waiting) > 1)} waited {seconds:.1f} s for {location}"
            )
        self._blocked = None

    def _end(self, tasks: AgentTasks) -> None:
        with self._lock:
            self._live.discard(tasks)


class AgentTasks:
    """The tasks of one async agent: scheduled by the shared loop, run on the agent's thread.

    Attributes:
        name: what the agent works at.
        blocked: a line for each time that it kept the others waiting.
    """

    def __init__(self, shared: AgentLoop, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self.name = name
        self.blocked: list[str] = []
        self._shared = shared
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._turn = asyncio.Lock()  # its tasks take turns on its one thread
        self._steps: queue.SimpleQueue[tuple[_Step, Any] | Literal["go on", "done", "gone"]]
        self._steps = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[_Reply] = queue.SimpleQueue()
        self._stepping = self._gone = False
        self._root: asyncio.Task[Any] | None = None
        self._alive: set[asyncio.Task[Any]] = set()
        self._generators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._pool: ThreadPoolExecutor | None = None
        self._left: BaseException | None = None
        self._delayed = (0.0, "", "")

    # -- the agent's thread

    def finish(self, value: Awaitable[Any]) -> Any:
        """Run what an agent returned to its end, and return or raise what it comes to.

        Raises:
            TasksGone: it was abandoned.
        """
        if self._gone:
            _forget(value)
            raise TasksGone
        result: list[tuple[Any, BaseException | None]] = []

        async def caught() -> None:
            try:
                result.append((await value, None))
            except BaseException as error:  # which must not end the loop
                result.append((None, error))

        def begin() -> None:
            self._root = self._loop.create_task(caught())
            self._root.add_done_callback(lambda _: self._steps.put("done"))

        context = copy_context()
        context.run(_AGENT_TASKS.set, self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generators.add, finalizer=self._finalize)
        asyncio._set_running_loop(self._loop)
        try:
            self._loop.call_soon_threadsafe(begin, context=context)
            self._serve()
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            self._root = None
            _forget(value)
        if self._left is not None:
            raise self._left
        if not result:
            raise asyncio.CancelledError
        returned, error = result[0]
        if error is not None:
            raise error
        return returned

    def end(self, *, wait: bool) -> None:
        """Cancel the tasks that the agent has left, and wait for their end.

        Args:
            wait: also wait for what it runs in threads.
        """
        if not self._gone and (self._alive or self._generators or self._pool):
            self.finish(self._end_others(wait))
        self._shared._end(self)

    def leave(self) -> None:
        """Let the loop go on, whatever was under way; the agent's thread ends."""
        self._gone = True
        self._replies.put(("raised", asyncio.CancelledError()))
        self._shared._end(self)

    @contextlib.contextmanager
    def meanwhile(self) -> Iterator[None]:
        """Let the loop go on while the agent's thread does something else in a step."""
        if not self._stepping or threading.get_ident() != self._thread_id:
            yield
            return
        acted = self._loop.create_future()
        self._stepping = False
        self._replies.put(("acting", acted))
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(_resolve, acted)
            if self._steps.get() == "gone" or self._gone:
                raise TasksGone
            self._stepping = True

    def _serve(self) -> None:
        while True:
            item = self._steps.get()
            if item == "gone" or self._gone:
                raise TasksGone
            if item == "done":
                return
            assert not isinstance(item, str)
            step, task = item
            self._stepping = True
            with _entered(self._loop, task):
                reply = _reply_of(step)
            self._stepping = False
            self._replies.put(reply)

    def _finalize(self, generator: Any) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.create_task, generator.aclose())

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
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(_resolve, pool_end)

            threading.Thread(target=shut_down, name="intercode-loop-wait", daemon=True).start()
            await pool_end
        elif pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    # -- any thread

    def cancel(self) -> None:
        """Cancel what is awaited now."""
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._cancel)

    def abandon(self) -> None:
        """Let the loop go on without the agent's thread, which may never answer again."""
        if not self._gone:
            self.leave()
            self._steps.put("gone")
            pool = self._pool
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)

    def delay(self) -> str:
        """Say in a few words who blocked the loop, or nothing."""
        seconds, name, location = self._delayed
        blocked = self._shared._blocked
        if blocked is not None:
            tasks, began, present_location = blocked
            if tasks is self:
                return f"it has blocked for {time.monotonic() - began:.1f} s at {present_location}"
            seconds += time.monotonic() - began
            name, location = tasks.name, present_location
        if not name:
            return ""
        return (
            f"the event loop was blocked for {seconds:.1f} s by the agent of {name} at {location}"
        )

    def pool(self) -> ThreadPoolExecutor:
        """Return the threads of this agent, for what it runs in threads."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(thread_name_prefix="asyncio")
        return self._pool

    # -- the loop's thread

    def _cancel(self) -> None:
        if self._root is not None:
            self._root.cancel()

    def _waited(self, seconds: float, who: str, where: str) -> None:
        self._delayed = (self._delayed[0] + seconds, who, where)

    @types.coroutine
    def _drive(
        self, coroutine: Coroutine[Any, Any, Any], context: Context
    ) -> Generator[Any, Any, Any]:
        """Run a coroutine step by step on the agent's thread, as a task does on the loop's."""
        proceed: Callable[[Any], Any] = coroutine.send
        argument: Any = None
        cancelled: BaseException | None = None
        while True:
            # It is where a loop was run inside of a step.
            on_own_thread = threading.get_ident() == self._thread_id
            while not on_own_thread:
                try:
                    yield from self._turn.acquire().__await__()
                    break
                except asyncio.CancelledError as error:
                    proceed, argument = coroutine.throw, error
            step = _bound(context, proceed, argument)
            try:
                kind, result = _reply_of(step) if on_own_thread else self._hand_over(step)
                while kind == "acting":  # it is not cancelled in an action, but after it
                    while not result.done():
                        try:
                            yield from asyncio.shield(result).__await__()
                        except asyncio.CancelledError as error:
                            cancelled = error
                    kind, result = self._resume()
            finally:
                if not on_own_thread:
                    self._turn.release()
            if kind == "returned":
                return result
            if kind == "raised":
                if isinstance(result, (SystemExit, KeyboardInterrupt)):  # would end the loop
                    self._left = result
                    self._cancel()
                    raise asyncio.CancelledError
                raise result
            if cancelled is not None:
                if getattr(result, "_asyncio_future_blocking", False):
                    result._asyncio_future_blocking = False
                proceed, argument, cancelled = coroutine.throw, cancelled, None
                continue
            try:
                argument = yield result
                proceed = coroutine.send
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                proceed, argument = coroutine.throw, error

    def _hand_over(self, step: _Step) -> _Reply:
        if not self._gone:
            self._steps.put((step, asyncio.current_task()))
        return self._next_reply()

    def _resume(self) -> _Reply:
        if not self._gone:
            self._steps.put("go on")
        return self._next_reply()

    def _next_reply(self) -> _Reply:
        """Wait for the agent's thread; nothing else runs on the loop meanwhile."""
        if self._gone:
            return "raised", asyncio.CancelledError()
        began = time.monotonic()
        try:
            return self._replies.get(timeout=_SLOW_STEP)
        except queue.Empty:
            pass
        self._shared._block(self, began, thread_location(self._thread_id))
        reply = self._replies.get()
        self._shared._unblock()
        return reply


class _Executors(ThreadPoolExecutor):
    """The default executor of the loop: each agent's threads are its own."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ThreadFuture[Any]:
        agent_tasks = _AGENT_TASKS.get()
        if agent_tasks is None or agent_tasks._gone:
            return super().submit(fn, *args, **kwargs)
        return agent_tasks.pool().submit(fn, *args, **kwargs)


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Any,
    context: Context | None = None,
    **options: Any,
) -> asyncio.Task[Any]:
    """Make a task; one of an agent's runs on its thread, in the context that it was made in."""
    options.pop("eager_start", None)
    agent_tasks = _AGENT_TASKS.get() if context is None else context.get(_AGENT_TASKS)
    if agent_tasks is None or agent_tasks._gone or not inspect.isawaitable(coroutine):
        if context is not None:
            options["context"] = context
        return asyncio.Task(coroutine, loop=loop, **options)
    task_context = copy_context() if context is None else context
    options.setdefault("name", None)
    task = asyncio.Task(_driven(agent_tasks, coroutine, task_context), loop=loop, **options)
    agent_tasks._alive.add(task)

    def over(task: asyncio.Task[Any]) -> None:
        agent_tasks._alive.discard(task)
        _forget(coroutine)

    task.add_done_callback(over)
    return task


def _forget(value: Any) -> None:
    """Close a coroutine that was cancelled before its first step, or Python warns of it."""
    if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
        value.close()


async def _driven(tasks: AgentTasks, coroutine: Any, context: Context) -> Any:
    return await tasks._drive(coroutine, context)


async def _end_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT / 2) if tasks else None
    await loop.shutdown_asyncgens()
    # Connections that were kept alive by a client that nobody closed.
    for transport in list(getattr(loop, "_transports", {}).values()):
        transport.abort()
    await asyncio.sleep(0)
    await loop.shutdown_default_executor()


def _bound(context: Context, proceed: Callable[[Any], Any], given: Any) -> _Step:
    return lambda: context.run(proceed, given)


def _reply_of(step: _Step) -> _Reply:
    try:
        return "yielded", step()
    except StopIteration as stop:
        return "returned", stop.value
    except BaseException as error:
        return "raised", error


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@contextlib.contextmanager
def _entered(loop: asyncio.AbstractEventLoop, task: Any) -> Iterator[None]:
    """Have ``asyncio.current_task()`` know the task; since Python 3.14 each thread has its own."""
    if sys.version_info < (3, 14):
        yield
        return
    asyncio.tasks._enter_task(loop, task)
    try:
        yield
    finally:
        asyncio.tasks._leave_task(loop, task)
