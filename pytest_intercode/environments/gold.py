"""Gold runs in its own sandbox and its own thread, at the same time as the agent.

Agents' sandboxes are started before gold's, until grading waits for gold.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field

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

__all__ = ["Gold", "GoldRun", "golds_fault", "left_by_gold"]

_PATIENCE = 300.0


@contextlib.contextmanager
def golds_fault() -> Iterator[None]:
    """Make it gold's fault that a sandbox in which gold has acted is broken."""
    try:
        yield
    except (SandboxBroken, CommandFailed) as broken:
        if isinstance(broken, CommandFailed) and not broken.acted:
            raise
        raise GoldError(f"gold broke its sandbox: {broken}") from broken


@contextlib.contextmanager
def left_by_gold(task: Task, *errors: type[IntercodeError]) -> Iterator[None]:
    """Make it gold's fault that what it left cannot be graded, as these errors say."""
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
        text: the last observation, as the paper profile words it.
    """

    sandbox: Sandbox
    execution: Execution | None = None
    late: bytes = b""
    changes: Changes = field(default_factory=lambda: Changes({}))
    text: str = ""


class GoldRun:
    """One run of gold in the background.

    Args:
        provider: where the sandbox and the thread come from.
        spec: the sandbox.
        play: brings a fresh sandbox into the task's first state and plays gold in it.
    """

    def __init__(
        self, provider: SandboxProvider, spec: SandboxSpec, play: Callable[[Sandbox], Gold]
    ) -> None:
        self._play = play
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
            with golds_fault():
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
            return self._future.result(timeout=_PATIENCE)
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
            self._future.result(timeout=_PATIENCE).sandbox.close()
