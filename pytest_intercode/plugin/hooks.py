"""Calls the hooks that users implement, and checks what they return.

An error in a hook, or an unusable result, is reported in one line that names the hook.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.loader import adapt
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import AgentLoadError, ConfigurationError, IntercodeError
from pytest_intercode.system.imports import describe_error

__all__ = ["HookError", "Hooks"]

_OUR_MODULES = "pytest_intercode."


class HookError(ConfigurationError):
    """A user's hook raised an exception, or returned an unusable value."""


class Hooks:
    """The hooks of a run, as :mod:`pytest_intercode.plugin.hookspecs` declares them.

    Every method raises a :class:`HookError` if an implementation raised an exception that is not
    one of ours, or did not return what its hook declares.

    Args:
        config: pytest's configuration.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def modify_tasks(self, tasks: list[Task]) -> None:
        """Let hooks edit a list of tasks in place."""
        returned = self._call("modify_tasks", tasks=tasks)
        for value in returned:
            if value is not tasks:
                raise self._error(
                    "modify_tasks",
                    f"returned {value!r:.40}, which is ignored: edit the list of tasks in place, "
                    "as in tasks[:] = ...",
                )
        for task in tasks:
            if not isinstance(task, Task):
                raise self._error(
                    "modify_tasks", f"left {task!r:.80} in the list of tasks, which is not a Task"
                )

    def make_agent(self, task: Task) -> Agent | None:
        """Return the agent for an episode; None to leave it to ``--intercode-agent``."""
        agent = self._call("make_agent", task=task)
        try:
            return None if agent is None else adapt(agent)
        except AgentLoadError as error:
            raise self._error("make_agent", f"returned what is not an agent: {error}") from None

    def make_environment(self, task: Task) -> Environment:
        """Return the environment for an episode, not reset yet."""
        environment = self._call("make_environment", task=task)
        if not isinstance(environment, Environment):
            raise self._error(
                "make_environment",
                f"returned {environment!r:.80}, which is neither an Environment nor None",
            )
        return environment

    def log_episode(self, task: Task, episode: EpisodeRecord) -> None:
        """Report that an episode has ended and been graded."""
        self._call("log_episode", task=task, episode=episode)

    def _call(self, name: str, **arguments: Any) -> Any:
        caller = getattr(self._config.hook, f"pytest_intercode_{name}")
        try:
            return caller(config=self._config, **arguments)
        except IntercodeError:
            raise
        except Exception as error:
            place = _find_place(caller, error)
            raise HookError(
                f"the hook pytest_intercode_{name}{place} raised {describe_error(error)}"
            ) from None

    def _error(self, name: str, mistake: str) -> HookError:
        """Return the error for a mistake of an implementation; which of several is not known."""
        caller = getattr(self._config.hook, f"pytest_intercode_{name}")
        places = [
            _describe_place(implementation.plugin_name, code.co_filename, code.co_firstlineno)
            for implementation in caller.get_hookimpls()
            if not str(implementation.function.__module__).startswith(_OUR_MODULES)
            and (code := getattr(implementation.function, "__code__", None)) is not None
        ]
        return HookError(f"the hook pytest_intercode_{name}{' or'.join(places)} {mistake}")


def _find_place(caller: Any, error: BaseException) -> str:
    """Return the implementation that raised: its plugin, its file, and the line in it."""
    plugins = {
        getattr(implementation.function, "__code__", None): implementation.plugin_name
        for implementation in caller.get_hookimpls()
    }
    for frame, line in traceback.walk_tb(error.__traceback__):
        plugin = plugins.get(frame.f_code)
        if plugin is not None:
            return _describe_place(plugin, frame.f_code.co_filename, line)
    return ""


def _describe_place(plugin: str, file: str, line: int) -> str:
    is_conftest = Path(plugin) == Path(file) or plugin == file
    owner = "" if is_conftest else f" of the plugin {plugin}"
    return f"{owner} at {file}:{line}"
