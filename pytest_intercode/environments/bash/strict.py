"""The bash environment, strict profile: actions run as written, effects are compared with gold's.

Gold runs in a sandbox of its own at the same time as the agent, and so does each of its
alternatives; nothing of them is ever in the agent's.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
import time
from dataclasses import replace
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Profile
from pytest_intercode.environments.gold import Gold, GoldRun, golds_fault, left_by_gold
from pytest_intercode.environments.shell import ShellEnvironment, text_of
from pytest_intercode.errors import (
    GoldError,
    IntercodeError,
    MissingProgram,
    TaskError,
    UngradableState,
)
from pytest_intercode.rewards.bash_strict import (
    BashState,
    bash_strict_reward,
    bash_strict_state,
    bash_strict_states,
    best_of,
    differing_files,
    ungradable_reward,
    ungradable_state,
)
from pytest_intercode.rewards.text_diffs import text_diff
from pytest_intercode.sandboxes.protocol import HOST, Changes, Execution, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.files import unpacked_files

__all__ = ["BashEnvironment"]

_MISSING = re.compile(
    rb"^(?:bash|sh|environment): (?:line )?\d+: (\S+): (?:command )?not found$", re.M
)
_NOT_FOUND = 127
_MOST_DIFFS = 8  # files
_MOST_READ = 128 * 1024  # bytes of a side
_READING = 5.0  # seconds
_SETTLE = 2.0  # seconds that background jobs have to end before the state is read


class BashEnvironment(ShellEnvironment):
    """Bash as it is: an action is what a person would type, and the shell remembers."""

    name = "bash"
    profile: Profile = "strict"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._states: list[tuple[BashState, BashState]] = []  # the agent's and gold's, by gold
        self._rewards: list[Reward] = []  # of these
        self._played: list[Sandbox] = []  # where these golds were
        self._others: list[GoldRun] = []  # of gold's alternatives
        self._ungradable = ""  # why the agent's state could not be read

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return equal specs: the agent's, gold's, and one for each alternative of gold."""
        return [cls.spec(task, provider)] * (1 + len(cls.golds(task)))

    @classmethod
    def golds(cls, task: Task) -> tuple[tuple[str, ...], ...]:
        """Return the reference answers that an episode is graded by, gold first."""
        return task.golds

    # -- an episode

    def start(self, task: Task) -> None:
        """Start the agent's sandbox, and play gold in another at the same time."""
        self._states, self._ungradable = [], ""
        super().start(task)

    def _start_gold(self, task: Task) -> GoldRun:
        _, *others = self.golds(task)
        for commands in others:
            self._others.append(self._run_of(replace(task, gold=commands)))
        return self._run_of(task)

    def _run_of(self, task: Task) -> GoldRun:
        spec = self.spec(task, self.provider)
        return GoldRun(self.provider, spec, lambda sandbox: self._play_gold(sandbox, task))

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Bring a sandbox into the task's first state, from which changes are counted."""
        super().prepare(sandbox, task)
        try:
            sandbox.mark()
        except UngradableState as error:
            raise TaskError(
                f"{task.source}: task {task.id!r}: setup leaves what cannot be graded: {error}"
            ) from None

    def _play_gold(self, sandbox: Sandbox, task: Task) -> Gold:
        self.prepare(sandbox, task)
        execution = None
        for command in task.gold:
            execution = sandbox.run(command, self.action_timeout)
            if execution.ended != "itself":
                raise GoldError(
                    f"{task.source}: task {task.id!r}: gold did not end within "
                    f"{self.action_timeout:g} s: {command[:200]}"
                )
            self._check_programs(task, execution)
        late = sandbox.settle(_SETTLE)
        with left_by_gold(task, UngradableState):
            return Gold(sandbox, execution, late, sandbox.changes())

    def _check_programs(self, task: Task, execution: Execution) -> None:
        """Refuse to grade by a gold that did nothing, where there is no image that has it all."""
        if self.spec(task, self.provider).image != HOST:
            return
        missing = _MISSING.search(execution.output)
        if execution.status == _NOT_FOUND or missing:
            name = f" {missing[1].decode('utf-8', 'replace')}" if missing else ""
            raise MissingProgram(
                f"{task.source}: task {task.id!r}: this machine lacks a program that gold uses:"
                f"{name or ' see the gold'}; install it, or give --intercode-rootfs"
            )

    def grade(self, answer: str | None) -> Reward:
        """Compare the output and the changes on disk with gold's, and then its alternatives'.

        Each comparison is of the whole; the best counts.
        """
        gold, task = self._gold_result(), self.current_task
        late = self.sandbox.settle(_SETTLE)
        states: list[tuple[BashState, BashState]] = []
        rewards: list[Reward] = []
        played: list[Sandbox] = []
        runs = iter(self._others)
        try:
            mine = self.sandbox.changes()
            while True:
                states.append(self._compared(gold, mine, late, answer))
                played.append(gold.sandbox)
                rewards.append(bash_strict_reward(*states[-1], task.reward, task.workdir))
                run = next(runs, None)
                if rewards[-1].value >= 1.0 or run is None:
                    break
                gold = run.result()
        except UngradableState as error:
            self._states, self._ungradable = [], str(error)
            return ungradable_reward(self._ungradable)
        self._states, self._ungradable = states, ""
        self._rewards, self._played = rewards, played
        return best_of(rewards) if len(self.golds(task)) > 1 else rewards[0]

    def _compared(
        self, gold: Gold, mine: Changes, late: bytes, answer: str | None
    ) -> tuple[BashState, BashState]:
        """Return the agent's end state and gold's, with the entries of all paths of either."""
        theirs = gold.changes
        only_mine = mine.entries.keys() - theirs.entries.keys()
        only_theirs = theirs.entries.keys() - mine.entries.keys()
        agent_state = _state(self._last, late, mine, self.sandbox.entries(only_theirs))
        # The agent chose these paths, so what they cost is its own doing.
        with golds_fault():
            others = gold.sandbox.entries(only_mine)
        if answer is not None:
            agent_state = replace(agent_state, output=answer, digest="")
        return agent_state, _state(gold.execution, gold.late, theirs, others)

    def end_state(self) -> dict[str, Any]:
        """Return the end states as builtins."""
        if self._ungradable:
            return ungradable_state(self._ungradable)
        if not self._states or self.task is None:
            return {}
        options, workdir = self.task.reward, self.task.workdir
        if len(self.golds(self.task)) > 1:
            state = bash_strict_states(self._states, options, workdir)
        else:
            state = bash_strict_state(*self._states[0], options, workdir)
        diffs = self._diffs(self.task)
        return {**state, "diffs": diffs} if diffs else state

    def _diffs(self, task: Task) -> dict[str, list[str]]:
        """Return diffs of the files that are not the best gold's, as far as they are short texts.

        People see them beside the digests, which are what is graded.
        """
        best = max(range(len(self._rewards)), key=lambda at: self._rewards[at].value)
        if self._rewards[best].value >= 1.0 or self._sandbox is None:
            return {}
        agent, gold = self._states[best]
        paths = differing_files(agent, gold, task.reward, task.workdir)[:_MOST_DIFFS]
        mine = _contents(self._sandbox, paths, agent)
        theirs = _contents(self._played[best], paths, gold)
        found = {path: text_diff(mine[path], theirs[path]) for path in mine if path in theirs}
        return {path: lines for path, lines in found.items() if lines}

    def check_gold(self) -> None:
        """Refuse a gold that ends with a status other than 0 and prints nothing but errors.

        A ``grep`` that is to find nothing is declared: ``audit: {gold-runs: why}``, or ``xfail``.
        """
        task, executed = self.current_task, self._gold_result().execution
        if executed is None or not executed.status or "gold-runs" in task.audit or task.xfail:
            return
        said = " ".join(text_of(executed).split())
        if said:  # on which of the two streams, another run without the second one tells
            last = f"{{ {task.gold[-1]}\n}} 2>/dev/null"
            again = self._run_of(replace(task, gold=(*task.gold[:-1], last)))
            self._others.append(again)
            printed = again.result().execution
            if printed is not None and printed.output:
                return
        raise GoldError(
            f"{task.source}: task {task.id!r}: gold ends with status {executed.status} and prints "
            f"nothing{f' but errors: {said[:200]}' if said else ''}; if that is right, say why: "
            "audit: {gold-runs: REASON}"
        )

    def abandon(self) -> None:
        """Let gold and its alternatives end at once."""
        for run in self._others:
            run.abandon()
        super().abandon()

    def stop(self) -> None:
        """End the agent's sandbox, gold's, and those of its alternatives."""
        others, self._others = self._others, []
        super().stop()
        for run in others:
            run.stop()


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


def _contents(sandbox: Sandbox, paths: list[str], state: BashState) -> dict[str, bytes | None]:
    """Return the files at some paths, None for those that are not there.

    Left out is what is not as it was graded, or is too much to be read.
    """
    entries = {path: state.entries.get(path) for path in paths}
    found: dict[str, bytes | None] = {path: None for path in paths if entries[path] is None}
    there = [path for path in paths if path not in found]
    # All at a time; where one of them is too much, one by one.
    until = time.monotonic() + _READING
    for some in dict.fromkeys([tuple(there), *((path,) for path in there)]):
        left = until - time.monotonic()
        if not some or left <= 0:
            break
        try:
            files = unpacked_files(sandbox.archive(some, content=_MOST_READ, seconds=left))
        except (IntercodeError, tarfile.TarError):
            continue
        for path, content in files.items():
            entry = entries.get(path)
            if entry is not None and entry.content == hashlib.sha256(content).hexdigest():
                found[path] = content
        if len(some) == len(there):
            break
    return found
