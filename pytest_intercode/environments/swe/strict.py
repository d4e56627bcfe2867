"""The swe environment: a shell in a machine, often with a repository; graded by running tests.

The tests run in a verifier (``verifier.py``), a sandbox that the agent never had.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_intercode.core.archives import build_archive
from pytest_intercode.core.digest import digest
from pytest_intercode.core.files import bundled_folder
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import ImageSource, Repository, Step, Task, Verification
from pytest_intercode.core.turn import Observation, Profile, StepResult
from pytest_intercode.environments.access import as_user
from pytest_intercode.environments.gold import Gold, GoldRun
from pytest_intercode.environments.shell import ShellEnvironment
from pytest_intercode.environments.swe.carrying import Carrying, GoldPaths, Programs
from pytest_intercode.environments.swe.fields import SweFields, repository_of
from pytest_intercode.environments.swe.gold import check_first_state, gold_actions
from pytest_intercode.environments.swe.kit import AT, kit_with
from pytest_intercode.environments.swe.machine import (
    Index,
    host_lines,
    machine_changes,
    read_index,
    read_programs,
)
from pytest_intercode.environments.swe.repositories import repository_layer
from pytest_intercode.environments.swe.verifier import Verifier
from pytest_intercode.errors import (
    CommandFailed,
    IntercodeError,
    SandboxBroken,
    TaskError,
    UngradableState,
)
from pytest_intercode.rewards.reward_file import missing, reward_of_steps
from pytest_intercode.rewards.verification import NothingRan, TestRun, excused_in, reward_of_run
from pytest_intercode.sandboxes.protocol import Changes, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["SweEnvironment"]

_SETTLE_TIMEOUT = 2.0  # seconds that background jobs have to end before the state is read
_SETUP_TIMEOUT = 120.0  # for a command with which a step begins
_MAX_OUTPUT = 64 * 1024**2  # bytes that tests may print

# What a step of grading comes to where a sandbox answers and the step cannot be done. Once an agent
# has acted, each of them may be its doing.
_FAILURES = (NothingRan, TaskError, SandboxBroken, CommandFailed, UngradableState)


@dataclass
class _Prepared(Gold):
    """A verifier in the task's first state; nothing of gold is in it.

    Attributes:
        index: its repository's, where one is to be compared.
        programs: what its programs load from.
    """

    index: Index | None = None
    programs: Programs = field(default_factory=Programs)


class SweEnvironment(ShellEnvironment):
    """A shell as it is, and tests that the agent never sees."""

    name = "swe"
    profile: Profile = "strict"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._state: dict[str, Any] = {}
        self._step = 0  # the one that the agent is at, of a task with steps
        self._rewards: list[Reward] = []  # of the steps before it

    @classmethod
    def spec(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the agent's sandbox; the repository is a layer of its image."""
        repository = repository_of(task)
        if repository is not None and repository.source is not None:
            dockerfile = bundled_folder("dockerfiles") / "swe.Dockerfile"
            image = task.image or ImageSource(dockerfile=dockerfile)
            layer = provider.share(f"{repository}", lambda: repository_layer(repository))
            layers = (*image.layers, layer)
            task = replace(task, image=replace(image, layers=layers))
        spec = super().spec(task, provider)
        phases = [task.verification, *(step.verification for step in task.steps)]
        for verification in filter(None, phases):
            if verification.place != "fresh":
                spec = replace(spec, readonly=(*spec.readonly, *_kit(task, verification)))
        return spec

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return the agent's sandbox, and the verifier's if it has one."""
        agents_spec = cls.spec(task, provider)
        fresh = task.verification is not None and _is_fresh(task)
        return [agents_spec, cls._verifiers(task, provider)] if fresh else [agents_spec]

    @classmethod
    def _verifiers(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the verifier's sandbox: like the agent's, or of an image of its own; root's."""
        spec, verification = cls.spec(task, provider), task.verification
        assert verification is not None
        limits = verification.limits or spec.limits
        if verification.image is not None:
            spec = replace(spec, image=provider.image(verification.image), workdir="/")
        limits = replace(limits, output=_MAX_OUTPUT)
        return replace(spec, limits=limits, user="", readonly=_kit(task, verification), scratch=())

    # -- an episode

    def start(self, task: Task) -> None:
        """Start the agent's sandbox, and the verifier's at the same time."""
        self._state = {}
        self._step, self._rewards = 0, []
        super().start(task)
        if task.steps:
            self._enter(task.steps[0], self.sandbox)

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Bring a sandbox into the task's first state, from which changes are counted."""
        super().prepare(sandbox, task)
        sandbox.mark()

    def _start_gold(self, task: Task) -> GoldRun | None:
        """Prepare the next verifier: the task's first state, and nothing of its tests."""
        if not _is_fresh(task):
            return None

        def play(sandbox: Sandbox) -> Gold:
            return self._prepare_verifier(sandbox, task)

        return GoldRun(self.provider, self._verifiers(task, self.provider), play, "start")

    def _prepare_verifier(self, sandbox: Sandbox, task: Task) -> _Prepared:
        """Bring a verifier into the task's first state; one of another image has none."""
        if task.verification is not None and task.verification.image is not None:
            return _Prepared(sandbox)
        self.prepare(sandbox, task)
        # A repository that is laid over an image brings history and sources, and no programs.
        first_state = replace(task, query="", gold=(), verification=None, steps=())
        place: object = sandbox.spec.image
        repository = repository_of(task)
        if repository is not None and repository.source is not None:
            fields = SweFields(Repository(at=repository.at))
            first_state, place = replace(first_state, fields=fields), task.image
        name = f"programs {place} {digest(first_state)} {sandbox.spec.readonly}"
        programs = self.provider.share(name, lambda: read_programs(sandbox, task))
        return _Prepared(sandbox, index=read_index(sandbox, task), programs=programs)

    # -- steps

    def handle_submission(self, action: str, answer: str | None) -> StepResult:
        """End the episode, or the step, if there is another one and this one came far enough."""
        steps = self.current_task.steps
        if self._step + 1 >= len(steps):
            return super().handle_submission(action, answer)
        reward = self._graded_step()
        reason = missing(reward, steps[self._step].least)
        if reason:
            self.episode.latest = self._overall(replace(reward, reason=reason))
            return super().handle_submission(action, None)
        self._rewards.append(reward)
        self._step += 1
        step = steps[self._step]
        try:
            self._enter(step, self.sandbox)
        except _FAILURES as error:
            self._blame(
                f"step {step.name!r} does not begin after gold", self._gold_entry_problem, error
            )
            reason = f"what was left keeps step {step.name!r} from beginning: {error}"
            self.episode.latest = self._overall(Reward(0.0, {}, reason))
            return super().handle_submission(action, None)
        return self.take_turn(action, lambda _: Observation(step.query))

    def _graded_step(self) -> Reward:
        """Grade the present step, and go on afterwards."""
        with self.phases.timed("tests"):
            return self._graded(self._at_step(self._step), self._at_step(self._step + 1))

    def _enter(self, step: Step, sandbox: Sandbox) -> None:
        """Bring what a step begins with."""
        task = self.current_task
        if step.archive is not None:
            files = replace(task, archive=step.archive, files={})
            sandbox.unpack(build_archive(files, time.time()))
        for command in step.setup:
            command = as_user(f"cd -- {shlex.quote(task.workdir)} && {command}", step.user)
            status, output = sandbox.admin(command, _SETUP_TIMEOUT)
            if status:
                message = output.decode("utf-8", "replace").strip()[-300:]
                raise TaskError(
                    f"{task.source}: task {task.id!r}: step {step.name!r}: its setup ended with "
                    f"status {status}: {message or 'no output'}"
                )

    def _at_step(self, step: int) -> Task:
        """Return the task with the verification of a step; as it is where it has none."""
        task = self.current_task
        return replace(task, verification=task.steps[step].verification) if task.steps else task

    def _overall(self, reward: Reward) -> Reward:
        """Return the reward of all steps so far, of which this is the present one's."""
        task = self.current_task
        return reward_of_steps([*self._rewards, reward], task.overall) if task.steps else reward

    # -- grading

    def grade(self, answer: str | None) -> Reward:
        """Take what the agent left into the verifier, and run the tests there."""
        task = self._at_step(self._step)
        return self._overall(self._graded(task, task if self.goes_on else None))

    def _graded(self, task: Task, then: Task | None) -> Reward:
        """Grade a task, and make ready for another grading of it, or of its next step.

        The agent has acted, so what fails in its sandbox or on what it left counts against it,
        unless the same fails on what gold leaves.

        Raises:
            TaskError: it does.
        """
        self._state = {}
        fresh = _is_fresh(task)
        verifier = self._verifier(task) if fresh else Verifier(self.sandbox, task, Carrying(task))
        run: TestRun | None = None
        try:
            run = self._run_tests(verifier, self.sandbox, task, last=then is None)
            reward = self._rewarded(task, run)
        except _FAILURES as error:
            error.test_output = run.tail if run else ""
            if fresh:
                verifier.close()  # the agent's code may still run there, and slow gold down
            self._blame("gold cannot be verified", lambda: self._gold_problem(task), error)
            reason = str(error)
            if isinstance(error, SandboxBroken):
                reason = f"it broke the sandbox that tests it: {error}"
            self._state = {
                "patch": verifier.patch,
                "left_out": verifier.left_out,
                "tests": reason,
            }
            reward = self._explained(Reward(0.0, {}, reason))
        finally:
            if fresh:
                verifier.close()
            if then is not None:
                self._gold = self._start_gold(then)
        if reward.value == 1.0:
            check_first_state(task, verifier.patch, verifier.left_out)
        return replace(reward, test_output=run.tail if run else "")

    def _run_tests(
        self, verifier: Verifier, sandbox: Sandbox, task: Task, *, last: bool
    ) -> TestRun:
        """Have a verifier test what was left in a sandbox, in which nothing more is done."""
        with self.phases.timed("carry"):
            self._collect(sandbox, task)
            if _is_fresh(task):
                if last:
                    sandbox.settle(_SETTLE_TIMEOUT)
                    sandbox.halt()
                verifier.take(sandbox)
        self._state = {"patch": verifier.patch, "left_out": verifier.left_out}
        return verifier.run()

    def _blame(self, fault: str, problem: Callable[[], str], error: IntercodeError) -> None:
        """See that what failed for the agent succeeds for gold, once for each task of a run.

        Args:
            fault: what to say if it does not.
            problem: tries it for gold, and returns what failed, if anything did.
            error: what failed for the agent.

        Raises:
            TaskError: it fails for gold too, so it is not an agent's fault.
        """
        task = self.current_task
        name = f"{fault} {self._step} {digest(task)}"
        with self.phases.timed("gold"):
            reason = self.provider.share(name, problem)
        if reason:
            failure = TaskError(f"{task.source}: task {task.id!r}: {fault}: {reason}")
            failure.test_output = error.test_output
            raise failure from error

    def _verifier(self, task: Task) -> Verifier:
        """Wait for the verifier that was prepared next to the agent."""
        prepared = self._gold_result()
        assert isinstance(prepared, _Prepared)
        carrying = Carrying(task, prepared.programs, lambda: self._gold_paths(task))
        return Verifier(prepared.sandbox, task, carrying, prepared.index)

    def _collect(self, sandbox: Sandbox, task: Task) -> None:
        """Run what the task wants to be run where the agent was; it may fail."""
        assert task.verification is not None
        for hook in task.verification.collect:
            command = f"cd -- {shlex.quote(task.workdir)} && {hook.command}"
            sandbox.admin(as_user(command, hook.user), hook.timeout)

    def _rewarded(self, task: Task, run: TestRun) -> Reward:
        assert task.verification is not None
        state = self._state
        reward, facts = reward_of_run(task.verification, run)
        if reward.value and (excused := excused_in(task.verification, run)):
            excused &= self._excused_after_gold(task)
            reward, facts = reward_of_run(task.verification, run, excused)
        self._state = {**state, **facts}
        return self._explained(reward)

    def _excused_after_gold(self, task: Task) -> frozenset[str]:
        """Return which tests are skipped, or fail as expected, also after gold.

        Raises:
            TaskError: gold cannot be verified.
        """

        def play() -> frozenset[str] | str:
            assert task.verification is not None
            try:
                return excused_in(task.verification, self._gold_run(task))
            except _FAILURES as problem:
                return str(problem)

        name = f"excused by gold {self._step} {digest(self.current_task)}"
        with self.phases.timed("gold"):
            excused = self.provider.share(name, play)
        if isinstance(excused, str):
            prefix = f"{task.source}: task {task.id!r}"
            raise TaskError(f"{prefix}: gold cannot be verified: {excused}")
        return excused

    def _explained(self, reward: Reward) -> Reward:
        """Name what was not tested, where the reward is not full."""
        left_out = self._state["left_out"]
        if not left_out or reward.value >= 1.0:
            return reward
        names = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
        return replace(reward, reason=f"{reward.reason} (not tested: {names})")

    # -- what gold does

    @contextlib.contextmanager
    def _gold_played(self, task: Task) -> Iterator[tuple[Sandbox, Changes]]:
        """Play gold in a sandbox of its own, and say what it changes."""
        sandbox = self.provider.acquire(self.spec(task, self.provider))
        try:
            self.prepare(sandbox, task)
            hosts = host_lines(sandbox)
            self._play_gold(sandbox, task)
            yield sandbox, machine_changes(sandbox, hosts)
        finally:
            sandbox.close()

    def _gold_paths(self, task: Task) -> GoldPaths:
        """Return what gold changes up to the present step; nothing where it cannot be played."""

        def play() -> GoldPaths:
            try:
                with self._gold_played(task) as (_, changes):
                    return GoldPaths.of_changes(changes)
            except _FAILURES:
                return GoldPaths()

        name = f"paths of gold {self._step} {digest(self.current_task)}"
        with self.phases.timed("gold"):
            return GoldPaths.of_patches(task) or self.provider.share(name, play)

    def _gold_problem(self, task: Task) -> str:
        """Return why gold's state cannot be graded; empty if it can."""
        assert task.verification is not None
        try:
            reward_of_run(task.verification, self._gold_run(task))
        except _FAILURES as problem:
            return str(problem)
        return ""

    def _gold_run(self, task: Task) -> TestRun:
        """Run the tests on what gold leaves."""
        with self._gold_played(task) as (sandbox, changes):
            if not _is_fresh(task):
                verifier = Verifier(sandbox, task, Carrying(task))
                return self._run_tests(verifier, sandbox, task, last=True)
            own_sandbox = self.provider.acquire(self._verifiers(task, self.provider))
            try:
                prepared = self._prepare_verifier(own_sandbox, task)
                paths = GoldPaths.of_changes(changes)
                carrying = Carrying(task, prepared.programs, lambda: paths)
                verifier = Verifier(own_sandbox, task, carrying, prepared.index)
                return self._run_tests(verifier, sandbox, task, last=True)
            finally:
                own_sandbox.close()

    def _gold_entry_problem(self) -> str:
        """Return why the present step cannot begin after gold's steps; empty if it can."""
        task = self.current_task
        try:
            with self._gold_played(task):
                return ""
        except _FAILURES as problem:
            return str(problem)

    def _play_gold(self, sandbox: Sandbox, task: Task) -> None:
        """Play gold up to the present step's end."""
        step = 0
        if task.steps:
            self._enter(task.steps[0], sandbox)
        for action in gold_actions(task):
            if task.steps and action == "submit":
                step += 1
                if step > self._step:
                    return
                self._enter(task.steps[step], sandbox)
            else:
                sandbox.run(action, self.action_timeout)

    def end_state(self) -> dict[str, Any]:
        """Return the patch, and how each test went; the reward can be worked out from it."""
        return dict(self._state)


def _is_fresh(task: Task) -> bool:
    """Whether the tests run in a sandbox that the agent never had."""
    return task.verification is None or task.verification.place == "fresh"


def _kit(task: Task, verification: Verification) -> tuple[tuple[str, str], ...]:
    """Return what is mounted for tests that need the kit."""
    if verification.kit is None or verification.fetches:
        return ()
    place = f"{task.source}: task {task.id!r}"
    return ((str(kit_with(verification.kit, place)), AT),)
