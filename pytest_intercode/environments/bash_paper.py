"""The bash environment, paper profile: InterCode 1.0.2 with its quoting, its ``cd`` and its git.

Kept as it was, because published numbers depend on it: each action is a process of its own, put
together by joining strings; ``cd`` is followed by looking at the text; the root directory is a git
repository whose status stands for the file system. Two things differ: every episode has fresh
sandboxes, where InterCode cleans one pair and leaks (of its leaks, only the times of files that it
brings back are kept up, see ``restored_times.py``), and an action that timed out is really killed.
"""

from __future__ import annotations

import contextlib
import shlex
from typing import Any

from pytest_intercode.environments.base import Observation, Profile, StepResult, Turn
from pytest_intercode.environments.bash import BashEnvironment, prepare
from pytest_intercode.environments.gold import Gold
from pytest_intercode.environments.restored_times import RestoredTimes, Side
from pytest_intercode.errors import BudgetExhausted, GoldError, InfrastructureError
from pytest_intercode.rewards.bash_paper import PaperState, bash_paper_reward, parse_status
from pytest_intercode.rewards.protocol import Reward
from pytest_intercode.sandboxes.protocol import Execution, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.task import Task

__all__ = ["PaperBashEnvironment", "resolve_cd", "split_action"]

MALFORMED = "Malformed command"
TIMED_OUT = "Command timed out"
_IGNORED = "bin boot dev etc home lib media mnt opt proc root run sbin srv sys usr var .dockerenv"
_MAKE_REPOSITORY = (
    f"cd / && printf '%s\\n' {_IGNORED} >.gitignore && git init -q 2>/dev/null && git add -A && "
    "git -c user.name=sandbox -c user.email=sandbox@localhost commit -q -m start && "
    "git clean -q -f -d"
)
_RESET = "cd / && git reset -q --hard && git clean -q -f -d"
_TIMEOUT = 60.0


def split_action(action: str) -> list[str] | None:
    """Split an action into the words of a process, as InterCode does; None if it does not split.

    The action goes between double quotes as it is, so that its own double quotes end them.
    """
    try:
        return shlex.split(f'/bin/bash -c "{action.strip()}"')
    except ValueError:
        return None


def resolve_cd(directory: str, action: str) -> str:
    """Return the directory that InterCode believes an action starting with ``cd`` leads to."""
    _, _, target = action.partition("cd ")
    target = target.strip()
    path = target if target.startswith("/") else f"{directory}/{target}"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


class PaperBashEnvironment(BashEnvironment):
    """Bash as InterCode sees it."""

    name = "bash"
    profile: Profile = "paper"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._directory = "/"
        self._observation = ""
        self._graded: tuple[PaperState, PaperState] | None = None
        self._times = self.provider.share("bash-paper-times", RestoredTimes)

    @classmethod
    def spec(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the strict sandbox, but with the engine's own host name and variables."""
        strict = super().spec(task, provider)
        return SandboxSpec(strict.image, strict.limits, workdir="/", guarded=False)

    def _submission(self, action: str) -> str | None:
        return "" if action.startswith("submit") else None

    def _prepare(self, sandbox: Sandbox, task: Task) -> None:
        prepare(sandbox, task, self._began)
        status, output = sandbox.admin(_MAKE_REPOSITORY, _TIMEOUT)
        if status != 0:
            raise GoldError(
                f"the paper profile needs git in the image of task {task.id!r}: "
                f"{output.decode('utf-8', 'replace').strip()[-300:]}"
            )

    def _start(self, task: Task) -> None:
        self._directory = "/"
        self._observation = ""
        self._graded = None
        super()._start(task)
        assert self._sandbox is not None
        self._age(self._sandbox, task, "agent")

    def _age(self, sandbox: Sandbox, task: Task, side: Side) -> None:
        """Give files the times that InterCode's resets of earlier episodes gave them."""
        command = self._times.command(task.dataset, side)
        if command:
            sandbox.admin(f"cd / && {{ {command}; }}", _TIMEOUT)

    def _note(self, sandbox: Sandbox, task: Task, side: Side) -> None:
        """Remember what InterCode's next reset would bring back."""
        _, output = sandbox.admin("cd / && git diff --name-only -z HEAD", _TIMEOUT)
        paths = output.decode("utf-8", "surrogateescape").split("\0")
        self._times.note(task.dataset, side, filter(None, paths))

    def step(self, action: str) -> StepResult:
        """Run one action; ``skip`` ends the episode with a reward of 0."""
        if action != "skip":
            return super().step(action)
        with self._lock:
            if self._over:
                raise BudgetExhausted(f"the episode is over ({self._over}); no action is run")
            self.turns.append(Turn(action, "", True))
            self.final = self._best or Reward(0.0)
            self._over = "skipped"
            return Observation(""), 0.0, True, False, {}

    def _execute(self, action: str) -> Observation:
        assert self._sandbox is not None
        target = None
        directory = self._directory
        if action.startswith("cd"):
            target, directory = resolve_cd(self._directory, action), "/"
            action = f"cd {target}"
        text, status = _run(self._sandbox, action, directory, self.action_timeout)
        if target is not None and status == 0:
            self._directory = target
        self._observation = text
        return Observation(text, executed=status == 0, status=status)

    def _play_gold(self, sandbox: Sandbox, task: Task) -> Gold:
        self._prepare(sandbox, task)
        self._age(sandbox, task, "gold")
        return Gold(sandbox, text=self._gold_text(sandbox, task))

    def _gold_text(self, sandbox: Sandbox, task: Task) -> str:
        text = ""
        for command in task.gold:
            text, _ = _run(sandbox, command, "/", self.action_timeout)
        return text

    def _grade(self, answer: str | None) -> Reward:
        assert self._sandbox is not None
        assert self._gold is not None
        assert self.task is not None
        gold = self._gold.result()
        if self._graded is not None:
            # InterCode resets gold's container and runs gold again whenever it grades. What the
            # reset brings back has a new time, and what it overlooks is still there: golds that
            # look at either do something else from the second time on.
            self._note(gold.sandbox, self.task, "gold")
            gold.sandbox.admin(_RESET, _TIMEOUT)
            gold.text = self._gold_text(gold.sandbox, self.task)
        mine, theirs = _status(self._sandbox), _status(gold.sandbox)
        both = sorted(path for path, code in set(mine) & set(theirs) if code in ("??", "A", "C"))
        self._graded = (
            PaperState(self._observation, mine, _sums(self._sandbox, both)),
            PaperState(gold.text, theirs, _sums(gold.sandbox, both)),
        )
        return bash_paper_reward(*self._graded)

    def _stop(self) -> None:
        if self._sandbox and self._gold and self.task and self._graded:
            with contextlib.suppress(InfrastructureError):
                self._note(self._sandbox, self.task, "agent")
                self._note(self._gold.result().sandbox, self.task, "gold")
        super()._stop()

    def end_state(self) -> dict[str, Any]:
        """Return both end states as builtins."""
        if self._graded is None:
            return {}
        return {
            side: {
                "output": state.output,
                "status": [list(pair) for pair in state.status],
                "sums": dict(state.sums),
            }
            for side, state in zip(("agent", "gold"), self._graded, strict=True)
        }


def _run(sandbox: Sandbox, action: str, directory: str, timeout: float) -> tuple[str, int | None]:
    """Run an action as a process of its own, with the environment of ``docker exec``."""
    words = split_action(action)
    if words is None:
        return MALFORMED, None
    # The engine's exec ends when everybody has let go of its output, background jobs included.
    command = (
        f'(cd -- {shlex.quote(directory)} && exec env -i PATH="$PATH" HOSTNAME="$HOSTNAME" '
        f"HOME=/root {shlex.join(words)}) 2>&1 | cat; (exit ${{PIPESTATUS[0]}})"
    )
    execution: Execution = sandbox.run(command, timeout)
    if execution.ended != "itself":
        return TIMED_OUT, None
    try:
        return execution.output.decode("utf-8"), execution.status
    except UnicodeDecodeError:
        return MALFORMED, None


def _status(sandbox: Sandbox) -> tuple[tuple[str, str], ...]:
    _, output = sandbox.admin("cd / && git status --short", _TIMEOUT)
    return parse_status(output.decode("utf-8", "replace"))


def _sums(sandbox: Sandbox, paths: list[str]) -> dict[str, str]:
    """Sum what both sides created; a path without a dot is taken for a directory."""
    sums = {}
    for path in paths:
        command = f"md5sum {path}" if "." in path else f"md5deep -r {path}"
        _, output = sandbox.admin(f"cd / && {command}", _TIMEOUT)
        sums[path] = output.decode("utf-8", "replace")
    return sums
