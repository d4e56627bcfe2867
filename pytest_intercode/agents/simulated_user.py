"""A model that plays the user of an agent: ``user="You are a hurried maintainer ..."``.

It is reached through a gateway, in a separate session. So its answers are recorded and replayed
like the agent's, its usage is counted separately from the agent's, and no key is visible.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_intercode.agents.chat.arguments import ChatArguments
from pytest_intercode.agents.chat.calls import message_with_calls, parse_arguments
from pytest_intercode.agents.chat.client import Answer, Caller, ChatClient, RequestRefused
from pytest_intercode.agents.ledger import current_ledger
from pytest_intercode.core.conversation import UNSCRIPTED, CallTool, Conversation, Reply
from pytest_intercode.errors import (
    AgentError,
    BudgetExhausted,
    ConfigurationError,
    InfrastructureError,
)
from pytest_intercode.gateway.gateway import Gateway
from pytest_intercode.gateway.session import Session

__all__ = ["SimulatedUser"]

_INSTRUCTIONS = """\
You play the user of an agent. You are not an assistant, and you do none of its work.

{prompt}

You asked the agent this:

{query}

What you read from now on is what the agent says to you. Reply as that user does, in a few sentences
and with nothing around your words. When the agent has done what you want, or when you have nothing
more to say, end your reply with {stop}"""
_MAX_MESSAGE_CHARACTERS = 20_000  # the user reads no more of an agent's message
_MAX_ROUNDS = 100  # consecutive answers with tool calls
_PROBE = "Hello."  # a message that no server has a reason to refuse


class SimulatedUser:
    """The user of one episode.

    Args:
        prompt: who the user is and what the user wants.
        query: what the agent was asked for.
        model: the model, as the server of OpenAI's API names it.
        gateway: leads to that server.
        key: identifies the episode in recordings; the session's key is derived from it.
        conversation: its stop words end the conversation; they are searched for only in the user's
            messages, never in the agent's. Its instructions, if any, replace ours.

    Raises:
        ConfigurationError: something is missing.
    """

    def __init__(
        self,
        prompt: str,
        query: str,
        model: str,
        gateway: Gateway,
        key: str,
        conversation: Conversation = UNSCRIPTED,
    ) -> None:
        if not isinstance(prompt, str) or not prompt.strip():
            raise ConfigurationError(
                f"user={prompt!r:.60}: it has to be a text that says who the user is and what "
                "they want"
            )
        self._instructions = conversation.instructions or _INSTRUCTIONS.format(
            prompt=prompt.strip(), query=query.strip(), stop=_describe_stop(conversation.stop)
        )
        words = "|".join(map(re.escape, conversation.stop))
        pattern = words if conversation.stops_anywhere else rf"(?<!\w)(?:{words})\W*$"
        self._stop_words = re.compile(pattern)
        self._tools: Sequence[Mapping[str, Any]] = ()
        self._call: CallTool = lambda name, arguments: ""
        self._model = model
        self._name = f"the model {model!r:.60} that plays the user"
        self._gateway = gateway
        self._key = f"{key}-user"
        self._lock = threading.Lock()
        self._stopped = False
        self._parts: tuple[Session, ChatClient, Caller] | None = None
        self._messages: list[dict[str, Any]] = []
        self.restart()

    def give_tools(self, tools: Sequence[Mapping[str, Any]], call: CallTool) -> None:
        """Let the user call tools between two messages; see :meth:`Answers.give_tools`."""
        self._tools, self._call = tools, call

    def _make_calls(self, answer: Answer) -> None:
        """Make the calls that the model asks for; the agent does not see them.

        Raises:
            BudgetExhausted: the episode is over; these calls also count toward its budget.
        """
        self._messages.append(message_with_calls(answer.text, answer))
        for call in answer.calls:
            arguments, problem = parse_arguments(call.arguments)
            result = f"Error: {problem}" if problem else self._call(call.name, arguments)
            self._messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    def restart(self) -> None:
        """Forget the conversation; the next message opens a new session."""
        self._end_session()
        self._messages = [{"role": "system", "content": self._instructions}]

    def reply(self, message: str) -> Reply | None:
        """Return the user's reply to a message, or None for no reply.

        Raises:
            InfrastructureError: the model fails, or cannot be reached.
            AgentError: the model refuses the agent's messages, but accepts others.
            BudgetExhausted: the episode is over, or the run's budget is used up.
        """
        session, _, caller = self._open()
        if len(message) > _MAX_MESSAGE_CHARACTERS:
            message = f"{message[:_MAX_MESSAGE_CHARACTERS]}\n[... and more]"
        self._messages.append({"role": "user", "content": message})
        text = self._ask(session, caller).text.strip()
        self._messages.append({"role": "assistant", "content": text})
        return Reply(text, is_last=bool(self._stop_words.search(text))) if text else None

    def _ask(self, session: Session, caller: Caller) -> Answer:
        """Ask the model until it answers without a tool call; make the calls in between."""
        tools = {"tools": self._tools} if self._tools else {}
        for _ in range(_MAX_ROUNDS):
            try:
                answer = caller.ask({"messages": self._messages, **tools})
            except AgentError as error:
                raise self._fault(error, session, caller) from None
            if not (answer.calls and tools):
                return answer
            self._make_calls(answer)
        raise InfrastructureError(
            f"{self._name} fails: it calls tools in {_MAX_ROUNDS} answers, one after the other"
        )

    def stop(self) -> None:
        """Abort a running request, from any thread; the user gives no further replies."""
        with self._lock:
            self._stopped = True
            parts = self._parts
        if parts is not None:
            parts[2].abort()

    def close(self) -> None:
        """End the session; may be called twice."""
        self.stop()
        self._end_session()

    def _end_session(self) -> None:
        with self._lock:
            parts, self._parts = self._parts, None
        if parts is not None:
            session, client, _ = parts
            client.close()
            session.close()

    def _open(self) -> tuple[Session, ChatClient, Caller]:
        """Return the session and the client; they are created for the first message.

        Usage goes to the ledger of the episode on whose thread this is called.
        """
        with self._lock:
            if self._stopped:
                raise BudgetExhausted("the episode is over")
            if self._parts is None:
                ledger = current_ledger().get()
                spend = ledger.spend_for_user if ledger is not None else _spend_nothing
                session = self._gateway.open(self._key, spend=spend)
                arguments = ChatArguments(
                    self._model, base_url=session.url("openai"), api_key=session.token
                )
                client = ChatClient(arguments)
                self._parts = session, client, Caller(client)
            return self._parts

    def _fault(self, error: AgentError, session: Session, caller: Caller) -> Exception:
        """Return the exception for a missing reply, depending on whose fault it is."""
        if session.exhausted:
            return BudgetExhausted(session.exhausted)
        name = self._name
        if outage := session.outage():
            return InfrastructureError(f"{name} cannot be reached: {outage}")
        if not session.failure and self._refuses_agent(error, caller):
            return AgentError(f"{name} refuses what the agent said, and nothing else: {error}")
        return InfrastructureError(f"{name} fails: {session.failure or error}")

    def _refuses_agent(self, error: AgentError, caller: Caller) -> bool:
        """Whether the model answers once the agent's words, possibly too many, are left out.

        Otherwise an agent could end every episode that goes badly for it without a grade.
        """
        if not (isinstance(error, RequestRefused) and error.may_be_for_content):
            return False
        system, *_ = self._messages
        try:
            caller.ask({"messages": [system, {"role": "user", "content": _PROBE}]})
        except AgentError:
            return False
        return True


def _describe_stop(words: Sequence[str]) -> str:
    """Return the phrase of the instructions that names the words that end the conversation."""
    if len(words) == 1 and words[0].isalnum():
        return f"the one word {words[0]}."
    return f"this, as it is written here: {' or '.join(words)}"


def _spend_nothing(**usage: Any) -> None:
    """Outside of an episode, usage is not counted."""
