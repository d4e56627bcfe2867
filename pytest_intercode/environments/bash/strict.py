"""The bash environment, strict profile: actions run as written, effects are compared with gold's.

Gold and each of its alternatives run in sandboxes of their own at the same time as the agent;
nothing of them is ever in the agent's sandbox. If an earlier try has shown what gold leaves, gold
runs only after an agent has left something else.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Profile
from pytest_intercode.environments.bash.fields import golds_of
from pytest_intercode.environments.gold import (
    Gold,
    GoldRun,
    attribute_state_to_gold,
    attribute_to_gold,
    gold_cache,
)
from pytest_intercode.environments.shell import ShellEnvironment, mark_first_state, text_of
from pytest_intercode.errors import (
    GoldError,
    IntercodeError,
    MissingProgram,
    UngradableState,
)
from pytest_intercode.rewards.bash_strict import (
    BashState,
    bash_strict_digest,
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
from pytest_intercode.system.archives import unpack_files
from pytest_intercode.system.digest import digest

__all__ = ["BashEnvironment"]

_MISSING = re.compile(
    rb"^(?:bash|sh|environment): (?:line )?\d+: (\S+): (?:command )?not found$", re.M
)
_NOT_FOUND = 127
# Words of commands whose results depend on the time, on the machine or on chance.
_MOMENTARY = re.compile(
    r"\b(date|uptime|hostname|uname|nproc|free|df|ps|pgrep|top|stat|shuf|mktemp|S?RANDOM|EPOCH\w+|"
    r"newer\w*|[acm](time|min))\b|/(proc|sys|dev/u?random)\b"
)
_MAX_DIFFS = 8  # files
_MAX_DIFF_BYTES = 128 * 1024  # bytes of a file
_DIFF_TIMEOUT = 5.0  # seconds
_SETTLE_TIMEOUT = 2.0  # seconds that background jobs have to end before the state is read


class BashEnvironment(ShellEnvironment):
    """Plain bash: an action is what a person would type, and the shell keeps its state."""

    name = "bash"
    profile: Profile = "strict"
    _uses_gold_cache = True  # the end state of gold for one try is valid for the next

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._gold_cache = gold_cache(self.provider)
        self._key = ""  # of gold's end state in the cache; empty if it must not be cached
        self._states: list[tuple[BashState, BashState]] = []  # the agent's and gold's, per gold
        self._rewards: list[Reward] = []  # of these states
        self._played: list[Sandbox] = []  # the sandboxes of these golds
        self._others: list[GoldRun] = []  # of gold's alternatives
        self._ungradable = ""  # why the agent's state could not be read

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return equal specs: the agent's, gold's, and one for each alternative of gold."""
        return [cls.spec(task, provider)] * (1 + len(cls.golds(task)))

    @classmethod
    def golds(cls, task: Task) -> tuple[tuple[str, ...], ...]:
        """Return the reference answers for grading, gold first."""
        return golds_of(task)

    # -- an episode

    def start(self, task: Task) -> None:
        """Start the agent's sandbox, and play gold in another at the same time."""
        self._states, self._ungradable = [], ""
        super().start(task)

    def _key_of(self, task: Task) -> str:
        """Return a digest of what gold's end state depends on; empty if it must not be cached."""
        if not self._uses_gold_cache or any(map(_MOMENTARY.search, (*task.gold, *task.setup))):
            return ""
        spec, provider = self.spec(task, self.provider), self.provider
        parts = digest(task), provider.choice.backend, provider.identity(spec.image), spec
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]

    def _start_gold(self, task: Task) -> GoldRun | None:
        self._key = self._key_of(task)
        return None if self._gold_cache.has(self._key) else self._start_golds(task)

    def _start_golds(self, task: Task) -> GoldRun:
        _, *alternatives = self.golds(task)
        for commands in alternatives:
            self._others.append(self._run_of(replace(task, gold=commands)))
        run = self._run_of(task, self._key)
        self._gold_cache.begin(self._key, run)
        return run

    def _run_of(self, task: Task, key: str = "") -> GoldRun:
        """Play gold in the background, and record the digest of its end state under a key."""

        def play(sandbox: Sandbox) -> Gold:
            digest = None
            try:
                gold = self._play_gold(sandbox, task)
                if key and _did_its_work(gold, task):
                    state = _state(gold.execution, gold.late, gold.changes, {})
                    digest = bash_strict_digest(state)
                return gold
            finally:
                self._gold_cache.record_digest(key, digest)

        return GoldRun(self.provider, self.spec(task, self.provider), play)

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Bring a sandbox into the task's first state, from which changes are counted."""
        super().prepare(sandbox, task)
        mark_first_state(sandbox, task)

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
        late = sandbox.settle(_SETTLE_TIMEOUT)
        with attribute_state_to_gold(task, UngradableState):
            return Gold(sandbox, execution, late, sandbox.changes())

    def _check_programs(self, task: Task, execution: Execution) -> None:
        """Refuse a gold whose programs this machine lacks, if the sandbox has no image."""
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
        """Compare the output and the changes on disk with gold's, then with its alternatives'.

        Each comparison covers the whole state; the best one counts.
        """
        if self._gold is not None:
            self._gold_result()  # raise a fault of gold first
        late = self.sandbox.settle(_SETTLE_TIMEOUT)
        goes_on = self.episode.goes_on  # 1.0 ends it after all, and is graded again below
        # A process that runs while files are read can hide a file: by a lease, which it may hold
        # against whoever opens the file, or by moving it to a place that was already read.
        if not goes_on:
            self.sandbox.halt()
        reward = self._compare(answer, late)
        if goes_on and reward.value >= 1.0:  # this ends the episode
            self.sandbox.halt()
            reward = self._compare(answer, late)
        return reward

    def _compare(self, answer: str | None, late: bytes) -> Reward:
        """Return the reward of the sandbox's state; ``late`` is output after the last action."""
        task = self.current_task
        states: list[tuple[BashState, BashState]] = []
        rewards: list[Reward] = []
        played: list[Sandbox] = []
        try:
            changes = self.sandbox.changes()
            for agent, gold, sandbox in self._pairs(_state(self._last, late, changes, {}), answer):
                states.append((agent, gold))
                played.append(sandbox)
                rewards.append(bash_strict_reward(agent, gold, task.reward, task.workdir))
                if rewards[-1].value >= 1.0:
                    break
        except UngradableState as error:
            self._states, self._ungradable = [], str(error)
            return ungradable_reward(self._ungradable)
        self._states, self._ungradable = states, ""
        self._rewards, self._played = rewards, played
        return best_of(rewards) if len(self.golds(task)) > 1 else rewards[0]

    def _pairs(
        self, agent: BashState, answer: str | None
    ) -> Iterator[tuple[BashState, BashState, Sandbox]]:
        """Yield the agent's end state, that of gold or an alternative, and the latter's sandbox.

        If the agent's state is known to equal gold's, it counts as both.
        """
        if answer is not None:
            agent = replace(agent, output=answer, digest="")
        digest = bash_strict_digest(agent)
        if self._gold is None and self._gold_cache.digest(self._key) == digest:
            yield agent, agent, self.sandbox
            return
        task = self.current_task
        first = self._gold = self._gold or self._start_golds(task)
        first.result()
        self._gold_cache.record_match(
            self._key, matches=self._gold_cache.digest(self._key) == digest
        )
        for run in (first, *self._others[: len(self.golds(task)) - 1]):
            gold = run.result()
            only_mine = agent.touched - gold.changes.entries.keys()
            only_theirs = gold.changes.entries.keys() - agent.touched
            agents_entries = self.sandbox.entries(only_theirs)
            # The agent chose these paths, so it is responsible for what they cost.
            with attribute_to_gold():
                golds_entries = gold.sandbox.entries(only_mine)
            golds_state = _state(gold.execution, gold.late, gold.changes, golds_entries)
            yield (
                replace(agent, entries={**agent.entries, **agents_entries}),
                golds_state,
                gold.sandbox,
            )

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
        """Return diffs of the files that differ from the best gold's, if they are short texts.

        They are for people. Grading compares digests.
        """
        best = max(range(len(self._rewards)), key=lambda at: self._rewards[at].value)
        if self._rewards[best].value >= 1.0 or self._sandbox is None:
            return {}
        agent, gold = self._states[best]
        paths = differing_files(agent, gold, task.reward, task.workdir)[:_MAX_DIFFS]
        agents_contents = _contents(self._sandbox, paths, agent)
        golds_contents = _contents(self._played[best], paths, gold)
        diffs = {
            path: text_diff(agents_contents[path], golds_contents[path])
            for path in agents_contents
            if path in golds_contents
        }
        return {path: lines for path, lines in diffs.items() if lines}

    def check_gold(self) -> None:
        """Refuse a gold that ends with a status other than 0 and prints nothing but errors.

        A task declares one that is right, such as a ``grep`` that must not find anything, with
        ``audit: {gold-runs: REASON}`` or ``xfail``.
        """
        task = self.current_task
        gold = self._gold_result() if self._gold is not None else None
        executed = None if gold is None else gold.execution
        if gold is None or executed is None or _did_its_work(gold, task):
            return  # only the digest of a gold that did its work is cached
        name = f"gold of {self._key_of(task)} {task.suite} {task.id}"
        reason = self.provider.share(name, lambda: self._gold_problem(task, executed))
        if reason:
            raise GoldError(f"{task.source}: task {task.id!r}: {reason}")

    def _gold_problem(self, task: Task, executed: Execution) -> str:
        """Return what is wrong with a gold that failed; empty if it printed more than errors."""
        message = " ".join(text_of(executed).split())
        if message:  # a second run without standard error shows which stream it was on
            # The brace is on a line of its own, because gold may end with a comment.
            last = f"{{ {task.gold[-1]}\n}} 2>/dev/null"
            silent_run = self._run_of(replace(task, gold=(*task.gold[:-1], last)))
            self._others.append(silent_run)
            printed = silent_run.result().execution
            if printed is not None and printed.output:
                return ""
        return (
            f"gold ends with status {executed.status} and prints nothing"
            f"{f' but errors: {message[:200]}' if message else ''}; if that is right, say why: "
            "audit: {gold-runs: REASON}"
        )

    def abandon(self) -> None:
        """End gold and its alternatives immediately."""
        for run in self._others:
            run.abandon()
        super().abandon()

    def stop(self) -> None:
        """End the agent's sandbox, gold's, and those of its alternatives."""
        alternatives, self._others = self._others, []
        super().stop()
        for run in alternatives:
            run.stop()


def _did_its_work(gold: Gold, task: Task) -> bool:
    """Whether gold ended with status 0, or is declared not to."""
    succeeded = gold.execution is None or not gold.execution.status
    return succeeded or "gold-runs" in task.audit or bool(task.xfail)


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
    """Return the contents of files by path, None for files that do not exist.

    Files that have changed since grading, or are too large to be read, are left out.
    """
    contents: dict[str, bytes | None] = {}
    deadline = time.monotonic() + _DIFF_TIMEOUT
    for path in paths:
        entry, remaining = state.entries.get(path), deadline - time.monotonic()
        if entry is None:
            contents[path] = None
        elif remaining > 0:
            with contextlib.suppress(IntercodeError, tarfile.TarError):
                archive = sandbox.archive([path], content=_MAX_DIFF_BYTES, seconds=remaining)
                for content in unpack_files(archive).values():
                    if entry.content == hashlib.sha256(content).hexdigest():
                        contents[path] = content
    return contents
