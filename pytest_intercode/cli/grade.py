"""``pytest-intercode grade``: grades predictions in sandboxes, without an agent.

Writes only the file of ``--output``. Exit status: 0 all were graded, 1 some could not be graded,
2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.cli.arguments import (
    add_concurrency_argument,
    add_option,
    add_options,
    add_permission_arguments,
    count,
    map_concurrently,
    permissions_of,
    sandboxes_of,
)
from pytest_intercode.cli.printing import check_output, note, say, write_output
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.options.table import Options
from pytest_intercode.system.platform import check_platform

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
    add_options(parser, Options.data_path)
    parser.add_argument(
        "--task", metavar="ID", nargs="+", action="extend", default=[], help="grade these only"
    )
    parser.add_argument(
        "--limit", metavar="N", type=count, help="grade the first N predictions only"
    )
    add_option(parser, Options.backend, "the backend of sandboxes")
    add_options(parser, Options.base_images, Options.docker_hosts, Options.registry)
    add_options(parser, Options.platform)
    add_permission_arguments(parser)
    add_options(parser, Options.network)
    add_concurrency_argument(parser, _CONCURRENCY, "predictions")
    parser.add_argument(
        "--output", metavar="FILE.jsonl", type=Path, help="write a report of each, a line each"
    )


def run(options: argparse.Namespace) -> int:
    """Grade the predictions, and print which are resolved."""
    try:
        check_platform()
        from pytest_intercode.auditing.predictions import grade, report_line

        pairs = _pairs(options)
        if options.output is not None:
            check_output(options.output)
        with sandboxes_of(options) as provider:
            graded = map_concurrently(
                lambda pair: grade(provider, *pair),
                pairs,
                options.concurrency,
                stop=provider.close,
            )
    except ConfigurationError as error:
        note(str(error))
        return _USAGE
    _print(graded)
    if options.output is not None:
        text = "".join(f"{json.dumps(report_line(result))}\n" for result in graded)
        write_output(options.output, text)
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
            f"{option}: {without.source}: task {without.id!r} has no repository, so no patch can "
            "be graded"
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


def _print(graded: Sequence[Graded]) -> None:
    from pytest_intercode.core.text import format_columns, one_line, pluralize

    resolved = sum(result.resolved for result in graded)
    rows = []
    for result in graded:
        word, value = "not graded", ""
        if result.reward is not None:
            word = "resolved" if result.resolved else "unresolved"
            value = f"{result.reward:.2f}"
        rows.append([word, value, result.task.id, one_line(result.reason)[:200]])
    for line in format_columns(rows, labels=4) if rows else ():
        say(line.rstrip())
    failed = sum(result.reward is None for result in graded)
    failures = f", {failed} could not be graded" if failed else ""
    say(f"{resolved} of {pluralize(len(graded), 'prediction')} resolved{failures}")
