"""The bash environment, strict profile: actions run as written, effects are compared with gold's.

Gold runs in a sandbox of its own at the same time as the agent; nothing of it is ever in the
agent's.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict
from typing import Any

from pytest_intercode.environments.base import Environment, Observation, Profile
from pytest_intercode.environments.gold import Gold, GoldRun
from pytest_intercode.errors import GoldError
from pytest_intercode.rewards.bash_strict import BashState, bash_strict_reward
from pytest_intercode.rewards.protocol import Reward
from pytest_intercode.sandboxes.protocol import Changes, Execution, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.files import build_archive
from pytest_intercode.suites.loader import bundled_folder
from pytest_intercode.suites.task import ImageSource, Task

__all__ = ["BashEnvironment", "prepare"]

_SETUP_TIMEOUT = 120.0
_SETTLE = 2.0  # seconds that background jobs have to end before the state is read
_VARIABLES = (("LC_ALL", "C.UTF-8"), ("PAGER", "cat"), ("TERM", "dumb"))


def prepare(sandbox: Sandbox, task: Task, now: float) -> None:
    """Bring a fresh sandbox into the task's first state.

    Args:
        sandbox: the sandbox.
        task: the task.
        now: the time (seconds since the epoch) that the task's files get, the same in both
            sandboxes, so that a listing with times is the same too.

    Raises:
        GoldError: a setup command of the task failed.
        SandboxError: the sandbox broke.
    """
    archive = build_archive(task, now)
    if archive:
        sandbox.unpack(archive)
    for command in task.setup:
        script = f"cd -- {shlex.quote(task.workdir)} || exit 1\n{command}"
        status, output = sandbox.admin(script, _SETUP_TIMEOUT)
        if status != 0:
            said = " ".join(output.decode("utf-8", "replace").split())[-300:]
            raise GoldError(
                f"{task.source}: task {task.id!r}: the setup command {command!r} ended with "
                f"status {status}: {said or 'no output'}"
            )


class BashEnvironment(Environment):
    """Bash as it is: an action is what a person would type, and the shell remembers."""

    name = "bash"
    profile: Profile = "strict"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sandbox: Sandbox | None = None
        self._gold: GoldRun | None = None
        self._last: Execution | None = None
        self._began = 0.0
        self._states: tuple[BashState, BashState] | None = None

    @classmethod
    def spec(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the sandbox that this task needs."""
        default = ImageSource(dockerfile=bundled_folder("dockerfiles") / "bash.Dockerfile")
        return SandboxSpec(
            image=provider.image(task.image or default),
            limits=task.limits,
            workdir=task.workdir,
            hostname="sandbox",
            variables=_VARIABLES,
        )

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return two equal specs: the agent's and gold's."""
        return [cls.spec(task, provider)] * 2

    def interrupt(self) -> None:
        """End the running action from another thread."""
        if self._sandbox is not None:
            self._sandbox.interrupt()

    # -- an episode

    def _start(self, task: Task) -> None:
        spec = self.spec(task, self.provider)
        self._began = time.time()
        self._gold = GoldRun(self.provider, spec, lambda sandbox: self._play_gold(sandbox, task))
        self._sandbox = self.provider.acquire(spec)
        self._prepare(self._sandbox, task)
        self._last = None
        self._states = None

    def _prepare(self, sandbox: Sandbox, task: Task) -> None:
        prepare(sandbox, task, self._began)
        sandbox.mark()

    def _execute(self, action: str) -> Observation:
        assert self._sandbox is not None
        fault = _unsendable(action)
        if fault:
            return Observation(f"[not run: an action cannot hold {fault}]\n", executed=False)
        self._last = execution = self._sandbox.run(action, self.action_timeout)
        text = _text(execution) + _notice(execution, self.action_timeout)
        return Observation(text, executed=execution.status == 0, status=execution.status)

    def _play_gold(self, sandbox: Sandbox, task: Task) -> Gold:
        self._prepare(sandbox, task)
        execution = None
        for command in task.gold:
            execution = sandbox.run(command, self.action_timeout)
            if execution.ended != "itself":
                raise GoldError(
                    f"{task.source}: task {task.id!r}: gold did not end within "
                    f"{self.action_timeout:g} s: {command[:200]}"
                )
        late = sandbox.settle(_SETTLE)
        return Gold(sandbox, execution, late, sandbox.changes())

    def _grade(self, answer: str | None) -> Reward:
        assert self._sandbox is not None
        assert self._gold is not None
        assert self.task is not None
        gold = self._gold.result()
        late = self._sandbox.settle(_SETTLE)
        mine = self._sandbox.changes()
        theirs = gold.changes
        only_mine = mine.entries.keys() - theirs.entries.keys()
        only_theirs = theirs.entries.keys() - mine.entries.keys()
        agent_state = _state(self._last, late, mine, self._sandbox.entries(only_theirs))
        gold_state = _state(gold.execution, gold.late, theirs, gold.sandbox.entries(only_mine))
        if answer is not None:
            agent_state = BashState(
                answer, "", agent_state.entries, agent_state.before, agent_state.touched
            )
        self._states = agent_state, gold_state
        return bash_strict_reward(agent_state, gold_state, self.task.reward, self.task.workdir)

    def end_state(self) -> dict[str, Any]:
        """Return both end states as builtins."""
        if self._states is None:
            return {}
        return {side: _builtins(s) for side, s in zip(("agent", "gold"), self._states, strict=True)}

    def _stop(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        gold, self._gold = self._gold, None
        if sandbox is not None:
            sandbox.close()
        if gold is not None:
            gold.stop()


def _unsendable(action: str) -> str:
    """Name what keeps an action from being sent to a shell, or return nothing."""
    if "\0" in action:
        return "a NUL character"
    try:
        action.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        return f"the lone surrogate {action[error.start]!r}"
    return ""


def _state(
    execution: Execution | None, late: bytes, changes: Changes, others: dict[str, Any]
) -> BashState:
    truncated = execution is not None and execution.truncated
    printed = b"" if execution is None else execution.output
    return BashState(
        output=(printed + late).decode("utf-8", "backslashreplace"),
        digest=execution.digest if execution is not None and truncated else "",
        entries={**changes.entries, **others},
        before=changes.before,
        touched=frozenset(changes.entries),
    )


def _builtins(state: BashState) -> dict[str, Any]:
    def entries(mapping: Any) -> dict[str, Any]:
        return {path: None if e is None else asdict(e) for path, e in mapping.items()}

    return {
        "output": state.output,
        "digest": state.digest,
        "entries": entries(state.entries),
        "before": entries(state.before),
        "touched": sorted(state.touched),
    }


def _text(execution: Execution) -> str:
    """Decode an output; say where bytes were left out of its middle."""
    if not execution.truncated:
        return execution.output.decode("utf-8", "backslashreplace")
    head = len(execution.output) * 3 // 4
    left_out = execution.size - len(execution.output)
    return (
        execution.output[:head].decode("utf-8", "backslashreplace")
        + f"\n[... {left_out} of {execution.size} bytes left out ...]\n"
        + execution.output[head:].decode("utf-8", "backslashreplace")
    )


def _notice(execution: Execution, timeout: float) -> str:
    """Tell the agent when its command was stopped or its shell replaced."""
    kept = "a new shell has the directory, variables and functions from before this command"
    if execution.ended == "timeout":
        said = f"timed out after {timeout:g} s and was stopped; {kept}"
    elif execution.ended == "flood":
        said = f"stopped after {execution.size} bytes of output; {kept}"
    elif execution.ended == "cancelled":
        said = "stopped: the episode is over"
    elif execution.restarted:
        said = f"the shell ended with status {execution.status}; {kept}"
    else:
        return ""
    line_end = "" if not execution.output or execution.output.endswith(b"\n") else "\n"
    return f"{line_end}[{said}]\n"
