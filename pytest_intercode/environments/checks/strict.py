"""The checks environment: a shell, and an answer that is graded, or scripts that check the machine.

Neither gold nor the scripts are in the agent's sandbox while the agent works. What gold prints,
which is the right answer to a question, comes from a sandbox of its own. The scripts run in the
agent's sandbox, because no other machine is in the state to be checked. They run after all of the
agent's processes have ended, and only if it has not replaced anything that they run or load.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task, Verification
from pytest_intercode.core.turn import Profile
from pytest_intercode.environments.checks.fields import Check, ChecksFields
from pytest_intercode.environments.gold import Gold, GoldRun, attribute_state_to_gold
from pytest_intercode.environments.shell import ShellEnvironment, mark_first_state, text_of
from pytest_intercode.environments.swe.carrying import Carrying, GoldPaths, Programs
from pytest_intercode.environments.swe.machine import read_first_state
from pytest_intercode.errors import CommandFailed, GoldError, TaskError, UngradableState
from pytest_intercode.rewards.checks import checks_reward, read_answer
from pytest_intercode.sandboxes.protocol import Changes, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["ChecksEnvironment"]

_CHECK_TIMEOUT = 60.0  # seconds for one script
_SETTLE_TIMEOUT = 2.0  # seconds that background jobs have to end before the state is read
_MAX_ARGUMENT = 100_000  # characters; Linux allows 128 KiB
_MAX_PATHS = 5  # in the end state
_COMMANDS = {"bash": "bash -c {} --", "python": "python3 -c {}"}
_VARIABLES = "HOME=/root USER=root LOGNAME=root TERM=dumb LC_ALL=C.UTF-8"
_BIN = re.compile(r"/(?:usr/|usr/local/)?s?bin")


@dataclass
class _PlayedGold(Gold):
    """What gold left behind.

    Attributes:
        programs: where the machine's programs load from, before gold ran.
        commands: the names of the machine's commands, before gold ran.
    """

    programs: Programs = field(default_factory=Programs)
    commands: frozenset[str] = frozenset()


class ChecksEnvironment(ShellEnvironment):
    """Plain bash; an answer is graded, or scripts check the machine."""

    name = "checks"
    profile: Profile = "strict"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._state: dict[str, Any] = {}

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return the agent's sandbox, and gold's if the task does not hold the answer."""
        return [cls.spec(task, provider)] * (1 if ChecksFields.of(task).match else 2)

    # -- an episode

    def start(self, task: Task) -> None:
        """Start the agent's sandbox, and play gold in another at the same time."""
        if self.feedback == "reward" and ChecksFields.of(task).checks:
            raise TaskError(
                f"{task.source}: task {task.id!r}: scripts check its machine after the agent has "
                "ended, because it could read them; so it has no rewards as feedback"
            )
        self._state = {}
        super().start(task)

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Bring a sandbox into the task's first state, including the task's ``start`` line."""
        super().prepare(sandbox, task)
        fields = ChecksFields.of(task)
        if fields.start:
            execution = sandbox.run(fields.start, self.action_timeout)
            if execution.ended != "itself" or execution.status:
                raise TaskError(
                    f"{task.source}: task {task.id!r}: start: {fields.start[:200]!r} ended with "
                    f"status {execution.status}: {text_of(execution)[-300:].strip()}"
                )
        if fields.checks:
            mark_first_state(sandbox, task)

    def _start_gold(self, task: Task) -> GoldRun | None:
        if ChecksFields.of(task).match:
            return None

        def play(sandbox: Sandbox) -> Gold:
            return self._play_gold(sandbox, task)

        return GoldRun(self.provider, self.spec(task, self.provider), play)

    def _play_gold(self, sandbox: Sandbox, task: Task) -> Gold:
        self.prepare(sandbox, task)
        gold, fields = _PlayedGold(sandbox), ChecksFields.of(task)
        if fields.checks:
            gold.programs = read_first_state(sandbox, task, self.provider).programs
            gold.commands = frozenset(
                sandbox.admin("compgen -c", _CHECK_TIMEOUT)[1].decode().split()
            )
        for command in task.gold:
            gold.execution = sandbox.run(command, self.action_timeout)
            if gold.execution.ended != "itself":
                raise GoldError(
                    f"{task.source}: task {task.id!r}: gold did not end within "
                    f"{self.action_timeout:g} s: {command[:200]}"
                )
        if fields.checks:
            with attribute_state_to_gold(task, UngradableState):
                gold.changes = sandbox.changes()
        elif read_answer(_printed(gold), fields.compare) in ("", None):
            raise GoldError(
                f"{task.source}: task {task.id!r}: gold prints no answer ({fields.compare}): "
                f"{_printed(gold)[-300:].strip()!r}"
            )
        return gold

    # -- grading

    def grade(self, answer: str | None) -> Reward:
        """Compare the answer, or else the last output; or run the scripts."""
        task = self.current_task
        fields = ChecksFields.of(task)
        gold = None if self._gold is None else self._gold_result()
        if answer is None:
            answer = "" if self._last is None else text_of(self._last)
        right = fields.match if gold is None else "" if fields.checks else _printed(gold)
        self._state = {
            "agent": {"answer": answer, "statuses": [], "programs": []},
            "gold": {
                "answer": right,
                "compare": fields.compare,
                "checks": len(fields.checks),
            },
        }
        if fields.checks:
            assert isinstance(gold, _PlayedGold)
            self._check(gold, fields, answer)
        return checks_reward(self._state)

    def _check(self, gold: _PlayedGold, fields: ChecksFields, answer: str) -> None:
        """End all processes of the agent's sandbox, then run the scripts in it.

        Stop after the first script that fails.
        """
        agent = self._state["agent"]
        agent["statuses"], agent["programs"] = [], []
        try:
            self.sandbox.settle(_SETTLE_TIMEOUT)
            self.sandbox.halt()
            replaced = sorted(self._replaced(gold, fields, self.sandbox.changes()))
        except UngradableState as error:
            replaced = [str(error)]
        agent["programs"] = replaced[:_MAX_PATHS]
        if replaced:
            return
        arguments = [answer]
        for check in fields.checks:
            status, output = self._run_check(check, arguments)
            agent["statuses"].append(status)
            if status:
                return
            arguments.append(output)

    def _replaced(self, gold: _PlayedGold, fields: ChecksFields, changes: Changes) -> Iterator[str]:
        """Yield paths that scripts may run or load, and that the agent, but not gold, changed.

        A new command is left out, because the task may ask for it.
        """
        verification = Verification("\n".join(check.script for check in fields.checks))
        task = replace(self.current_task, verification=verification)
        carrying = Carrying(task, gold.programs, lambda: GoldPaths.of_changes(gold.changes))
        # Scripts run nothing from /var/cache, and apt may rewrite its files there at any time.
        paths = [
            path
            for path in changes.entries
            if not path.startswith("/var/cache/") and not carrying.is_cache(path)
        ]
        for path in carrying.left_out(changes, paths):
            folder, name = posixpath.split(path)
            is_new = path in changes.before and changes.before[path] is None
            if not (is_new and _BIN.fullmatch(folder) and name not in gold.commands):
                yield path

    def _run_check(self, check: Check, arguments: list[str]) -> tuple[int, str]:
        """Run one script; return its exit status and what it printed."""
        texts = [text.replace("\0", "")[:_MAX_ARGUMENT] for text in arguments]
        command = _COMMANDS[check.language].format(shlex.quote(check.script))
        words = shlex.join(text.encode("utf-8", "replace").decode() for text in texts)
        folder = shlex.quote(self.current_task.workdir)
        line = f"cd -- {folder} && exec env {_VARIABLES} {command} {words} 2>/dev/null"
        try:
            status, output = self.sandbox.admin(line, _CHECK_TIMEOUT)
        except CommandFailed:  # it ran a program of the agent that did not end
            return 124, ""
        return status, output.decode("utf-8", "replace")

    def end_state(self) -> dict[str, Any]:
        """Return the answer and how the scripts ended, next to gold's side, as builtins."""
        return self._state


def _printed(gold: Gold) -> str:
    """Return what gold's last command printed."""
    return "" if gold.execution is None else text_of(gold.execution)
