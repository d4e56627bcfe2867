"""The swe environment: a shell in a machine, often with a repository; graded by running tests.

The tests run in a verifier (``verifier.py``), a sandbox in which the agent never acted.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import ImageSource, Task
from pytest_intercode.core.turn import Command, Observation, Profile, StepResult
from pytest_intercode.environments.access import as_user
from pytest_intercode.environments.gold import GoldRun
from pytest_intercode.environments.mcp_servers import start_servers
from pytest_intercode.environments.shell import mark_first_state
from pytest_intercode.environments.swe.carrying import Carrying, GoldPaths
from pytest_intercode.environments.swe.fields import SweFields, repository_of
from pytest_intercode.environments.swe.gold import check_first_state, gold_actions
from pytest_intercode.environments.swe.kit import mounts
from pytest_intercode.environments.swe.machine import (
    PreparedVerifier,
    host_lines,
    machine_changes,
    read_first_state,
)
from pytest_intercode.environments.swe.repositories import repository_layer
from pytest_intercode.environments.swe.steps import Steps
from pytest_intercode.environments.swe.submissions import SubmittingEnvironment
from pytest_intercode.environments.swe.verifier import Verifier, verifier_spec
from pytest_intercode.errors import (
    CommandFailed,
    IntercodeError,
    SandboxBroken,
    TaskError,
    UngradableState,
)
from pytest_intercode.rewards.reward_file import missing
from pytest_intercode.rewards.verification import NothingRan, TestRun, excused_in, reward_of_run
from pytest_intercode.sandboxes.protocol import Changes, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.digest import digest
from pytest_intercode.system.files import bundled_folder

__all__ = ["SweEnvironment"]

_SKILLS_TIMEOUT = 10.0  # seconds to look for a folder
_SETTLE_TIMEOUT = 2.0  # seconds that background jobs have to end before the state is read

# Errors of a grading step that cannot be done although the sandbox works. Once an agent has acted,
# it may have caused any of them.
_FAILURES = (NothingRan, TaskError, SandboxBroken, CommandFailed, UngradableState)


Fact = TypeVar("Fact")


class SweEnvironment(SubmittingEnvironment):
    """A plain shell, and tests that the agent never sees."""

    name = "swe"
    profile: Profile = "strict"
    _steps: Steps  # of the episode's task

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._state: dict[str, Any] = {}

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
        for verification in task.verifications:
            if verification.place != "fresh":
                spec = replace(spec, readonly=(*spec.readonly, *mounts(task, verification)))
        return spec

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return the agent's sandbox, and the verifier's if it may be on any host."""
        specs = [cls.spec(task, provider)]
        if task.verification is not None and _is_fresh(task):
            spec = verifier_spec(specs[0], task, provider)
            if not _follows(spec, provider):
                specs.append(spec)
        return specs

    # -- an episode

    def start(self, task: Task) -> None:
        """Start the agent's sandbox, and the verifier's at the same time."""
        self._state = {}
        self._steps = Steps(task)
        super().start(task)
        if self._gold is None:
            self._gold = self._start_gold(task)
        self._steps.enter(self.sandbox)
        _try_equipment(self, SweFields.of(task))

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Bring a sandbox into the task's first state, from which changes are counted."""
        super().prepare(sandbox, task)
        mark_first_state(sandbox, task)

    def _start_gold(self, task: Task) -> GoldRun | None:
        """Prepare the next verifier: the task's first state, without its tests.

        If it has to be on the host of the agent's sandbox, it waits until that exists.
        """
        if not _is_fresh(task):
            return None
        spec = self._verifier_spec(task, self._sandbox)
        if self._sandbox is None and _follows(spec, self.provider):
            return None
        return GoldRun(self.provider, spec, partial(self._prepare_verifier, task=task), "start")

    def _verifier_spec(self, task: Task, agents: Sandbox | None) -> SandboxSpec:
        host = agents.host if agents is not None else ""
        return verifier_spec(self.spec(task, self.provider), task, self.provider, host)

    def _prepare_verifier(self, sandbox: Sandbox, task: Task) -> PreparedVerifier:
        """Bring a verifier into the task's first state, unless it has an image of its own."""
        if task.verification is not None and task.verification.image is not None:
            return PreparedVerifier(sandbox)
        self.prepare(sandbox, task)
        return read_first_state(sandbox, task, self.provider)

    # -- steps

    def handle_submission(self, action: str, answer: str | None) -> StepResult:
        """End the episode, or only the step if its reward is high enough for the next one."""
        steps = self._steps
        if steps.is_last:
            return super().handle_submission(action, answer)
        with self.phases.timed("tests"):
            reward = self._graded(steps.task(), steps.task(steps.number + 1))
        reason = missing(reward, steps.current.least)
        if reason:
            self.episode.latest = steps.overall(replace(reward, reason=reason))
            return super().handle_submission(action, None)
        steps.go_on(reward)
        step = steps.current
        try:
            steps.enter(self.sandbox)
        except _FAILURES as error:
            self._check_gold_too(
                f"step {step.name!r} does not begin after gold", self._enter_after_gold, error
            )
            reason = f"what was left keeps step {step.name!r} from beginning: {error}"
            self.episode.latest = steps.overall(Reward(0.0, {}, reason))
            return super().handle_submission(action, None)
        return self.take_turn(action, lambda _: Observation(step.query))

    def grade_early(self) -> Reward:
        """Grade the current state; the agent may go on from it."""
        return self._graded(self._steps.task(), self._steps.task())

    # -- grading

    def grade(self, answer: str | None) -> Reward:
        """Bring what the agent left into the verifier, and run the tests there."""
        task = self._steps.task()
        return self._steps.overall(self._graded(task, task if self.episode.goes_on else None))

    def _graded(self, task: Task, then: Task | None) -> Reward:
        """Grade a task, and prepare the next grading, of ``then``, if that is not None.

        The agent has acted, so a failure in its sandbox or on what it left counts against it,
        unless the same fails on what gold leaves.

        Raises:
            TaskError: it also fails on what gold leaves.
        """
        self._state, self.test_output = {}, ""
        fresh = _is_fresh(task)
        verifier = self._verifier(task) if fresh else Verifier(self.sandbox, task, Carrying(task))
        run: TestRun | None = None
        try:
            run = self._run_tests(verifier, self.sandbox, task, last=then is None)
            self.test_output = run.shown
            reward = self._rewarded(task, run)
        except _FAILURES as error:
            error.test_output = run.tail if run else ""
            if fresh:
                verifier.close()  # the agent's code may still run there and slow gold down
            self._check_gold_too("gold cannot be verified", lambda: self._grade_gold(task), error)
            reason = str(error)
            if isinstance(error, SandboxBroken):
                reason = f"it broke the sandbox that tests it: {error}"
            self._state = {**verifier.end_state.to_json(), "tests": reason}
            reward = _explained(Reward(0.0, {}, reason), verifier.end_state.left_out)
        finally:
            if fresh:
                verifier.close()
            if then is not None:
                self._gold = self._start_gold(then)
        if reward.value == 1.0:
            check_first_state(task, verifier.end_state.patch, verifier.end_state.left_out)
        return replace(reward, test_output=run.tail if run else "")

    def _run_tests(
        self, verifier: Verifier, sandbox: Sandbox, task: Task, *, last: bool
    ) -> TestRun:
        """Let a verifier test what was left in a sandbox; ``last``: no action follows there."""
        with self.phases.timed("carry"):
            _collect(sandbox, task)
            if _is_fresh(task):
                if last:
                    sandbox.settle(_SETTLE_TIMEOUT)
                    sandbox.halt()
                _collect_from_services(sandbox, task)
                verifier.end_state.take(sandbox)
                verifier.join(sandbox)
        self._state = verifier.end_state.to_json()
        return verifier.run()

    def _verifier(self, task: Task) -> Verifier:
        """Wait for the verifier that was prepared while the agent worked."""
        prepared = self._gold_result()
        assert isinstance(prepared, PreparedVerifier)
        carrying = Carrying(task, prepared.programs, lambda: self._gold_paths(task))
        return Verifier(prepared.sandbox, task, carrying, prepared.index)

    def _rewarded(self, task: Task, run: TestRun) -> Reward:
        assert task.verification is not None
        state = self._state
        reward, facts = reward_of_run(task.verification, run)
        if reward.value and (excused := excused_in(task.verification, run)):
            excused &= self._excused_after_gold(task)
            reward, facts = reward_of_run(task.verification, run, excused)
        self._state = {**state, **facts}
        return _explained(reward, state["left_out"])

    def end_state(self) -> dict[str, Any]:
        """Return the patch and each test's result, from which the reward can be computed."""
        return dict(self._state)

    # -- the same with gold

    def _ask_gold(self, question: str, play: Callable[[], Fact]) -> Fact | str:
        """Return what ``play`` returns, or why it fails; once for each task and step of a run."""

        def attempt() -> Fact | str:
            try:
                return play()
            except _FAILURES as problem:
                return str(problem)

        name = f"{question} {self._steps.number} {digest(self.current_task)}"
        with self.phases.timed("gold"):
            return self.provider.share(name, attempt)

    def _check_gold_too(self, fault: str, play: Callable[[], None], error: IntercodeError) -> None:
        """Check that what failed for the agent succeeds for gold.

        Args:
            fault: the message if it does not.
            play: tries it for gold.
            error: the agent's failure.

        Raises:
            TaskError: it fails for gold too, so it is not the agent's fault.
        """
        problem = self._ask_gold(fault, play)
        if isinstance(problem, str):
            failure = self._gold_failure(fault, problem)
            failure.test_output = error.test_output
            raise failure from error

    def _gold_failure(self, fault: str, reason: str) -> TaskError:
        task = self.current_task
        return TaskError(f"{task.source}: task {task.id!r}: {fault}: {reason}")

    def _excused_after_gold(self, task: Task) -> frozenset[str]:
        """Return the tests that are also skipped, or fail as expected, after gold.

        Raises:
            TaskError: gold cannot be verified.
        """
        verification = task.verification
        assert verification is not None
        excused = self._ask_gold(
            "excused by gold", lambda: excused_in(verification, self._gold_run(task))
        )
        if isinstance(excused, str):
            raise self._gold_failure("gold cannot be verified", excused)
        return excused

    def _gold_paths(self, task: Task) -> GoldPaths:
        """Return what gold changes up to the current step; nothing if it cannot be played."""

        def play() -> GoldPaths:
            with self._gold_played(task) as (_, changes):
                return GoldPaths.of_changes(changes)

        paths: GoldPaths | str | None = GoldPaths.of_patches(task)
        if paths is None:
            paths = self._ask_gold("paths of gold", play)
        return GoldPaths() if isinstance(paths, str) else paths

    def _grade_gold(self, task: Task) -> None:
        """Check that gold's state can be graded."""
        assert task.verification is not None
        reward_of_run(task.verification, self._gold_run(task))

    def _enter_after_gold(self) -> None:
        """Check that the current step can begin after gold's steps."""
        with self._gold_played(self.current_task):
            pass

    def _gold_run(self, task: Task) -> TestRun:
        """Run the tests on what gold leaves."""
        with self._gold_played(task) as (sandbox, changes):
            if not _is_fresh(task):
                verifier = Verifier(sandbox, task, Carrying(task))
                return self._run_tests(verifier, sandbox, task, last=True)
            own_sandbox = self.provider.acquire(self._verifier_spec(task, sandbox))
            try:
                prepared = self._prepare_verifier(own_sandbox, task)
                paths = GoldPaths.of_changes(changes)
                carrying = Carrying(task, prepared.programs, lambda: paths)
                verifier = Verifier(own_sandbox, task, carrying, prepared.index)
                return self._run_tests(verifier, sandbox, task, last=True)
            finally:
                own_sandbox.close()

    @contextlib.contextmanager
    def _gold_played(self, task: Task) -> Iterator[tuple[Sandbox, Changes]]:
        """Play gold up to the current step in a sandbox of its own; yield that and its changes."""
        sandbox = self.provider.acquire(self.spec(task, self.provider))
        try:
            self.prepare(sandbox, task)
            hosts = host_lines(sandbox)
            self._play_gold(sandbox, task)
            yield sandbox, machine_changes(sandbox, hosts)
        finally:
            sandbox.close()

    def _play_gold(self, sandbox: Sandbox, task: Task) -> None:
        step = 0
        self._steps.enter(sandbox, step)
        for action in gold_actions(task):
            if task.steps and action == "submit":
                step += 1
                if step > self._steps.number:
                    return
                self._steps.enter(sandbox, step)
            else:
                sandbox.run(action, self.action_timeout)


def _try_equipment(environment: SweEnvironment, fields: SweFields) -> None:
    """Check, before the agent acts, that its folder of skills exists and its MCP servers start."""
    if fields.skills:
        text = f"test -d {shlex.quote(fields.skills)}"
        test = Command(text, "/", _SKILLS_TIMEOUT, "", False)
        if environment.run_command(test)[0] != 0:
            raise TaskError(f"skills: the sandbox has no folder {fields.skills}")
    start_servers(environment, fields.mcp)


def _is_fresh(task: Task) -> bool:
    """Whether the tests run in a sandbox in which the agent never acted."""
    return task.verification is None or task.verification.place == "fresh"


def _explained(reward: Reward, left_out: Sequence[str]) -> Reward:
    """Add what was not tested to the reason of a reward that is not full."""
    if not left_out or reward.value >= 1.0:
        return reward
    names = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
    return replace(reward, reason=f"{reward.reason} (not tested: {names})")


def _follows(spec: SandboxSpec, provider: SandboxProvider) -> bool:
    """Whether a verifier has to be on the host of the agent's sandbox, which is not known yet."""
    return spec.joins and provider.hosts > 1


def _collect(sandbox: Sandbox, task: Task) -> None:
    """Run the task's commands in the agent's sandbox before the verification; they may fail."""
    assert task.verification is not None
    for hook in task.verification.collect:
        if not hook.service:
            command = f"cd -- {shlex.quote(task.workdir)} && {hook.command}"
            sandbox.admin(as_user(command, hook.user), hook.timeout)


def _collect_from_services(sandbox: Sandbox, task: Task) -> None:
    """Run the task's commands in services before the verification; they may fail."""
    assert task.verification is not None
    for hook in task.verification.collect:
        if hook.service:
            sandbox.command_service(hook.service, hook.command, hook.user, hook.timeout)
