"""Tasks as a :class:`gymnasium.Env`: text in, text out, seeded tasks. Needs Gymnasium."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.error import ClosedEnvironmentError, InvalidAction, ResetNeeded

from pytest_intercode.core.turn import Feedback, Profile
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import ConfigurationError, GoldRefused
from pytest_intercode.gym.text import MAX_LENGTH, UnicodeText, clipped
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.suites.making import make

if TYPE_CHECKING:
    from pytest_intercode.core.task import Task
    from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["IntercodeEnv"]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class IntercodeEnv(gymnasium.Env[str, str]):
    """Tasks as a Gymnasium environment.

    The first observation is the task's query. An action is code or ``submit``, and the next
    observation is its output. Rewards are 0.0 until the episode ends, unless ``feedback`` is
    ``reward``. An episode whose turns are used up is truncated; one that is submitted, or solved
    with rewards as feedback, is terminated.

    The ``info`` of a reset has ``task_id`` and ``task``, a :class:`~pytest_intercode.TaskView`;
    that of a step has ``task_id``, ``executed`` and ``turns_left``, and at the end the ``parts`` of
    the reward and its ``reason``.

    Args:
        env: the environment's name.
        max_length: characters of an observation; the middle of a longer one is omitted.
        render_mode: ``ansi`` to make ``render`` return the trajectory so far; or None.
        suite: as for :func:`pytest_intercode.make`.
        dataset: as for :func:`pytest_intercode.make`.
        data: as for :func:`pytest_intercode.make`.
        profile: as for :func:`pytest_intercode.make`.
        feedback: as for :func:`pytest_intercode.make`.
        max_turns: as for :func:`pytest_intercode.make`.
        action_timeout: as for :func:`pytest_intercode.make`.
        network: as for :func:`pytest_intercode.make`.
        allow_path: as for :func:`pytest_intercode.make`.
        pass_env: as for :func:`pytest_intercode.make`.
        provider: as for :func:`pytest_intercode.make`.

    Attributes:
        environment: the underlying :class:`~pytest_intercode.Environment`.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - Gymnasium's own way

    def __init__(
        self,
        env: str,
        *,
        max_length: int = MAX_LENGTH,
        render_mode: str | None = None,
        suite: str | os.PathLike[str] | None = None,
        dataset: str | os.PathLike[str] | None = None,
        data: str | os.PathLike[str] | None = None,
        profile: Profile = "strict",
        feedback: Feedback = "observation",
        max_turns: int | None = None,
        action_timeout: float | None = None,
        network: bool | Sequence[str] = False,
        allow_path: Sequence[str | os.PathLike[str]] = (),
        pass_env: Sequence[str] = (),
        provider: SandboxProvider | None = None,
    ) -> None:
        self.render_mode = render_mode
        self.observation_space = UnicodeText(max_length)
        self._max_length = max_length
        self.action_space = UnicodeText(MAX_LENGTH)
        self.environment: Environment = make(
            env,
            suite=suite,
            dataset=dataset,
            data=data,
            profile=profile,
            feedback=feedback,
            max_turns=max_turns,
            action_timeout=action_timeout,
            network=network,
            allow_path=allow_path,
            pass_env=pass_env,
            provider=provider,
        )
        self._running = False
        self._closed = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode on a fresh sandbox.

        Args:
            seed: if given, restarts the list of tasks; equal seeds give equal sequences of tasks.
            options: ``{"task": ...}`` with the id of a task, or a task.

        Returns:
            The task's query, and facts about the task.

        Raises:
            TaskError: the task cannot be set up.
            InfrastructureError: no sandbox is available.
        """
        if self._closed:
            raise ClosedEnvironmentError("the environment is closed; make another")
        super().reset(seed=seed)
        self._running = False
        tasks = self.environment.tasks
        task = tasks.choose(None, seed=seed, options=options)
        is_requested = (options or {}).get("task") is not None
        refused: set[str] = set()
        while True:
            try:
                first, info = self._start_episode(task)
                break
            except GoldRefused:  # the task cannot be graded; continue with the next one
                refused.add(task.id)
                if is_requested or len(refused) == len(tasks.tasks):
                    raise
                task = tasks.next()
        self._running = True
        return self._clip(first), {"task_id": task.id, **info}

    def _start_episode(self, task: Task) -> tuple[str, dict[str, Any]]:
        environment = self.environment
        if task.conversation is not None:
            raise ConfigurationError(
                f"{task.source}: task {task.id!r}: it has a user (`user:`), with whom no agent "
                "of Gymnasium can talk; run it with pytest or run_rollouts"
            )
        rollout = Rollout(RolloutSpec(task), Services(environment.provider))
        rollout.prepare(environment)
        return environment.first, {"task": task.view(environment.max_turns)}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Run one action, or end the episode if it is ``submit``.

        Raises:
            InvalidAction: it is not a string, or longer than the action space allows.
            ResetNeeded: no episode is running.
            InfrastructureError: the sandbox broke; the next call is ``reset``.
        """
        self._check_running()
        if not self.action_space.contains(action):
            description = (
                f"{len(action)} characters" if isinstance(action, str) else type(action).__name__
            )
            raise InvalidAction(
                f"an action is a str of at most {MAX_LENGTH} characters, not {description}"
            )
        environment = self.environment
        self._running = False  # until the step has succeeded
        observation, reward, terminated, truncated, _ = environment.step(action)
        task, last = environment.task, environment.turns[-1]
        assert task is not None
        info: dict[str, Any] = {
            "task_id": task.id,
            "executed": last.executed,
            "turns_left": environment.max_turns - len(environment.turns),
        }
        self._running = not (terminated or truncated)
        if not self._running and environment.final is not None:
            info["parts"] = dict(environment.final.parts)
            info["reason"] = environment.final.reason
        return self._clip(observation), float(reward), terminated, truncated, info

    def render(self) -> str | None:
        """Return the trajectory so far; None if the environment was made without a render mode."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() without a render mode: make it with render_mode='ansi'")
            return None
        environment = self.environment
        if environment.task is None:
            return ""
        lines = [f"query: {environment.task.query}"]
        for number, turn in enumerate(environment.turns, 1):
            lines.append(f"{number} > {turn.action}")
            lines += [turn.observation.rstrip("\n")] if turn.observation else []
        if environment.final is not None:
            lines.append(f"reward {environment.final.value:.2f}")
        return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", "\n".join(lines))

    def close(self) -> None:
        """End the episode's sandboxes; may be called twice."""
        self._closed = True
        self._running = False
        self.environment.close()

    def _clip(self, observation: str) -> str:
        return clipped(str(observation), self._max_length)

    def _check_running(self) -> None:
        if self._closed:
            raise ClosedEnvironmentError("the environment is closed; make another")
        if not self._running:
            end = self.environment.over
            raise ResetNeeded(
                f"the episode is over ({end}); call reset()" if end else "call reset() first"
            )
