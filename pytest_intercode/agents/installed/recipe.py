"""Recipes: where the program of an installed agent comes from, and how it is run. YAML to data."""

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
"""What stands for the name of a model in the docs, and in what ``init`` writes."""

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

_REPLY = "reply"  # the placeholder of what the user said, in `resume` alone
_MCP = "{mcp}"  # the word of a command line in whose place there are those of `mcp`
_SERVERS = "{servers}"  # the placeholder of all servers, in files alone

_VERSION = re.compile(r"\d+(?:\.\d+){0,2}")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_RECIPES = Path(__file__).with_name("recipes")


class ServerForm(BaseModel):
    """How an agent gets to know the MCP servers of its task.

    Attributes:
        server: what its settings say of one that it starts: ``{name}`` is the name, ``{command}``
            the command line for ``sh -c``, as a string of JSON and TOML. A file of the recipe has
            all of them in place of ``{servers}``, which is empty where a task has none.
        http: what they say of one with an address, by MCP's streamable HTTP: ``{url}`` is the
            address, as such a string. Empty where the agent knows none.
        sse: the same for one by MCP's older transport, server-sent events.
        separator: what is between two of them.
        words: words of the command line, in place of the word ``{mcp}``; where there are servers.
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
        """How the agent speaks to servers."""
        return frozenset(transport for transport, form in self._forms.items() if form)

    def render(self, servers: Mapping[str, str]) -> str:
        """Return what the settings say of all servers, by name and command line or address."""
        return self.separator.join(self._entry(*item) for item in servers.items())

    def _entry(self, name: str, server: str) -> str:
        address = address_of(server)
        placeholder, value = ("command", server) if address is None else ("url", address.url)
        values = {"name": name, placeholder: json.dumps(value, ensure_ascii=False)}
        return fill(self._forms[transport_of(server)], values)


class SessionForm(BaseModel):
    """How a session of the Agent Client Protocol is begun; placeholders are filled in.

    Attributes:
        permission: how requests for permission are answered: ``once``, ``always`` or ``reject``.
        mode: the id of the session's mode; empty for the agent's default.
        auth: the id of the method by which the agent is to log in; empty for none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    permission: str = "once"
    mode: str = ""
    auth: str = ""

    def settings(self, values: Mapping[str, str]) -> SessionSettings:
        """Return the settings of a session, with the values of the placeholders.

        Raises:
            AgentError: there is no such permission.
        """
        permission, mode, auth = (
            fill(word, values) for word in (self.permission, self.mode, self.auth)
        )
        if permission not in PERMISSIONS:
            raise AgentError(
                f"permission={permission!r:.40}: it is one of {', '.join(PERMISSIONS)}"
            )
        return SessionSettings(permission, mode, auth)


class Recipe(BaseModel):
    """How an agent is installed and run.

    Attributes:
        about: what it is, in a few words.
        npm: packages of npm that hold the program, with their versions.
        python: packages of PyPI, with their versions; a Python comes with them.
        folder: a folder of this machine that holds the program; relative to the recipe.
        node: the program needs Node.js, and is given this machine's; or the oldest version that
            will do, so that it is given npm's where this machine's is older.
        program: the program's path in the bundle, in which ``*`` matches any name.
        executable: what the program is called where people have installed it themselves; empty for
            an agent that is not proposed to them.
        key: the environment variable of the key that the gateway asks its models with; empty where
            that depends on the model.
        protocol: ``acp`` for a program that speaks the Agent Client Protocol on its standard
            streams: it gets prompts, replies and MCP servers by that.
        session: how a session of that is begun.
        command: the words of the command line; no shell reads them.
        resume: those of the one that continues the conversation with ``{reply}``, what the user
            said; empty for a program that cannot.
        mcp: how it gets to know the MCP servers of a task; None for a program that knows none.
        skills: the folder in its home where it looks for skills, which those of a task are copied
            to; empty for a program that knows none.
        variables: environment variables of it.
        files: files in its home, by their paths there.
        arguments: what ``--intercode-agent-arg`` may give, with defaults; None has to be given.
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
            raise ValueError("the program comes from one of npm, python and folder")
        if isinstance(self.node, str) and not _VERSION.fullmatch(self.node):
            raise ValueError(f"node: {self.node!r:.40} is neither true nor a version, as '22.19'")
        session_values = [self.session.permission, self.session.mode, self.session.auth]
        self._check_placeholders([*self.command, *self.variables.values(), *session_values])
        self._check_protocol()
        self._check_placeholders(self.resume, _REPLY)
        if self.resume and not any(f"{{{_REPLY}}}" in word for word in self.resume):
            raise ValueError("resume: none of the words has {reply}")
        if self.mcp is not None:
            self._check_placeholders(self.mcp.words)
            if not any(_SERVERS in text for text in self.files.values()):
                raise ValueError("mcp: none of the files has {servers}")
        for name, path in (*(("files", path) for path in self.files), ("skills", self.skills)):
            if path.startswith("/") or ".." in path.split("/"):
                raise ValueError(f"{name}: {path!r:.80} is not below the agent's home")
        return self

    @property
    def continues(self) -> bool:
        """Whether the conversation goes on with what a user says."""
        return bool(self.resume or self.protocol)

    @property
    def transports(self) -> frozenset[str]:
        """How the program speaks to the MCP servers of a task; empty where it knows none."""
        if self.protocol:
            return TRANSPORTS  # what an agent knows of them, it says itself
        return frozenset() if self.mcp is None else self.mcp.transports

    def _check_protocol(self) -> None:
        if not self.protocol:
            if self.session != SessionForm():
                raise ValueError("session: it is for a program with protocol: acp")
            return
        prompts = ("{prompt}", "{query}")
        if self.resume or self.mcp or any(p in word for p in prompts for word in self.command):
            raise ValueError(
                "protocol: acp: prompts, replies and MCP servers go by the protocol, so it has no "
                "resume, no mcp, and neither {prompt} nor {query} in its command"
            )
        permission = self.session.permission
        if "{" not in permission and permission not in PERMISSIONS:
            raise ValueError(f"session.permission: it is one of {', '.join(PERMISSIONS)}")

    def fill_words(
        self, words: Sequence[str], servers: Mapping[str, str], values: Mapping[str, str]
    ) -> list[str]:
        """Return the words of a command line.

        Args:
            words: the recipe's.
            servers: the task's MCP servers, by name.
            values: of the placeholders.
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
                        f"there is no placeholder {{{name}}}; there are "
                        f"{', '.join(placeholders)}.{suggestion(name, placeholders)}"
                    )


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the placeholders that have a value; other braces stay."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def recipe_names() -> list[str]:
    """Return the names of our recipes and their short forms."""
    return sorted({*(file.stem for file in _RECIPES.iterdir()), *PRESETS})


def executables() -> dict[str, Recipe]:
    """Return those of our recipes that have an ``executable``, by what their agents are called."""
    recipes = {name: load_recipe(name, _RECIPES, name)[1] for name in PRESETS}
    return {name: recipe for name, recipe in recipes.items() if recipe.executable}


def load_recipe(name: str, folder: Path, option: str) -> tuple[str, Recipe, Path]:
    """Return a recipe with its short name and the folder that it is in.

    Args:
        name: the name of a built-in one, or the path of a YAML file.
        folder: where a relative path starts.
        option: what the user wrote, for messages.

    Raises:
        AgentLoadError: there is none, or it is wrong.
    """
    names = recipe_names()
    if name in names:
        path = _RECIPES / f"{PRESETS.get(name, name)}.yaml"
    else:
        path = folder / Path(name).expanduser()
        if not path.is_file():
            raise AgentLoadError(
                f"{option}: there is no recipe {name!r}: it is the path of a YAML file, or one of "
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
