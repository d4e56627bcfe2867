"""The swe environment: a shell in a machine, often with a repository; graded by running tests.

The tests run in a verifier (``verifier.py``), a sandbox that the agent never had.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import ImageSource, Task
from pytest_intercode.core.turn import Profile
from pytest_intercode.environments.gold import Gold, GoldRun
from pytest_intercode.environments.shell import ShellEnvironment
from pytest_intercode.environments.swe.gold import gold_actions
from pytest_intercode.environments.swe.verifier import Verifier
from pytest_intercode.errors import CommandFailed, SandboxBroken, TaskError, UngradableState
from pytest_intercode.rewards.verification import NothingRan, TestRun, reward_of_run
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.loader import bundled_folder
from pytest_intercode.suites.repositories import repository_layer

__all__ = ["SweEnvironment"]

_SETTLE = 2.0  # seconds that background jobs have to end before the state is read
_OUTPUT = 64 * 1024**2  # bytes that tests may print


class SweEnvironment(ShellEnvironment):
    """A shell as it is, and tests that the agent never sees."""

    name = "swe"
    profile: Profile = "strict"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._state: dict[str, Any] = {}

    @classmethod
    def spec(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the agent's sandbox; the repository is a layer of its image."""
        repository = task.repository
        if repository is not None and repository.source is not None:
            dockerfile = bundled_folder("dockerfiles") / "swe.Dockerfile"
            image = task.image or ImageSource(dockerfile=dockerfile)
            layers = (*image.layers, repository_layer(repository))
            task = replace(task, image=replace(image, layers=layers))
        return super().spec(task, provider)

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return the agent's sandbox, and the verifier's."""
        spec = cls.spec(task, provider)
        return [spec, _verifiers(spec)]

    # -- an episode

    def start(self, task: Task) -> None:
        """Start the agent's sandbox, and the verifier's at the same time."""
        self._state = {}
        super().start(task)

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Bring a sandbox into the task's first state, from which changes are counted."""
        super().prepare(sandbox, task)
        sandbox.mark()

    def _start_gold(self, task: Task) -> GoldRun:
        """Prepare the next verifier: the task's first state, and nothing of its tests."""

        def play(sandbox: Sandbox) -> Gold:
            self.prepare(sandbox, task)
            return Gold(sandbox)

        return GoldRun(self.provider, _verifiers(self.spec(task, self.provider)), play)

    # -- grading

    def grade(self, answer: str | None) -> Reward:
        """Take what the agent left into the verifier, and run the tests there."""
        task = self.current_task
        self._state = {}
        again = self.feedback == "reward" and not self._over
        if not again:
            self.sandbox.settle(_SETTLE)
            self.sandbox.halt()
        verifier = Verifier(self._gold_result().sandbox, task)
        try:
            verifier.take(self.sandbox)
            self._state = {"patch": verifier.patch, "left_out": verifier.left_out}
            return self._rewarded(task, verifier.run())
        except SandboxBroken as broken:
            raise UngradableState(f"it broke the sandbox that tests it: {broken}") from None
        finally:
            verifier.close()
            if again:
                self._gold = self._start_gold(task)

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
        name = f"verified-{task.suite}-{task.id}"
        why = self.provider.share(name, lambda: self._gold_problem(task))
        if why:
            raise TaskError(f"{task.source}: task {task.id!r}: gold cannot be verified: {why}")

    def _gold_problem(self, task: Task) -> str:
        spec = self.spec(task, self.provider)
        golds = self.provider.acquire(spec)
        own = self.provider.acquire(_verifiers(spec))
        try:
            self.prepare(golds, task)
            for action in gold_actions(task):
                golds.run(action, self.action_timeout)
            golds.halt()
            self.prepare(own, task)
            verifier = Verifier(own, task)
            verifier.take(golds)
            assert task.verification is not None
            reward_of_run(task.verification, verifier.run())
        except (NothingRan, SandboxBroken, CommandFailed, UngradableState) as problem:
            return str(problem)
        finally:
            golds.close()
            own.close()
        return ""

    def end_state(self) -> dict[str, Any]:
        """Return the patch, and how each test went; the reward can be worked out from it."""
        return dict(self._state)


def _verifiers(spec: SandboxSpec) -> SandboxSpec:
    return replace(spec, limits=replace(spec.limits, output=_OUTPUT))
