"""A conversation between an agent and its user: who answers, and the messages. Pure data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pytest_intercode.core.line import in_line

__all__ = [
    "STOP_WORD",
    "UNSCRIPTED",
    "CallTool",
    "Conversation",
    "Exchange",
    "Reply",
    "group_by_turn",
]

CallTool: TypeAlias = Callable[[str, Mapping[str, Any]], str]
"""Calls a tool of the user with a name and arguments, and returns the tool's answer."""

STOP_WORD = "DONE"
"""The last word of a simulated user, unless the task sets another one."""


@dataclass(frozen=True)
class Conversation:
    """Who answers the agent of a task: replies in their order, or a model that plays the user.

    Attributes:
        replies: what the user says, in order; empty for a model.
        persona: who the user is, for the model.
        goal: what the user wants, for the model; the agent is not given it.
        model: the model that plays the user; empty for the run's model.
        stop: words with which the model ends the conversation, each at the end of a reply.
        max_turns: replies that the agent gets from the model; None for as many as it has turns.
        instructions: the model's whole prompt, in place of our sentences around the persona.
        opening: a message sent for the agent before it begins; the reply is added to its query.
        stops_anywhere: whether a stop word anywhere in a reply ends the conversation.
    """

    replies: tuple[str, ...] = ()
    persona: str = ""
    goal: str = ""
    model: str = ""
    stop: tuple[str, ...] = (STOP_WORD,)
    max_turns: int | None = None
    instructions: str = ""
    opening: str = ""
    stops_anywhere: bool = False


UNSCRIPTED = Conversation()
"""A conversation whose user has neither replies nor a persona."""


class Reply(str):
    """A user's message to an agent.

    Attributes:
        is_last: whether the user ends the conversation with it; then the agent does not get it.
    """

    is_last: bool

    def __new__(cls, text: str, *, is_last: bool = False) -> Reply:
        """Make a reply."""
        reply = super().__new__(cls, text)
        reply.is_last = is_last
        return reply


@dataclass(frozen=True)
class Exchange:
    """A message of an agent to its user, and the user's reply.

    Attributes:
        turn: how many turns the agent had taken before it.
        message: the agent's message.
        reply: the user's reply; None if nobody answered.
        is_last: whether the user ended the conversation with the reply, which the agent did not
            get.
    """

    turn: int
    message: str = field(metadata=in_line(printed=True))
    reply: str | None = field(default=None, metadata=in_line(printed=True))
    is_last: bool = False

    @property
    def answer(self) -> str | None:
        """The reply that the agent got; None if it got none."""
        return None if self.is_last else self.reply


def group_by_turn(dialogue: Sequence[Exchange], turn_count: int) -> dict[int, list[Exchange]]:
    """Group exchanges by the number of turns that were taken before them.

    Args:
        dialogue: the exchanges, in order.
        turn_count: the episode's number of turns; later numbers in a file are reduced to it.
    """
    groups: dict[int, list[Exchange]] = {}
    for exchange in dialogue:
        groups.setdefault(min(max(0, exchange.turn), turn_count), []).append(exchange)
    return groups
