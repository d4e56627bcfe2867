"""A conversation of an agent with its user: who answers, and what was said. Pure data."""

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
"""Calls a tool of a user's, by its name and its arguments, and returns what it says."""

STOP_WORD = "DONE"
"""What a simulated user says last, where a task does not say otherwise."""


@dataclass(frozen=True)
class Conversation:
    """Who answers the agent of a task: replies in their order, or a model that plays the user.

    Attributes:
        replies: what the user says, in order; empty for a model.
        persona: who the user is, for the model.
        goal: what the user wants, for the model; the agent is not given it.
        model: the model; empty for the one of the run.
        stop: words by which the model ends the conversation, each at the end of a reply.
        max_turns: replies that the agent gets from the model; None for as many as it has turns.
        instructions: all that the model is told, in place of our sentences around the persona.
        opening: what is said in the agent's name before it begins; the reply is its query's end.
        stops_anywhere: a stop word ends the conversation wherever it is in a reply.
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
"""A user without a task."""


class Reply(str):
    """What a user says to an agent.

    Attributes:
        is_last: the user ends the conversation with it, so that the agent does not get it.
    """

    is_last: bool

    def __new__(cls, text: str, *, is_last: bool = False) -> Reply:
        """Make a reply."""
        reply = super().__new__(cls, text)
        reply.is_last = is_last
        return reply


@dataclass(frozen=True)
class Exchange:
    """What an agent said to its user, and what the user said.

    Attributes:
        turn: how many turns the agent had taken by then.
        message: what the agent said.
        reply: what the user said; None where nobody answered.
        is_last: the user ended the conversation with the reply, which the agent did not get.
    """

    turn: int
    message: str = field(metadata=in_line(printed=True))
    reply: str | None = field(default=None, metadata=in_line(printed=True))
    is_last: bool = False

    @property
    def answer(self) -> str | None:
        """What the agent got; None where that was nothing."""
        return None if self.is_last else self.reply


def group_by_turn(dialogue: Sequence[Exchange], turn_count: int) -> dict[int, list[Exchange]]:
    """Return what was said by the number of turns that were taken by then.

    Args:
        dialogue: what was said, in order.
        turn_count: of the episode; nothing that a file says is later than that.
    """
    groups: dict[int, list[Exchange]] = {}
    for exchange in dialogue:
        groups.setdefault(min(max(0, exchange.turn), turn_count), []).append(exchange)
    return groups
