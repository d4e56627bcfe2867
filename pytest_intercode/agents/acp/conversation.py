"""A conversation with an agent over ACP: initialization, a session, and prompts."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_intercode.agents.acp.connection import AgentRefused, Connection, Handler
from pytest_intercode.agents.acp.updates import Updates
from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.program.messages import JsonLines
from pytest_intercode.core.servers import address_of
from pytest_intercode.core.text import one_line, replace_surrogates
from pytest_intercode.errors import AgentError

__all__ = ["PERMISSIONS", "Conversation", "SessionSettings"]

PERMISSIONS = ("once", "always", "reject")
"""How to answer requests for permission: allow once (the default), allow always, or reject."""

_VERSION = 1  # of the protocol
_AUTHENTICATION_REQUIRED = -32000
_KINDS = {  # of the options that a request offers, in order of preference
    "once": ("allow_once", "allow_always"),
    "always": ("allow_always", "allow_once"),
    "reject": ("reject_once", "reject_always"),
}


@dataclass(frozen=True)
class SessionSettings:
    """The settings of a session, from arguments or a recipe.

    Attributes:
        permission: one of :data:`PERMISSIONS`.
        mode: the id of the session's mode; empty for the agent's default.
        auth: the id of the method by which the agent logs in; empty for none.
    """

    permission: str = PERMISSIONS[0]
    mode: str = ""
    auth: str = ""


class Conversation:
    """One session of an agent; used on the agent's thread.

    Args:
        env: the episode.
        lines: the lines that the agent writes and reads.
        updates: receives the agent's updates.
        settings: the settings of the session.
        capabilities: which files and terminals the client offers.
        handlers: the functions that carry out requests for these, by method.
        spend: called with the tokens of a prompt if the agent reports them; None if they are
            counted elsewhere.

    Attributes:
        greeted: whether the agent has answered ``initialize``.
    """

    def __init__(
        self,
        env: AgentEnvironment,
        lines: JsonLines,
        updates: Updates,
        settings: SessionSettings,
        *,
        capabilities: Mapping[str, Any] | None = None,
        handlers: Mapping[str, Handler] | None = None,
        spend: Callable[..., None] | None = None,
    ) -> None:
        self.greeted = False
        self._env = env
        self._updates = updates
        self._settings = settings
        self._capabilities = capabilities or {}
        self._spend = spend
        self._session = ""
        own_handlers: dict[str, Handler] = {"session/request_permission": self._permit}
        self._connection = Connection(lines, {**own_handlers, **(handlers or {})}, self._receive)

    def open(self, folder: str, servers: Mapping[str, str]) -> None:
        """Initialize the agent and start a session.

        Args:
            folder: the folder in which the agent works.
            servers: the command lines of MCP servers that the agent starts, or the addresses of
                other MCP servers, by name.

        Raises:
            AgentError: the agent refuses, or violates the protocol.
            BudgetExhausted: the episode is over.
        """
        reply = self._connection.request(
            "initialize",
            {
                "protocolVersion": _VERSION,
                "clientCapabilities": self._capabilities,
                "clientInfo": {
                    "name": "pytest-intercode",
                    "title": "pytest-intercode",
                    "version": importlib.metadata.version("pytest-intercode"),
                },
            },
        )
        version = reply.get("protocolVersion")
        if version != _VERSION:
            raise AgentError(
                f"the agent speaks version {version!r:.20} of ACP; supported is {_VERSION}"
            )
        self.greeted = True
        if self._settings.auth:
            self._connection.request("authenticate", {"methodId": self._settings.auth})
        self._session = self._begin(folder, servers, reply)
        if self._settings.mode:
            mode = {"sessionId": self._session, "modeId": self._settings.mode}
            self._connection.request("session/set_mode", mode)

    def converse(self, prompt: str, ask: Callable[[str], str | None]) -> None:
        """Send the agent a prompt, and then the replies of the user.

        Args:
            prompt: the prompt.
            ask: sends the user the agent's message; returns the reply, or None at the end.

        Raises:
            AgentError: the agent fails, or violates the protocol.
            BudgetExhausted: the episode is over.
        """
        reply: str | None = prompt
        while reply is not None:
            self._updates.begin()
            self._prompt(reply)
            message = replace_surrogates(self._updates.message)
            hands_back = message or not self._env.has_user  # a user needs a message
            reply = ask(message) if hands_back and self._env.is_answered else None

    def cancel(self) -> None:
        """Notify the agent that its further work does not count."""
        if self._session:
            self._connection.notify("session/cancel", {"sessionId": self._session})

    def _begin(self, folder: str, servers: Mapping[str, str], greeting: Mapping[str, Any]) -> str:
        """Start a session and return its id."""
        params = {
            "cwd": folder,
            "mcpServers": [_server_entry(name, servers[name], greeting) for name in servers],
        }
        try:
            session = self._connection.request("session/new", params).get("sessionId")
        except AgentRefused as refusal:
            if refusal.code == _AUTHENTICATION_REQUIRED:
                methods = greeting.get("authMethods")
                names = [
                    str(method.get("id"))
                    for method in (methods if isinstance(methods, list) else [])
                    if isinstance(method, dict)
                ]
                raise AgentError(
                    f"{refusal}: it needs a login; give it a key in the way it expects, or choose "
                    "a method with --intercode-agent-arg auth=... "
                    f"({', '.join(names)[:200] or 'it names none'})"
                ) from None
            raise
        if not isinstance(session, str) or not session:
            raise AgentError(f"the agent answers session/new without a sessionId: {session!r:.40}")
        return session

    def _prompt(self, text: str) -> None:
        blocks = [{"type": "text", "text": text}]
        reply = self._connection.request(
            "session/prompt", {"sessionId": self._session, "prompt": blocks}
        )
        reason = reply.get("stopReason")
        if reason != "end_turn":
            self._env.log(f"[the agent stopped: {replace_surrogates(str(reason))[:100]}]\n")
        usage = reply.get("usage")
        if self._spend is not None and isinstance(usage, dict):
            self._spend(**_tokens(usage))

    def _receive(self, params: Mapping[str, Any]) -> None:
        if params.get("sessionId") == self._session:
            self._updates.receive(params)

    def _permit(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a request for permission according to the settings; nobody is asked."""
        options = params.get("options")
        by_kind = {
            option.get("kind"): option.get("optionId")
            for option in reversed(options if isinstance(options, list) else [])
            if isinstance(option, dict) and isinstance(option.get("kind"), str)
        }
        call = params.get("toolCall")
        title = call.get("title") if isinstance(call, dict) else ""
        for kind in _KINDS[self._settings.permission]:
            if kind in by_kind:
                self._env.log(f"[permission: {kind}: {replace_surrogates(str(title))[:200]}]\n")
                return {"outcome": {"outcome": "selected", "optionId": by_kind[kind]}}
        return {"outcome": {"outcome": "cancelled"}}


def _server_entry(name: str, server: str, greeting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of an MCP server for ``session/new``.

    Args:
        name: its name.
        server: its command line or address.
        greeting: the agent's answer to ``initialize``, with the transports that it supports.

    Raises:
        AgentError: the agent does not support the server's transport.
    """
    address = address_of(server)
    if address is None:
        return {"name": name, "command": "/bin/sh", "args": ["-c", server], "env": []}
    capabilities: Any = greeting
    for key in ("agentCapabilities", "mcpCapabilities", address.transport):
        capabilities = capabilities.get(key) if isinstance(capabilities, Mapping) else None
    if capabilities is not True:
        raise AgentError(
            f"the agent does not speak to MCP servers by {address.transport}, as {name!r} at "
            f"{one_line(address.url):.80} needs"
        )
    return {"type": address.transport, "name": name, "url": address.url, "headers": []}


def _tokens(usage: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens of a prompt, as :meth:`AgentEnvironment.spend` takes them.

    Some agents include the tokens of caches in the input, and those of thoughts in the output.
    Others, such as opencode, do not: their total is the sum of all counts.
    """

    def count(key: str) -> int:
        value = usage.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    input_tokens, output_tokens = count("inputTokens"), count("outputTokens")
    read_tokens, write_tokens = count("cachedReadTokens"), count("cachedWriteTokens")
    cache_tokens, thought_tokens = read_tokens + write_tokens, count("thoughtTokens")
    if count("totalTokens") >= input_tokens + cache_tokens + output_tokens + thought_tokens:
        input_tokens += cache_tokens
        output_tokens += thought_tokens
    return {
        "input_tokens": max(input_tokens, cache_tokens),
        "output_tokens": max(output_tokens, thought_tokens),
        "cached_tokens": read_tokens,
        "cache_write_tokens": write_tokens,
        "reasoning_tokens": thought_tokens,
    }
