"""A model that plays the user of an agent: ``user="You are a hurried maintainer ..."``.

It is asked through a gateway, in a session of its own. So its answers are recorded and replayed
like the agent's, its tokens are the episode's, and no key is in sight.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any

from pytest_intercode.agents.chat.arguments import ChatArguments
from pytest_intercode.agents.chat.client import Caller, ChatClient
from pytest_intercode.agents.ledger import current_ledger
from pytest_intercode.errors import (
    AgentError,
    BudgetExhausted,
    ConfigurationError,
    InfrastructureError,
    TaskError,
)
from pytest_intercode.gateway.gateway import Gateway
from pytest_intercode.gateway.session import Session
from pytest_intercode.system.extras import has_extra, need

__all__ = ["SimulatedUser", "choose_user_model"]

_INSTRUCTIONS = """\
You play the user of a coding agent. You are not an assistant, and you do none of its work.

{prompt}

You asked the agent this:

{query}

What you read from now on is what the agent says to you. Reply as that user does, in a few sentences
and with nothing around your words. When the agent has done what you want, or when you have nothing
more to say, reply with the one word DONE."""
_STOP_WORD = re.compile(r"\bDONE\W*$")
_MAX_MESSAGE_CHARACTERS = 20_000  # of the agent's message that the user reads


class SimulatedUser:
    """The user of one episode.

    Args:
        prompt: who the user is and what the user wants.
        query: what the agent was asked for.
        model: the model, as the server of OpenAI's API names it.
        gateway: leads to that server.
        key: names the episode in recordings; the session has a key that is made from it.

    Raises:
        ConfigurationError: something is missing.
    """

    def __init__(self, prompt: str, query: str, model: str, gateway: Gateway, key: str) -> None:
        if not isinstance(prompt, str) or not prompt.strip():
            raise ConfigurationError(
                f"user={prompt!r:.60}: it is a text that says who the user is and what they want"
            )
        if not has_extra("chat"):
            raise ConfigurationError(need("chat", "user="))
        self._instructions = _INSTRUCTIONS.format(prompt=prompt.strip(), query=query.strip())
        self._model = model
        self._gateway = gateway
        self._key = f"{key}-user"
        self._lock = threading.Lock()
        self._closed = False
        self._parts: tuple[Session, ChatClient, Caller] | None = None
        self._messages: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        """Forget what was said."""
        self._messages = [{"role": "system", "content": self._instructions}]

    def reply(self, message: str) -> str | None:
        """Return what the user says to a message; None where the user is done.

        Raises:
            TaskError: the model's server refuses.
            InfrastructureError: no server can be reached.
            BudgetExhausted: the episode is over, or its budget is used up.
        """
        session, _, caller = self._open()
        if len(message) > _MAX_MESSAGE_CHARACTERS:
            message = f"{message[:_MAX_MESSAGE_CHARACTERS]}\n[... and more]"
        self._messages.append({"role": "user", "content": message})
        try:
            reply = caller.ask({"messages": self._messages}).text.strip()
        except AgentError as error:
            if session.exhausted:
                raise BudgetExhausted(session.exhausted) from None
            if outage := session.outage():
                raise InfrastructureError(
                    f"user=: no model could be reached for the simulated user: {outage}"
                ) from None
            raise TaskError(
                f"user=: the model {self._model!r:.60} cannot play the user: "
                f"{session.failure or error}"
            ) from None
        self._messages.append({"role": "assistant", "content": reply})
        return None if not reply or _STOP_WORD.search(reply) else reply

    def stop(self) -> None:
        """End a request that runs, from any thread; the user says nothing more."""
        with self._lock:
            self._closed = True
            parts = self._parts
        if parts is not None:
            parts[2].abort()

    def close(self) -> None:
        """End the session; may be called twice."""
        self.stop()
        with self._lock:
            parts, self._parts = self._parts, None
        if parts is not None:
            session, client, _ = parts
            client.close()
            session.close()

    def _open(self) -> tuple[Session, ChatClient, Caller]:
        """Return the session and the client, which are made for the first message.

        The ledger is that of the episode on whose thread this is; nobody is asked before.
        """
        with self._lock:
            if self._closed:
                raise BudgetExhausted("the episode is over")
            if self._parts is None:
                ledger = current_ledger().get()
                spend = ledger.spend if ledger is not None else _spend_nothing
                session = self._gateway.open(self._key, spend=spend)
                arguments = ChatArguments(
                    self._model, base_url=session.url("openai"), api_key=session.token
                )
                client = ChatClient(arguments)
                self._parts = session, client, Caller(client)
            return self._parts


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


def _spend_nothing(**usage: Any) -> None:
    """Without an episode, nobody counts."""
