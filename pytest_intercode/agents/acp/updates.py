"""What an agent reports while it works: its words, plans and tool calls, for the trajectory."""

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
_MAX_CHARACTERS = 64 * 1024  # of what it said, that are kept
_MAX_ARGUMENTS = 20_000  # characters of what a tool was called with
_MAX_PLAN_ENTRIES = 50
_ENDS = ("completed", "failed")
_KINDS = (
    *("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"),
    "other",
)


@dataclass
class _ToolCall:
    """A tool call that the agent has begun.

    Attributes:
        kind: one of the protocol's kinds of tools.
        title: what it does, for people.
        arguments: what the tool was called with, as far as that is known.
        output: what came of it.
        served: a command of a terminal of ours did it, which is a turn already.
    """

    kind: str = "other"
    title: str = ""
    arguments: object = None
    output: str = ""
    served: bool = False

    def merge(self, update: Mapping[str, Any]) -> None:
        """Take over what an update says; what it leaves out stays."""
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
        """The call as the trajectory has it: the command of a shell, or ``NAME(ARGUMENTS)``."""
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
        env: the episode, whose trajectory they go into.
        take_turns: a tool call that is not ours is a turn; False where the gateway knows the turns.
    """

    def __init__(self, env: AgentEnvironment, *, take_turns: bool) -> None:
        self._env = env
        self._take_turns = take_turns
        self._calls: dict[str, _ToolCall] = {}
        self._message = self._thought = self._plan = ""

    @property
    def message(self) -> str:
        """What the agent has said since its last tool call."""
        return self._message.strip()

    def begin(self) -> None:
        """Begin another prompt: what was said before is not its answer."""
        self._message = ""

    def receive(self, params: Mapping[str, Any]) -> None:
        """Take one ``session/update``; what this version does not know is nothing to it.

        Raises:
            AgentError: too much is open.
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
        """Note that a command of a terminal of ours begins, as a turn."""
        # The protocol does not say which of them the command is of.
        open_calls = list(self._calls.values())
        for call in [call for call in open_calls if call.kind == "execute"] or open_calls:
            call.served = True
        self._env.think(self.take_thought())

    def take_thought(self) -> str:
        """Return what it thought and said before what it does now."""
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
            return  # it has ended already
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
    """Return the text of a content block; nothing of a picture or a sound."""
    if not isinstance(content, dict):
        return ""
    return _as_text(content.get("text") or content.get("uri") or "")


def _block_text(block: Mapping[str, Any]) -> str:
    """Return the text of a block of what a tool call produced."""
    if block.get("type") == "diff":
        return f"[changed {_as_text(block.get('path')):.300}]"
    return _content_text(block.get("content"))


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _clipped(arguments: object) -> object:
    """Return the arguments of a tool call, without what is too long for the trajectory."""
    if isinstance(arguments, dict):
        arguments = {
            key: clip_text(value) if isinstance(value, str) else value
            for key, value in arguments.items()
        }
    text = _as_text(arguments)
    return arguments if len(text) <= _MAX_ARGUMENTS else clip_text(text)
