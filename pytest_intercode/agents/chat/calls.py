"""Tool calls as models write them: their arguments, and the message that contains them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pytest_intercode.agents.chat.client import Answer
from pytest_intercode.agents.chat.history import Message
from pytest_intercode.system.nesting import is_too_deep

__all__ = ["message_with_calls", "parse_arguments"]

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 64  # characters


def parse_arguments(text: str) -> tuple[Mapping[str, Any], str]:
    """Return a call's arguments, and what is wrong with them (empty if nothing is)."""
    too_deep = f"the arguments of the call are nested too deeply: {text[:200]!r}"
    try:
        arguments = json.loads(text) if text.strip() else {}
    except ValueError as error:
        return {}, f"the arguments of the call are not JSON ({error}): {text[:200]!r}"
    except RecursionError:
        return {}, too_deep
    if is_too_deep(arguments):
        return {}, too_deep
    if not isinstance(arguments, dict):
        return {}, f"the arguments of the call are not a JSON object: {text[:200]!r}"
    return arguments, ""


def message_with_calls(text: str, answer: Answer) -> Message:
    """Return the model's message with its calls, in a form that servers accept in a request.

    Some refuse arguments that are not a JSON object, and invalid tool names such as
    ``multi_tool_use.parallel``; the call's result tells the model what is wrong.
    """
    calls = []
    for call in answer.calls:
        problem = parse_arguments(call.arguments)[1]
        name = _NOT_IN_NAMES.sub("_", call.name)[:_MAX_NAME] or "unnamed"
        function = {"name": name, "arguments": "{}" if problem else call.arguments or "{}"}
        calls.append({"id": call.id, "type": "function", "function": function})
    return {"role": "assistant", "content": text or None, "tool_calls": calls}
