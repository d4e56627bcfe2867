"""Recipes: where the program of an installed agent comes from and how to run it; read from YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pytest_intercode.agents.acp.conversation import PERMISSIONS, SessionSettings
from pytest_intercode.core.presets import PRESETS
from pytest_intercode.core.servers import STDIO, TRANSPORTS, address_of, transport_of
from pytest_intercode.errors import AgentError, AgentLoadError, SuiteError, suggestion
from pytest_intercode.suites.yaml_files import read_yaml

__all__ = [
    "MODEL",
    "PLACEHOLDERS",
    "Recipe",
    "ServerForm",
    "executables",
    "fill",
    "load_recipe",
    "recipe_names",
]

MODEL = "MODEL"
"""Stands for the name of a model in the docs, and in the files that ``init`` writes."""

PLACEHOLDERS = {
    "prompt": "the task, with words on what is graded and on where the answer goes",
    "query": "the task alone",
    "program": "the program",
    "bundle": "the folder that the program was installed into, read-only",
    "home": "the agent's home, which is not graded",
    "answer": "the file for the answer",
    "gateway": "the gateway's address, http://127.0.0.1:PORT; OpenAI's routes are below /v1",
    "token": "what is sent to the gateway instead of a key",
}

_REPLY = "reply"  # the placeholder for the user's reply, only in `resume`
_MCP = "{mcp}"  # the word of a command line that is replaced by the words of `mcp`
_SERVERS = "{servers}"  # the placeholder for all servers, only in files

_VERSION = re.compile(r"\d+(?:\.\d+){0,2}")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_RECIPES = Path(__file__).with_name("recipes")


class ServerForm(BaseModel):
    """How an agent is told about the MCP servers of its task.

    Attributes:
        server: the entry in the agent's settings for a server that it starts: ``{name}`` is the
            name, ``{command}`` the command line for ``sh -c`` as a JSON and TOML string. In a file
            of the recipe, ``{servers}`` is replaced by all entries; it is empty if there are none.
        http: the entry for a server with an address, over MCP's streamable HTTP: ``{url}`` is the
            address, also as a string. Empty if the agent does not support that.
        sse: the same for a server over MCP's older transport, server-sent events.
        separator: the text between two entries.
        words: words that replace the word ``{mcp}`` of the command line if there are servers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    server: str
    http: str = ""
    sse: str = ""
    separator: str = ""
    words: list[str] = Field(default_factory=list)

    @property
    def _forms(self) -> dict[str, str]:
        return {STDIO: self.server, "http": self.http, "sse": self.sse}

    @property
    def transports(self) -> frozenset[str]:
        """The transports by which the agent can reach servers."""
        return frozenset(transport for transport, form in self._forms.items() if form)

    def render(self, servers: Mapping[str, str]) -> str:
        """Return the settings' entries of servers, given by name and command line or address."""
        return self.separator.join(self._entry(*item) for item in servers.items())

    def _entry(self, name: str, server: str) -> str:
        address = address_of(server)
        placeholder, value = ("command", server) if address is None else ("url", address.url)
        values = {"name": name, placeholder: json.dumps(value, ensure_ascii=False)}
        return fill(self._forms[transport_of(server)], values)


class SessionForm(BaseModel):
    """How to start a session of the Agent Client Protocol; the values may have placeholders.

    Attributes:
        permission: how to answer requests for permission: ``once``, ``always`` or ``reject``.
        mode: the id of the session's mode; empty for the agent's default.
        auth: the id of the method by which the agent logs in; empty for none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    permission: str = "once"
    mode: str = ""
    auth: str = ""

    def settings(self, values: Mapping[str, str]) -> SessionSettings:
        """Return the settings of a session, with placeholders replaced by their values.

        Raises:
            AgentError: the value of ``permission`` is unknown.
        """
        permission, mode, auth = (
            fill(word, values) for word in (self.permission, self.mode, self.auth)
        )
        if permission not in PERMISSIONS:
            raise AgentError(f"permission={permission!r:.40}: allowed are {', '.join(PERMISSIONS)}")
        return SessionSettings(permission, mode, auth)


class Recipe(BaseModel):
    """How an agent is installed and run.

    Attributes:
        about: a description of the agent in a few words.
        npm: packages of npm that contain the program, with their versions.
        python: packages of PyPI, with their versions; a Python is installed with them.
        folder: a folder of this machine that contains the program; relative to the recipe.
        node: True if the program needs Node.js, so that it gets this machine's; or the oldest
            version that it works with, so that it gets npm's if this machine's is older.
        program: the program's path in the bundle, in which ``*`` matches any name.
        executable: the program's name on machines of people who have installed it themselves; empty
            for an agent that is not suggested to them.
        key: the environment variable with the key that the gateway uses for the agent's models;
            empty if that depends on the model.
        protocol: ``acp`` for a program that speaks the Agent Client Protocol on its standard
            streams: it gets prompts, replies and MCP servers through the protocol.
        session: how to start a session of that protocol.
        command: the words of the command line; they are not parsed by a shell.
        resume: the words of the command line that continues the conversation with ``{reply}``, the
            user's reply; empty for a program that cannot continue.
        mcp: how it is told about the MCP servers of a task; None if it does not support any.
        skills: the folder in its home where it finds skills, to which a task's skills are copied;
            empty if it does not support any.
        variables: its environment variables.
        files: files in its home, by their paths there.
        arguments: the arguments for ``--intercode-agent-arg``, with their defaults; an argument
            whose default is None is required.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    about: str = ""
    npm: list[str] = Field(default_factory=list)
    python: list[str] = Field(default_factory=list)
    folder: str = ""
    node: bool | str = False
    program: str
    executable: str = ""
    key: str = ""
    protocol: Literal["", "acp"] = ""
    session: SessionForm = Field(default_factory=SessionForm)
    command: list[str] = Field(min_length=1)
    resume: list[str] = Field(default_factory=list)
    mcp: ServerForm | None = None
    skills: str = ""
    variables: dict[str, str] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)
    arguments: dict[str, str | None] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Recipe:
        if sum(map(bool, (self.npm, self.python, self.folder))) != 1:
            raise ValueError(
                "exactly one of npm, python and folder is needed, as the source of the program"
            )
        if isinstance(self.node, str) and not _VERSION.fullmatch(self.node):
            raise ValueError(
                f"node: {self.node!r:.40} is neither true nor a version such as '22.19'"
            )
        session_values = [self.session.permission, self.session.mode, self.session.auth]
        self._check_placeholders([*self.command, *self.variables.values(), *session_values])
        self._check_protocol()
        self._check_placeholders(self.resume, _REPLY)
        if self.resume and not any(f"{{{_REPLY}}}" in word for word in self.resume):
            raise ValueError("resume: no word contains {reply}")
        if self.mcp is not None:
            self._check_placeholders(self.mcp.words)
            if not any(_SERVERS in text for text in self.files.values()):
                raise ValueError("mcp: no file contains {servers}")
        for name, path in (*(("files", path) for path in self.files), ("skills", self.skills)):
            if path.startswith("/") or ".." in path.split("/"):
                raise ValueError(f"{name}: {path!r:.80} is not below the agent's home")
        return self

    @property
    def continues(self) -> bool:
        """Whether the agent can continue with a user's reply."""
        return bool(self.resume or self.protocol)

    @property
    def transports(self) -> frozenset[str]:
        """The transports by which the program reaches a task's MCP servers; empty if none."""
        if self.protocol:
            return TRANSPORTS  # an ACP agent reports itself which of them it supports
        return frozenset() if self.mcp is None else self.mcp.transports

    def _check_protocol(self) -> None:
        if not self.protocol:
            if self.session != SessionForm():
                raise ValueError("session: only a program with protocol: acp has it")
            return
        prompts = ("{prompt}", "{query}")
        if self.resume or self.mcp or any(p in word for p in prompts for word in self.command):
            raise ValueError(
                "protocol: acp: the protocol carries prompts, replies and MCP servers, so leave "
                "out resume and mcp, and {prompt} and {query} in the command"
            )
        permission = self.session.permission
        if "{" not in permission and permission not in PERMISSIONS:
            raise ValueError(f"session.permission: allowed are {', '.join(PERMISSIONS)}")

    def fill_words(
        self, words: Sequence[str], servers: Mapping[str, str], values: Mapping[str, str]
    ) -> list[str]:
        """Return the words of a command line.

        Args:
            words: the words of the recipe.
            servers: the task's MCP servers, by name.
            values: the values of the placeholders.
        """
        own_words = self.mcp.words if self.mcp is not None and servers else []
        expanded = (own_words if word == _MCP else [word] for word in words)
        return [fill(word, values) for part in expanded for word in part]

    def _check_placeholders(self, words: Sequence[str], *more: str) -> None:
        placeholders = [*PLACEHOLDERS, *more, *self.arguments]
        for word in words:
            if word == _MCP and self.mcp is not None:
                continue
            for name in _PLACEHOLDER.findall(word):
                if name not in placeholders:
                    raise ValueError(
                        f"there is no placeholder {{{name}}}; allowed are "
                        f"{', '.join(placeholders)}.{suggestion(name, placeholders)}"
                    )


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders that have a value in a text; other braces stay."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def recipe_names() -> list[str]:
    """Return the names of our recipes and their short forms."""
    return sorted({*(file.stem for file in _RECIPES.iterdir()), *PRESETS})


def executables() -> dict[str, Recipe]:
    """Return our recipes that have an ``executable``, by the names of their agents."""
    recipes = {name: load_recipe(name, _RECIPES, name)[1] for name in PRESETS}
    return {name: recipe for name, recipe in recipes.items() if recipe.executable}


def load_recipe(name: str, folder: Path, option: str) -> tuple[str, Recipe, Path]:
    """Return a recipe with its short name and the folder that it is in.

    Args:
        name: the name of a built-in recipe, or the path of a YAML file.
        folder: where a relative path starts.
        option: what the user wrote, for messages.

    Raises:
        AgentLoadError: there is no such recipe, or it is invalid.
    """
    names = recipe_names()
    if name in names:
        path = _RECIPES / f"{PRESETS.get(name, name)}.yaml"
    else:
        path = folder / Path(name).expanduser()
        if not path.is_file():
            raise AgentLoadError(
                f"{option}: there is no recipe {name!r}. Allowed: the path of a YAML file, or "
                f"{', '.join(names)}.{suggestion(name, names)}"
            )
    try:
        raw, _ = read_yaml(path)
        return path.stem, Recipe.model_validate(raw), path.parent
    except SuiteError as error:
        raise AgentLoadError(f"{option}: {error}") from None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        location = ".".join(map(str, problem["loc"]))
        message = problem["msg"].removeprefix("Value error, ")
        raise AgentLoadError(
            f"{option}: {path}: {location + ': ' if location else ''}{message}"
        ) from None
