"""The messages of an episode that are sent to a model again, within a limit that the user sets.

The system message, the task and a plan are always sent. The others form turns: an answer of the
model with everything that was sent in return, so the results of tool calls stay with the answer.
While the turns exceed the limit, the oldest is left out as a whole, and a notice says how many were
left out; the latest turn is always sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["History", "Message", "clip"]

Message: TypeAlias = "dict[str, Any]"


def clip(text: str, limit: int) -> str:
    """Return a text; replace its middle with a notice if it is longer than the limit."""
    if len(text) <= limit:
        return text
    left_out = len(text) - limit
    head = limit // 2
    notice = f"\n[... {left_out} characters are left out here ...]\n"
    return text[:head] + notice + text[len(text) - (limit - head) :]


class History:
    """The messages of one episode.

    Args:
        limit: characters of past turns that are sent.
        head: the messages that are always sent; the last one is the user's.
    """

    def __init__(self, limit: int, head: Sequence[Message]) -> None:
        self._limit = limit
        self._head = list(head)
        self._turns: list[list[Message]] = []

    def pin(self, *messages: Message) -> None:
        """Add messages that are always sent; only before the first turn."""
        assert not self._turns
        self._head.extend(messages)

    def add(self, answer: Message, results: Sequence[Message]) -> None:
        """Add a turn: the model's answer, and the messages sent in return."""
        if isinstance(answer.get("content"), str):
            answer = {**answer, "content": clip(answer["content"], self._limit)}
        self._turns.append([answer, *results])

    def extend(self, text: str) -> None:
        """Add a text to the last message of the latest turn."""
        last = self._turns[-1][-1]
        last["content"] = f"{last['content']}\n\n{text}"

    def messages(self) -> list[Message]:
        """Return the messages to send."""
        recent_turns: list[list[Message]] = []
        size = 0
        for turn in reversed(self._turns):
            size += sum(map(_size, turn))
            if recent_turns and size > self._limit:
                break
            recent_turns.insert(0, turn)
        head = list(self._head)
        left_out = len(self._turns) - len(recent_turns)
        if left_out:
            notice = f"[{left_out} earlier turn{'s' * (left_out > 1)} left out here]"
            head[-1] = {**head[-1], "content": f"{head[-1]['content']}\n\n{notice}"}
        return [*head, *(message for turn in recent_turns for message in turn)]


def _size(message: Mapping[str, Any]) -> int:
    size = len(message.get("content") or "")
    for call in message.get("tool_calls", ()):
        size += len(call["function"]["name"]) + len(call["function"]["arguments"])
    return size
