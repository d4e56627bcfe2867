"""``pytest-intercode convert``: writes tasks as folders in Harbor's format."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from pytest_intercode.cli.arguments import add_permission_arguments, permissions_of
from pytest_intercode.cli.printing import note, say
from pytest_intercode.core.text import pluralize

__all__ = ["HELP", "add_arguments", "run"]

HELP = "write tasks of Terminal-Bench 1 or of a swe suite as folders in Harbor's format"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "source",
        metavar="PATH",
        help="a folder of task folders (Terminal-Bench 1), or a suite (.yaml) of swe tasks",
    )
    parser.add_argument(
        "--to", metavar="DIR", type=Path, required=True, help="the folder to write them into"
    )
    add_permission_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Write the tasks that can be written; name each one that cannot.

    Raises:
        ConfigurationError: there is no such source, or the folder cannot be written.
    """
    from pytest_intercode.environments.swe.gold import gold_actions
    from pytest_intercode.errors import ConfigurationError, SuiteError
    from pytest_intercode.suites.catalogue import named_tasks
    from pytest_intercode.suites.harbor.terminal_bench import CONFIG
    from pytest_intercode.suites.harbor.writing import write_swe, write_terminal_bench
    from pytest_intercode.system.suite_folder import SuiteFolder

    permissions = permissions_of(options)
    tasks = named_tasks(
        options.source,
        None,
        options.source,
        folder=Path.cwd(),
        env=None,
        permissions=permissions,
    )
    folder: Path = options.to.expanduser()
    written_count = 0
    for task in tasks:
        target = folder / task.id
        if target.exists():
            note(f"{target}: already exists, and is left unchanged")
            continue
        try:
            source = Path(task.source)
            if task.skip:
                raise SuiteError(f"{task.source}: {task.skip}")
            if source.name == CONFIG:
                is_alone = (source.parent / ".").samefile(options.source)
                root = source.parent if is_alone else source.parent.parent
                with SuiteFolder(root, permissions) as top:
                    task_folder = top if is_alone else top / source.parent.name
                    write_terminal_bench(task_folder, target)
            else:
                write_swe(task, gold_actions(task), target)
            written_count += 1
        except SuiteError as error:
            shutil.rmtree(target, ignore_errors=True)
            note(str(error))
        except OSError as error:
            shutil.rmtree(target, ignore_errors=True)
            raise ConfigurationError(f"--to={folder}: cannot be written: {error}") from None
    say(f"{folder}: {pluralize(written_count, 'task')} of {len(tasks)} written")
    return 0 if written_count == len(tasks) else 1
