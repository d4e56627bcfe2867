"""``pytest-intercode grade``: predictions graded in sandboxes, without an agent.

Writes the file of ``--output`` and no other. Exit status: 0 all were graded, 1 some could not be,
2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.cli.arguments import (
    add_backend_argument,
    add_docker_arguments,
    add_option,
    add_permission_arguments,
    check_sandboxes,
    count,
    permissions_of,
    sandbox_settings,
)
from pytest_intercode.cli.printing import note, say
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.options.table import Options

if TYPE_CHECKING:
    from pytest_intercode.auditing.predictions import Graded
    from pytest_intercode.core.task import Task
    from pytest_intercode.results.predictions import Prediction

__all__ = ["HELP", "add_arguments", "run"]

HELP = "grade predictions (instance_id, model_patch) without an agent"

_CONCURRENCY = 2  # predictions at a time
_USAGE = 2  # exit status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "predictions",
        metavar="PREDICTIONS",
        help="a file of predictions (.jsonl or .json), or gold for the reference patches",
    )
    parser.add_argument(
        "--dataset",
        metavar="NAME|PATH",
        required=True,
        help="the tasks: a dataset such as swe-bench-verified, a suite (.yaml), or rows (.jsonl)",
    )
    add_option(
        parser,
        Options.data_path,
        "the folder of the datasets' rows (default: $INTERCODE_DATA)",
    )
    parser.add_argument(
        "--task", metavar="ID", nargs="+", action="extend", default=[], help="grade these only"
    )
    parser.add_argument(
        "--limit", metavar="N", type=count, help="grade the first N predictions only"
    )
    add_backend_argument(parser)
    add_option(parser, Options.base_images, "another base image, for mirrors (repeatable)")
    add_docker_arguments(parser)
    add_permission_arguments(parser)
    add_option(parser, Options.network, "let sandboxes reach the network")
    parser.add_argument(
        "--concurrency",
        metavar="N",
        type=count,
        default=_CONCURRENCY,
        help=f"predictions at a time (default: {_CONCURRENCY})",
    )
    parser.add_argument(
        "--output", metavar="FILE.jsonl", type=Path, help="write a report of each, a line each"
    )


def run(options: argparse.Namespace) -> int:
    """Grade the predictions, and say which are resolved."""
    try:
        graded = _grade_all(options, _pairs(options))
    except ConfigurationError as error:
        note(str(error))
        return _USAGE
    _print(graded)
    if options.output is not None:
        from pytest_intercode.auditing.predictions import report_line
        from pytest_intercode.core.files import write_file

        text = "".join(f"{json.dumps(report_line(result))}\n" for result in graded)
        for line in write_file(
            options.output.expanduser(), text, option="--output", existing="keep"
        ):
            note(line)
        say(f"written: {options.output}")
    return 1 if any(result.reward is None for result in graded) else 0


def _pairs(options: argparse.Namespace) -> list[tuple[Task, Prediction]]:
    """Return each prediction with its task.

    Raises:
        ConfigurationError: the tasks or predictions are wrong, or do not go together.
    """
    from pytest_intercode.auditing.predictions import GOLD, gold_predictions
    from pytest_intercode.environments.swe.fields import repository_of
    from pytest_intercode.results.predictions import read_predictions
    from pytest_intercode.suites.catalogue import data_folder, named_tasks, with_network

    option = f"--dataset={options.dataset}"
    folder = data_folder(options.data, "--data")
    selection = named_tasks(
        options.dataset,
        folder,
        option,
        folder=Path(),
        env="swe",
        permissions=permissions_of(options),
    )
    tasks = {task.id: with_network(task) if options.network else task for task in selection}
    without = next((task for task in tasks.values() if repository_of(task) is None), None)
    if without is not None:
        raise ConfigurationError(
            f"{option}: {without.source}: task {without.id!r} has no repository, so that no patch "
            "can be graded"
        )
    if options.predictions == GOLD:
        predictions = gold_predictions(tasks)
    else:
        predictions = read_predictions(Path(options.predictions).expanduser())
    for name in [*options.task, *predictions]:
        candidates = predictions if name in options.task else tasks
        if name not in candidates:
            subject = f"{options.predictions} has no prediction" if name in options.task else option
            raise ConfigurationError(
                f"{subject}: there is no {name!r}{' for it' if name in options.task else ' in it'}."
                + suggestion(name, candidates)
            )
    selected = [name for name in predictions if not options.task or name in options.task]
    return [(tasks[name], predictions[name]) for name in selected[: options.limit]]


def _grade_all(
    options: argparse.Namespace, pairs: Sequence[tuple[Task, Prediction]]
) -> list[Graded]:
    """Grade on so many threads; an interrupt cancels those that have not started."""
    from concurrent.futures import ThreadPoolExecutor

    from pytest_intercode.auditing.predictions import grade
    from pytest_intercode.sandboxes.provider import SandboxProvider

    provider = SandboxProvider(sandbox_settings(options), progress=note)
    threads = ThreadPoolExecutor(options.concurrency, thread_name_prefix="intercode-grade")
    try:
        check_sandboxes(provider)
        futures = [threads.submit(grade, provider, task, patch) for task, patch in pairs]
        return [future.result() for future in futures]
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
        provider.close()


def _print(graded: Sequence[Graded]) -> None:
    from pytest_intercode.core.text import format_columns, one_line, pluralize

    resolved = sum(result.resolved for result in graded)
    rows = []
    for result in graded:
        word = (
            "resolved"
            if result.resolved
            else "not graded"
            if result.reward is None
            else "unresolved"
        )
        value = "" if result.reward is None else f"{result.reward:.2f}"
        rows.append([word, value, result.task.id, one_line(result.reason)[:200]])
    for line in format_columns([[a, b, c, d] for a, b, c, d in rows], labels=4) if rows else ():
        say(line.rstrip())
    failed = sum(result.reward is None for result in graded)
    failures = f", {failed} could not be graded" if failed else ""
    say(f"{resolved} of {pluralize(len(graded), 'prediction')} resolved{failures}")
