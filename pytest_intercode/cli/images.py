"""``pytest-intercode images``: lists, pulls and builds the images that a dataset needs.

Exit status: 0 all images are here, 1 some are not, 2 wrong usage.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.cli.arguments import (
    add_concurrency_argument,
    add_option,
    add_options,
    add_permission_arguments,
    add_suites_argument,
    map_concurrently,
    permissions_of,
    sandboxes_of,
    tasks_of,
)
from pytest_intercode.cli.needed_images import (
    MISSING,
    PRESENT,
    UNKNOWN,
    count_facts,
    count_sources,
    describe_name,
)
from pytest_intercode.cli.printing import note, say, show_count
from pytest_intercode.core.text import first_names, format_columns, pluralize
from pytest_intercode.errors import ConfigurationError, ImageError, SuiteError
from pytest_intercode.options.table import Options

if TYPE_CHECKING:
    from pytest_intercode.core.task import ImageSource
    from pytest_intercode.sandboxes.images import DescribedImages, ImageFact
    from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["HELP", "add_arguments", "run"]

HELP = "list the images that a dataset needs and which are here; pull and build them"

_USAGE = 2  # exit status
_CONCURRENCY = 4  # images at a time
_MAX_PROBLEMS = 5  # problems that are described in full
_TO_PULL, _TO_BUILD = "to pull", "to build"
_STATES = (MISSING, UNKNOWN, _TO_PULL, _TO_BUILD, PRESENT)
_ALTERNATIVE = ", else its Dockerfile is built"

Problems = dict[str, tuple[str, list[str]]]
"""By the reason why images cannot be obtained: the text of the first error, and their names."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_suites_argument(parser)
    parser.add_argument("--pull", action="store_true", help="pull the missing images")
    parser.add_argument(
        "--build", action="store_true", help="pull the missing images, and build those of the tasks"
    )
    add_concurrency_argument(parser, _CONCURRENCY, "images")
    add_option(parser, Options.backend, "the backend of sandboxes")
    add_options(parser, Options.rootfs, Options.base_images, Options.docker_hosts)
    add_options(parser, Options.registry, Options.platform, Options.data_path)
    add_permission_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Pull and build the requested images, and print a table of all images."""
    try:
        all_tasks = [
            task
            for name in options.suites
            for task in tasks_of(name, options.data, permissions_of(options), "images")
        ]
        tasks = [task for task in all_tasks if not task.skip]
        sources = count_sources(tasks)
        with sandboxes_of(options) as provider:
            problems = _provide(provider, list(sources), options)
            facts = count_facts(sources, provider.described_images)
            rows = map_concurrently(
                partial(_make_row, provider.described_images), facts, options.concurrency
            )
    except ConfigurationError as error:
        note(str(error))
        return _USAGE
    if skipped := len(all_tasks) - len(tasks):
        note(f"{pluralize(skipped, 'skipped task')} left out; `pytest-intercode lint` says why")
    return _show(rows, problems)


def _provide(
    provider: SandboxProvider, sources: Sequence[ImageSource], options: argparse.Namespace
) -> Problems:
    """Pull and build the requested images; return those that cannot be obtained, by reason."""
    problems: Problems = {}
    if not (options.pull or options.build):
        return problems

    def provide(source: ImageSource) -> ImageError | None:
        try:
            if options.build:
                provider.image(source)
            else:
                provider.pull_image(source)
        except ImageError as error:
            return error
        except SuiteError as error:  # about a file next to a Dockerfile
            return ImageError(str(error), source.name)
        return None

    report = partial(show_count, "images", len(sources))
    errors = map_concurrently(provide, sources, options.concurrency, report, stop=provider.close)
    for error in errors:
        if error is not None:
            _add_problem(problems, error, error.image)
    return problems


def _add_problem(problems: Problems, error: ImageError, image: str) -> None:
    """Add an image that cannot be obtained, to those with the same reason if there are any."""
    problems.setdefault(error.cause or str(error), (str(error), []))[1].append(image)


@dataclass(frozen=True)
class _Row:
    """One image of the table.

    Attributes:
        fact: what is known about it here.
        tasks: how many tasks need it.
        state: one of `_STATES`.
        platforms: the platforms that it is for, or for which it can be pulled.
        problem: why it cannot be obtained, if that is known.
    """

    fact: ImageFact
    tasks: int
    state: str
    platforms: str
    problem: ImageError | None = None


def _make_row(images: DescribedImages, counted: tuple[ImageFact, int]) -> _Row:
    """Return the row of an image; ask the registry about one that is not here."""
    fact, tasks = counted
    if fact.present:
        return _Row(fact, tasks, PRESENT, fact.platform)
    if fact.problem:
        problem = ImageError(fact.problem, fact.name, fact.cause)
        return _Row(fact, tasks, MISSING, fact.platform, problem)
    if fact.step == "build":
        return _Row(fact, tasks, _TO_BUILD, fact.platform)
    try:
        platforms = images.find_published(fact)
    except ImageError as error:
        return _Row(fact, tasks, MISSING, fact.platform, error)
    state = _TO_PULL if platforms else UNKNOWN
    return _Row(fact, tasks, state, ", ".join(platforms) or fact.platform)


def _show(rows: Sequence[_Row], problems: Problems) -> int:
    """Print the table, the problems, and how to solve them; return the exit status."""
    rows = sorted(rows, key=lambda row: (_STATES.index(row.state), -row.tasks, row.fact.name))
    table = [
        [
            *(row.state, "image" if row.fact.step == "pull" else "build"),
            *(pluralize(row.tasks, "task"), _format_size(row.fact.size), row.platforms or "-"),
            _describe(row.fact),
        ]
        for row in rows
    ]
    for line in format_columns(table, labels=6) if table else ():
        say(line.rstrip())
    counts = Counter(row.state for row in rows)
    states = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state])
    say(f"{pluralize(len(rows), 'image')}{f': {states}' if states else ''}")
    if not problems:
        for row in rows:
            if row.problem is not None:
                _add_problem(problems, row.problem, describe_name(row.fact))
        _advise(rows)
    all_problems = list(problems.values())
    for text, names in all_problems[:_MAX_PROBLEMS]:
        note(f"{first_names(dict.fromkeys(names))}: {text}")
    if unnamed := {name for _, names in all_problems[_MAX_PROBLEMS:] for name in names}:
        note(
            f"{pluralize(len(unnamed), 'further image')} cannot be pulled or built, for other "
            "reasons"
        )
    return int(any(row.state != PRESENT for row in rows if not row.fact.optional))


def _advise(rows: Sequence[_Row]) -> None:
    """Print how to get the images that are not here."""
    states = {row.state for row in rows}
    if {_TO_PULL, UNKNOWN} & states:
        note("--pull pulls the missing images; otherwise the first run does it")
    if _TO_BUILD in states:
        note("--build pulls and builds all images; otherwise the first run does it")
    if any(row.state == MISSING and not row.fact.problem for row in rows):
        note("for images that cannot be pulled, use docker load or --base-image NAME=REPLACEMENT")


def _describe(fact: ImageFact) -> str:
    """Return the name of an image; a path below the working directory is relative to it."""
    name = describe_name(fact).removeprefix(f"{Path.cwd()}/")
    return f"{name}{_ALTERNATIVE}" if fact.optional and not fact.present else name


def _format_size(size: int) -> str:
    """Return a number of bytes for people; a hyphen if it is not known."""
    return f"{size / 1e6:,.0f} MB" if size else "-"
