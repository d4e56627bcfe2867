"""The MCP server of one episode: the tools ``execute`` and ``submit``, on the official SDK.

Imports the SDK, so it is imported only when an episode is served.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any, Literal

import mcp.types as types
from mcp.server.lowlevel.server import Server

from pytest_intercode.agents.mcp import wording
from pytest_intercode.agents.mcp.calls import Calls, Reply
from pytest_intercode.core.task import TaskView

__all__ = ["make_server"]

_META = "pytest-intercode/result"


def make_server(task: TaskView, calls: Calls, turns_left: Callable[[], int]) -> Server[Any]:
    """Return the server of an episode.

    Args:
        task: the task.
        calls: where calls go.
        turns_left: how many turns the agent has now.
    """

    async def on_list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_tools(task, turns_left()))

    async def on_call_tool(
        _context: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return _result(await _call(calls, params.name, params.arguments or {}))

    return Server(
        "intercode",
        version=importlib.metadata.version("pytest-intercode"),
        title="pytest-intercode",
        instructions=wording.instructions(task),
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )


async def _call(calls: Calls, name: str, arguments: dict[str, Any]) -> Reply:
    tools: dict[str, tuple[Literal["execute", "submit"], str, str | None]] = {
        "execute": ("execute", "code", None),
        "submit": ("submit", "answer", ""),
    }
    if name not in tools:
        return Reply((f"There is no tool {name!r}: there are execute and submit.",), error=True)
    tool, key, default = tools[name]
    unknown = next((other for other in arguments if other != key), None)
    if unknown is not None:
        said = f"{tool} takes {key} and nothing else; found {unknown!r}. Nothing was run."
        return Reply((said,), error=True)
    text = arguments.get(key, default)
    if text is None and default is not None:
        text = default  # some agents send null for what they leave out
    if not isinstance(text, str):
        found = "nothing" if text is None else f"{text!r:.60}"
        said = f"{tool} takes {key}, a string; found {found}. Nothing was run."
        return Reply((said,), error=True)
    return await calls.ask(tool, text)


def _result(reply: Reply) -> types.CallToolResult:
    texts = (text.encode("utf-8", "replace").decode("utf-8") for text in reply.texts)
    facts = {
        key: value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
        for key, value in reply.facts.items()
    }
    # Facts for programs go where no model sees them: structured content would be shown to it too.
    return types.CallToolResult(
        content=[types.TextContent(text=text) for text in texts],
        is_error=reply.error,
        _meta={_META: facts} if facts else None,
    )


def _tools(task: TaskView, turns_left: int) -> list[types.Tool]:
    # True, as all that is done is done in a sandbox; agents ask their user about other tools.
    hints = types.ToolAnnotations(
        read_only_hint=False, destructive_hint=False, open_world_hint=False
    )
    return [
        types.Tool(
            name="execute",
            description=wording.describe_execute(task, turns_left),
            input_schema={
                "type": "object",
                "properties": {"code": {"type": "string", "description": wording.language(task)}},
                "required": ["code"],
                "additionalProperties": False,
            },
            annotations=hints,
        ),
        types.Tool(
            name="submit",
            description=wording.describe_submit(task),
            input_schema={
                "type": "object",
                "properties": {
                    "answer": {
                        "type": "string",
                        "description": wording.describe_answer(task),
                        "default": "",
                    }
                },
                "additionalProperties": False,
            },
            annotations=hints,
        ),
    ]
