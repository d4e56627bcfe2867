"""Finds the agent that ``--intercode-agent`` names.

``module:Attr``, ``path/to/file.py:Attr``, or one that comes with us; those are made by
``make_factory`` of their modules, which are imported when they are asked for.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_intercode.agents.arguments import read_arguments
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.imports import describe_error, import_attribute
from pytest_intercode.core.task import Task
from pytest_intercode.errors import AgentError, AgentLoadError, suggestion

__all__ = ["adapt", "load_agent"]

# The word, the module that makes it, and how it is written.
_BUILT_IN = {
    "oracle": ("oracle", "oracle"),
    "replay": ("replay", "replay:FILE"),
    "human": ("human", "human"),
    "command": ("program", "command:CMDLINE"),
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
    module, colon, attribute = name.rpartition(":")
    if not module or not attribute:
        hint = suggestion(head, _BUILT_IN)
        raise AgentLoadError(f"--intercode-agent={name}: an agent is {_FORMS}.{hint}")
    target = import_attribute(name, folder, "--intercode-agent", AgentLoadError)
    return AgentFactory(name, _maker(name, target, arguments))


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
                raise AgentError(f"{target.__name__}() raised {describe_error(error)}") from error
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
    read_arguments(name, arguments)
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
