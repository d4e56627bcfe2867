"""Gold runs in its own sandbox and its own thread, at the same time as the agent.

Agents' sandboxes are started before gold's, until grading waits for gold. Of tries at one task, the
first plays gold; what it left is known then, and gold is played again only for an agent that left
something else.
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
"""What environments share :class:`GoldCache` under."""

_GOLD_TIMEOUT = 300.0  # seconds of one wait for gold
_KNOWN = re.compile(r"([0-9a-f]{32}) ([0-9a-f]{32})\n")
_MAX_FILE_BYTES = 16 * 1024**2  # bytes of the file


@contextlib.contextmanager
def attribute_to_gold() -> Iterator[None]:
    """Attribute it to gold that a sandbox in which gold has acted is broken."""
    try:
        yield
    except (SandboxBroken, CommandFailed) as broken:
        if isinstance(broken, CommandFailed) and not broken.acted:
            raise
        raise GoldError(f"gold broke its sandbox: {broken}") from broken


@contextlib.contextmanager
def attribute_state_to_gold(task: Task, *errors: type[IntercodeError]) -> Iterator[None]:
    """Attribute it to gold that what it left cannot be graded, as these errors say."""
    try:
        yield
    except errors as error:
        raise GoldError(
            f"{task.source}: task {task.id!r}: gold leaves what cannot be graded: {error}"
        ) from None


@dataclass
class Gold:
    """What gold left behind, with its sandbox still open for questions.

    Attributes:
        sandbox: the sandbox.
        execution: the last command's.
        late: what was printed after it by jobs in the background.
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
        spec: the sandbox.
        play: brings a fresh sandbox into the task's first state and plays gold in it.
        phase: what waiting for it is called in records.
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
            TaskError: the task cannot be set up, or gold did not run to its end.
            InfrastructureError: its sandbox broke.
        """
        self._order.make_urgent()
        try:
            with timed(self._phase):
                return self._future.result(timeout=_GOLD_TIMEOUT)
        except (TimeoutError, FutureTimeout):  # two classes before Python 3.11
            raise SandboxError("the gold's sandbox did not answer") from None

    def abandon(self) -> None:
        """Let it end at once, without waiting for that; :meth:`result` raises then."""
        self._stopped.set()
        self._order.cancel()  # unless gold has its sandbox already
        sandbox = self._sandbox
        if sandbox is not None:
            sandbox.close()

    def stop(self) -> None:
        """End the sandbox, at once if gold is still at work."""
        self.abandon()
        if self._future.cancel():
            return
        with contextlib.suppress(IntercodeError, TimeoutError, FutureTimeout):
            self._future.result(timeout=_GOLD_TIMEOUT).sandbox.close()


def gold_cache(provider: SandboxProvider) -> GoldCache:
    """Return what is known of golds where these sandboxes are."""
    return provider.share(GOLDS, GoldCache)


class GoldCache:
    """What golds left, as digests, by what that depends on; from any thread.

    An agent whose end state has the digest of gold's has done what gold did. Every other agent is
    compared with a gold that is played for it. So a digest that is out of date costs time and no
    reward; and nobody learns from it what gold did.

    Args:
        file: where they are kept from run to run, a line each; several processes may add to it.
            None to know only those of this process.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._mismatches: set[str] = set()  # those that the latest try differed from
        self._lock = threading.Lock()

    @cached_property
    def _left(self) -> dict[str, str | GoldRun]:
        """What golds left, or those that are under way; read when bash tasks are played."""
        file = self._file
        with contextlib.suppress(OSError):
            if file is not None:
                if file.stat().st_size > _MAX_FILE_BYTES:
                    file.unlink()
                return dict(_KNOWN.findall(file.read_text("ascii", "replace")))
        return {}

    def has(self, key: str) -> bool:
        """Whether an episode may begin without a gold of its own.

        It may where gold's end state is known or will be, unless the latest agent left another.
        """
        with self._lock:
            return key in self._left and key not in self._mismatches

    def begin(self, key: str, run: GoldRun) -> None:
        """Note that gold is being played."""
        with self._lock:
            if key and not isinstance(self._left.get(key), str):
                self._left[key] = run

    def digest(self, key: str) -> str | None:
        """Return the digest of what gold left; wait for a gold that is being played."""
        with self._lock:
            entry = self._left.get(key)
        if isinstance(entry, GoldRun):
            with contextlib.suppress(IntercodeError):
                entry.result()
            entry = self._left.get(key)
        return entry if isinstance(entry, str) else None

    def record_digest(self, key: str, digest: str | None) -> None:
        """Note what gold left.

        Args:
            key: what it depends on, in 32 hexadecimal digits.
            digest: of the end state, in as many; None where that is not to be known.
        """
        with self._lock:
            former = self._left.pop(key, None)
            if digest is None:
                return
            self._left[key] = digest
        if self._file is not None and former != digest:
            line = f"{key} {digest}\n".encode("ascii")
            with contextlib.suppress(OSError):  # it only saves time
                file = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    # By one call, as several processes append to it.
                    os.write(file, line)
                finally:
                    os.close(file)

    def record_match(self, key: str, *, matches: bool) -> None:
        """Note whether the latest agent left what gold leaves."""
        with self._lock:
            (self._mismatches.discard if matches else self._mismatches.add)(key)
