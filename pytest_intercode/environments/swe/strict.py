"""The swe environment: a shell in a machine, often with a repository; graded by running tests.

The tests run in a verifier (``verifier.py``), a sandbox that the agent never had.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, replace
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import ImageSource, Step, Task, Verification
from pytest_intercode.core.turn import Observation, Profile, StepResult
from pytest_intercode.environments.access import as_user
from pytest_intercode.environments.base import blamed
from pytest_intercode.environments.gold import Gold, GoldRun
from pytest_intercode.environments.shell import ShellEnvironment
from pytest_intercode.environments.swe.gold import gold_actions
from pytest_intercode.environments.swe.kit import AT, kit_with
from pytest_intercode.environments.swe.verifier import Index, Verifier, read_index
from pytest_intercode.errors import CommandFailed, SandboxBroken, TaskError, UngradableState
from pytest_intercode.rewards.reward_file import missing, reward_of_steps
from pytest_intercode.rewards.verification import NothingRan, TestRun, reward_of_run
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.files import build_archive
from pytest_intercode.suites.loader import bundled_folder
from pytest_intercode.suites.repositories import repository_layer

__all__ = ["SweEnvironment"]

_SETTLE = 2.0  # seconds that background jobs have to end before the state is read
_SETUP_SECONDS = 120.0  # for a command with which a step begins
_OUTPUT = 64 * 1024**2  # bytes that tests may print


@dataclass
class _Prepared(Gold):
    """A verifier in the task's first state; nothing of gold is in it.

    Attributes:
        index: its repository's, where one is to be compared.
    """

    index: Index | None = None


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
        repository = task.repository
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
        mine = cls.spec(task, provider)
        return [mine, cls._verifiers(task, provider)] if _is_fresh(task) else [mine]

    @classmethod
    def _verifiers(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the verifier's sandbox: like the agent's, or of an image of its own; root's."""
        spec, verification = cls.spec(task, provider), task.verification
        assert verification is not None
        limits = verification.limits or spec.limits
        if verification.image is not None:
            spec = replace(spec, image=provider.image(verification.image), workdir="/")
        limits = replace(limits, output=_OUTPUT)
        return replace(spec, limits=limits, user="", readonly=_kit(task, verification), scratch=())

    # -- an episode

    def start(self, task: Task) -> None:
        """Start the agent's sandbox, and the verifier's at the same time."""
        self._state = {}
        self._step, self._rewards = 0, []
        super().start(task)
        if task.steps:
            self._enter(task.steps[0])

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Bring a sandbox into the task's first state, from which changes are counted."""
        super().prepare(sandbox, task)
        sandbox.mark()

    def _start_gold(self, task: Task) -> GoldRun | None:
        """Prepare the next verifier: the task's first state, and nothing of its tests."""
        if not _is_fresh(task):
            return None

        def play(sandbox: Sandbox) -> Gold:
            return _Prepared(sandbox, index=self._prepare_verifier(sandbox, task))

        return GoldRun(self.provider, self._verifiers(task, self.provider), play)

    def _prepare_verifier(self, sandbox: Sandbox, task: Task) -> Index | None:
        """Bring a verifier into the task's first state; one of another image has none."""
        if task.verification is None or task.verification.image is None:
            self.prepare(sandbox, task)
            return read_index(sandbox, task)
        return None

    # -- steps

    def _submit(self, action: str, answer: str | None) -> StepResult:
        """End the episode, or the step, if there is another one and this one came far enough."""
        steps = self.current_task.steps
        if self._step + 1 >= len(steps):
            return super()._submit(action, answer)
        reward = self._graded_step()
        why = missing(reward, steps[self._step].least)
        if why:
            self._latest = self._overall(replace(reward, reason=why))
            return super()._submit(action, None)
        self._rewards.append(reward)
        self._step += 1
        return self._turn(action, self._begin_step)

    def _graded_step(self) -> Reward:
        """Grade the present step, and go on afterwards."""
        try:
            return self._graded(self._at_step(self._step), self._at_step(self._step + 1))
        except (SandboxBroken, CommandFailed, UngradableState) as error:
            return blamed(error)

    def _begin_step(self, _: str) -> Observation:
        step = self.current_task.steps[self._step]
        self._enter(step)
        return Observation(step.query)

    def _enter(self, step: Step, sandbox: Sandbox | None = None) -> None:
        """Bring what a step begins with."""
        task, sandbox = self.current_task, sandbox or self.sandbox
        if step.archive is not None:
            files = replace(task, archive=step.archive, files={})
            sandbox.unpack(build_archive(files, time.time()))
        for command in step.setup:
            command = as_user(f"cd -- {shlex.quote(task.workdir)} && {command}", step.user)
            status, output = sandbox.admin(command, _SETUP_SECONDS)
            if status:
                said = output.decode("utf-8", "replace").strip()[-300:]
                raise TaskError(
                    f"{task.source}: task {task.id!r}: step {step.name!r}: its setup ended with "
                    f"status {status}: {said or 'no output'}"
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
        again = self.feedback == "reward" and not self._over
        task = self._at_step(self._step)
        return self._overall(self._graded(task, task if again else None))

    def _graded(self, task: Task, then: Task | None) -> Reward:
        """Grade a task, and make ready for another grading of it, or of its next step."""
        self._state = {}
        self._collect(task)
        fresh = _is_fresh(task)
        if fresh and then is None:
            self.sandbox.settle(_SETTLE)
            self.sandbox.halt()
        verifier = self._verifier(task) if fresh else Verifier(self.sandbox, task)
        try:
            if fresh:
                verifier.take(self.sandbox)
            self._state = {"patch": verifier.patch, "left_out": verifier.left_out}
            return self._rewarded(task, verifier.run())
        except SandboxBroken as broken:
            raise UngradableState(f"it broke the sandbox that tests it: {broken}") from None
        finally:
            if fresh:
                verifier.close()
            if then is not None:
                self._gold = self._start_gold(then)

    def _verifier(self, task: Task) -> Verifier:
        """Wait for the verifier that was prepared beside the agent."""
        prepared = self._gold_result()
        assert isinstance(prepared, _Prepared)
        return Verifier(prepared.sandbox, task, prepared.index)

    def _collect(self, task: Task) -> None:
        """Run what the task wants to be run where the agent was; a failure of it is no error."""
        assert task.verification is not None
        for hook in task.verification.collect:
            command = f"cd -- {shlex.quote(task.workdir)} && {hook.command}"
            self.sandbox.admin(as_user(command, hook.user), hook.timeout)

    def _rewarded(self, task: Task, run: TestRun) -> Reward:
        assert task.verification is not None
        try:
            reward, state = reward_of_run(task.verification, run)
        except NothingRan as nothing:
            self._check_with_gold(task)
            self._state |= {"tests": str(nothing)}
            return Reward(0.0, {}, str(nothing))
        self._state |= state
        left_out = self._state["left_out"]
        if left_out and reward.value < 1.0:
            named = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
            reward = replace(reward, reason=f"{reward.reason} (not tested: {named})")
        return reward

    def _check_with_gold(self, task: Task) -> None:
        """See that the tests run on gold, once for each task; else it is no agent's fault.

        Raises:
            TaskError: they do not.
        """
        name = f"verified {task.suite} {task.id} {task.verification}"
        why = self.provider.share(name, lambda: self._gold_problem(task))
        if why:
            raise TaskError(f"{task.source}: task {task.id!r}: gold cannot be verified: {why}")

    def _gold_problem(self, task: Task) -> str:
        golds = own = self.provider.acquire(self.spec(task, self.provider))
        index: Index | None = None
        try:
            self.prepare(golds, task)
            self._play_gold(golds, task)
            if _is_fresh(task):
                golds.halt()
                own = self.provider.acquire(self._verifiers(task, self.provider))
                index = self._prepare_verifier(own, task)
            verifier = Verifier(own, task, index)
            if own is not golds:
                verifier.take(golds)
            assert task.verification is not None
            reward_of_run(task.verification, verifier.run())
        except (NothingRan, SandboxBroken, CommandFailed, UngradableState) as problem:
            return str(problem)
        finally:
            golds.close()
            own.close()
        return ""

    def _play_gold(self, sandbox: Sandbox, task: Task) -> None:
        """Play gold up to the present step's end."""
        at = 0
        if task.steps:
            self._enter(task.steps[0], sandbox)
        for action in gold_actions(task):
            if task.steps and action == "submit":
                at += 1
                if at > self._step:
                    return
                self._enter(task.steps[at], sandbox)
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
