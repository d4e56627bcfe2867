"""Gold runs in its own sandbox and its own thread, at the same time as the agent.

Agents' sandboxes are started before gold's, until grading waits for gold. Among tries at one task,
the first plays gold, and its end state is known from then on. Gold is played again only for an
agent that left another state.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pytest_intercode.core.phases import PhaseName, timed
from pytest_intercode.core.task import Task
from pytest_intercode.errors import (
    CommandFailed,
    GoldError,
    IntercodeError,
    SandboxBroken,
    SandboxError,
)
from pytest_intercode.sandboxes.protocol import Changes, Execution, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = [
    "GOLDS",
    "Gold",
    "GoldCache",
    "GoldRun",
    "attribute_state_to_gold",
    "attribute_to_gold",
    "gold_cache",
]

GOLDS = "golds"
"""The key under which environments share the :class:`GoldCache`."""

_GOLD_TIMEOUT = 300.0  # seconds of one wait for gold
_KNOWN = re.compile(r"([0-9a-f]{32}) ([0-9a-f]{32})\n")
_MAX_FILE_BYTES = 16 * 1024**2  # of the cache file


@contextlib.contextmanager
def attribute_to_gold() -> Iterator[None]:
    """Attribute it to gold if a sandbox in which gold has acted is broken."""
    try:
        yield
    except (SandboxBroken, CommandFailed) as broken:
        if isinstance(broken, CommandFailed) and not broken.acted:
            raise
        raise GoldError(f"gold broke its sandbox: {broken}") from broken


@contextlib.contextmanager
def attribute_state_to_gold(task: Task, *errors: type[IntercodeError]) -> Iterator[None]:
    """Attribute it to gold if gold's end state cannot be graded, which these errors report."""
    try:
        yield
    except errors as error:
        raise GoldError(
            f"{task.source}: task {task.id!r}: gold leaves what cannot be graded: {error}"
        ) from None


@dataclass
class Gold:
    """What gold left behind, with its sandbox still open for further queries.

    Attributes:
        sandbox: the sandbox.
        execution: the execution of the last command.
        late: what background jobs printed after it.
        changes: the effects on disk.
    """

    sandbox: Sandbox
    execution: Execution | None = None
    late: bytes = b""
    changes: Changes = field(default_factory=lambda: Changes({}))


class GoldRun:
    """One run of gold in the background.

    Args:
        provider: where the sandbox and the thread come from.
        spec: the sandbox that it needs.
        play: brings a fresh sandbox into the task's first state and plays gold in it.
        phase: the name in records for the time spent waiting for it.
    """

    def __init__(
        self,
        provider: SandboxProvider,
        spec: SandboxSpec,
        play: Callable[[Sandbox], Gold],
        phase: PhaseName = "gold",
    ) -> None:
        self._play = play
        self._phase = phase
        self._stopped = threading.Event()
        self._sandbox: Sandbox | None = None
        self._order = provider.order(spec, urgent=False)
        try:
            self._future: Future[Gold] = provider.background(self._run)
        except BaseException:
            self._order.cancel()
            raise

    def _run(self) -> Gold:
        sandbox = self._sandbox = self._order.wait()
        try:
            if self._stopped.is_set():
                raise SandboxError("the episode ended before its gold began")
            with attribute_to_gold():
                return self._play(sandbox)
        except BaseException:
            sandbox.close()
            raise

    def result(self) -> Gold:
        """Wait for gold and return what it left.

        Raises:
            TaskError: the task cannot be set up, or gold did not complete.
            InfrastructureError: its sandbox broke.
        """
        self._order.make_urgent()
        try:
            with timed(self._phase):
                return self._future.result(timeout=_GOLD_TIMEOUT)
        except (TimeoutError, FutureTimeout):  # two classes before Python 3.11
            raise SandboxError("the gold's sandbox did not answer") from None

    def abandon(self) -> None:
        """End it immediately, without waiting for the end; :meth:`result` then raises."""
        self._stopped.set()
        self._order.cancel()  # does nothing if gold has its sandbox already
        sandbox = self._sandbox
        if sandbox is not None:
            sandbox.close()

    def stop(self) -> None:
        """End the sandbox, immediately even if gold is still running."""
        self.abandon()
        if self._future.cancel():
            return
        with contextlib.suppress(IntercodeError, TimeoutError, FutureTimeout):
            self._future.result(timeout=_GOLD_TIMEOUT).sandbox.close()


def gold_cache(provider: SandboxProvider) -> GoldCache:
    """Return the cache of golds' end states that belongs to a provider."""
    return provider.share(GOLDS, GoldCache)


class GoldCache:
    """The digests of golds' end states, keyed by what these depend on; thread-safe.

    An agent whose end state has the same digest as gold's has done what gold did. Every other agent
    is compared with a gold that is played for it. So an outdated digest costs time, but no reward;
    and digests do not reveal what gold did.

    Args:
        file: where they are kept from run to run, one line each; several processes may append to
            it. None to keep only those of this process.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._mismatches: set[str] = set()  # the keys for which the latest try differed from gold
        self._lock = threading.Lock()

    @cached_property
    def _left(self) -> dict[str, str | GoldRun]:
        """The digests, and the golds that are running; only read when bash tasks are played."""
        file = self._file
        with contextlib.suppress(OSError):
            if file is not None:
                if file.stat().st_size > _MAX_FILE_BYTES:
                    file.unlink()
                return dict(_KNOWN.findall(file.read_text("ascii", "replace")))
        return {}

    def has(self, key: str) -> bool:
        """Whether an episode may begin without a gold of its own.

        It may if gold's end state is known or will be, unless the latest agent left another one.
        """
        with self._lock:
            return key in self._left and key not in self._mismatches

    def begin(self, key: str, run: GoldRun) -> None:
        """Note that gold is being played."""
        with self._lock:
            if key and not isinstance(self._left.get(key), str):
                self._left[key] = run

    def digest(self, key: str) -> str | None:
        """Return the digest of gold's end state; wait for a gold that is being played."""
        with self._lock:
            entry = self._left.get(key)
        if isinstance(entry, GoldRun):
            with contextlib.suppress(IntercodeError):
                entry.result()
            entry = self._left.get(key)
        return entry if isinstance(entry, str) else None

    def record_digest(self, key: str, digest: str | None) -> None:
        """Note the digest of gold's end state.

        Args:
            key: a digest of what the end state depends on, 32 hexadecimal digits.
            digest: the digest of the end state, 32 as well; None if it must not be cached.
        """
        with self._lock:
            former = self._left.pop(key, None)
            if digest is None:
                return
            self._left[key] = digest
        if self._file is not None and former != digest:
            line = f"{key} {digest}\n".encode("ascii")
            with contextlib.suppress(OSError):  # the file only saves time
                file = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    # In one call, because several processes append to it.
                    os.write(file, line)
                finally:
                    os.close(file)

    def record_match(self, key: str, *, matches: bool) -> None:
        """Note whether the latest agent left the same state as gold."""
        with self._lock:
            (self._mismatches.discard if matches else self._mismatches.add)(key)
