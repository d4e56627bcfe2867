"""The world of a task: a domain's tools on its database, served to the environment outside.

The domain's own code is imported from ``ROOT``. This module provides what that code uses of its
package, so nothing else of the package is needed.
"""

from __future__ import annotations

import datetime
import enum
import hashlib
import importlib
import inspect
import json
import os
import re
import sys
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.environments.tau2.inside.models import (
    MISSING,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    describe_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["ROOT", "World", "grade", "main"]

ROOT = "/opt/tau2"
"""The folder in a sandbox that has the data, in ``data``, and the domains' code, in ``src``."""

_SECTION = re.compile(r"^(Args|Returns|Raises|Example|Examples|Note|Notes):\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"^(?P<name>\w+)(?:\s*\([^)]*\))?:\s*(?P<text>.*)$")


# -- what the domains' code uses of its package


class ToolType(str, enum.Enum):
    """What a tool does."""

    READ = "read"
    WRITE = "write"
    THINK = "think"
    GENERIC = "generic"


def is_tool(
    kind: ToolType = ToolType.READ, mutates_state: bool | None = None
) -> Callable[..., Any]:
    """Mark a method as a tool; by default, tools that write change the state."""

    def mark(function: Any) -> Any:
        function.changes_state = kind is ToolType.WRITE if mutates_state is None else mutates_state
        return function

    return mark


class Database(BaseModel):
    """A domain's database."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def load(cls, path: Any) -> Any:
        """Return the database in a file."""
        return cls.model_validate(load_file(path))


class StrictModel(BaseModel):
    """A model that has no other fields."""

    model_config = ConfigDict(extra="forbid")


class ToolKit:
    """Tools on a database."""

    def __init__(self, db: Any = None) -> None:
        self.db = db

    @property
    def tools(self) -> dict[str, Callable[..., Any]]:
        """The tools by name, first those of its own class."""
        names = [
            name
            for cls in type(self).__mro__
            for name, member in vars(cls).items()
            if hasattr(getattr(member, "fget", member), "changes_state")
        ]
        return {name: getattr(self, name) for name in dict.fromkeys(names)}

    def use_tool(self, tool_name: str, **arguments: Any) -> Any:
        """Call a tool."""
        if tool_name not in self.tools:
            raise ValueError(f"Tool '{tool_name}' not found.")
        return self.tools[tool_name](**arguments)

    def update_db(self, update: dict[str, Any] | None = None) -> None:
        """Merge values into the database."""
        self.db = update_model(self.db, update or {})

    def digest(self) -> str:
        """Return a digest that is equal for equal databases."""
        text = json.dumps(self.db.model_dump(), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


class World:
    """The tools of both sides; the domain's ``get_environment`` makes one."""

    def __init__(
        self,
        domain_name: str = "",
        policy: str = "",
        tools: Any = None,
        user_tools: Any = None,
        **_: Any,
    ) -> None:
        self.policy = policy
        self.tools = tools
        self.user_tools = user_tools
        self.sync_tools()

    def sync_tools(self) -> None:
        """Synchronise the states of both sides; domains with two sides override this."""

    def make_tool_call(self, tool_name: str, requestor: str = "assistant", **arguments: Any) -> Any:
        """Call a tool of one side."""
        kit = self.user_tools if requestor == "user" else self.tools
        if kit is None:
            raise ValueError("User tools not available")
        return kit.use_tool(tool_name=tool_name, **arguments)

    def call(self, requestor: str, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Call a tool; return the result's text, and whether it failed."""
        try:
            result = self.make_tool_call(name, requestor=requestor, **arguments)
            self.sync_tools()
        except Exception as error:
            return f"Error: {error}", True
        text = result if isinstance(result, str) else json.dumps(_plain(result), default=str)
        return text, False

    def run_function(self, function: dict[str, Any]) -> Any:
        """Call a function of one side that a task names; it need not be a tool."""
        kit = self.user_tools if function["env_type"] == "user" else self.tools
        result = getattr(kit, function["func_name"])(**function["arguments"])
        self.sync_tools()
        return result

    def begin(self, initial: dict[str, Any]) -> None:
        """Bring the world into a task's first state."""
        data = initial.get("initialization_data") or {}
        for kit, second_kit, key in (
            (self.tools, self.user_tools, "agent_data"),
            (self.user_tools, self.tools, "user_data"),
        ):
            if data.get(key) is not None:
                kit.update_db(data[key])
                if second_kit is not None and second_kit.db is not None:
                    second_kit.db = kit.db
        for function in initial.get("initialization_actions") or []:
            self.run_function(function)
        self.sync_tools()

    def replay(self, calls: Sequence[dict[str, Any]]) -> None:
        """Repeat the calls that may change the state."""
        for call in calls:
            kits = [kit for kit in (self.tools, self.user_tools) if kit is not None]
            tool = next(
                (kit.tools[call["name"]] for kit in kits if call["name"] in kit.tools), None
            )
            if tool is not None and tool.changes_state:
                self.call(call["requestor"], call["name"], call["arguments"])
        self.sync_tools()

    def digests(self) -> list[str]:
        """Return digests that are equal for worlds in equal states."""
        return [kit.digest() for kit in (self.tools, self.user_tools) if kit is not None]


def _plain(value: Any) -> Any:
    """Return a tool's result as values for JSON; outside of models, numbers become texts."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, datetime.date):
        return value.isoformat()
    raise ValueError(f"Unsupported type: {type(value)}")


def update_model(model: Any, update: dict[str, Any]) -> Any:
    """Return a model with values merged into its own, mapping by mapping."""
    return type(model).model_validate(_merge(model.model_dump(), update))


def _merge(value: Any, update: Any) -> Any:
    if not (isinstance(value, dict) and isinstance(update, dict)):
        return update
    merged = dict(value)
    for name, item in update.items():
        merged[name] = _merge(value[name], item) if name in value else item
    return merged


def load_file(path: Any) -> Any:
    """Return the content of a file: parsed JSON or TOML, or else its text."""
    text = Path(path).read_text("utf-8")
    if str(path).endswith(".json"):
        return json.loads(text)
    if str(path).endswith(".toml"):
        return importlib.import_module("tomllib").loads(text)  # since Python 3.11
    return text


class Logger:
    """A logger that discards all messages."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def _provide(name: str, **members: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


def open_world(domain: str, root: str = ROOT) -> World:
    """Return the world that a domain's files define."""
    if "tau2.utils" not in sys.modules:
        sys.path.insert(0, str(Path(root, "src")))
        sys.dont_write_bytecode = True
        folder = Path(root, "data")
        utils = {"DATA_DIR": folder, "load_file": load_file}
        _provide(
            "pydantic",
            BaseModel=BaseModel,
            ConfigDict=ConfigDict,
            Field=Field,
            ValidationError=ValidationError,
        )
        _provide("loguru", logger=Logger())
        _provide("tau2.utils", update_pydantic_model_with_dict=update_model, **utils)
        _provide("tau2.utils.utils", **utils)
        _provide(
            "tau2.utils.pydantic_utils",
            BaseModelNoExtra=StrictModel,
            update_pydantic_model_with_dict=update_model,
        )
        _provide("tau2.data_model.tasks", Task=dict)
        _provide("tau2.environment.db", DB=Database)
        _provide("tau2.environment.environment", Environment=World)
        _provide(
            "tau2.environment.toolkit", ToolKitBase=ToolKit, ToolType=ToolType, is_tool=is_tool
        )
    module = importlib.import_module(f"tau2.domains.{domain}.environment")
    world: World = module.get_environment()
    return world


# -- tools, described


def describe_tools(kit: Any) -> list[dict[str, Any]]:
    """Return the tools of one side as OpenAI's API describes functions."""
    tools = [] if kit is None else kit.tools.items()
    return [{"type": "function", "function": _describe_tool(*item)} for item in tools]


def _describe_tool(name: str, tool: Callable[..., Any]) -> dict[str, Any]:
    description, arguments = _read_docstring(inspect.getdoc(tool) or "")
    hints = typing.get_type_hints(tool, include_extras=True)
    fields = {}
    for key, parameter in inspect.signature(tool).parameters.items():
        default = MISSING if parameter.default is parameter.empty else parameter.default
        fields[key] = (hints.get(key, typing.Any), default, arguments.get(key, ""))
    definitions: dict[str, Any] = {}
    parameters = describe_fields("parameters", fields, definitions)
    if definitions:
        parameters["$defs"] = definitions
    return {"name": name, "description": description or name, "parameters": parameters}


def _read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Parse a docstring in Google's style; return its description and its arguments'."""
    parts = _SECTION.split(docstring)
    first, _, rest = parts[0].strip().partition("\n")
    description = "\n\n".join(filter(None, (first.strip(), rest.strip())))
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    arguments: dict[str, list[str]] = {}
    lines = inspect.cleandoc(sections.get("Args", "")).splitlines()
    name = ""
    for line in lines:
        match = None if line.startswith(" ") else _ARGUMENT.match(line)
        if match:
            name = match["name"]
            arguments[name] = [match["text"]]
        elif name:
            arguments[name].append(line.strip())
    return description, {key: "\n".join(text).strip() for key, text in arguments.items()}


# -- the service


def grade(world: World, request: dict[str, Any]) -> dict[str, Any]:
    """Play an agent's calls in a world and gold's in a copy; return how the worlds compare.

    Args:
        world: the world, in the task's first state.
        request: the ``calls`` of the agent's episode in order, the calls of ``gold``, and the
            ``assertions`` on the agent's world.
    """
    reading, writing = os.pipe()
    if os.fork() == 0:  # copies the world quickly
        try:
            os.write(writing, json.dumps(_play_gold(world, request["gold"])).encode())
        finally:
            os._exit(0)
    # Only the child may keep this end, so that the pipe ends with the child.
    os.close(writing)
    world.replay(request["calls"])
    digests = world.digests()
    assertions = [_holds(world, assertion) for assertion in request["assertions"]]
    with os.fdopen(reading, "rb") as pipe:
        gold_digests = json.loads(pipe.read())
    os.wait()
    return {"db": digests == gold_digests, "assertions": assertions}


def _play_gold(world: World, calls: Sequence[dict[str, Any]]) -> list[str]:
    for call in calls:
        try:
            requestor = call.get("requestor", "assistant")
            world.make_tool_call(call["name"], requestor, **call["arguments"])
        except Exception:  # a failing call of gold is left out
            continue
    return world.digests()


def _holds(world: World, assertion: dict[str, Any]) -> bool:
    try:
        value = world.run_function(assertion)
    except Exception:  # for example, what it looks for does not exist
        return False
    return value is assertion.get("assert_value", True)


_worlds: list[World] = []


def _answer(request: dict[str, Any]) -> Any:
    if request["do"] == "grade":
        return grade(_worlds[0], request)
    if request["do"] == "call":
        return _worlds[0].call(request["requestor"], request["name"], request["arguments"])
    _worlds[:] = [open_world(request["domain"])]
    [world] = _worlds
    world.begin(request["initial"])
    world.replay(request["calls"])
    return [describe_tools(world.tools), describe_tools(world.user_tools)]


def main(request: dict[str, Any]) -> None:
    """Answer a request on standard output, in one line."""
    answer = _answer(json.loads(request["json"]))
    data = f"{request['token']} 0 {json.dumps(answer)}\n".encode()
    while data:
        data = data[os.write(1, data) :]
