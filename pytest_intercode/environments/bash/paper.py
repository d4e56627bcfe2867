"""The bash environment, paper profile: InterCode 1.0.2 with its quoting, its ``cd`` and its git.

InterCode's behaviour is kept, because published numbers depend on it: each action is a process of
its own, whose command is made by joining strings; the effect of ``cd`` is derived from the text;
the root directory is a git repository whose status is compared. Two things differ. Every episode
has fresh sandboxes, whereas InterCode cleans one pair and leaks; of these leaks, only what its git
leaves of the files that it tracks is reproduced, see :class:`Repositories`. And an action that
timed out is really killed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import ImageSource, Task
from pytest_intercode.core.turn import Profile, StepResult
from pytest_intercode.environments.bash.repository import Repositories, Repository
from pytest_intercode.environments.bash.strict import BashEnvironment
from pytest_intercode.environments.gold import Gold, attribute_state_to_gold
from pytest_intercode.environments.paper import PaperShell, run_words, split_words
from pytest_intercode.errors import CommandFailed, IntercodeError, SandboxBroken
from pytest_intercode.rewards.bash_paper import (
    PaperState,
    bash_paper_reward,
    bash_paper_state,
)
from pytest_intercode.rewards.bash_strict import ungradable_reward, ungradable_state
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["PaperBashEnvironment", "split_action"]

Read = TypeVar("Read")

# InterCode's images also have environment variables that name the script that made their files.
_SCRIPT = re.compile(r"/(setup_nl2b_fs_(\d+)\.sh)")
_GOLD_TIMEOUT = 60.0  # InterCode's gold has no limit
_MAX_OUTPUT = 16 * 1024**2  # bytes of an output that are compared; InterCode has no limit


def split_action(action: str) -> list[str] | None:
    """Split an action into the words of a process, as InterCode does; None if it cannot be split.

    The action is put between double quotes unescaped, so its own double quotes end them.
    """
    return split_words(f'/bin/bash -c "{action.strip()}"')


class PaperBashEnvironment(PaperShell, BashEnvironment):
    """Bash as in InterCode."""

    name = "bash"
    profile: Profile = "paper"
    in_order = True  # in InterCode, the resets after earlier episodes have effects
    _uses_gold_cache = False  # InterCode plays gold for every grading

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._graded: tuple[PaperState, PaperState] | None = None
        self._mine: Repository | None = None
        self._golds: Repository | None = None  # set by the first grading
        self._repositories = _repositories(self.provider)

    @classmethod
    def spec(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the strict sandbox, but with the engine's own host name and variables."""
        strict = super().spec(_with_paper_image(task, provider), provider)
        limits = replace(strict.limits, output=max(strict.limits.output, _MAX_OUTPUT))
        return replace(
            SandboxSpec(strict.image, limits, workdir="/", guarded=False, services=strict.services),
            readonly=strict.readonly,
            scratch=strict.scratch,
            content=_repositories(provider).content(task),
        )

    @classmethod
    def golds(cls, task: Task) -> tuple[tuple[str, ...], ...]:
        """Return only gold, because InterCode does not have alternatives."""
        return (task.gold,)

    def check_gold(self) -> None:
        """Do nothing, because InterCode accepts any gold."""

    def _split(self, action: str) -> list[str] | None:
        return split_action(action)

    def _variables(self) -> dict[str, str]:
        scripts = filter(None, map(_SCRIPT.fullmatch, self.current_task.files))
        script_variables = (
            (name, value)
            for match in scripts
            for name, value in (("script", match[1]), ("file_system_version", match[2]))
        )
        return {**dict(script_variables), **dict(self.current_task.variables)}

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Make the root directory a git repository, as it is for InterCode's agent."""
        self._repositories.prepare(sandbox, task, "agent")
        self._mine = Repository(sandbox)

    def start(self, task: Task) -> None:
        """Start both sandboxes, with files as InterCode's earlier episodes would have left them."""
        self._directory = "/"
        self._observation = ""
        self._graded = None
        super().start(task)

    def _play_gold(self, sandbox: Sandbox, task: Task) -> Gold:
        """Only prepare gold's sandbox, because InterCode runs gold when it grades."""
        self._repositories.prepare(sandbox, task, "gold")
        return Gold(sandbox)

    def grade(self, answer: str | None) -> Reward:
        """Compare the status of both git repositories and the last outputs.

        As in InterCode, gold runs after the action, and both sides are read after gold: the result
        may depend on the time.
        """
        sandbox = self._gold_result().sandbox
        repository, golds = self._mine, self._golds or Repository(sandbox)
        assert repository is not None
        self._golds = golds
        words = self._split(";".join(self.current_task.gold))
        with (
            self.phases.timed("gold"),
            attribute_state_to_gold(self.current_task, CommandFailed, SandboxBroken),
        ):
            if self._graded is not None:
                # InterCode resets gold's container and runs gold again for every grading. Files
                # that the reset restores have a new time, and files that it overlooks remain. From
                # the second time on, a gold that depends on either has another result.
                golds.reset()
            text, _ = run_words(sandbox, words, "/", _GOLD_TIMEOUT, self._variables())
            golds.look()
        try:
            repository.look()  # not in parallel with gold's, which would take longer in Python
            status = self._both(Repository.read)
            shared = set(status[0]) & set(status[1])
            paths = sorted(path for path, code in shared if code in ("??", "A", "C"))
            sums = self._both(partial(Repository.sums, paths=paths)) if paths else ({}, {})
        except CommandFailed as failed:
            self._ungradable = str(failed)
            return ungradable_reward(self._ungradable)
        self._ungradable = ""
        self._graded = (
            PaperState(self._observation, status[0], sums[0]),
            PaperState(text, status[1], sums[1]),
        )
        return bash_paper_reward(*self._graded)

    def _both(self, read: Callable[[Repository], Read]) -> tuple[Read, Read]:
        """Read the agent's repository and gold's in parallel; a fault of gold is raised first."""
        assert self._mine is not None
        assert self._golds is not None
        agents_future = self.provider.background(partial(read, self._mine))
        try:
            with attribute_state_to_gold(self.current_task, CommandFailed, SandboxBroken):
                golds_status = read(self._golds)
        finally:
            wait([agents_future])
        return agents_future.result(), golds_status

    def handle_submission(self, action: str, answer: str | None) -> StepResult:
        """Grade again, even if the state was graded already, because gold's result may change."""
        if not self._ungradable:
            self.episode.latest = None
        return super().handle_submission(action, answer)

    def abandon(self) -> None:
        """End gold immediately, also if it runs during grading."""
        super().abandon()
        if self._golds is not None:
            self._golds.sandbox.interrupt()

    def stop(self) -> None:
        """Record what InterCode's next reset would leave, and end both sandboxes."""
        repository, self._mine = self._mine, None
        golds, self._golds = self._golds, None
        if self._sandbox and self.task and not self.cancelled:
            with contextlib.suppress(IntercodeError):  # for example, if git does not answer
                self._note(None if self._ungradable else repository, golds, self.task)
        super().stop()

    def _note(self, agents: Repository | None, golds: Repository | None, task: Task) -> None:
        """Record both sides in parallel."""
        note, graded = self._repositories.note, self._graded is not None
        golds_note = golds and self.provider.background(
            lambda: note(golds, task, "gold", graded=graded)
        )
        try:
            if agents:
                note(agents, task, "agent", graded=graded)
        finally:
            if golds_note:
                golds_note.result()

    def end_state(self) -> dict[str, Any]:
        """Return both end states as builtins."""
        if self._ungradable:
            return ungradable_state(self._ungradable)
        if self._graded is None:
            return {}
        return bash_paper_state(*self._graded)


def _repositories(provider: SandboxProvider) -> Repositories:
    return provider.share("bash-paper-repositories", Repositories)


def _with_paper_image(task: Task, provider: SandboxProvider) -> Task:
    """Return the task with this profile's Dockerfile, if there is one next to the task's own."""
    dockerfile = task.image.dockerfile if task.image else None
    if dockerfile is None or not provider.backend.builds_images:
        return task
    papers = dockerfile.with_name(f"{dockerfile.stem}-paper{dockerfile.suffix}")
    return replace(task, image=ImageSource(dockerfile=papers)) if papers.is_file() else task
