"""The reinforcement learning environment: reset, step, submit and reward, as in Gymnasium.

An environment runs one episode at a time. It owns the episode's sandboxes, counts its turns and
records them. It does not call agents, and imports neither pytest nor a sandbox backend. Subclasses
define how an action runs and how a state is graded: see ``action_space.py``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.phases import Phases
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Feedback, Observation, StepResult, Turn
from pytest_intercode.environments.action_space import ActionSpace, SandboxOrders
from pytest_intercode.environments.episode import (
    Episode,
    call_execute,
    call_method,
    check_reward,
    stop_finally,
)
from pytest_intercode.environments.task_order import TaskOrder
from pytest_intercode.errors import SandboxBroken, SandboxError
from pytest_intercode.sandboxes.images import waiting_for_images
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.closing import Closing
from pytest_intercode.system.forks import MakingProcess
from pytest_intercode.system.platform import check_platform

if TYPE_CHECKING:
    from pytest_intercode.gateway.recording import EpisodeRecording

__all__ = ["Environment"]

_INTERRUPT_TIMEOUT = 0.2  # seconds that an interrupted action has to end


class Environment(ActionSpace, Closing):
    """Plays episodes in an action space, which a subclass defines.

    Args:
        provider: where sandboxes come from.
        feedback: ``reward`` grades the state after every action and shows the result to the
            agent, and ends the episode at 1.0 (InterCode's Try Again).
        max_turns: actions in an episode; None for the task's own number.
        action_timeout: seconds for an action; None for the task's own number.

    Attributes:
        episode: what has happened in the episode: its turns, rewards and end.
        first: the observation that the last reset returned.
        tasks: the list that :meth:`reset` takes tasks from; empty unless ``make`` filled it.
        turns_spent: turns of the budget that an earlier attempt at this episode has used.
        cancelled: why the environment was cancelled; empty if it was not.
        recording: the recording of the gateway's traffic; None to follow the run's settings.
    """

    def __init__(
        self,
        provider: SandboxProvider,
        *,
        feedback: Feedback = "observation",
        max_turns: int | None = None,
        action_timeout: float | None = None,
    ) -> None:
        check_platform()  # SQLite runs without a sandbox, but has the same requirements
        super().__init__(provider, action_timeout)
        self.feedback = feedback
        self._max_turns = max_turns
        self.episode = Episode(max_turns or 0, feedback)
        self.first = Observation("")
        self.tasks = TaskOrder(())
        self.turns_spent = 0
        self.phases = Phases()
        self.cancelled = ""
        self.recording: EpisodeRecording | None = None
        self._acting = False  # an action is running, and nothing is being graded
        self._lock = threading.RLock()
        self._process = MakingProcess("this environment belongs", "one")

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
    def over(self) -> str:
        """Why the episode has ended: ``submitted``, ``solved``, ``budget``, a reason, or ''."""
        return self.episode.over

    # -- an episode, as in Gymnasium

    def reset(
        self,
        *,
        task: Task | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode on a fresh sandbox; the first observation is the task's query.

        Args:
            task: the task; by default the next one of the environment's own list.
            seed: restart that list, in the order that this seed gives.
            options: ``{"task": ...}`` with a task, or the id of a task in the list.

        Raises:
            ConfigurationError: there is no such task.
            TaskError: the task cannot be set up.
            InfrastructureError: no sandbox was available, or one broke.
        """
        self._process.check()
        with self._lock:
            task = self.tasks.choose(task, seed=seed, options=options)
            self._orders = SandboxOrders(self.provider, task)
            self._refuse_cancelled()  # from here on, `cancel` reaches the new orders
            call_method(self.name, self.stop)
            self.task = task
            max_turns = (self._max_turns or task.max_turns) - self.turns_spent
            self.episode = Episode(max_turns, self.feedback)
            if self.recording is not None:
                self.recording.begin()
            with waiting_for_images(self._orders.image_wait):
                call_method(self.name, self.start, task)
            self._refuse_cancelled()  # during `start`, which only notices if it needs a sandbox
            self.first = Observation(task.query, turns_left=self.max_turns)
            return self.first, {"task": task.view(self.max_turns)}

    def step(self, action: str) -> StepResult:
        """Run one action, or end the episode if it is ``submit``.

        Returns:
            Observation, reward, terminated, truncated and an info dictionary.

        Raises:
            BudgetExhausted: the episode is over.
            TypeError: the action is not a string.
            TaskError: nothing can be graded, because gold does not work.
            InfrastructureError: the sandbox broke.
        """
        if not isinstance(action, str):
            raise TypeError(f"an action must be a str, not {type(action).__name__}")
        self._process.check()
        with self._lock:
            _ = self.current_task
            self.episode.check_open()
            return self.respond(action)

    def submit(self, answer: str = "") -> StepResult:
        """End the episode and grade it; ``answer`` is graded instead of the last output.

        In ctf the answer is a flag, and a wrong one does not end the episode.
        """
        self._process.check()
        with self._lock:
            _ = self.current_task
            self.episode.check_open("nothing to submit")
            action = f"submit {answer}".rstrip()
            result = self.handle_submission(action, answer or None)
            if answer and self.submission(action) != answer:
                self.episode.amend_turn(answer=answer)  # `action` lost the blanks around it
            return result

    def close(self) -> None:
        """End the episode's sandboxes; may be called twice. Does nothing in a forked child."""
        if not self._process.is_this:
            return
        self.episode.end("closed")
        self.episode.call_off(self.name, self.interrupt)
        if not self._lock.acquire(timeout=_INTERRUPT_TIMEOUT):  # another thread is grading
            self.episode.call_off(self.name, self.abandon)
            self._lock.acquire()
        try:
            stop_finally(self.name, self.stop, graded=self.final is not None)
        finally:
            self._lock.release()

    # -- other methods that loops use

    def pass_turn(self, action: str, observation: str) -> StepResult:
        """Take a turn that runs nothing, because the agent's message holds no action.

        Args:
            action: the message.
            observation: what the agent is shown instead of an output.

        Raises:
            BudgetExhausted: the episode is over.
        """
        self._process.check()
        with self._lock:
            latest = self.episode.latest

            def show(_: str) -> Observation:
                self.episode.latest = latest  # nothing ran, so the state keeps this reward
                return Observation(observation, executed=False)

            result = self.take_turn(action, show)
            self.episode.amend_turn(passed=True)
            return result

    def end(self, reason: str) -> Reward:
        """End the episode for a given reason and grade the state as it is."""
        with self._lock:
            final = self._finish(None) if self.final is None else self.final
            self.episode.end(reason)
            return final

    def stop_actions(self, reason: str) -> None:
        """Refuse further actions and interrupt the running one, without waiting for it to end.

        A grading goes on: the graded state was reached in time, and grading may need the sandbox.
        """
        self.episode.end(reason)
        self.stop_answer()
        if self._acting:
            self.episode.call_off(self.name, self.interrupt)

    def cancel(self, reason: str) -> None:
        """End the episode from another thread, during a reset, an action or a grading.

        The running call raises :class:`~pytest_intercode.errors.SandboxError`. Nothing is graded,
        and the environment can only be closed.
        """
        self.cancelled = self.cancelled or reason
        self.episode.end(reason)
        self._orders.cancel()
        self.stop_answer()
        self.episode.call_off(self.name, self.interrupt, self.abandon)

    def refused_hosts(self) -> tuple[str, ...]:
        """Return the network accesses refused to the agent in this episode, one line each."""
        self.episode.note_refused(self.newly_refused())
        return self.episode.refused_hosts

    def recorded_state(self) -> dict[str, Any]:
        """Return what was compared for the reward, as builtins; ``turn`` is its turn's number."""
        return self.episode.recorded_state(lambda: call_method(self.name, self.end_state))

    # -- for subclasses

    @contextlib.contextmanager
    def acting(self, *, late: bool = False) -> Iterator[None]:
        """Let the block run something that changes the sandbox's state and can be interrupted.

        Args:
            late: also allow this when the budget is used up, until the episode is graded.

        Raises:
            BudgetExhausted: the episode is over.
        """
        self._process.check()
        with self._lock:
            grading = self.episode.grading  # then ``grade`` itself reads the state
            self._acting = not grading  # set first: an end that comes after the check interrupts it
            try:
                if not (grading or (late and self.over == "budget" and self.final is None)):
                    self.episode.check_open()
                self.episode.latest = None  # the state may change
                yield
            finally:
                self._acting = False

    def respond(self, action: str) -> StepResult:
        """Handle an action, as a submission or as a turn; return what :meth:`step` returns."""
        answer = call_method(self.name, self.submission, action)
        if answer is not None:
            return self.handle_submission(action, answer or None)
        return self.take_turn(action, self.execute)

    def take_turn(self, action: str, execute: Callable[[str], Observation]) -> StepResult:
        """Take and count a turn that does not itself end the episode.

        Args:
            action: the action, for the record.
            execute: runs the action.

        Raises:
            BudgetExhausted: the episode is over.
        """
        with self._lock:
            episode = self.episode
            episode.action = action
            began = time.monotonic()
            try:
                with self.acting():
                    observation = call_execute(self.name, execute, action)
            except SandboxBroken as broken:
                observation = Observation(f"[this broke the sandbox: {broken}]\n", executed=False)
            seconds = time.monotonic() - began
            executed, status = observation.executed, observation.status
            turn = Turn(action, str(observation), executed, seconds=seconds, status=status)
            self.turns.append(turn)
            observation.turns_left = episode.remaining_turns
            if self.feedback == "reward":
                reward = episode.latest or self._reward_now(None)
                episode.score(reward, lambda: call_method(self.name, self.end_state))
                observation.reward = reward.value
            if not episode.over and episode.remaining_turns <= 0:
                self.end("budget")
            return episode.step_result(observation)

    def handle_submission(self, action: str, answer: str | None) -> StepResult:
        """End the episode with a submission; ctf takes a turn for a wrong answer instead.

        Args:
            action: the action, for the record.
            answer: what is graded instead of the last output; None if no answer was given.
        """
        self.episode.submit(action)
        began = time.monotonic()
        final = self._finish(answer)
        self.episode.amend_turn(seconds=time.monotonic() - began)
        return Observation("", reward=final.value), final.value, True, False, {}

    def _refuse_cancelled(self) -> None:
        if self.cancelled:
            self.episode.end(self.cancelled)
            raise SandboxError(f"the environment was cancelled: {self.cancelled}")

    def _reward_now(self, answer: str | None) -> Reward:
        with self.phases.timed("tests"):
            reward = self.episode.grade(lambda: call_method(self.name, self.grade, answer))
        return check_reward(self.name, reward)

    def _finish(self, answer: str | None) -> Reward:
        graded = self.episode.latest if answer is None else None
        return self.episode.finish(graded or self._reward_now(answer))
