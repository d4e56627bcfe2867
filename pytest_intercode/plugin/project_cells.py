"""The items of project tests: the agent, treatment and try of each, and the options of its runs.

A test that takes ``intercode_project`` has an item for each combination. The arguments of marks and
the options of runs are declared here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

from pytest_intercode.agents.answers import AnswerSource
from pytest_intercode.agents.choice import AgentChoice
from pytest_intercode.core.text import escape_for_terminal
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.plugin.marks import make_agent_marks
from pytest_intercode.plugin.project_recordings import Replay
from pytest_intercode.plugin.run import run_of
from pytest_intercode.projects.fakes import Fake
from pytest_intercode.projects.treatments import Treatment, find_treatments

__all__ = [
    "MARK_ARGUMENTS",
    "OF_MARKS",
    "RUN_OPTIONS",
    "ProjectCell",
    "RunOptions",
    "cell_of",
    "check_forms",
    "mark_arguments",
    "name_test",
    "parametrize",
]


class RunOptions(TypedDict, total=False):
    """The options of a run, which a mark may also set for all runs of a test.

    Attributes:
        project: the project to copy: a folder, relative to the test's own, or a revision of the
            project's repository; by default pytest's ``rootdir`` in its current state, which may be
            one part of a monorepo.
        image: the name of the sandbox's image; by default a small Debian with git, Python and the
            usual tools.
        dockerfile: the Dockerfile of the sandbox's image, relative to the test's folder.
        setup: commands that prepare the copy, as root, before the agent starts; each must succeed.
        max_turns: the maximum number of turns (50).
        timeout: the time limit of the agent in seconds (600).
        fake: programs to replace by fakes, by name: a ``Fake``, or the path of a script.
        watch: programs whose calls are recorded.
        answers: the user's answers when the agent hands back: a list, a mapping from a text or a
            pattern, or a function ``(message, run)``.
        judge_model: the model that ``run.judge()`` asks if it does not name one.
        user: instead of answers, a description of the user, whom a model plays.
        user_model: the model that plays the user; by default the agent's.
        mcp: command lines or addresses of MCP servers, by name:
            ``{"tickets": "python server.py"}``.
        replay: how a recording is replayed: with the agent itself (``agent``), or from the record
            of what it did (``observations``), for an agent that is not installed.
    """

    project: str | os.PathLike[str]
    image: str
    dockerfile: str | os.PathLike[str]
    setup: Sequence[str]
    max_turns: int
    timeout: float
    fake: Mapping[str, Fake | str | os.PathLike[str]]
    watch: Sequence[str]
    answers: AnswerSource
    user: str
    user_model: str
    judge_model: str
    mcp: Mapping[str, str]
    replay: Replay


RUN_OPTIONS = tuple(RunOptions.__annotations__)
OF_MARKS = {
    "treatments": "the folder with treatments, relative to the test's; the project as it is takes "
    "part as ``control``",
    "repeat": "how often each is tried",
    "pass_rate": "the share of the tries that has to pass, such as 0.8",
}
"""The arguments that only a mark may have, with their meanings."""
MARK_ARGUMENTS = (*RUN_OPTIONS, *OF_MARKS)
_PATHS = (str, os.PathLike)
_FORMS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "project": (_PATHS, "a folder or a revision"),
    "image": ((str,), "the name of an image"),
    "dockerfile": (_PATHS, "the path of a file"),
    "treatments": (_PATHS, "the path of a folder"),
    "setup": ((list, tuple), 'a list of commands, such as ["make"]'),
}


@dataclass(frozen=True)
class ProjectCell:
    """Which try of a project test an item is.

    Attributes:
        agent: the agent that plays it.
        treatment: what is laid over the project; None where the test has no treatments.
        repeat: the number of the try, from 1.
        id: the item's id, or the part of it that we add.
        tries: how many tries there are; None for one.
        pass_rate: the share of them that must pass; None where each counts by itself.
    """

    agent: AgentChoice
    treatment: Treatment | None
    repeat: int
    id: str
    tries: int | None = None
    pass_rate: float | None = None


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give a project test a call for each agent, treatment and try.

    Raises:
        CollectError: an option or its mark is wrong.
    """
    try:
        cells = list(_cells(metafunc))
    except ConfigurationError as error:
        raise pytest.Collector.CollectError(escape_for_terminal(str(error))) from None
    if cells:
        parameters = [
            pytest.param(cell, id=cell.id, marks=make_agent_marks(metafunc.config, cell.agent))
            for cell in cells
        ]
        metafunc.parametrize("intercode_project", parameters, indirect=True)


def _cells(metafunc: pytest.Metafunc) -> list[ProjectCell]:
    settings = run_of(metafunc.config).settings
    definition = metafunc.definition
    arguments = mark_arguments(definition)
    folder = arguments.get("treatments")
    count, rate = settings.repetition(f"{definition.nodeid}: @pytest.mark.intercode", arguments)
    cells = []
    for agent in settings.agents:
        treatments: Sequence[Treatment | None] = (None,)
        if folder is not None:
            names = {agent.name, agent.label}
            path = definition.path.parent / folder
            treatments = find_treatments(path, names, settings.treatments)
        for treatment in treatments:
            for number in range(1, count + 1):
                words = [agent.label, *([treatment.name] if treatment else [])]
                words += [str(number)] if count > 1 else []
                tries = count if count > 1 else None
                cells.append(ProjectCell(agent, treatment, number, "-".join(words), tries, rate))
    return cells


def mark_arguments(node: pytest.Item | pytest.Collector) -> dict[str, Any]:
    """Return the arguments of a test's marks; those of the nearest mark win.

    Raises:
        ConfigurationError: an argument is unknown, or has a wrong type.
    """
    arguments: dict[str, Any] = {}
    for mark in node.iter_markers("intercode"):
        if mark.args:
            raise ConfigurationError(
                f"{node.nodeid}: @pytest.mark.intercode({mark.args[0]!r:.60}): use keyword "
                "arguments"
            )
        check_forms(f"{node.nodeid}: @pytest.mark.intercode", mark.kwargs)
        for name, value in mark.kwargs.items():
            if name not in MARK_ARGUMENTS:
                raise ConfigurationError(
                    f"{node.nodeid}: @pytest.mark.intercode has no argument {name!r} for a test "
                    f"with intercode_project.{suggestion(name, MARK_ARGUMENTS)} Allowed: "
                    f"{', '.join(MARK_ARGUMENTS)}"
                )
            arguments.setdefault(name, value)
    return arguments


def check_forms(place: str, options: Mapping[str, Any]) -> None:
    """Check the types of the options of a run.

    Args:
        place: where the options are given, for the message.
        options: the options.

    Raises:
        ConfigurationError: an option has a wrong type.
    """
    for name, (types, form) in _FORMS.items():
        value = options.get(name)
        commands = value if isinstance(value, (list, tuple)) else ()
        fits = isinstance(value, types) and all(isinstance(command, str) for command in commands)
        if not (fits or value is None):
            raise ConfigurationError(f"{place}({name}={value!r:.60}): it has to be {form}")


def cell_of(item: pytest.Item) -> ProjectCell | None:
    """Return which try of a project test an item is; None for other items, or without an agent."""
    spec = getattr(item, "callspec", None)
    cell = spec.params.get("intercode_project") if spec is not None else None
    return cell if isinstance(cell, ProjectCell) else None


def name_test(item: pytest.Item, cell: ProjectCell) -> tuple[str, str]:
    """Return the suite and the id of an item's tasks: its module, and its function.

    The name of the function includes its own parameters, but not the part of the id that we add.
    """
    suite, _, function = item.nodeid.partition("::")
    name, bracket, parameters = function.partition("[")
    if not bracket:
        return suite, name
    own_parameters = f"-{parameters[:-1]}-".replace(f"-{cell.id}-", "-", 1).strip("-")
    return suite, f"{name}[{own_parameters}]" if own_parameters else name
