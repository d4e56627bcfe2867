"""The users of a run's tasks: who answers an agent that hands back, made for each episode."""

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
    """Makes the user of each episode; models that play them are behind one gateway.

    Args:
        settings: of that gateway; by default those of the environment's variables.
        model: the model of the run, which comes before those that tasks name; empty for none.
    """

    def __init__(self, settings: GatewaySettings | None = None, model: str = "") -> None:
        self._gateway = LazyGateway(settings)
        self._model = model

    def make(self, task: Task) -> Answers:
        """Return the user of a task's episode; to be closed.

        Raises:
            ConfigurationError: no model is named that is to play the user, or it is out of reach.
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
        """Return the model that plays the user of a task; empty where none is named."""
        return self._model or (task.conversation.model if task.conversation is not None else "")

    def check(self, task: Task) -> None:
        """See that a task can have its user, before anything is started.

        Raises:
            ConfigurationError: as for :meth:`make`.
        """
        if not has_model(task):
            return
        subject = f"{task.source or 'a task of your own'}: task {task.id!r}: user"
        if not self.model_of(task):
            raise ConfigurationError(
                f"{subject}: which model plays the user? Name it by --intercode-user-model=NAME, "
                "or by `model` in the suite"
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
            conversation: how it ends, and what the model is told in place of the prompt.

        Raises:
            ConfigurationError: no server is known for it, or an extra is not installed.
        """
        # They import a client and a server, which most runs need for nothing.
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
    """Return why an agent cannot have a user.

    Args:
        agent: how the user of this package names it.
    """
    return (
        f"{agent}: this agent cannot go on with a reply, so no user can answer it; those can that "
        "have run(task, env), `tools`, `acp:`, and installed ones whose recipe has `resume:` or "
        "`protocol: acp`"
    )


def choose_user_model(user_model: str, agent_arguments: Mapping[str, str]) -> str:
    """Return the model that plays the user: the one that a test names, or else the agent's.

    Args:
        user_model: the test's; empty for none.
        agent_arguments: those of ``--intercode-agent-arg``.

    Raises:
        ConfigurationError: neither is known.
    """
    model = user_model or agent_arguments.get("model", "")
    if not model:
        raise ConfigurationError(
            "user=: which model plays the user? The agent has no argument `model`, so name it: "
            "user_model=NAME"
        )
    return model


def _describe_user(conversation: Conversation) -> str:
    """Return who the user is and what the user wants, for the model."""
    goal = f"What you want: {conversation.goal}" if conversation.goal else ""
    parts = filter(None, (conversation.persona.strip(), goal.strip()))
    return conversation.instructions or "\n\n".join(parts)
