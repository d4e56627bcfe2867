"""Bash with a user who answers and with MCP servers, for tests of agents that can do with both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_intercode.agents.answers import Answers
from pytest_intercode.core.task import FileSpec, Task
from pytest_intercode.environments.bash.fields import BashFields
from pytest_intercode.environments.bash.strict import BashEnvironment
from pytest_intercode.environments.mcp_servers import start_servers
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.support.model_server import Command, Request, Step, Tool

__all__ = ["TICKETS", "TalkingBash", "call_tool", "converse", "make_talking", "task_with_servers"]

TICKETS = Path(__file__).with_name("ticket_server.py")
"""An MCP server, of the standard library alone; its tool ``count_tickets`` says ``41 tickets``."""


@dataclass(frozen=True)
class FieldsWithServers(BashFields):
    mcp: Mapping[str, str] = field(default_factory=dict)

    def view(self) -> Mapping[str, Any]:
        return {"mcp": self.mcp}


class TalkingBash(BashEnvironment):
    """Bash whose servers are tried first."""

    def start(self, task: Task) -> None:
        super().start(task)
        start_servers(self, task.view().mcp)


def make_talking(
    provider: SandboxProvider, answers: Answers
) -> Callable[[RolloutSpec], TalkingBash]:
    """Return what makes the environment of a rollout."""

    def make(spec: RolloutSpec) -> TalkingBash:
        environment = TalkingBash(provider, max_turns=spec.max_turns)
        environment.user = answers
        return environment

    return make


def task_with_servers(servers: Mapping[str, str], **more: Any) -> Task:
    """Return a task whose directory has ``server.py``, the server of tickets."""
    fields: dict[str, Any] = {
        "id": "t",
        "suite": "s",
        "dataset": "s",
        "env": "bash",
        "query": "Count the tickets.",
        "gold": ("echo 41 >x",),
        "workdir": "/w",
        "files": {"server.py": FileSpec("file", TICKETS.read_bytes())},
        "fields": FieldsWithServers(mcp=servers),
        **more,
    }
    return Task(**fields)


def converse(steps: Sequence[str | Command], replies: Sequence[str]) -> Callable[[Request], Any]:
    """Return a script that goes on with each reply of the user's, as with each result of a tool."""

    def choose_step(request: Request) -> str | Command:
        heard = sum(reply in request.text for reply in replies)
        return steps[min(len(request.results) + heard, len(steps) - 1)]

    return choose_step


def call_tool(
    server: str, name: str, *steps: str | Command, **arguments: Any
) -> Callable[[Request], Any]:
    """Return a script that calls a tool of an MCP server, as the client offers it, then steps."""

    def choose_step(request: Request) -> str | Command | Step:
        count = len(request.results)
        if count:
            return steps[min(count, len(steps)) - 1]
        return Step(calls=(_find_tool(request, server, name, arguments),))

    return choose_step


def _find_tool(request: Request, server: str, name: str, arguments: Mapping[str, Any]) -> Tool:
    tools = request.body.get("tools", [])
    for tool in tools:
        full_name = str(tool.get("function", tool).get("name"))
        if tool.get("type") == "namespace" and full_name.endswith(server):  # Codex
            return Tool(name, arguments, full_name)
    for function in request.functions:
        full_name = str(function.get("name"))
        if server in full_name and full_name.endswith(name):
            return Tool(full_name, arguments)
    if any(tool.get("function", tool).get("name") == "tool_call" for tool in tools):  # Qwen Code
        return Tool("tool_call", {"name": f"mcp__{server}__{name}", "arguments": arguments})
    raise LookupError(f"there is no tool {name} of {server}")
