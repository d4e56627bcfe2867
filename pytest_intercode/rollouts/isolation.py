"""Process isolation: changes that an agent makes to the process are reported and set back.

Agents of one run live in one process. The working directory, environment variables, import path,
standard streams, umask, warning filters and the root logger are restored when an episode ends; if
several run in parallel, as soon as none runs. Threads that an agent leaves cannot be ended, so they
are reported, except for idle workers of a pool. Memory, open files and patched modules are not
checked.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import sysconfig
import threading
import time
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import NoReturn

from pytest_intercode.agents.ledger import current_ledger
from pytest_intercode.system.platform import open_folder, present_umask

__all__ = [
    "OUR_THREADS",
    "SharedProcess",
    "exit_prevented",
    "followed",
    "isolated",
    "owner",
    "owning",
    "thread_location",
    "threads_of",
]

OUR_THREADS = "intercode-"
"""The prefix of the names of our own threads."""

_WORKERS = {("concurrent.futures.thread", "_worker"), ("anyio._backends._asyncio", "run")}
"""Modules and functions of the workers of pools, which libraries keep for the whole process."""

_EXIT_TIMEOUT = 0.1  # seconds for threads that are about to end
_MAX_NAMES = 5


@contextlib.contextmanager
def exit_prevented() -> Iterator[None]:
    """Make ``os._exit`` end only the agent that calls it, not the process with all other episodes.

    A call from another thread, such as one of a pytest plugin, or from a forked child still ends
    the process.
    """
    leave, process = os._exit, os.getpid()

    def leave_if_no_agent(status: int) -> NoReturn:
        if current_ledger().get() is not None and os.getpid() == process:
            raise SystemExit(f"os._exit({status!r:.20}) was called, which would have ended the run")
        leave(status)

    os._exit = leave_if_no_agent
    try:
        yield
    finally:
        os._exit = leave


@contextlib.contextmanager
def isolated() -> Iterator[list[str]]:
    """Run the only episode of the process; set back the agent's changes.

    Returns:
        A list, filled when the episode is over: a line for each change that the agent left.
    """
    leftovers: list[str] = []
    keepers = (_Directory(), _Variables(), _ImportPath(), _Streams(), _Umask(), _Logging())
    threads = set(threading.enumerate())
    try:
        with warnings.catch_warnings():  # filters are not reported: many libraries add some
            yield leftovers
    finally:
        for keeper in keepers:
            difference = keeper.changed()
            if difference:
                keeper.set_back()
                leftovers.append(f"{difference} (set back)")
            keeper.close()
        leftovers += _still_running(set(threading.enumerate()) - threads)


class SharedProcess:
    """The state of the process that parallel episodes share.

    It is not known which episode made a change. A change is reported with the next episode that
    ends, and set back when no episode runs: until then another one may rely on it. Threads are
    attributed to their owners. The standard streams, warning filters and the root logger's level
    are not checked, because pytest itself may change them at that time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._keepers: list[_Keeper] = []
        self._reported: set[str] = set()

    @contextlib.contextmanager
    def episode(self, owner: object) -> Iterator[list[str]]:
        """Run one of the episodes.

        Args:
            owner: the owner of its threads.

        Returns:
            A list, filled when the episode is over: a line for each change that was left.
        """
        leftovers: list[str] = []
        with self._lock:
            if not self._running:
                self._keepers = [_Directory(), _Variables(), _ImportPath(), _Umask(), _Handlers()]
                self._reported.clear()
            self._running += 1
        try:
            yield leftovers
        finally:
            with self._lock:
                self._running -= 1
                for keeper in self._keepers:
                    leftovers += self._look(keeper)
            leftovers += _still_running(set(threads_of(owner)))

    def _look(self, keeper: _Keeper) -> Iterator[str]:
        difference = keeper.changed()
        if difference and difference not in self._reported:
            self._reported.add(difference)
            running = f"{self._running} other episode{'s' if self._running > 1 else ''} running"
            yield f"{difference} ({f'seen with {running}' if self._running else 'set back'})"
        if not self._running:
            if difference:
                keeper.set_back()
            keeper.close()


def _still_running(threads: set[threading.Thread]) -> list[str]:
    agent_threads = [thread for thread in threads if not thread.name.startswith(OUR_THREADS)]
    busy = [thread for thread in agent_threads if not _is_idle(thread)]
    deadline = time.monotonic() + _EXIT_TIMEOUT
    for busy_thread in busy:
        busy_thread.join(max(0.0, deadline - time.monotonic()))
    names = [thread.name for thread in busy if thread.is_alive()]
    return [f"threads that still run: {_names(names)}"] if names else []


def _is_idle(thread: threading.Thread) -> bool:
    """Whether it is a worker of a library's pool that waits for work."""
    frame = sys._current_frames().get(thread.ident or 0)
    waits_in = "queue"
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module not in ("queue", "threading"):
            return waits_in == "queue" and (module, frame.f_code.co_name) in _WORKERS
        frame, waits_in = frame.f_back, module
    return False


def _names(names: list[str]) -> str:
    suffix = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(sorted(names)[:_MAX_NAMES]) + suffix


class _Keeper(ABC):
    """Remembers one part of the process's state at the time of its creation."""

    @abstractmethod
    def changed(self) -> str:
        """Describe the change since then; empty if there is none."""

    @abstractmethod
    def set_back(self) -> None:
        """Restore the state."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release the resources that it holds."""


class _Directory(_Keeper):
    def __init__(self) -> None:
        self._name = Path.cwd()
        self._folder = open_folder(".")

    def changed(self) -> str:
        try:
            folder: Path | str = Path.cwd()
        except OSError:
            folder = "a folder that is gone"
        return "" if folder == self._name else f"the working directory {folder}"

    def set_back(self) -> None:
        os.fchdir(self._folder)

    def close(self) -> None:
        os.close(self._folder)


class _Variables(_Keeper):
    def __init__(self) -> None:
        self._before = _variables()

    def _different(self) -> list[str]:
        variables, present = self._before, _variables()
        changed = {name for name, _ in variables.items() ^ present.items()}
        return sorted(map(os.fsdecode, changed - {b"PYTEST_CURRENT_TEST"}))

    def changed(self) -> str:
        different = self._different()
        return f"environment variables: {_names(different)}" if different else ""

    def set_back(self) -> None:
        for name in self._different():
            value = self._before.get(os.fsencode(name))
            if value is not None:
                os.environ[name] = os.fsdecode(value)
            else:
                os.environ.pop(name, None)


def _variables() -> dict[bytes, bytes]:
    """Copy the environment; unlike ``dict(os.environ)``, safe while other threads change it."""
    data = getattr(os.environ, "_data", None)  # decoding would take a hundred times as long
    if isinstance(data, dict):
        return data.copy()
    return {os.fsencode(name): os.fsencode(value) for name, value in os.environ.copy().items()}


class _ImportPath(_Keeper):
    def __init__(self) -> None:
        self._path, self._words = list(sys.path), list(sys.argv)

    def changed(self) -> str:
        unchanged = sys.path == self._path and sys.argv == self._words
        return "" if unchanged else "another sys.path or sys.argv"

    def set_back(self) -> None:
        sys.path[:], sys.argv[:] = self._path, self._words


class _Streams(_Keeper):
    def __init__(self) -> None:
        self._before = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}

    def changed(self) -> str:
        replaced = [
            name for name, stream in self._before.items() if getattr(sys, name) is not stream
        ]
        return f"another {' and '.join(f'sys.{name}' for name in replaced)}" if replaced else ""

    def set_back(self) -> None:
        for name, stream in self._before.items():
            setattr(sys, name, stream)


class _Umask(_Keeper):
    def __init__(self) -> None:
        self._before = present_umask()

    def changed(self) -> str:
        umask = present_umask()
        comparable = self._before is not None and umask is not None
        return f"the umask {umask:04o}" if comparable and umask != self._before else ""

    def set_back(self) -> None:
        if self._before is not None:
            os.umask(self._before)


class _Logging(_Keeper):
    """The root logger of a process with one episode."""

    def __init__(self) -> None:
        root = self._root = logging.getLogger()
        self._level, self._disabled = root.level, root.manager.disable
        self._handlers = list(root.handlers)

    def changed(self) -> str:
        root = self._root
        unchanged = (root.level, root.manager.disable) == (self._level, self._disabled)
        return "" if unchanged and self._same_handlers() else "another set-up of the root logger"

    def _same_handlers(self) -> bool:
        return self._root.handlers == self._handlers

    def set_back(self) -> None:
        self._root.setLevel(self._level)
        logging.disable(self._disabled)
        self._root.handlers[:] = self._handlers


class _Handlers(_Logging):
    """The same, except for pytest's own handlers and level, which change from item to item."""

    def changed(self) -> str:
        unchanged = self._root.manager.disable == self._disabled and self._same_handlers()
        return "" if unchanged else "another set-up of the root logger"

    def _same_handlers(self) -> bool:
        return _foreign(self._root.handlers) == _foreign(self._handlers)

    def set_back(self) -> None:
        logging.disable(self._disabled)
        handlers = _foreign(self._handlers)
        for handler in _foreign(self._root.handlers):
            if handler not in handlers:
                self._root.removeHandler(handler)
        for handler in handlers:
            self._root.addHandler(handler)  # does nothing if it is already there


def _foreign(handlers: list[logging.Handler]) -> list[logging.Handler]:
    return [handler for handler in handlers if not type(handler).__module__.startswith("_pytest.")]


# -- the owners of threads

_OWNER: ContextVar[object | None] = ContextVar("intercode_owner", default=None)
_STARTED: weakref.WeakKeyDictionary[threading.Thread, object] = weakref.WeakKeyDictionary()
_LOCK = threading.RLock()  # garbage collection may run while it is held, and print


def owner() -> object | None:
    """Return the owner of the running code; None if it does not belong to an episode."""
    someone = _OWNER.get()
    if someone is None and _STARTED:  # usually empty; checked as each print calls this
        with _LOCK:
            someone = _STARTED.get(threading.current_thread())
    return someone


def threads_of(someone: object) -> list[threading.Thread]:
    """Return the running threads that were started for an owner."""
    with _LOCK:
        return [
            thread for thread, whose in _STARTED.items() if whose is someone and thread.is_alive()
        ]


@contextlib.contextmanager
def owning(who: object) -> Iterator[None]:
    """Let the code in this context, and the threads that it starts, belong to an owner."""
    token = _OWNER.set(who)
    try:
        yield
    finally:
        _OWNER.reset(token)


@contextlib.contextmanager
def followed() -> Iterator[None]:
    """Let threads inherit the owner of the thread that starts them."""
    start = threading.Thread.start

    def start_owned(self: threading.Thread) -> None:
        someone = owner()
        if someone is not None:
            with _LOCK:
                _STARTED[self] = someone
        start(self)

    threading.Thread.start = start_owned  # type: ignore[method-assign]
    try:
        yield
    finally:
        if threading.Thread.start is start_owned:  # otherwise another wrapper is around it
            threading.Thread.start = start  # type: ignore[method-assign]


def thread_location(thread_id: int) -> str:
    """Return a thread's current location in the agent's own code, and in the library it calls."""
    frame = sys._current_frames().get(thread_id)
    places: list[tuple[bool, str]] = []
    while frame is not None:
        code = frame.f_code
        path = Path(code.co_filename)
        short_path = path.name
        with contextlib.suppress(ValueError, OSError):
            short_path = str(path.relative_to(Path.cwd()))
        places.append(
            (
                code.co_filename.startswith(_LIBRARIES),
                f"{short_path}:{frame.f_lineno} in {code.co_name}",
            )
        )
        frame = frame.f_back
    if not places:
        return "an unknown place"
    own_place = next((place for library, place in places if not library), places[0][1])
    return own_place if own_place == places[0][1] else f"{own_place} ({places[0][1]})"


_LIBRARIES = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    "<frozen",
    f"{Path(__file__).parents[1]}/",
)
