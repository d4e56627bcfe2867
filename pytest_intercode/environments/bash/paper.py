"""The bash environment, paper profile: InterCode 1.0.2 with its quoting, its ``cd`` and its git.

Kept as it was, because published numbers depend on it: each action is a process of its own, put
together by joining strings; ``cd`` is followed by looking at the text; the root directory is a git
repository whose status stands for the file system. Two things differ: every episode has fresh
sandboxes, where InterCode cleans one pair and leaks (of its leaks, only what its git leaves of the
files that it knows is kept, see :class:`Repositories`), and an action that timed out is really
killed.
"""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import replace
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import ImageSource, Task
from pytest_intercode.core.turn import Profile, StepResult
from pytest_intercode.environments.bash.repository import (
    Repositories,
    make_repository,
    reset,
    status,
)
from pytest_intercode.environments.bash.strict import BashEnvironment
from pytest_intercode.environments.gold import Gold, left_by_gold
from pytest_intercode.environments.paper import PaperShell, run_words, split_words
from pytest_intercode.environments.shell import set_up
from pytest_intercode.errors import CommandFailed, IntercodeError, SandboxBroken, TaskError
from pytest_intercode.rewards.bash_paper import (
    PaperState,
    bash_paper_reward,
    bash_paper_state,
)
from pytest_intercode.rewards.bash_strict import ungradable_reward, ungradable_state
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["PaperBashEnvironment", "split_action"]

# InterCode's images name what made their files in the environment, too.
_SCRIPT = re.compile(r"/(setup_nl2b_fs_(\d+)\.sh)")
_GRADING = 60.0  # seconds for git, and again for md5sum
_GOLD_TIMEOUT = 60.0  # InterCode's gold has no limit
_OUTPUT = 16 * 1024**2  # bytes of an output that are compared; InterCode's has no limit


def split_action(action: str) -> list[str] | None:
    """Split an action into the words of a process, as InterCode does; None if it does not split.

    The action goes between double quotes as it is, so that its own double quotes end them.
    """
    return split_words(f'/bin/bash -c "{action.strip()}"')


class PaperBashEnvironment(PaperShell, BashEnvironment):
    """Bash as InterCode sees it."""

    name = "bash"
    profile: Profile = "paper"
    in_order = True  # of InterCode's resets, those of earlier episodes too

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._graded: tuple[PaperState, PaperState] | None = None
        self._golds: Sandbox | None = None  # where gold is at work
        self._repositories = self.provider.share("bash-paper-repositories", Repositories)

    @classmethod
    def spec(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the strict sandbox, but with the engine's own host name and variables."""
        strict = super().spec(_with_paper_image(task, provider), provider)
        limits = replace(strict.limits, output=max(strict.limits.output, _OUTPUT))
        return replace(
            SandboxSpec(strict.image, limits, workdir="/", guarded=False),
            readonly=strict.readonly,
            scratch=strict.scratch,
        )

    @classmethod
    def golds(cls, task: Task) -> tuple[tuple[str, ...], ...]:
        """Return gold alone: InterCode knows of no alternatives."""
        return (task.gold,)

    def check_gold(self) -> None:
        """Accept what InterCode accepts."""

    def _split(self, action: str) -> list[str] | None:
        return split_action(action)

    def _variables(self) -> dict[str, str]:
        scripts = filter(None, map(_SCRIPT.fullmatch, self.current_task.files))
        ours = (
            (name, value)
            for found in scripts
            for name, value in (("script", found[1]), ("file_system_version", found[2]))
        )
        return {**dict(ours), **dict(self.current_task.variables)}

    def submission(self, action: str) -> str | None:
        """Take every action that begins with ``submit`` for a bare submission."""
        return "" if action.startswith("submit") else None

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Make the root directory a git repository of files as old as InterCode's image."""
        built = self._repositories.built
        set_up(sandbox, task, built)
        failure = make_repository(sandbox, built)
        if failure:
            raise TaskError(
                f"the paper profile needs git in the image of task {task.id!r}: {failure[-300:]}"
            )

    def start(self, task: Task) -> None:
        """Start both sandboxes, with files as InterCode's earlier episodes would have left them."""
        self._directory = "/"
        self._observation = ""
        self._graded = None
        super().start(task)
        self._repositories.carry_over(self.sandbox, task, "agent")

    def _play_gold(self, sandbox: Sandbox, task: Task) -> Gold:
        """Make gold's sandbox ready: InterCode runs gold when it grades."""
        self.prepare(sandbox, task)
        self._repositories.carry_over(sandbox, task, "gold")
        return Gold(sandbox)

    def grade(self, answer: str | None) -> Reward:
        """Compare the status of both git repositories and the last outputs."""
        gold = self._golds = self._gold_result().sandbox
        if self._graded is not None:
            # InterCode resets gold's container and runs gold again whenever it grades. What the
            # reset brings back has a new time, and what it overlooks is still there: golds that
            # look at either do something else from the second time on.
            with left_by_gold(self.current_task, CommandFailed, SandboxBroken):
                reset(gold)
        words = self._split(";".join(self.current_task.gold))
        with left_by_gold(self.current_task, CommandFailed, SandboxBroken):
            text, _ = run_words(gold, words, "/", _GOLD_TIMEOUT, self._variables())
            theirs = status(gold, _GRADING)
        try:
            mine = status(self.sandbox, _GRADING)
            both = sorted(
                path for path, code in set(mine) & set(theirs) if code in ("??", "A", "C")
            )
            sums = _sums(self.sandbox, both)
        except CommandFailed as failed:
            self._ungradable = str(failed)
            return ungradable_reward(self._ungradable)
        with left_by_gold(self.current_task, CommandFailed, SandboxBroken):
            gold_state = PaperState(text, theirs, _sums(gold, both))
        self._ungradable = ""
        self._graded = PaperState(self._observation, mine, sums), gold_state
        return bash_paper_reward(*self._graded)

    def _submit(self, action: str, answer: str | None) -> StepResult:
        """Grade anew, be the state graded already: gold may do something else by now."""
        if not self._ungradable:
            self._latest = None
        return super()._submit(action, answer)

    def abandon(self) -> None:
        """Let gold end at once, while it is graded too."""
        super().abandon()
        if self._golds is not None:
            self._golds.interrupt()

    def stop(self) -> None:
        """Note what InterCode's next reset would leave, and end both sandboxes."""
        golds, self._golds = self._golds, None
        if self._sandbox and self.task and not self._cancelled:
            mine = None if self._ungradable else self._sandbox  # git does not answer there
            with contextlib.suppress(IntercodeError):
                self._note(mine, golds, self.task)
        super().stop()

    def _note(self, mine: Sandbox | None, golds: Sandbox | None, task: Task) -> None:
        """Note both sides at the same time."""
        note, graded = self._repositories.note, self._graded is not None
        other = golds and self.provider.background(lambda: note(golds, task, "gold", graded=graded))
        try:
            if mine:
                note(mine, task, "agent", graded=graded)
        finally:
            if other:
                other.result()

    def end_state(self) -> dict[str, Any]:
        """Return both end states as builtins."""
        if self._ungradable:
            return ungradable_state(self._ungradable)
        if self._graded is None:
            return {}
        return bash_paper_state(*self._graded)


def _with_paper_image(task: Task, provider: SandboxProvider) -> Task:
    """Return the task with the image of this profile, where its own has one beside it."""
    own = task.image.dockerfile if task.image else None
    if own is None or provider.choice.backend != "docker":
        return task
    papers = own.with_name(f"{own.stem}-paper{own.suffix}")
    return replace(task, image=ImageSource(dockerfile=papers)) if papers.is_file() else task


def _sums(sandbox: Sandbox, paths: list[str]) -> dict[str, str]:
    """Sum what both sides created; a path without a dot is taken for a directory."""
    sums = {}
    until = time.monotonic() + _GRADING
    for path in paths:
        command = f"md5sum {path}" if "." in path else f"md5deep -r {path}"
        left = max(0.1, until - time.monotonic())
        _, output = sandbox.admin(f"cd / && {command}", left)
        sums[path] = output.decode("utf-8", "replace")
    return sums
