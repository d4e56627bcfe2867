"""pytest-intercode: coding agents tested as pytest items, each task in a sandbox of its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_intercode.agents.agent_environment import AgentEnvironment
    from pytest_intercode.agents.ledger import log, spend, think
    from pytest_intercode.agents.protocol import Agent, AgentLike, LoopAgent, StepAgent
    from pytest_intercode.core.record import (
        EpisodeRecord,
        FirstScore,
        Outcome,
        ShardRecord,
        TaskRecord,
    )
    from pytest_intercode.core.reward import Reward
    from pytest_intercode.core.task import (
        Archive,
        Artifact,
        Database,
        FileSpec,
        FormatName,
        Hook,
        ImageSource,
        Limits,
        Normaliser,
        Repository,
        RewardOptions,
        Step,
        Task,
        TaskView,
        Test,
        Verification,
    )
    from pytest_intercode.core.turn import (
        CommandResult,
        Feedback,
        Observation,
        Profile,
        SandboxInfo,
        StepResult,
        Turn,
    )
    from pytest_intercode.core.usage import Budget, Usage
    from pytest_intercode.environments.base import Environment
    from pytest_intercode.environments.interpreter import InterpreterEnvironment
    from pytest_intercode.environments.making import make
    from pytest_intercode.environments.registry import register_environment
    from pytest_intercode.environments.shell import ShellEnvironment
    from pytest_intercode.errors import BudgetExhausted, IntercodeError
    from pytest_intercode.plugin.fixtures import PendingEpisode
    from pytest_intercode.rescoring.function import RewardFunction
    from pytest_intercode.rescoring.rescored import Change, Rescored, rescore
    from pytest_intercode.results.files import read_records, read_results
    from pytest_intercode.rollouts.agent_thread import SharedLoop
    from pytest_intercode.rollouts.cluster.connection import Cluster
    from pytest_intercode.rollouts.cluster.placement import NodeCounts
    from pytest_intercode.rollouts.stream import RolloutStream, run_rollouts
    from pytest_intercode.rollouts.turn_loop import run_episode
    from pytest_intercode.sandboxes.protocol import Changes, Entry, Execution, Sandbox, SandboxSpec
    from pytest_intercode.sandboxes.provider import SandboxProvider
    from pytest_intercode.suites.loader import Suite, load_suite
    from pytest_intercode.suites.permissions import Permissions

__all__ = [
    "Agent",
    "AgentEnvironment",
    "AgentLike",
    "Archive",
    "Artifact",
    "Budget",
    "BudgetExhausted",
    "Change",
    "Changes",
    "Cluster",
    "CommandResult",
    "Database",
    "Entry",
    "Environment",
    "EpisodeRecord",
    "Execution",
    "Feedback",
    "FileSpec",
    "FirstScore",
    "FormatName",
    "Hook",
    "ImageSource",
    "IntercodeError",
    "InterpreterEnvironment",
    "Limits",
    "LoopAgent",
    "NodeCounts",
    "Normaliser",
    "Observation",
    "Outcome",
    "PendingEpisode",
    "Permissions",
    "Profile",
    "Repository",
    "Rescored",
    "Reward",
    "RewardFunction",
    "RewardOptions",
    "RolloutStream",
    "Sandbox",
    "SandboxInfo",
    "SandboxProvider",
    "SandboxSpec",
    "ShardRecord",
    "SharedLoop",
    "ShellEnvironment",
    "Step",
    "StepAgent",
    "StepResult",
    "Suite",
    "Task",
    "TaskRecord",
    "TaskView",
    "Test",
    "Turn",
    "Usage",
    "Verification",
    "load_suite",
    "log",
    "make",
    "read_records",
    "read_results",
    "register_environment",
    "rescore",
    "run_episode",
    "run_rollouts",
    "spend",
    "think",
]

# Imported when first asked for: where the plugin is only installed, none of it is loaded.
_HOMES = {
    "Agent": "agents.protocol",
    "AgentEnvironment": "agents.agent_environment",
    "AgentLike": "agents.protocol",
    "Archive": "core.task",
    "Artifact": "core.task",
    "Budget": "core.usage",
    "BudgetExhausted": "errors",
    "Change": "rescoring.rescored",
    "Changes": "sandboxes.protocol",
    "Cluster": "rollouts.cluster.connection",
    "CommandResult": "core.turn",
    "Database": "core.task",
    "Entry": "sandboxes.protocol",
    "Environment": "environments.base",
    "EpisodeRecord": "core.record",
    "Execution": "sandboxes.protocol",
    "Feedback": "core.turn",
    "FileSpec": "core.task",
    "FirstScore": "core.record",
    "FormatName": "core.task",
    "Hook": "core.task",
    "ImageSource": "core.task",
    "IntercodeError": "errors",
    "InterpreterEnvironment": "environments.interpreter",
    "Limits": "core.task",
    "LoopAgent": "agents.protocol",
    "NodeCounts": "rollouts.cluster.placement",
    "Normaliser": "core.task",
    "Observation": "core.turn",
    "Outcome": "core.record",
    "PendingEpisode": "plugin.fixtures",
    "Permissions": "suites.permissions",
    "Profile": "core.turn",
    "Repository": "core.task",
    "Rescored": "rescoring.rescored",
    "Reward": "core.reward",
    "RewardFunction": "rescoring.function",
    "RewardOptions": "core.task",
    "RolloutStream": "rollouts.stream",
    "Sandbox": "sandboxes.protocol",
    "SandboxInfo": "core.turn",
    "SandboxProvider": "sandboxes.provider",
    "SandboxSpec": "sandboxes.protocol",
    "ShardRecord": "core.record",
    "SharedLoop": "rollouts.agent_thread",
    "ShellEnvironment": "environments.shell",
    "Step": "core.task",
    "StepAgent": "agents.protocol",
    "StepResult": "core.turn",
    "Suite": "suites.loader",
    "Task": "core.task",
    "TaskRecord": "core.record",
    "TaskView": "core.task",
    "Test": "core.task",
    "Turn": "core.turn",
    "Usage": "core.usage",
    "Verification": "core.task",
    "load_suite": "suites.loader",
    "log": "agents.ledger",
    "make": "environments.making",
    "read_records": "results.files",
    "read_results": "results.files",
    "register_environment": "environments.registry",
    "rescore": "rescoring.rescored",
    "run_episode": "rollouts.turn_loop",
    "run_rollouts": "rollouts.stream",
    "spend": "agents.ledger",
    "think": "agents.ledger",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
