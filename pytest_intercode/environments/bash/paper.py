"""The bash environment, paper profile: InterCode 1.0.2 with its quoting, its ``cd`` and its git.

Kept as it was, because published numbers depend on it: each action is a process of its own, put
together by joining strings; ``cd`` is followed by looking at the text; the root directory is a git
repository whose status stands for the file system. Two things differ: every episode has fresh
sandboxes, where InterCode cleans one pair and leaks (of its leaks, only the times of files that it
restores are kept, see :class:`RestoredTimes`), and an action that timed out is really killed.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Profile
from pytest_intercode.environments.bash.strict import BashEnvironment
from pytest_intercode.environments.gold import Gold
from pytest_intercode.environments.paper import PaperShell, run_words, split_words
from pytest_intercode.environments.shell import set_up
from pytest_intercode.errors import IntercodeError, TaskError
from pytest_intercode.rewards.bash_paper import (
    PaperState,
    bash_paper_reward,
    bash_paper_state,
    parse_status,
)
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["PaperBashEnvironment", "split_action"]

_IGNORED = "bin boot dev etc home lib media mnt opt proc root run sbin srv sys usr var .dockerenv"
_MAKE_REPOSITORY = (
    f"cd / && printf '%s\\n' {_IGNORED} >.gitignore && git init -q 2>/dev/null && git add -A && "
    "git -c user.name=sandbox -c user.email=sandbox@localhost commit -q -m start && "
    "git clean -q -f -d"
)
_RESET = "cd / && git reset -q --hard && git clean -q -f -d"
_TIMEOUT = 60.0

Side: TypeAlias = Literal["agent", "gold"]


def split_action(action: str) -> list[str] | None:
    """Split an action into the words of a process, as InterCode does; None if it does not split.

    The action goes between double quotes as it is, so that its own double quotes end them.
    """
    return split_words(f'/bin/bash -c "{action.strip()}"')


class PaperBashEnvironment(PaperShell, BashEnvironment):
    """Bash as InterCode sees it."""

    name = "bash"
    profile: Profile = "paper"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._graded: tuple[PaperState, PaperState] | None = None
        self._times = self.provider.share("bash-paper-times", RestoredTimes)

    @classmethod
    def spec(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the strict sandbox, but with the engine's own host name and variables."""
        strict = super().spec(task, provider)
        return SandboxSpec(strict.image, strict.limits, workdir="/", guarded=False)

    def _split(self, action: str) -> list[str] | None:
        return split_action(action)

    def submission(self, action: str) -> str | None:
        """Take every action that begins with ``submit`` for a bare submission."""
        return "" if action.startswith("submit") else None

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Make the root directory a git repository."""
        set_up(sandbox, task, self._began)
        status, output = sandbox.admin(_MAKE_REPOSITORY, _TIMEOUT)
        if status != 0:
            raise TaskError(
                f"the paper profile needs git in the image of task {task.id!r}: "
                f"{output.decode('utf-8', 'replace').strip()[-300:]}"
            )

    def start(self, task: Task) -> None:
        """Start both sandboxes, with the times of files that InterCode's would have."""
        self._directory = "/"
        self._observation = ""
        self._graded = None
        super().start(task)
        self._age(self.sandbox, task, "agent")

    def _age(self, sandbox: Sandbox, task: Task, side: Side) -> None:
        """Give files the times that InterCode's resets of earlier episodes gave them."""
        command = self._times.command(task.dataset, side)
        if command:
            sandbox.admin(f"cd / && {{ {command}; }}", _TIMEOUT)

    def _note(self, sandbox: Sandbox, task: Task, side: Side) -> None:
        """Remember what InterCode's next reset would restore."""
        _, output = sandbox.admin("cd / && git diff --name-only -z HEAD", _TIMEOUT)
        paths = output.decode("utf-8", "surrogateescape").split("\0")
        self._times.note(task.dataset, side, filter(None, paths))

    def _play_gold(self, sandbox: Sandbox, task: Task) -> Gold:
        self.prepare(sandbox, task)
        self._age(sandbox, task, "gold")
        return Gold(sandbox, text=self._gold_text(sandbox, task))

    def _gold_text(self, sandbox: Sandbox, task: Task) -> str:
        text = ""
        for command in task.gold:
            text, _ = run_words(sandbox, self._split(command), "/", self.action_timeout)
        return text

    def grade(self, answer: str | None) -> Reward:
        """Compare the status of both git repositories and the last outputs."""
        gold = self._gold_result()
        if self._graded is not None:
            # InterCode resets gold's container and runs gold again whenever it grades. What the
            # reset brings back has a new time, and what it overlooks is still there: golds that
            # look at either do something else from the second time on.
            self._note(gold.sandbox, self.current_task, "gold")
            gold.sandbox.admin(_RESET, _TIMEOUT)
            gold.text = self._gold_text(gold.sandbox, self.current_task)
        mine, theirs = _status(self.sandbox), _status(gold.sandbox)
        both = sorted(path for path, code in set(mine) & set(theirs) if code in ("??", "A", "C"))
        self._graded = (
            PaperState(self._observation, mine, _sums(self.sandbox, both)),
            PaperState(gold.text, theirs, _sums(gold.sandbox, both)),
        )
        return bash_paper_reward(*self._graded)

    def stop(self) -> None:
        """Note what InterCode's next reset would restore, and end both sandboxes."""
        if self._sandbox and self._gold and self.task and self._graded:
            with contextlib.suppress(IntercodeError):
                self._note(self._sandbox, self.task, "agent")
                self._note(self._gold.result().sandbox, self.task, "gold")
        super().stop()

    def end_state(self) -> dict[str, Any]:
        """Return both end states as builtins."""
        if self._graded is None:
            return {}
        return bash_paper_state(*self._graded)


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


class RestoredTimes:
    """When each file of a data set was last restored, as seconds since the epoch.

    It is the one thing that InterCode carries from episode to episode and that rewards depend on.
    InterCode cleans its two containers with ``git reset --hard`` between episodes. What an episode
    changed comes back with a new time of modification, and from then on ``find -mtime`` and
    ``ls -l`` see a young file where the data set has an old one, on the agent's side or on gold's.
    The paper profile gives every episode fresh sandboxes, and then gives these files the times that
    InterCode's would have.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[str, Side], dict[str, float]] = defaultdict(dict)
        self._lock = threading.Lock()

    def note(self, dataset: str, side: Side, paths: Iterable[str]) -> None:
        """Remember that InterCode would restore these files now."""
        now = time.time()
        with self._lock:
            self._times[dataset, side].update(dict.fromkeys(paths, now))

    def command(self, dataset: str, side: Side) -> str:
        """Return the command that gives a fresh sandbox's files their times; empty if none."""
        with self._lock:
            times = dict(self._times[dataset, side])
        return "; ".join(
            f"touch -c -d @{when:.6f} -- {shlex.quote(path)}" for path, when in times.items()
        )
