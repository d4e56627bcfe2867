"""Finds the agent that ``--intercode-agent`` names, and adapts what users write to one form.

An agent is ``module:Attr``, ``path/to/file.py:Attr`` or a built-in name. The module of a built-in
agent has a function ``make_factory``, and is imported only when that agent is requested.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_intercode.agents.arguments import read_arguments
from pytest_intercode.agents.candidates import suggest_agent
from pytest_intercode.agents.protocol import Agent, AgentFactory, AgentLike
from pytest_intercode.core.facts import Fact
from pytest_intercode.core.presets import PRESETS
from pytest_intercode.core.servers import TRANSPORTS
from pytest_intercode.errors import AgentError, AgentLoadError, ConfigurationError, suggestion
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.imports import describe_error, import_attribute

__all__ = [
    "BUILT_IN",
    "adapt",
    "describe_agent",
    "factory_of",
    "failing",
    "load_agent",
    "past_gateway",
    "uses_gateway",
]

BUILT_IN = {
    "oracle": ("oracle", "oracle"),
    "replay": ("replay", "replay:FILE"),
    "human": ("human", "human"),
    "command": ("program.agent", "command:CMDLINE"),
    "mcp": ("mcp.agent", "mcp:CMDLINE"),
    "acp": ("acp.agent", "acp:CMDLINE"),
    "single-turn": ("chat", "single-turn"),
    "try-again": ("chat", "try-again"),
    "react": ("chat", "react"),
    "plan-solve": ("chat", "plan-solve"),
    "tools": ("chat", "tools"),
    "installed": ("installed.agent", "installed:RECIPE"),
    **{name: ("installed.agent", name) for name in PRESETS},
}
"""The first word, mapped to the module below ``agents/`` and to how the agent is written."""

# The modules of agents that are programs, and so reach models on their own.
_PROGRAMS = ("program.agent", "mcp.agent", "acp.agent", "installed.agent")
# The arguments that the methods of a user's agent are called with.
_PARAMETERS = {"act": ("observation",), "reset": ("task",), "run": ("task", "env")}
_NONE: Mapping[str, object] = MappingProxyType({})
_FORMS = ", ".join(
    ["module:Attr", "path/to/file.py:Attr", *(form for _, form in BUILT_IN.values())]
)


def load_agent(
    name: str,
    arguments: Mapping[str, str] | None = None,
    folder: Path | None = None,
    gateway: GatewaySettings | None = None,
    parameters: Collection[str] = (),
    progress: Callable[[str], None] | None = None,
    sandbox: SandboxSettings | None = None,
) -> AgentFactory:
    """Return the factory of the agent that the user named.

    Args:
        name: the option's value.
        arguments: keyword arguments for the agent's constructor (``--intercode-agent-arg``).
        folder: the folder in which the user's relative paths and modules are looked up.
        gateway: how agents that are programs reach models; the factory's ``close`` ends it.
        parameters: names of further keyword arguments, which the factory's ``make_with`` gets.
        progress: called with a line before something slow, such as an installation; by default
            the line goes to standard error.
        sandbox: where the run's sandboxes come from, for agents that are installed for them.

    Raises:
        AgentLoadError: the agent cannot be found, imported or called.
    """
    arguments = dict(arguments or {})
    folder = folder or Path.cwd()
    head, colon, rest = name.partition(":")
    if gateway is not None and gateway.tokens and not uses_gateway(name, gateway):
        raise AgentLoadError(
            f"--intercode-agent={name}: token ids come from the gateway "
            f"(--intercode-tokens={gateway.tokens}), and this agent does not use it; name a "
            "program, such as command:CMDLINE or opencode, or leave that option out"
        )
    if head in BUILT_IN:
        if parameters:
            raise _not_a_class(f"--intercode-agent={name}")
        module_name, form = BUILT_IN[head]
        if bool(colon) != (":" in form) or (colon and not rest.strip()):
            raise AgentLoadError(f"--intercode-agent={name}: expected {form}")
        module = importlib.import_module(f"pytest_intercode.agents.{module_name}")
        extra: dict[str, Any] = {"gateway": gateway} if module_name in _PROGRAMS else {}
        if module_name == "installed.agent":
            extra |= {"progress": progress, "sandbox": sandbox}
        factory: AgentFactory = module.make_factory(name, rest, arguments, folder, **extra)
        return factory
    if not colon and (problem := suggest_agent(name, folder)):
        raise AgentLoadError(f"--intercode-agent={name}: {problem}")
    if not all(name.rpartition(":")):
        hint = suggestion(head, BUILT_IN)
        raise AgentLoadError(f"--intercode-agent={name}: an agent is {_FORMS}.{hint}")
    if gateway is not None and gateway.programs and not gateway.keeps_exchanges:
        raise past_gateway(name)  # with exchanges kept, the gateway may serve the tasks' users
    target = import_attribute(name, folder, "--intercode-agent", AgentLoadError)
    make = _maker(name, target, arguments, parameters)
    if parameters:
        return AgentFactory(name, lambda _: make(), make_with=make)
    return AgentFactory(name, lambda _: make(), continues=_continues(target))


def past_gateway(name: str) -> AgentLoadError:
    """Return the error for an agent in this process when models must go through the gateway."""
    return AgentLoadError(
        f"--intercode-agent={name}: the gateway (--intercode-gateway) is for programs "
        "(command:CMDLINE, mcp:CMDLINE, acp:CMDLINE), not for an agent in this process; let this "
        "one call env.spend, or leave the option out"
    )


def _continues(target: Any) -> bool:
    """Whether agents of a class or a callable can continue with a user's reply."""
    if inspect.isclass(target):
        return _find_method(target, "act") is None
    return _adapt_callable("", target).continues


def describe_agent(
    name: str,
    arguments: Mapping[str, str],
    folder: Path,
    gateway: GatewaySettings,
) -> Fact:
    """Return whether an agent can be loaded; nothing is installed, and no program is started.

    Args:
        name: as for :func:`load_agent`.
        arguments: as for :func:`load_agent`.
        folder: as for :func:`load_agent`.
        gateway: as for :func:`load_agent`.
    """
    head, _, rest = name.partition(":")
    try:
        if BUILT_IN.get(head, ("",))[0] == "installed.agent":
            module = importlib.import_module("pytest_intercode.agents.installed.facts")
            fact: Fact = module.describe_agent(name, rest, arguments, folder)
            return fact
        load_agent(name, arguments, folder, gateway).close()
    except ConfigurationError as error:
        return Fact("agent", str(error), "problem")
    return Fact("agent", f"{name}: can be loaded")


def uses_gateway(name: str, gateway: GatewaySettings) -> bool:
    """Whether an agent reaches models only through the gateway; does not load the agent."""
    module_name, _ = BUILT_IN.get(name.partition(":")[0], ("", ""))
    return module_name == "installed.agent" or (gateway.programs and module_name in _PROGRAMS)


def adapt(agent: AgentLike) -> Agent:
    """Convert a user's agent to the one form that the turn loop calls.

    Raises:
        AgentLoadError: the object is not an agent.
    """
    if isinstance(agent, Agent):
        return agent
    if inspect.isclass(agent):
        raise AgentLoadError(f"the agent {agent!r:.80} is a class; make an instance of it")
    act, run = (_find_method(agent, name) for name in ("act", "run"))
    if act is None and run is None:
        if callable(agent):
            return _adapt_callable(f"the agent {agent!r:.60}", agent)
        raise AgentLoadError(
            f"the agent {agent!r:.80} is not callable, and has neither act(observation) nor "
            "run(task, env)"
        )
    optional = ("reset", "close", "abort") if act else ("close", "abort")
    methods: dict[str, Any] = {
        name: method for name in optional if (method := _find_method(agent, name))
    }
    name = type(agent).__name__
    if act is not None:
        return Agent("step", act=act, name=name, transports=TRANSPORTS, **methods)
    assert run is not None
    return _loop_agent(run, name, **methods)


def factory_of(agent: object, parameters: Collection[str] = ()) -> AgentFactory:
    """Return the factory of an agent that is passed as an object.

    Args:
        agent: a class, a function without arguments that makes an agent, or a callable that is
            the agent of every episode: ``(observation)`` or ``(task, env)``.
        parameters: as for :func:`load_agent`.

    Raises:
        AgentLoadError: the object is none of these.
    """
    label = f"the agent {agent!r:.80}"
    if _has_style(label, agent) and not inspect.isclass(agent):
        raise AgentLoadError(
            f"{label} is an instance; give its class, a function without arguments that makes one, "
            "or its method, so that every episode gets a fresh one"
        )
    if not callable(agent):
        raise AgentLoadError(f"{label} is neither a class nor a callable, nor the name of an agent")
    name = _name_of(agent)
    if parameters and not inspect.isclass(agent):
        raise _not_a_class(label)
    if inspect.isclass(agent):
        if mismatch := _find_mismatch(agent, parameters):
            raise AgentLoadError(
                f"{label}: an agent is made for each episode, {_describe_parameters(parameters)}, "
                f"and {mismatch}; give a function that makes one: lambda: {name}(...)"
            )
    elif _count_arguments(label, agent):
        _adapt_callable(label, agent)
        return AgentFactory(name, lambda _: _adapt_callable(label, agent))
    make = _make_caller(agent)
    return AgentFactory(name, lambda _: make(), make_with=make if parameters else None)


def failing(error: AgentError) -> Agent:
    """Return a stand-in for an agent that could not be made; it raises on its first action."""

    def fail(*_: object) -> None:
        raise error

    # Scripted, with all transports: no earlier check may hide the error itself.
    return Agent("step", act=fail, is_scripted=True, transports=TRANSPORTS)


def _loop_agent(run: Callable[..., Any], name: str, **methods: Any) -> Agent:
    return Agent("loop", run=run, name=name, continues=True, transports=TRANSPORTS, **methods)


def _find_method(agent: object, name: str) -> Callable[..., Any] | None:
    method = getattr(agent, name, None)
    return method if callable(method) else None


def _name_of(target: object) -> str:
    return str(getattr(target, "__name__", type(target).__name__))


def _has_style(label: str, target: object) -> bool:
    """Whether an object has one of an agent's methods; a class must have one."""
    has_style = bool(_find_method(target, "act") or _find_method(target, "run"))
    if inspect.isclass(target) and not has_style:
        raise AgentLoadError(f"{label}: the class has neither act(observation) nor run(task, env)")
    if inspect.isclass(target):
        _check_methods(label, target)
    return has_style


def _check_methods(label: str, target: type[Any]) -> None:
    """Check that the methods of a class can be called as an agent's methods are."""
    methods = ("act", "reset") if _find_method(target, "act") else ("run",)
    for name in methods:
        method = inspect.getattr_static(target, name, None)
        if not inspect.isfunction(method):
            continue  # it does not exist, or is another kind of callable
        parameters = _PARAMETERS[name]
        try:
            inspect.signature(method).bind("self", *parameters)
        except TypeError:
            raise AgentLoadError(
                f"{label}: {name}{inspect.signature(method)} cannot be called with "
                f"{' and '.join(parameters)}: write `def {name}(self, {', '.join(parameters)})`"
            ) from None


def _adapt_callable(label: str, target: Callable[..., Any]) -> Agent:
    """Return the agent of a callable; its number of arguments determines its style."""
    count = _count_arguments(label, target)
    if count == 1:
        return Agent("step", act=target, name=_name_of(target), transports=TRANSPORTS)
    if count == 2:
        return _loop_agent(target, _name_of(target))
    raise AgentLoadError(
        f"{label}: a callable takes (observation) or (task, env), but this one takes {count} "
        "positional arguments"
    )


def _count_arguments(label: str, target: Callable[..., Any]) -> int:
    """Return how many positional arguments a callable requires."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(target).parameters.values()
    except ValueError as error:
        raise AgentLoadError(f"{label}: {error}") from None
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


def _not_a_class(label: str) -> AgentLoadError:
    return AgentLoadError(
        f"{label}: only an agent that is a class takes parameters, and this is not one"
    )


def _describe_parameters(parameters: Collection[str]) -> str:
    return f"with {', '.join(sorted(parameters))}" if parameters else "without arguments"


def _maker(
    name: str, target: object, arguments: Mapping[str, str], parameters: Collection[str]
) -> Callable[..., Agent]:
    """Return a function that makes an agent from the class or callable that the user named."""
    option = f"--intercode-agent={name}"
    has_style = _has_style(option, target)
    if inspect.isclass(target):
        return _class_maker(option, target, arguments, parameters)
    if parameters:
        raise _not_a_class(option)
    if has_style:
        raise AgentLoadError(
            f"{option}: this is an instance; name its class, so that every episode gets a fresh one"
        )
    if not callable(target):
        raise AgentLoadError(f"{option}: {target!r:.60} is neither a class nor a callable")
    read_arguments(name, arguments)
    _adapt_callable(option, target)
    return lambda: _adapt_callable(name, target)


def _class_maker(
    option: str, target: type[Any], arguments: Mapping[str, str], parameters: Collection[str]
) -> Callable[..., Agent]:
    duplicates = sorted({*arguments} & {*parameters})
    if duplicates:
        raise AgentLoadError(
            f"{option}: {', '.join(duplicates)}: given as an argument and as a parameter"
        )
    if mismatch := _find_mismatch(target, [*arguments, *parameters]):
        raise AgentLoadError(
            f"{option}: {target.__name__}() cannot be called with the arguments given by "
            f"--intercode-agent-arg: {mismatch}"
        )
    return _make_caller(target, arguments)


def _find_mismatch(target: type[Any], names: Collection[str]) -> TypeError | None:
    """Return why a class cannot be called with keyword arguments of these names, or None."""
    try:
        inspect.signature(target).bind(**dict.fromkeys(names))
    except ValueError:
        pass  # there is no signature to check
    except TypeError as error:
        return error
    return None


def _make_caller(
    target: Callable[..., Any], arguments: Mapping[str, object] = _NONE
) -> Callable[..., Agent]:
    """Return a function that makes an agent by calling a target, with more keywords if given."""

    def make(keywords: Mapping[str, object] = _NONE) -> Agent:
        try:
            instance = target(**arguments, **keywords)
        except (Exception, SystemExit) as error:
            raise AgentError(f"{_name_of(target)}() raised {describe_error(error)}") from error
        return adapt(instance)

    return make
