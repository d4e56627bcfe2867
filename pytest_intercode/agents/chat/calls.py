"""Calls of tools, as models write them: their arguments, and the message that they were in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_intercode.agents.chat.client import Answer
from pytest_intercode.agents.chat.history import Message
from pytest_intercode.system.nesting import is_too_deep

__all__ = ["message_with_calls", "parse_arguments"]


def parse_arguments(text: str) -> tuple[Mapping[str, Any], str]:
    """Return a call's arguments, and what is wrong with them."""
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
    """Return the message of the model with its calls, as servers accept it in a request.

    Some refuse arguments that are not a JSON object; the result of the call says what is wrong.
    """
    calls = []
    for call in answer.calls:
        problem = parse_arguments(call.arguments)[1]
        function = {"name": call.name, "arguments": "{}" if problem else call.arguments or "{}"}
        calls.append({"id": call.id, "type": "function", "function": function})
    return {"role": "assistant", "content": text or None, "tool_calls": calls}
