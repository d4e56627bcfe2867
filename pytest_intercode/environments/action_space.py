"""What the author of an environment writes: how an action runs, and how a state is graded.

:class:`~pytest_intercode.environments.base.Environment` plays episodes with it. Authors have to
define six methods and ``name``; the other methods and attributes have defaults.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pytest_intercode.core.conversation import CallTool
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task, TaskFields
from pytest_intercode.core.turn import Observation, Profile
from pytest_intercode.environments.kind import EnvironmentKind
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.sandboxes.images import ImageWait
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.stock import Order

__all__ = ["ActionSpace", "SandboxOrders", "User"]


class User(Protocol):
    """The user who answers an agent that hands back, in one episode."""

    @property
    def has_user(self) -> bool:
        """Whether there is a user at all."""

    def answer(self, message: str) -> str | None:
        """Return the reply to a message of the agent; None if nobody answers."""

    def give_tools(self, tools: Sequence[Mapping[str, Any]], call: CallTool) -> None:
        """Let the user call tools, which are described as OpenAI's API describes functions."""

    def restart(self) -> None:
        """Start again with the first answer, because the episode starts on a fresh sandbox."""

    def stop(self) -> None:
        """Stop a waiting :meth:`answer`; may be called from any thread."""


class SandboxOrders:
    """The sandboxes that one episode asks for. Another thread may cancel the waiting.

    Args:
        provider: where they come from.
        task: the episode's task; None before the first one.

    Attributes:
        image_wait: cancels the waiting for images.
    """

    def __init__(self, provider: SandboxProvider, task: Task | None = None) -> None:
        self._provider = provider
        self._orders: list[Order] = []
        key = task and (task.suite, task.id, task.repeat)
        self.image_wait = ImageWait(task.id if task else "", key)

    def order(self, spec: SandboxSpec) -> Callable[[], Sandbox]:
        """Order a sandbox; return a function that waits for it, until :meth:`cancel` is called."""
        order = self._provider.order(spec)
        self._orders.append(order)
        if self.image_wait.cancelled:
            order.cancel()
        return order.wait

    def cancel(self) -> None:
        """Cancel the waiting for sandboxes and for images, including later ones."""
        self.image_wait.cancel()
        for order in list(self._orders):
            order.cancel()

    @property
    def host(self) -> str:
        """The Docker host of the episode's sandbox; empty for this machine's own engine."""
        return next((order.host for order in self._orders if order.host), "")


class ActionSpace(abc.ABC):
    """One action space.

    Args:
        provider: where sandboxes come from.
        action_timeout: seconds for an action; None for the task's own number.

    Attributes:
        name: the name of the environment in ``env:`` and ``--intercode-env``.
        profile: the profile that it runs under.
        suite: the suite that runs if only the environment is named.
        dockerfile: the Dockerfile for tasks that do not name an image; by default ours.
        language: the language of its actions, for models; by default its name.
        description: what a model is shown of it: what is kept from action to action, and what is
            graded; by default the class's docstring.
        example: an action, for models.
        in_order: whether an episode depends on earlier ones, so that a run plays them one at a
            time and in order, whatever its concurrency.
        fields: the class of the fields that only tasks of this environment have.
        kind: everything else about the environment: prompts, the audit's wrong answers, how its
            end states are shown and exported.
        task: the task of the episode; None before the first reset.
        user: who answers an agent that hands back; None for nobody.
        functions: the tools that actions call, as OpenAI's API describes functions; empty if
            actions have another form. Such an action is a JSON object of a name and arguments.
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
    user: User | None = None
    functions: Sequence[Mapping[str, Any]] = ()

    def __init__(self, provider: SandboxProvider, action_timeout: float | None = None) -> None:
        self.provider = provider
        self.task: Task | None = None
        self._action_timeout = action_timeout
        self._orders = SandboxOrders(provider)

    # -- methods that have to be defined

    @classmethod
    @abc.abstractmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return the sandboxes that an episode of this task needs, the agent's first."""

    @abc.abstractmethod
    def start(self, task: Task) -> None:
        """Start the episode's sandboxes and bring them into the task's first state.

        Raises:
            TaskError: the task cannot be set up.
            InfrastructureError: no sandbox was available, or one broke.
        """

    @abc.abstractmethod
    def execute(self, action: str) -> Observation:
        """Run one action for at most :attr:`action_timeout` seconds."""

    @abc.abstractmethod
    def grade(self, answer: str | None) -> Reward:
        """Grade the current state; the episode may go on afterwards.

        Args:
            answer: the submitted text; None if nothing was submitted.

        Raises:
            TaskError: nothing can be compared, because gold does not work.
            InfrastructureError: a sandbox broke.
            UngradableState: the agent left more than can be read; the reward is then 0.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """End the episode's sandboxes; does nothing if there are none."""

    @abc.abstractmethod
    def interrupt(self) -> None:
        """End the running action from another thread, as if its time had run out."""

    # -- methods that may be defined

    def submission(self, action: str) -> str | None:
        """Return the answer if the action is a submission, else None."""
        words = action.strip().split(None, 1)
        if words and words[0] == "submit":
            return words[1] if len(words) > 1 else ""
        return None

    def end_state(self) -> dict[str, Any]:
        """Return what the last grading compared, as builtins, from which it can be repeated."""
        return {}

    @classmethod
    def graded_again(cls, state: Mapping[str, Any]) -> Reward | None:
        """Grade a state that :meth:`end_state` returned; None if this is not supported.

        For added environments: ``pytest-intercode rescore`` calls it.
        """
        return None

    def check_gold(self) -> None:  # noqa: B027 - nothing to do for most
        """Check what gold did, after an episode.

        Gold that fails and is compared with itself looks fine, but no agent can be judged by it.

        Raises:
            TaskError: gold looks broken, and the task does not declare that this is intended.
        """

    def abandon(self) -> None:  # noqa: B027 - most have nothing to do
        """End immediately whatever grading reads or waits for; called from another thread.

        The grading then raises, and the episode can only be closed.
        """

    def answer(self, message: str) -> str | None:
        """Return the user's reply to an agent that hands back; None if nobody answers.

        It is called on the agent's thread, and may wait, for example for a model.

        Args:
            message: the agent's message.

        Raises:
            TaskError: the code that answers fails.
            InfrastructureError: the model that plays the user fails.
        """
        return None if self.user is None else self.user.answer(message)

    def stop_answer(self) -> None:
        """Stop a waiting :meth:`answer`, because time is up; called from another thread."""
        if self.user is not None:
            self.user.stop()

    def newly_refused(self) -> list[str]:
        """Return the network accesses refused to the agent since the last call, one line each."""
        return []

    # -- helpers for these methods

    @property
    def current_task(self) -> Task:
        """The task of the episode, for methods that are only called during one.

        Raises:
            ConfigurationError: there is no episode before the first reset.
        """
        if self.task is None:
            raise ConfigurationError("there is no episode: call reset() first")
        return self.task

    @property
    def has_user(self) -> bool:
        """Whether a user may answer an agent that hands back; see :meth:`answer`."""
        return self.user is not None and self.user.has_user

    @property
    def may_submit_again(self) -> bool:
        """Whether a failed submission returns the output of its tests, and the episode goes on."""
        return False

    @property
    def submissions(self) -> int:
        """How often a submission was graded in this episode; 0 if the task allows only one."""
        return 0

    @property
    def action_timeout(self) -> float:
        """Seconds for one action."""
        return self._action_timeout or (self.task.action_timeout if self.task else 0.0)

    def order_sandbox(self, spec: SandboxSpec) -> Callable[[], Sandbox]:
        """Order a sandbox; return a function that waits for it, until the episode is cancelled."""
        return self._orders.order(spec)

    @property
    def host(self) -> str:
        """The Docker host that the agent acts on; empty for this machine's own engine."""
        return self._orders.host
