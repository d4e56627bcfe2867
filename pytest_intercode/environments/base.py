"""The environment of reinforcement learning: reset, step, submit, reward; Gymnasium's semantics.

An environment runs one episode at a time. It owns the episode's sandboxes, counts its turns and
records them. It calls no agent, and imports neither pytest nor a backend of sandboxes.
"""

from __future__ import annotations

import abc
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_intercode.core.forks import MakingProcess
from pytest_intercode.core.phases import Phases
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task, TaskFields
from pytest_intercode.core.turn import Feedback, Observation, Profile, StepResult, Turn
from pytest_intercode.environments.episode import Episode, reward_for_agent_fault
from pytest_intercode.environments.kind import EnvironmentKind
from pytest_intercode.environments.task_order import TaskOrder
from pytest_intercode.errors import CommandFailed, SandboxBroken, SandboxError, UngradableState
from pytest_intercode.sandboxes.images import ImageWait, waiting_for_images
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.stock import Order

__all__ = ["Environment"]

_INTERRUPT_TIMEOUT = 0.2  # seconds for an interrupted action to end


class Environment(abc.ABC):
    """One action space.

    Args:
        provider: where sandboxes come from.
        feedback: ``reward`` grades the state after every action and shows the result to the
            agent, and ends the episode at 1.0 (InterCode's Try Again).
        max_turns: actions in an episode; None for the task's own number.
        action_timeout: seconds for an action; None for the task's own number.

    Attributes:
        name: what ``env:`` and ``--intercode-env`` call it.
        profile: the profile that it runs under.
        suite: the suite that is run where only the environment is named.
        dockerfile: the image of tasks that name none; by default ours.
        language: what its actions are written in, for models; by default its name.
        description: what a model is shown of it: what lasts from action to action, and what is
            graded; by default the class's docstring.
        example: an action, for models.
        in_order: an episode depends on those before it, so that they are played one by one.
        fields: the class of the fields that its tasks have and others do not.
        kind: everything else about it: prompts, wrong answers, how end states are shown.
        episode: what has happened in the episode: its turns, rewards and end.
        task: the task of the episode; None before the first reset.
        first: the observation that the last reset returned.
        tasks: the list that :meth:`reset` takes tasks from; empty unless ``make`` filled it.
        turns_spent: turns of the budget that an earlier attempt at this episode has used.
        image_wait: ends what the last reset waits for images.
        cancelled: why the environment was cancelled; empty if it was not.
    """

    name: str
    profile: Profile = "strict"
    suite: Path | None = None
    dockerfile: Path | None = None
    language: str = ""
    description: str = ""
    example: str = ""
    in_order: bool = False
    fields: type[TaskFields] = TaskFields
    kind: type[EnvironmentKind] = EnvironmentKind

    def __init__(
        self,
        provider: SandboxProvider,
        *,
        feedback: Feedback = "observation",
        max_turns: int | None = None,
        action_timeout: float | None = None,
    ) -> None:
        self.provider = provider
        self.feedback = feedback
        self._max_turns = max_turns
        self._action_timeout = action_timeout
        self.episode = Episode(max_turns or 0, feedback)
        self.task: Task | None = None
        self.first = Observation("")
        self.tasks = TaskOrder(())
        self.turns_spent = 0
        self.phases = Phases()
        self.image_wait = ImageWait()
        self.cancelled = ""
        self._without_state = False  # the last grading failed, so there is no end state to record
        self._acting = False  # an action runs, and nothing is graded
        self._orders: list[Order] = []  # sandboxes that the episode has asked for
        self._lock = threading.RLock()
        self._process = MakingProcess("this environment belongs", "one")

    # -- what an environment defines

    @classmethod
    @abc.abstractmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return the sandboxes that an episode of this task needs, the agent's first."""

    @abc.abstractmethod
    def start(self, task: Task) -> None:
        """Start the episode's sandboxes and bring them into the task's first state.

        Raises:
            TaskError: the task cannot be set up.
            InfrastructureError: no sandbox could be had, or one broke.
        """

    @abc.abstractmethod
    def execute(self, action: str) -> Observation:
        """Run one action, for :attr:`action_timeout` seconds at most."""

    @abc.abstractmethod
    def grade(self, answer: str | None) -> Reward:
        """Grade the present state; the episode may go on after it.

        Args:
            answer: what was submitted in words; None if nothing was.

        Raises:
            TaskError: nothing can be compared, as gold does not work.
            InfrastructureError: a sandbox broke.
            UngradableState: the agent left more than is read; the reward is 0 then.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """End the episode's sandboxes; does nothing where there are none."""

    @abc.abstractmethod
    def interrupt(self) -> None:
        """End the running action from another thread, as if its time had run out."""

    # -- what an environment may define

    def abandon(self) -> None:  # noqa: B027 - most have nothing to do
        """Let what grading reads or waits for end at once; called from another thread.

        What is graded then raises, and the episode can only be closed.
        """

    def newly_refused(self) -> list[str]:
        """Return what of the network the agent was refused since the last call, a line each."""
        return []

    def submission(self, action: str) -> str | None:
        """Return the answer if the action is a submission, else None."""
        words = action.strip().split(None, 1)
        if words and words[0] == "submit":
            return words[1] if len(words) > 1 else ""
        return None

    def end_state(self) -> dict[str, Any]:
        """Return what the last grading compared, as builtins; it can be graded again from it."""
        return {}

    @classmethod
    def graded_again(cls, state: Mapping[str, Any]) -> Reward | None:
        """Grade a state that :meth:`end_state` returned; None where that is not provided for.

        For environments that others add: it is what ``pytest-intercode rescore`` asks.
        """
        return None

    def recorded_state(self) -> dict[str, Any]:
        """Return what the grading compared that gave the episode's reward, as builtins.

        With rewards as feedback that is the best try's, and ``turn`` says which one it was.
        """
        best_state = self.episode.best_state
        return self._state_now() if best_state is None else best_state

    # -- what agents and loops use

    @property
    def current_task(self) -> Task:
        """The task of the episode, for what is only called in one."""
        assert self.task is not None, "there is no episode before reset()"
        return self.task

    @property
    def turns(self) -> list[Turn]:
        """The turns of the episode so far."""
        return self.episode.turns

    @property
    def final(self) -> Reward | None:
        """The episode's reward, once it is graded."""
        return self.episode.final

    @property
    def max_turns(self) -> int:
        """Actions in this episode."""
        return self.episode.max_turns

    @property
    def goes_on(self) -> bool:
        """Whether the episode goes on after the present grading, which is feedback."""
        return self.feedback == "reward" and not self.episode.over

    @property
    def action_timeout(self) -> float:
        """Seconds for one action."""
        return self._action_timeout or (self.task.action_timeout if self.task else 0.0)

    def refused_hosts(self) -> tuple[str, ...]:
        """Return what of the network the agent was refused in this episode, a line each."""
        self.note_refused()
        return self.episode.refused_hosts

    @property
    def host(self) -> str:
        """The Docker host that the agent acts on; empty for this machine's own engine."""
        return next((order.host for order in self._orders if order.host), "")

    def note_refused(self) -> list[str]:
        """Keep what was refused since the last call for the record, and return it."""
        lines = self.newly_refused()
        self.episode.note_refused(lines)
        return lines

    @property
    def over(self) -> str:
        """Why the episode has ended: ``submitted``, ``solved``, ``budget``, a reason, or ''."""
        return self.episode.over

    def reset(
        self,
        *,
        task: Task | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode on a fresh sandbox; the first observation is the task's query.

        Args:
            task: the task; by default the next of the environment's own list.
            seed: begin that list again, in the order that belongs to this seed.
            options: ``{"task": ...}`` with a task, or the id of one of the list.

        Raises:
            ConfigurationError: there is no such task.
            TaskError: the task cannot be set up.
            InfrastructureError: no sandbox could be had, or one broke.
        """
        self._process.check()
        with self._lock:
            task = self.tasks.choose(task, seed=seed, options=options)
            self.image_wait = ImageWait(task.id, (task.suite, task.id, task.repeat))
            if self.cancelled:  # from here on `cancel` also reaches the new one
                raise SandboxError(f"the environment was cancelled: {self.cancelled}")
            self.stop()
            self._orders.clear()
            self.task = task
            max_turns = (self._max_turns or task.max_turns) - self.turns_spent
            self.episode = Episode(max_turns, self.feedback)
            with waiting_for_images(self.image_wait):
                self.start(task)
            self.first = Observation(task.query, turns_left=self.max_turns)
            return self.first, {"task": task.view(self.max_turns)}

    def step(self, action: str) -> StepResult:
        """Run one action, or end the episode if it is ``submit``.

        Returns:
            Observation, reward, terminated, truncated and a dictionary of facts.

        Raises:
            BudgetExhausted: the episode is over.
            TypeError: the action is not a string.
            TaskError: nothing can be graded, as gold does not work.
            InfrastructureError: the sandbox broke.
        """
        if not isinstance(action, str):
            raise TypeError(f"an action is a str, not {type(action).__name__}")
        self._process.check()
        with self._lock:
            self.episode.check_open()
            return self.respond(action)

    def pass_turn(self, action: str, observation: str) -> StepResult:
        """Take a turn that runs nothing, as what the agent sent holds no action.

        Args:
            action: what it sent.
            observation: what it is shown instead.

        Raises:
            BudgetExhausted: the episode is over.
        """
        self._process.check()
        with self._lock:
            self.episode.check_open()
            latest = self.episode.latest

            def show(_: str) -> Observation:
                self.episode.latest = latest  # nothing is run, so this is still the state's
                return Observation(observation, executed=False)

            result = self.take_turn(action, show)
            self.amend_turn(passed=True)
            return result

    def record_turn(self, turn: Turn) -> None:
        """Add a turn that the agent took by itself in its sandbox, and that is over."""
        self.turns.append(turn)
        if self.episode.remaining_turns <= 0:
            self.episode.end("budget")

    def submit(self, answer: str = "") -> StepResult:
        """End the episode and grade it; ``answer`` is graded instead of the last output.

        In ctf the answer is a flag, and a wrong one does not end the episode.
        """
        self._process.check()
        with self._lock:
            self.episode.check_open("nothing to submit")
            action = f"submit {answer}".rstrip()
            result = self.handle_submission(action, answer or None)
            if answer and self.submission(action) != answer:
                self.amend_turn(answer=answer)  # white space around it, which the text loses
            return result

    def end(self, reason: str) -> Reward:
        """End the episode for another reason and grade the state as it is."""
        with self._lock:
            if self.final is None:
                self._finish(None)
            self.episode.end(reason)
            assert self.final is not None
            return self.final

    def check_gold(self) -> None:  # noqa: B027 - nothing to do for most
        """Look at what gold did, after an episode.

        Gold that fails and is compared with itself looks fine, and no agent can be judged by it.

        Raises:
            TaskError: gold looks broken, and the task does not say that it is to be so.
        """

    def exhaust(self) -> None:
        """Let no further action run, as a budget that is counted elsewhere is used up."""
        # Without the lock: what runs may be waiting for the one that has used it up.
        self.episode.end("budget")

    def stop_actions(self, reason: str) -> None:
        """Let no further action run, without waiting for the one that runs.

        What is being graded was done in time, and grading may need the sandbox.
        """
        self.episode.end(reason)
        if self._acting:
            self.interrupt()

    def cancel(self, reason: str) -> None:
        """End the episode from another thread, be it in a reset, an action or a grading.

        What runs raises :class:`~pytest_intercode.errors.SandboxError`; nothing is graded, and
        the environment can only be closed.
        """
        self.cancelled = self.cancelled or reason
        self.episode.end(reason)
        self.image_wait.cancel()
        for order in list(self._orders):
            order.cancel()
        self.interrupt()
        self.abandon()

    def close(self) -> None:
        """End the episode's sandboxes; may be called twice. Does nothing in a forked child."""
        if not self._process.is_this:
            return
        self.episode.end("closed")
        self.interrupt()
        if not self._lock.acquire(timeout=_INTERRUPT_TIMEOUT):  # another thread is grading
            self.abandon()
            self._lock.acquire()
        try:
            self.stop()
        finally:
            self._lock.release()

    def amend_turn(self, index: int = -1, **fields: Any) -> None:
        """Put on a turn that was taken what became known later, by the names of its fields."""
        self.episode.amend_turn(index, **fields)

    # -- for subclasses

    def order_sandbox(self, spec: SandboxSpec) -> Callable[[], Sandbox]:
        """Ask for a sandbox; return what waits for it, until the episode is cancelled."""
        order = self.provider.order(spec)
        self._orders.append(order)
        if self.cancelled:
            order.cancel()
        return order.wait

    @contextlib.contextmanager
    def acting(self, *, late: bool = False) -> Iterator[None]:
        """Let something run in the sandbox, which changes its state and can be stopped.

        Args:
            late: also where a budget is used up, as long as nothing is graded.

        Raises:
            BudgetExhausted: the episode is over.
        """
        self._process.check()
        with self._lock:
            if not (late and self.over == "budget" and self.final is None):
                self.episode.check_open()
            self.episode.latest = None  # the state may be another one
            self._acting = True
            try:
                yield
            finally:
                self._acting = False

    def respond(self, action: str) -> StepResult:
        """Return what :meth:`step` returns for an action: a submission's end, or a turn."""
        answer = self.submission(action)
        if answer is not None:
            return self.handle_submission(action, answer or None)
        return self.take_turn(action, self.execute)

    def take_turn(self, action: str, execute: Callable[[str], Observation]) -> StepResult:
        """Take a turn that does not end the episode by itself, and count it.

        Args:
            action: the action, for the record.
            execute: runs it.

        Raises:
            BudgetExhausted: the episode is over.
        """
        episode = self.episode
        began = time.monotonic()
        with self._lock:
            try:
                with self.acting():
                    observation = execute(action)
            except SandboxBroken as broken:
                observation = Observation(f"[this broke the sandbox: {broken}]\n", executed=False)
            seconds = time.monotonic() - began
            self.turns.append(Turn(action, str(observation), observation.executed, seconds=seconds))
            observation.turns_left = episode.remaining_turns
            if self.feedback == "reward":
                reward = episode.latest or self._reward_now(None)
                episode.score(reward, self._state_now)
                observation.reward = reward.value
            if not episode.over and episode.remaining_turns <= 0:
                self.end("budget")
            return episode.step_result(observation)

    def handle_submission(self, action: str, answer: str | None) -> StepResult:
        """End the episode with a submission; ctf takes a turn for a wrong answer instead.

        Args:
            action: the action, for the record.
            answer: what is graded instead of the last output; None where nothing is given.
        """
        self.turns.append(Turn(action, "", True))
        began = time.monotonic()
        self.episode.over = "submitted"
        self._finish(answer)
        self.amend_turn(seconds=time.monotonic() - began)
        assert self.final is not None
        return Observation("", reward=self.final.value), self.final.value, True, False, {}

    # -- inside

    def _reward_now(self, answer: str | None) -> Reward:
        """Grade; a sandbox that the agent broke is worth nothing, and no reason to try again."""
        self._without_state = False
        try:
            with self.phases.timed("tests"):
                return self.grade(answer)
        except (SandboxBroken, CommandFailed, UngradableState) as error:
            reward = reward_for_agent_fault(error)
            self._without_state = True
            return reward

    def _state_now(self) -> dict[str, Any]:
        """Return what the last grading compared; nothing if it could not compare anything."""
        return {} if self._without_state else self.end_state()

    def _finish(self, answer: str | None) -> None:
        graded = self.episode.latest if answer is None else None
        self.episode.finish(graded or self._reward_now(answer))
