"""Finds the agent that ``--intercode-agent`` names.

``module:Attr``, ``path/to/file.py:Attr``, or one that comes with us; those are made by
``make_factory`` of their modules, which are imported when they are asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.task import Task
from pytest_intercode.errors import AgentError, AgentLoadError, suggestion

__all__ = ["adapt", "load_agent", "no_arguments"]

# The word, the module that makes it, and how it is written.
_BUILT_IN = {
    "oracle": ("oracle", "oracle"),
    "replay": ("replay", "replay:FILE"),
    "human": ("human", "human"),
    "command": ("command", "command:CMDLINE"),
    "mcp": ("mcp", "mcp:CMDLINE"),
    "single-turn": ("chat", "single-turn"),
    "try-again": ("chat", "try-again"),
    "react": ("chat", "react"),
    "plan-solve": ("chat", "plan-solve"),
    "tools": ("chat", "tools"),
}
_FORMS = ", ".join(
    ["module:Attr", "path/to/file.py:Attr", *(form for _, form in _BUILT_IN.values())]
)


def load_agent(
    name: str, arguments: Mapping[str, str] | None = None, folder: Path | None = None
) -> AgentFactory:
    """Return the factory of the agent that the user named.

    Args:
        name: the option's value.
        arguments: keyword arguments for the agent's constructor (``--intercode-agent-arg``).
        folder: where relative paths and modules of the user are looked for.

    Raises:
        AgentLoadError: it cannot be found, imported or called.
    """
    arguments = dict(arguments or {})
    folder = folder or Path.cwd()
    head, colon, rest = name.partition(":")
    if head in _BUILT_IN:
        home, form = _BUILT_IN[head]
        if bool(colon) != (":" in form) or (colon and not rest.strip()):
            raise AgentLoadError(f"--intercode-agent={name}: it is written {form}")
        made = importlib.import_module(f"pytest_intercode.agents.{home}")
        factory: AgentFactory = made.make_factory(name, rest, arguments, folder)
        return factory
    module_name, colon, attribute = name.rpartition(":")
    if not colon or not module_name or not attribute:
        hint = suggestion(head, _BUILT_IN)
        raise AgentLoadError(f"--intercode-agent={name}: an agent is {_FORMS}.{hint}")
    module = _import(name, module_name, folder)
    target: Any = module
    for part in attribute.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            names = [n for n in vars(module) if not n.startswith("_")]
            raise AgentLoadError(
                f"--intercode-agent={name}: {module_name} has no {attribute!r}."
                + suggestion(attribute, names)
            ) from None
    return AgentFactory(name, _maker(name, target, arguments))


def no_arguments(name: str, arguments: Mapping[str, str]) -> None:
    """Refuse arguments for an agent that takes none.

    Raises:
        AgentLoadError: there are some.
    """
    if arguments:
        raise AgentLoadError(
            f"--intercode-agent-arg {next(iter(arguments))}=...: the agent {name!r} takes no "
            "arguments"
        )


def _import(name: str, module_name: str, folder: Path) -> ModuleType:
    try:
        if module_name.endswith(".py"):
            return _import_file(name, folder / Path(module_name).expanduser())
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        return importlib.import_module(module_name)
    except AgentLoadError:
        raise
    except (Exception, SystemExit) as error:
        missing = (
            isinstance(error, ModuleNotFoundError)
            and error.name
            and (module_name == error.name or module_name.startswith(f"{error.name}."))
        )
        if missing:
            raise AgentLoadError(
                f"--intercode-agent={name}: there is no module {module_name!r} in {folder} or on "
                "the import path"
            ) from None
        raise AgentLoadError(
            f"--intercode-agent={name}: importing {module_name} raised "
            f"{type(error).__name__}: {_said(error)} ({_place(error)})"
        ) from None


def _import_file(name: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise AgentLoadError(f"--intercode-agent={name}: there is no file {path}")
    module_name = f"_intercode_agent_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise AgentLoadError(f"--intercode-agent={name}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # so that the agent can import what lies beside it
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "no place"


def _maker(name: str, target: Any, arguments: Mapping[str, str]) -> Any:
    if inspect.isclass(target):
        if not (callable(getattr(target, "act", None)) or callable(getattr(target, "run", None))):
            raise AgentLoadError(
                f"--intercode-agent={name}: the class has neither act(observation) nor "
                "run(task, env)"
            )
        _check_arguments(name, target, arguments)

        def make(_: Task) -> Agent:
            try:
                instance = target(**arguments)
            except (Exception, SystemExit) as error:
                raise AgentError(
                    f"{target.__name__}() raised {type(error).__name__}: {_said(error)} "
                    f"({_place(error)})"
                ) from error
            return adapt(instance)

        return make
    if callable(getattr(target, "act", None)) or callable(getattr(target, "run", None)):
        raise AgentLoadError(
            f"--intercode-agent={name}: this is an instance; name its class, so that every "
            "episode gets a fresh one"
        )
    if not callable(target):
        raise AgentLoadError(
            f"--intercode-agent={name}: {target!r:.60} is neither a class nor a callable"
        )
    no_arguments(name, arguments)
    _of_callable(f"--intercode-agent={name}", target)
    return lambda _: _of_callable(name, target)


def _of_callable(what: str, target: Any) -> Agent:
    try:
        wanted = _positional(target)
    except ValueError as error:
        raise AgentLoadError(f"{what}: {error}") from None
    called = getattr(target, "__name__", type(target).__name__)
    if wanted == 1:
        return Agent("step", act=target, name=called)
    if wanted == 2:
        return Agent("loop", run=target, name=called)
    raise AgentLoadError(
        f"{what}: a callable takes (observation) or (task, env), this one takes {wanted} "
        "positional arguments"
    )


def adapt(instance: Any) -> Agent:
    """Give what a user made the one shape that the turn loop knows.

    Raises:
        AgentLoadError: it has neither style.
    """
    if isinstance(instance, Agent):
        return instance
    if inspect.isclass(instance):
        raise AgentLoadError(f"the agent {instance!r:.80} is a class; make an instance of it")
    if not any(callable(getattr(instance, name, None)) for name in ("act", "run")):
        if not callable(instance):
            raise AgentLoadError(
                f"the agent {instance!r:.80} is an object with neither act(observation) nor "
                "run(task, env), nor a callable"
            )
        return _of_callable(f"the agent {instance!r:.60}", instance)
    more: dict[str, Any] = {"name": type(instance).__name__}
    for optional in ("reset", "close", "abort"):
        method = getattr(instance, optional, None)
        if callable(method):
            more[optional] = method
    if callable(getattr(instance, "act", None)):
        return Agent("step", act=instance.act, **more)
    more.pop("reset", None)
    return Agent("loop", run=instance.run, **more)


def _check_arguments(name: str, target: type, arguments: Mapping[str, str]) -> None:
    try:
        inspect.signature(target).bind(**arguments)
    except ValueError:
        return  # no signature to look at
    except TypeError as error:
        raise AgentLoadError(
            f"--intercode-agent={name}: {target.__name__}() cannot be called with the arguments "
            f"given by --intercode-agent-arg: {error}"
        ) from None


def _positional(target: Any) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(target).parameters.values()
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)
