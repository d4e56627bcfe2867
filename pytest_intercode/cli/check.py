"""``pytest-intercode check``: what the tasks of a dataset need on this machine, before a run.

Reads task folders, and looks for images and sets of the verifier kit; builds and downloads nothing.
Exit status: 0 nothing is missing, 1 something is missing, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.cli.arguments import add_option, add_options
from pytest_intercode.cli.needed_images import (
    MISSING,
    PRESENT,
    UNKNOWN,
    count_facts,
    count_sources,
    describe_name,
)
from pytest_intercode.cli.printing import note, say
from pytest_intercode.core.text import first_names, format_columns, pluralize
from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.options.table import Options

if TYPE_CHECKING:
    from pytest_intercode.core.task import ImageSource, Task

__all__ = ["HELP", "add_arguments", "run"]

HELP = "show what a dataset needs (base images, verifier kit) and which tasks would be skipped"

_USAGE = 2  # exit status
_MAX_NAMED = 5  # tasks that a row names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "datasets",
        metavar="PATH",
        nargs="+",
        help="a task folder, a folder of them, their registry (registry.json:NAME), or a dataset",
    )
    add_options(parser, Options.base_images)
    add_option(
        parser,
        Options.network,
        "as for --intercode-network: tests whose sandbox has the network need no kit",
    )


def run(options: argparse.Namespace) -> int:
    """Print a table of what is needed, and how to get what is missing."""
    from pytest_intercode.suites.catalogue import data_folder, named_tasks, with_network

    tasks: list[Task] = []
    try:
        for name in options.datasets:
            folder = data_folder(None, "--data")
            tasks += named_tasks(name, folder, f"check {name}", folder=Path.cwd(), env=None)
    except ConfigurationError as error:
        note(str(error))
        return _USAGE
    played = [with_network(task) if options.network else task for task in tasks if not task.skip]
    images = _images(played, dict(options.base_image))
    sets = _sets(played)
    rows: list[tuple[str, str, int, str]] = [
        *((state, "image", number, name) for (state, name), number in images.items()),
        *((state, "kit", number, name) for (state, name), number in sets.items()),
        *(("skipped", "", number, reason) for reason, number in _reasons(tasks).items()),
        *(
            (text, "", len(without), first_names((task.id for task in without), _MAX_NAMED))
            for text, without in _without(played)
            if without
        ),
    ]
    table = [[state, kind, pluralize(number, "task"), text] for state, kind, number, text in rows]
    for line in format_columns(table, labels=4) if table else ():
        say(line.rstrip())
    say(f"{pluralize(len(tasks), 'task')}, {len(tasks) - len(played)} of them skipped")
    return _advise(options.datasets, {(state, kind) for state, kind, *_ in rows})


def _advise(datasets: Sequence[str], states: Collection[tuple[str, str]]) -> int:
    """Print how to get what is missing; return the exit status."""
    from pytest_intercode.environments.swe.kit import add_command

    if (UNKNOWN, "image") in states:
        note("no Docker engine answers, so it is not known which images exist")
    if (MISSING, "image") in states:
        note(
            f"missing images: get them with pytest-intercode images {shlex.join(datasets)} --pull, "
            "or docker load, or replace them with --intercode-base-image NAME=REPLACEMENT"
        )
    if (MISSING, "kit") in states:
        note(f"missing sets of the verifier kit: add them with {add_command(datasets, ())}")
    return int(any(state == MISSING for state, _ in states))


def _images(tasks: Sequence[Task], replacements: Mapping[str, str]) -> dict[tuple[str, str], int]:
    """Return how many tasks need each image, by the image's state and name."""
    from pytest_intercode.core.dockerfile import base_names
    from pytest_intercode.sandboxes.choice import open_docker_images
    from pytest_intercode.sandboxes.settings import SandboxSettings

    sources = count_sources(tasks)
    counts: Counter[tuple[str, str]] = Counter()
    try:
        with open_docker_images(SandboxSettings(base_images=replacements)) as images:
            facts = count_facts(sources, images, built=False)
        for fact, number in facts:
            if fact.step == "pull" and (fact.present or not fact.optional):
                counts[PRESENT if fact.present else MISSING, describe_name(fact)] += number
    except EngineUnavailable:
        for source, number in sources.items():
            for name in {source.image} - {None} or base_names(_text(source)):
                counts[UNKNOWN, str(name)] += number
    return dict(sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0][1])))


def _text(source: ImageSource) -> str:
    if source.text or source.dockerfile is None:
        return source.text
    try:
        return source.dockerfile.read_text("utf-8", "replace")
    except OSError:
        return ""


def _sets(tasks: Iterable[Task]) -> dict[tuple[str, str], int]:
    """Return how many tasks need each set of the kit, by the set's state and content."""
    from pytest_intercode.environments.swe.kit import holds, sets_of

    counts = Counter(
        (PRESENT if holds(packages) else MISSING, ", ".join(packages) or "its programs alone")
        for task in tasks
        for packages in sets_of(task)
    )
    return dict(sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0][1])))


def _reasons(tasks: Iterable[Task]) -> Counter[str]:
    """Return how many tasks are skipped for each reason, without the folders that it names."""
    reasons: Counter[str] = Counter()
    for task in tasks:
        if task.skip:
            folder = str(Path(task.source).parent)
            reasons[task.skip.replace(f"{folder}: ", "").replace(f"{folder}/", "")] += 1
    return reasons


def _without(tasks: Sequence[Task]) -> list[tuple[str, list[Task]]]:
    from pytest_intercode.environments.registry import kind_of

    return [
        ("no gold", [task for task in tasks if not task.gold]),
        ("no tests", [task for task in tasks if kind_of(task.env).lacks_tests(task)]),
    ]
