"""The users of a run's tasks, who answer agents that hand back; one is made for each episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_intercode.agents.answers import Answers
from pytest_intercode.core.conversation import UNSCRIPTED, Conversation
from pytest_intercode.core.task import Task
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.lazy import LazyGateway
from pytest_intercode.gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from pytest_intercode.agents.simulated_user import SimulatedUser

__all__ = ["Users", "cannot_continue", "choose_user_model", "has_model"]


class Users:
    """Makes the user of each episode; the models that play users share one gateway.

    Args:
        settings: the settings of that gateway; by default, they come from environment variables.
        model: the model of the run, which overrides the models that tasks name; empty for none.
    """

    def __init__(self, settings: GatewaySettings | None = None, model: str = "") -> None:
        self._gateway = LazyGateway(settings)
        self._model = model

    def make(self, task: Task) -> Answers:
        """Return the user of a task's episode; the caller has to close it.

        Raises:
            ConfigurationError: no model is named to play the user, or it cannot be reached.
        """
        conversation = task.conversation
        if conversation is None:
            return Answers()
        if not has_model(task):
            return Answers(conversation.replies)
        self.check(task)
        prompt = _describe_user(conversation)
        return Answers(user=self.simulate(prompt, self.model_of(task), task, conversation))

    def model_of(self, task: Task) -> str:
        """Return the model that plays the user of a task; empty if none is named."""
        return self._model or (task.conversation.model if task.conversation is not None else "")

    def check(self, task: Task) -> None:
        """Check that a task can have its user, before anything is started.

        Raises:
            ConfigurationError: as for :meth:`make`.
        """
        if not has_model(task):
            return
        subject = f"{task.source or 'a task of your own'}: task {task.id!r}: user"
        if not self.model_of(task):
            raise ConfigurationError(
                f"{subject}: no model is given: give --intercode-user-model=NAME, or `model` in "
                "the suite"
            )
        self._gateway.check(subject)

    def simulate(
        self, prompt: str, model: str, task: Task, conversation: Conversation = UNSCRIPTED
    ) -> SimulatedUser:
        """Return a model that plays the user of a task's episode.

        Args:
            prompt: who the user is and what the user wants.
            model: the model.
            task: the task.
            conversation: how it ends, and the instructions that replace the prompt, if any.

        Raises:
            ConfigurationError: no server is known for the model, or an extra is not installed.
        """
        # These import a client and a server, which most runs do not need.
        from pytest_intercode.agents.program.episode import episode_key
        from pytest_intercode.agents.simulated_user import SimulatedUser

        self._gateway.check("a simulated user")
        key = episode_key(task)
        return SimulatedUser(prompt, task.query, model, self._gateway.open(), key, conversation)

    def close(self) -> None:
        """End the gateway; may be called twice."""
        self._gateway.close()


def has_model(task: Task) -> bool:
    """Whether a model plays the user of a task."""
    return task.conversation is not None and not task.conversation.replies


def cannot_continue(agent: str) -> str:
    """Return the message for an agent that cannot have a user.

    Args:
        agent: the agent, as the user of this package names it.
    """
    return (
        f"{agent}: this agent cannot continue after a reply, so no user can answer it; use an "
        "agent with run(task, env), `tools`, `acp:`, or an installed one whose recipe has "
        "`resume:` or `protocol: acp`"
    )


def choose_user_model(user_model: str, agent_arguments: Mapping[str, str]) -> str:
    """Return the model that plays the user: the one that a test names, or else the agent's.

    Args:
        user_model: the model that the test names; empty for none.
        agent_arguments: the values of ``--intercode-agent-arg``.

    Raises:
        ConfigurationError: neither model is known.
    """
    model = user_model or agent_arguments.get("model", "")
    if not model:
        raise ConfigurationError(
            "user=: no model is given, and the agent has no argument `model`: give user_model=NAME"
        )
    return model


def _describe_user(conversation: Conversation) -> str:
    """Return who the user is and what the user wants, for the model."""
    goal = f"What you want: {conversation.goal}" if conversation.goal else ""
    parts = filter(None, (conversation.persona.strip(), goal.strip()))
    return conversation.instructions or "\n\n".join(parts)
