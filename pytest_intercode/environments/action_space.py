"""What the author of an environment writes: how an action is run, and how a state is graded.

:class:`~pytest_intercode.environments.base.Environment` plays episodes with it. Six methods have to
be defined; the others, and every attribute but ``name``, have a default.
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
    """Who answers an agent that hands back, in one episode."""

    @property
    def has_user(self) -> bool:
        """Whether there is anybody."""

    def answer(self, message: str) -> str | None:
        """Return the reply to a message of the agent's; None where nobody answers."""

    def give_tools(self, tools: Sequence[Mapping[str, Any]], call: CallTool) -> None:
        """Let the user call tools, which are described as OpenAI's API describes functions."""

    def restart(self) -> None:
        """Begin with the first answer, as the episode does on a fresh sandbox."""

    def stop(self) -> None:
        """End what :meth:`answer` waits for; from any thread."""


class SandboxOrders:
    """The sandboxes that one episode asks for. Another thread may call the waiting off.

    Args:
        provider: where they come from.
        task: the episode's task; None before the first one.

    Attributes:
        image_wait: ends what is waited for images.
    """

    def __init__(self, provider: SandboxProvider, task: Task | None = None) -> None:
        self._provider = provider
        self._orders: list[Order] = []
        key = task and (task.suite, task.id, task.repeat)
        self.image_wait = ImageWait(task.id if task else "", key)

    def order(self, spec: SandboxSpec) -> Callable[[], Sandbox]:
        """Ask for a sandbox; return what waits for it, until :meth:`cancel` is called."""
        order = self._provider.order(spec)
        self._orders.append(order)
        if self.image_wait.cancelled:
            order.cancel()
        return order.wait

    def cancel(self) -> None:
        """End the waiting for sandboxes and for images, also what begins later."""
        self.image_wait.cancel()
        for order in list(self._orders):
            order.cancel()

    @property
    def host(self) -> str:
        """The Docker host of the sandbox that was had; empty for this machine's own engine."""
        return next((order.host for order in self._orders if order.host), "")


class ActionSpace(abc.ABC):
    """One action space.

    Args:
        provider: where sandboxes come from.
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
        in_order: whether an episode depends on those before it, so that a run takes them one at a
            time and in order, whatever its concurrency.
        fields: the class of the fields that its tasks have and others do not.
        kind: everything else about the environment: prompts, the audit's wrong answers, how its
            end states are shown and exported.
        task: the task of the episode; None before the first reset.
        user: who answers an agent that hands back; None for nobody.
        functions: the tools that actions are calls of, as OpenAI's API describes functions; none
            where actions have another form. An action is a JSON object of a name and arguments.
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

    # -- what has to be defined

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

    # -- what may be defined

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

    def check_gold(self) -> None:  # noqa: B027 - nothing to do for most
        """Look at what gold did, after an episode.

        Gold that fails and is compared with itself looks fine, and no agent can be judged by it.

        Raises:
            TaskError: gold looks broken, and the task does not say that it is to be so.
        """

    def abandon(self) -> None:  # noqa: B027 - most have nothing to do
        """Let what grading reads or waits for end at once; called from another thread.

        What is graded then raises, and the episode can only be closed.
        """

    def answer(self, message: str) -> str | None:
        """Return what the user says to an agent that hands back; None where nobody answers.

        It is called on the agent's thread, and may wait, for a model, say.

        Args:
            message: the agent's.

        Raises:
            TaskError: the one who is to answer fails.
            InfrastructureError: the model that plays the user does.
        """
        return None if self.user is None else self.user.answer(message)

    def stop_answer(self) -> None:
        """End what :meth:`answer` waits for, as time is up; called from another thread."""
        if self.user is not None:
            self.user.stop()

    def newly_refused(self) -> list[str]:
        """Return what of the network the agent was refused since the last call, a line each."""
        return []

    # -- what is there for these methods

    @property
    def current_task(self) -> Task:
        """The task of the episode, for what is only called in one.

        Raises:
            ConfigurationError: there is no episode before the first reset.
        """
        if self.task is None:
            raise ConfigurationError("there is no episode: call reset() first")
        return self.task

    @property
    def has_user(self) -> bool:
        """Whether somebody may answer an agent that hands back; see :meth:`answer`."""
        return self.user is not None and self.user.has_user

    @property
    def may_submit_again(self) -> bool:
        """Whether a submission that fails is answered by what its tests printed."""
        return False

    @property
    def submissions(self) -> int:
        """How often the episode was graded for a submission; 0 where a task allows only one."""
        return 0

    @property
    def action_timeout(self) -> float:
        """Seconds for one action."""
        return self._action_timeout or (self.task.action_timeout if self.task else 0.0)

    def order_sandbox(self, spec: SandboxSpec) -> Callable[[], Sandbox]:
        """Ask for a sandbox; return what waits for it, until the episode is cancelled."""
        return self._orders.order(spec)

    @property
    def host(self) -> str:
        """The Docker host that the agent acts on; empty for this machine's own engine."""
        return self._orders.host
