"""The updates that an agent sends while it works (text, plans, tool calls), for the trajectory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_intercode.agents.agent_environment import AgentEnvironment, clip_text
from pytest_intercode.core.text import replace_surrogates
from pytest_intercode.errors import AgentError

__all__ = ["Updates"]

_MAX_OPEN_CALLS = 1000
_MAX_CHARACTERS = 64 * 1024  # of a message, and of a thought, are kept
_MAX_ARGUMENTS = 20_000  # characters of a tool call's arguments
_MAX_PLAN_ENTRIES = 50
_ENDS = ("completed", "failed")
_KINDS = (
    *("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"),
    "other",
)


@dataclass
class _ToolCall:
    """A tool call that the agent has started.

    Attributes:
        kind: one of the protocol's kinds of tools.
        title: a description for people.
        arguments: the arguments of the call, as far as they are known.
        output: the result of the call.
        served: whether a command in one of our terminals did it, which is already a turn.
    """

    kind: str = "other"
    title: str = ""
    arguments: object = None
    output: str = ""
    served: bool = False

    def merge(self, update: Mapping[str, Any]) -> None:
        """Apply an update; values that it leaves out do not change."""
        if update.get("kind") in _KINDS:
            self.kind = str(update["kind"])
        if isinstance(update.get("title"), str):
            self.title = clip_text(update["title"])
        if update.get("rawInput"):
            self.arguments = _clipped(update["rawInput"])
        blocks = [block for block in _list(update.get("content")) if isinstance(block, dict)]
        self.served = self.served or any(block.get("type") == "terminal" for block in blocks)
        texts = [_block_text(block) for block in blocks]
        if "rawOutput" in update and not any(texts):
            texts = [_as_text(update["rawOutput"])]
        if any(texts):
            self.output = clip_text("\n".join(filter(None, texts)))

    @property
    def action(self) -> str:
        """The call as an action of the trajectory: a shell command, or ``KIND(ARGUMENTS)``."""
        if self.kind == "execute" and isinstance(self.arguments, dict):
            command = self.arguments.get("command")
            if isinstance(command, str):
                return command
            if isinstance(command, list) and command and all(isinstance(w, str) for w in command):
                return str(command[-1]) if command[1:2] in (["-c"], ["-lc"]) else " ".join(command)
        arguments = self.arguments if self.arguments is not None else {"title": self.title}
        return f"{self.kind}({json.dumps(arguments, ensure_ascii=False)})"


class Updates:
    """The updates of one session.

    Args:
        env: the episode, to whose trajectory they are added.
        take_turns: whether a tool call that we did not carry out is a turn; False if the turns are
            read from the gateway's exchanges.
    """

    def __init__(self, env: AgentEnvironment, *, take_turns: bool) -> None:
        self._env = env
        self._take_turns = take_turns
        self._calls: dict[str, _ToolCall] = {}
        self._message = self._thought = self._plan = ""

    @property
    def message(self) -> str:
        """The text that the agent has sent since its last tool call."""
        return self._message.strip()

    def begin(self) -> None:
        """Start another prompt: earlier text is not part of its answer."""
        self._message = ""

    def receive(self, params: Mapping[str, Any]) -> None:
        """Process one ``session/update``; ignore unknown kinds of updates.

        Raises:
            AgentError: too many tool calls are open.
        """
        update = params.get("update")
        if not isinstance(update, dict):
            return
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            self._message = _append(self._message, _content_text(update.get("content")))
        elif kind == "agent_thought_chunk":
            self._thought = _append(self._thought, _content_text(update.get("content")))
        elif kind == "plan":
            self._note_plan(update)
        elif kind in ("tool_call", "tool_call_update"):
            self._note_call(update)

    def begin_command(self) -> None:
        """Note that a command starts in one of our terminals, as a turn."""
        # The protocol does not say to which open call the command belongs.
        open_calls = list(self._calls.values())
        for call in [call for call in open_calls if call.kind == "execute"] or open_calls:
            call.served = True
        self._env.think(self.take_thought())

    def take_thought(self) -> str:
        """Return and clear the thoughts and text that precede the agent's next action."""
        parts = (self._thought.strip(), self._message.strip())
        self._thought = self._message = ""
        return replace_surrogates("\n".join(filter(None, parts)))

    def _note_plan(self, update: Mapping[str, Any]) -> None:
        entries = [entry for entry in _list(update.get("entries")) if isinstance(entry, dict)]
        lines = [
            f"- [{entry.get('status', 'pending')!s:.20}] {_as_text(entry.get('content'))[:200]}"
            for entry in entries[:_MAX_PLAN_ENTRIES]
        ]
        plan = "\n".join(["[plan]", *lines, ""])
        if plan != self._plan:
            self._plan = plan
            self._env.log(replace_surrogates(plan))

    def _note_call(self, update: Mapping[str, Any]) -> None:
        number = str(update.get("toolCallId"))[:200]
        is_new = update.get("sessionUpdate") == "tool_call"
        if not is_new and number not in self._calls:
            return  # it has already ended
        if len(self._calls) >= _MAX_OPEN_CALLS:
            raise AgentError(f"the agent has {_MAX_OPEN_CALLS:,} tool calls that do not end")
        call = self._calls.setdefault(number, _ToolCall())
        call.merge(update)
        if update.get("status") not in _ENDS:
            return
        del self._calls[number]
        thought = "" if call.served else self.take_thought()
        self._message = ""
        if self._take_turns and not call.served:
            self._env.record_turn(
                replace_surrogates(call.action),
                replace_surrogates(call.output),
                thought=thought,
                tool=call.kind,
            )


def _append(text: str, more: str) -> str:
    return (text + more)[:_MAX_CHARACTERS]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _content_text(content: object) -> str:
    """Return the text of a content block; images and audio have none."""
    if not isinstance(content, dict):
        return ""
    return _as_text(content.get("text") or content.get("uri") or "")


def _block_text(block: Mapping[str, Any]) -> str:
    """Return the text of a block in a tool call's result."""
    if block.get("type") == "diff":
        return f"[changed {_as_text(block.get('path')):.300}]"
    return _content_text(block.get("content"))


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _clipped(arguments: object) -> object:
    """Shorten the arguments of a tool call that are too long for the trajectory."""
    if isinstance(arguments, dict):
        arguments = {
            key: clip_text(value) if isinstance(value, str) else value
            for key, value in arguments.items()
        }
    text = _as_text(arguments)
    return arguments if len(text) <= _MAX_ARGUMENTS else clip_text(text)
