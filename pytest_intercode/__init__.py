"""pytest-intercode: coding agents tested as pytest items, each task in a sandbox of its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_intercode.agents.agent_environment import AgentEnvironment
    from pytest_intercode.agents.ledger import log, spend, think
    from pytest_intercode.core.record import Episode, EpisodeRecord
    from pytest_intercode.core.reward import Reward
    from pytest_intercode.core.task import Task, TaskView
    from pytest_intercode.core.turn import Observation
    from pytest_intercode.core.usage import Budget, Usage
    from pytest_intercode.environments.base import Environment
    from pytest_intercode.environments.interpreter import InterpreterEnvironment
    from pytest_intercode.environments.making import make
    from pytest_intercode.environments.registry import register_environment
    from pytest_intercode.environments.shell import ShellEnvironment
    from pytest_intercode.errors import BudgetExhausted, IntercodeError
    from pytest_intercode.rescoring.rescored import rescore
    from pytest_intercode.results.reading import read_results
    from pytest_intercode.rollouts.episode import run_episode
    from pytest_intercode.suites.loader import load_suite

__all__ = [
    "AgentEnvironment",
    "Budget",
    "BudgetExhausted",
    "Environment",
    "Episode",
    "EpisodeRecord",
    "IntercodeError",
    "InterpreterEnvironment",
    "Observation",
    "Reward",
    "ShellEnvironment",
    "Task",
    "TaskView",
    "Usage",
    "load_suite",
    "log",
    "make",
    "read_results",
    "register_environment",
    "rescore",
    "run_episode",
    "spend",
    "think",
]

# Imported when first asked for: whoever merely has the plugin installed pays for none of it.
_HOMES = {
    "AgentEnvironment": "agents.agent_environment",
    "Budget": "core.usage",
    "BudgetExhausted": "errors",
    "Environment": "environments.base",
    "Episode": "core.record",
    "EpisodeRecord": "core.record",
    "IntercodeError": "errors",
    "InterpreterEnvironment": "environments.interpreter",
    "Observation": "core.turn",
    "Reward": "core.reward",
    "ShellEnvironment": "environments.shell",
    "Task": "core.task",
    "TaskView": "core.task",
    "Usage": "core.usage",
    "load_suite": "suites.loader",
    "log": "agents.ledger",
    "make": "environments.making",
    "read_results": "results.reading",
    "register_environment": "environments.registry",
    "rescore": "rescoring.rescored",
    "run_episode": "rollouts.episode",
    "spend": "agents.ledger",
    "think": "agents.ledger",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
