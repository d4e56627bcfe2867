"""What pytest collects: our suites among its arguments, and in addition to them.

A suite that the command line names always runs. A suite that only the ini file names runs with the
project's own tests if the command line names nothing else; otherwise the header reports that it was
left out. Nothing large is imported here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_intercode.plugin.ini import ini_values
from pytest_intercode.plugin.options import on_command_line

if TYPE_CHECKING:
    from pytest_intercode.plugin.selection import Selection

__all__ = ["add_suite_files", "find_suites", "names_tasks", "take_arguments"]

_SELECTING = ("env", "dataset")
_NODE = re.compile(
    r"(?:\.\./)*intercode/(?P<env>[a-z][a-z0-9_]*)(?:::(?P<name>\w+)(?:\[(?P<id>.+)\])?)?$"
)
_SUITES = (".yaml", ".yml")
_Source = pytest.Config.ArgsSource


def add_suite_files(config: pytest.Config, patterns: list[str]) -> None:
    """Add the files of ``intercode_suites`` that lie outside of ``testpaths`` to what is collected.

    Only if the command line names no path; otherwise this would add what was not asked for.

    Args:
        config: pytest's.
        patterns: glob patterns, below the project's folder.
    """
    if config.args_source is not _Source.TESTPATHS:
        return
    folders = [(config.rootpath / argument).resolve() for argument in config.args]
    paths = sorted(
        {path for pattern in patterns for path in _glob_suites(config.rootpath, pattern)}
    )
    config.args += [
        str(path)
        for path in paths
        if not any(path.resolve().is_relative_to(folder) for folder in folders)
    ]


def find_suites(config: pytest.Config) -> list[Path]:
    """Return the suite files among what pytest is to collect."""
    names = [argument.split("::")[0] for argument in config.args]
    return [config.invocation_params.dir / name for name in names if name.endswith(_SUITES)]


def _glob_suites(folder: Path, pattern: str) -> list[Path]:
    try:
        return [path for path in folder.glob(pattern) if path.suffix in _SUITES]
    except (NotImplementedError, ValueError):  # an absolute pattern, or an empty one
        return []


def take_arguments(config: pytest.Config, tasks: Selection) -> list[str]:
    """Take ``intercode/...`` out of pytest's arguments, and decide which whole suites run.

    Returns:
        Lines for the header: what is collected in addition to the arguments, and what is left out.
    """
    from_arguments = config.args_source is _Source.ARGS
    testpaths: list[str] = [] if from_arguments else config.getini("testpaths")
    at_root = config.invocation_params.dir == config.rootpath
    arguments = config.args if from_arguments else testpaths if at_root else []
    node_ids = [argument for argument in arguments if _select_node(argument, config, tasks)]
    remaining = [argument for argument in arguments if argument not in node_ids]
    selections = [name for name in _SELECTING if ini_values(config, f"intercode_{name}")]
    by_option = any(on_command_line(config, name) for name in _SELECTING)
    tasks.whole_suites = by_option or not arguments
    if node_ids and from_arguments:
        config.args[:] = remaining
    elif node_ids and not remaining:
        config.args[:] = []
    if by_option and not from_arguments:
        config.args[:] = []
        config.args_source = _Source.ARGS  # otherwise pytest's header says that it uses testpaths
        if remaining:
            return ["testpaths is ignored, as no path is given: only what the options name is run"]
    if not selections or by_option:
        return []
    values = " and ".join(f"intercode_{name} = {_join_values(config, name)}" for name in selections)
    if tasks.whole_suites:
        return [f"{values} (ini) runs with the project's own tests"]
    options = " ".join(
        f"--intercode-{name}={_join_values(config, name, ',')}" for name in selections
    )
    reason = "paths are given" if from_arguments else "testpaths is set"
    return [f"{values} (ini) is ignored, as {reason}: {options} runs it"]


def names_tasks(config: pytest.Config) -> bool:
    """Whether the command line itself asks for tasks: by an option, a suite's file or a node id."""
    if any(on_command_line(config, name) for name in _SELECTING):
        return True
    words = [str(word) for word in config.invocation_params.args]
    return any(word.split("::")[0].endswith(_SUITES) or _NODE.match(word) for word in words)


def _select_node(argument: str, config: pytest.Config, tasks: Selection) -> bool:
    """Select the task that an argument names; return whether it names one."""
    match = _NODE.match(argument)
    if match is None or (config.invocation_params.dir / argument.split("::")[0]).exists():
        return False
    tasks.paste(match["env"], match["id"])
    return True


def _join_values(config: pytest.Config, name: str, separator: str = " ") -> str:
    return separator.join(ini_values(config, f"intercode_{name}"))
