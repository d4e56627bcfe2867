"""pytest-intercode: coding agents tested as pytest items, each task in a sandbox of its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_intercode.agents.facade import AgentEnvironment
    from pytest_intercode.agents.ledger import Budget, Usage, log, spend, think
    from pytest_intercode.agents.recordings import read_results
    from pytest_intercode.environments.base import Environment, Observation
    from pytest_intercode.environments.interpreter import InterpreterEnvironment
    from pytest_intercode.environments.registry import register_environment
    from pytest_intercode.environments.shell import ShellEnvironment
    from pytest_intercode.episode import Episode, run_episode
    from pytest_intercode.errors import BudgetExhausted, IntercodeError
    from pytest_intercode.making import make
    from pytest_intercode.rescoring.rescored import rescore
    from pytest_intercode.rewards.protocol import Reward
    from pytest_intercode.suites.loader import load_suite
    from pytest_intercode.suites.task import Task, TaskView

__all__ = [
    "AgentEnvironment",
    "Budget",
    "BudgetExhausted",
    "Environment",
    "Episode",
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
    "AgentEnvironment": "agents.facade",
    "Budget": "agents.ledger",
    "BudgetExhausted": "errors",
    "Environment": "environments.base",
    "Episode": "episode",
    "IntercodeError": "errors",
    "InterpreterEnvironment": "environments.interpreter",
    "Observation": "environments.base",
    "Reward": "rewards.protocol",
    "ShellEnvironment": "environments.shell",
    "Task": "suites.task",
    "TaskView": "suites.task",
    "Usage": "agents.ledger",
    "load_suite": "suites.loader",
    "log": "agents.ledger",
    "make": "making",
    "read_results": "agents.recordings",
    "register_environment": "environments.registry",
    "rescore": "rescoring.rescored",
    "run_episode": "episode",
    "spend": "agents.ledger",
    "think": "agents.ledger",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
