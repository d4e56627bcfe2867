"""Durations of an episode's phases, measured on any thread that works for the episode.

An environment writes ``with self.phases.timed("carry"):``. Code that does not have an environment,
such as the provider of sandboxes, writes ``with timed("build"):``, and the time is counted for the
episode that the thread works for.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Literal, TypeAlias, get_args

__all__ = ["PHASES", "PhaseName", "Phases", "timed"]

PhaseName: TypeAlias = Literal["build", "start", "agent", "carry", "tests", "gold"]
"""The phases of an episode:

* ``build``: waiting for an image that is built, pulled or looked up;
* ``start``: starting sandboxes and setting them up, and waiting for the verifier's;
* ``agent``: the agent's turns;
* ``carry``: copying the agent's end state into the sandbox that grades it;
* ``tests``: grading it there, by running tests or by comparing;
* ``gold``: waiting for gold.
"""
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)

_MIN_SECONDS = 0.001  # shorter phases are not recorded, except for the agent's


class Phases:
    """The phases of one episode.

    Phases never overlap: a phase that begins within another one, in any thread, interrupts it. So
    their seconds add up to the time that the episode took.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[object, PhaseName] = {}  # by a unique key; the innermost is the last
        self._began: dict[PhaseName, float] = {}  # seconds since the epoch
        self._seconds: dict[PhaseName, float] = {}
        self._noted = 0.0

    @contextlib.contextmanager
    def timed(self, name: PhaseName) -> Iterator[None]:
        """Count the time in this context for a phase, except the time of phases within it."""
        key = object()
        with self._lock:
            self._note()
            self._open[key] = name
            self._began.setdefault(name, time.time())
        current = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(current)
            with self._lock:
                self._note()
                del self._open[key]  # not always the last: another thread may have added one

    @property
    def current(self) -> PhaseName | None:
        """The phase for which time is counted now; None between phases."""
        with self._lock:
            return next(reversed(self._open.values()), None)

    def recorded(self) -> dict[str, tuple[float, float]]:
        """Return when each phase first began (seconds since the epoch), and its total seconds."""
        with self._lock:
            self._note()
            return {
                name: (self._began[name], self._seconds[name])
                for name in PHASES
                if name in self._began and (name == "agent" or self._seconds[name] >= _MIN_SECONDS)
            }

    def _note(self) -> None:
        """Count the time since the last call for the innermost phase, with the lock held."""
        instant = time.monotonic()
        if self._open:
            name = next(reversed(self._open.values()))
            self._seconds[name] = self._seconds.get(name, 0.0) + instant - self._noted
        self._noted = instant


_CURRENT: ContextVar[Phases | None] = ContextVar("intercode-phases", default=None)


def timed(name: PhaseName) -> contextlib.AbstractContextManager[None]:
    """Count time for a phase of the episode that this thread works for, if there is one."""
    phases = _CURRENT.get()
    return contextlib.nullcontext() if phases is None else phases.timed(name)
