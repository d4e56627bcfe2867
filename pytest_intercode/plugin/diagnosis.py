"""What a configuration asks for, and whether it can run: for ``pytest-intercode doctor``.

pytest reads its own configuration: the ini file, ``conftest.py``, ``PYTEST_ADDOPTS``, arguments. A
plugin then takes over before pytest is configured, so that nothing is collected or begun.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_intercode.agents.installed.facts import describe_recipes
from pytest_intercode.agents.loader import describe_agent
from pytest_intercode.core.facts import Fact
from pytest_intercode.core.secrets import MIN_SECRET, names_secret, variable_names_secret
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import hide_passwords, one_line, pluralize
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.options.table import OPTIONS
from pytest_intercode.plugin.arguments import add_suite_files, find_suites, take_arguments
from pytest_intercode.plugin.hooks import Hooks
from pytest_intercode.plugin.ini import SUITES, ini_values
from pytest_intercode.plugin.options import on_command_line
from pytest_intercode.plugin.selection import Selection
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.projects.facts import (
    ProjectTests,
    describe_project,
    describe_replays,
    find_project_tests,
)
from pytest_intercode.projects.recordings import RecordMode
from pytest_intercode.sandboxes.choice import describe_backends
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.catalogue import data_folder, describe_data
from pytest_intercode.system.extras import describe_extras, describe_requirements
from pytest_intercode.system.machine import describe_machine, describe_versions

__all__ = ["diagnose"]

_NOT_LOADED = (
    "pytest does not load the plugin: leave out -p no:intercode, or give -p "
    "pytest_intercode.plugin where PYTEST_DISABLE_PLUGIN_AUTOLOAD is set"
)
# pytest would warn of the package that our command has imported; a project may make that an error.
_NO_REWRITE_WARNING = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
_ERROR = re.compile(r"(?:^ERROR|: error): (?!usage:)(.*)")  # the form of pytest's error messages


def diagnose(arguments: Sequence[str]) -> list[Fact]:
    """Return facts about this machine, and about what pytest is configured for here.

    Nothing is collected, installed, built or left behind. A ``conftest.py`` and the agent's module
    are imported, as for a run; what they print is not shown. The texts contain no value of a
    variable or argument whose name says that it is a key, and the home folder is ``~``.

    Args:
        arguments: those of pytest.
    """
    reader = _Reader()
    output = io.StringIO()
    previous, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            pytest.main([*_NO_REWRITE_WARNING, *arguments], plugins=[reader])
    finally:
        sys.dont_write_bytecode = previous
    facts = reader.facts or list(
        _describe(None, None, (), _find_reason(output.getvalue()), ProjectTests())
    )
    facts = [describe_versions(), *describe_requirements(), *facts, *describe_machine()]
    secrets = [*_find_secrets(os.environ, variable_names_secret), *reader.secrets]
    return [
        replace(fact, subject=_redact(fact.subject, secrets), text=_redact(fact.text, secrets))
        for fact in facts
    ]


class _Reader:
    """Takes the configuration that pytest has read, instead of a run; a pytest plugin.

    Attributes:
        facts: the facts; empty if pytest could not read its configuration.
        secrets: texts of the configuration that must not be shown.
    """

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.secrets: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Describe the configuration; returning something keeps pytest from running."""
        capture: Any = config.pluginmanager.get_plugin("capturemanager")
        if capture is not None:
            capture.read_global_capture()  # conftest.py's, which would be printed at the end
        settings: Settings | None = None
        tasks: Sequence[Task] = ()
        tests = ProjectTests()
        problem = ""
        if not hasattr(config.hook, "pytest_intercode_modify_tasks"):
            problem = _NOT_LOADED
        else:
            try:
                settings = Settings.of(config)
                for agent in settings.agents:
                    self.secrets += _find_secrets(agent.arguments, names_secret)
                tasks = _read_tasks(config, settings)
                tests = _find_project_tests(config)
            except ConfigurationError as error:
                problem = str(error)
        self.facts += _describe(config, settings, tasks, problem, tests)
        return int(pytest.ExitCode.OK)


def _read_tasks(config: pytest.Config, settings: Settings) -> list[Task]:
    """Return the tasks that a run would have, except those of marks on test functions."""
    selection = Selection(settings, Hooks(config).modify_tasks)
    add_suite_files(config, ini_values(config, SUITES))
    take_arguments(config, selection)
    tasks = [task for suite in selection.bundled().values() for task in suite]
    for path in find_suites(config):
        tasks += selection.file(path)
    return tasks


def _describe(
    config: pytest.Config | None,
    settings: Settings | None,
    tasks: Sequence[Task],
    problem: str,
    tests: ProjectTests,
) -> Iterator[Fact]:
    """Yield facts about a configuration, and about what it needs of this machine.

    Args:
        config: pytest's; None where it could not be read.
        settings: our options; None where they could not be read.
        tasks: the tasks.
        problem: what is wrong with the configuration, or nothing.
        tests: the project tests.
    """
    if problem:
        yield Fact("configuration", problem, "problem")
    elif config is not None:
        yield Fact("configuration", _describe_options(config))
    if config is not None:
        distributions = config.pluginmanager.list_plugin_distinfo()
        plugins = {f"{dist.project_name} {dist.version}" for _, dist in distributions}
        yield Fact("pytest plugins", ", ".join(sorted(plugins)) or "none")
    if tasks:
        environments = ", ".join(dict.fromkeys(task.env for task in tasks))
        yield Fact("tasks", f"{pluralize(len(tasks), 'task')} of {environments}")
    if settings is None:
        yield from describe_backends(SandboxSettings(), needed=False)
    else:
        yield from _describe_sandboxes(settings, tasks, tests)
        yield from _describe_agents(settings)
        if config is not None and tests:
            yield from _describe_project_tests(config, settings, tests)
    yield from describe_recipes()
    gateway = GatewaySettings.of_environment() if settings is None else settings.gateway
    yield from gateway.describe()
    yield from describe_extras(set() if settings is None else _find_extras(settings, tasks, tests))
    yield from describe_data(data_folder(None, "") if settings is None else settings.data)


def _describe_options(config: pytest.Config) -> str:
    """Return which options are given, and where; not their values, which may be secrets."""
    file = "no ini file" if config.inipath is None else str(config.inipath)
    names = [option.ini for option in OPTIONS if ini_values(config, option.ini)]
    arguments = [
        f"--intercode-{option.name}" for option in OPTIONS if on_command_line(config, option.key)
    ]
    text = f"{file}: {', '.join(names) or 'none of our options'}"
    return f"{text}; arguments: {', '.join(arguments)}" if arguments else text


def _describe_sandboxes(
    settings: Settings, tasks: Sequence[Task], tests: ProjectTests
) -> Iterator[Fact]:
    is_needed = any(kind_of(task.env).needs_sandbox(task) for task in tasks if not task.skip)
    is_needed = is_needed or bool(tests.modules and settings.agents)
    facts = describe_backends(settings.sandbox, needed=is_needed)
    if settings.cluster:  # its nodes have their own backends
        yield from (fact.where(needed=False) for fact in facts)
        return
    yield from facts
    if facts[0].state != "ok" or any(fact.state == "problem" for fact in facts):
        return
    provider = SandboxProvider(settings.sandbox)
    try:
        provider.check(settings.checked_sandbox_options)
    except ConfigurationError as error:
        yield Fact("sandboxes", str(error), "problem")
    finally:
        provider.close()


def _describe_agents(settings: Settings) -> Iterator[Fact]:
    if not settings.agents:
        text = "none is given: give --intercode-agent, or set intercode_agent in the ini file"
        yield Fact("agent", text, "note")
    for agent in settings.agents:
        folder, shared = settings.agent_folder, settings.agent_arguments
        fact = describe_agent(agent.name, agent.arguments, folder, settings.gateway)
        yield replace(fact, text=agent.explain(fact.text, shared))


def _find_project_tests(config: pytest.Config) -> ProjectTests:
    """Return the project tests among what pytest is to collect."""
    folder = config.invocation_params.dir
    return find_project_tests(
        [folder / argument.partition("::")[0] for argument in config.args],
        config.getini("python_files"),
        config.getini("norecursedirs"),
    )


def _describe_project_tests(
    config: pytest.Config, settings: Settings, tests: ProjectTests
) -> Iterator[Fact]:
    yield from describe_project(tests, config.rootpath, settings.outputs)
    mode = cast(RecordMode, settings.record or "")
    folder = settings.agent_folder
    yield from describe_replays(tests, settings.agents, settings.gateway, mode, folder)


def _find_extras(settings: Settings, tasks: Sequence[Task], tests: ProjectTests) -> set[str]:
    """Return the extras without which the configuration cannot run."""
    needs = {
        "html": settings.html,
        "ray": settings.cluster,
        "gateway": settings.gateway.programs,
        "project": tests.modules and settings.agents,
    }
    extras = {name for name, value in needs.items() if value}
    return extras | {kind_of(task.env).extra(task) for task in tasks if not task.skip}


def _find_reason(output: str) -> str:
    """Return why pytest could not read its configuration, from what it has printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    # pytest prints its usage before a wrong option, and a traceback after a wrong conftest.py.
    errors = [match[1] for line in lines if (match := _ERROR.search(line))]
    raised = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")]
    words = errors[-1:] or [*(line.rstrip(".") for line in lines[:1]), *raised[-1:]]
    return f"pytest cannot read it: {': '.join(words) or 'no reason given'}"


def _find_secrets(values: Mapping[str, str], is_secret: Callable[[str], bool]) -> list[str]:
    """Return the values whose names say that they are keys, tokens, secrets or passwords."""
    return [value for name, value in values.items() if is_secret(name) and len(value) >= MIN_SECRET]


def _redact(text: str, secrets: Sequence[str]) -> str:
    """Return a text as one line without secrets and without the home folder's name."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "(hidden)")
    with contextlib.suppress(RuntimeError):  # a user without a name, and HOME is not set
        home = str(Path.home())
        if home != "/":
            text = text.replace(f"{home}/", "~/")
    return one_line(hide_passwords(text))
