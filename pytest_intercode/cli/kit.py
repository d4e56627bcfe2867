"""``pytest-intercode kit``: makes the verifier kit, and adds packages to it."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_intercode.cli.arguments import add_permission_arguments, permissions_of
from pytest_intercode.cli.printing import note, say
from pytest_intercode.core.text import pluralize

__all__ = ["HELP", "add_arguments", "run"]

HELP = "make the kit that lets verifiers run test scripts without a network"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "requirements",
        nargs="*",
        metavar="PACKAGE",
        help="packages that one test script installs, as pip writes them, such as numpy==2.3.1",
    )
    parser.add_argument(
        "--dataset",
        metavar="PATH",
        action="append",
        default=[],
        help="a folder of task folders, or its registry: what their test scripts install",
    )
    add_permission_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Make the kit, and add the requested packages.

    Raises:
        FetchError: something cannot be downloaded.
        ConfigurationError: there is no such dataset.
    """
    from pytest_intercode.environments.swe.kit import DEFAULT, add_set, make_kit, sets_of
    from pytest_intercode.errors import FetchError
    from pytest_intercode.suites.catalogue import named_tasks

    sets = [*DEFAULT, *filter(None, [tuple(options.requirements)])]
    for name in options.dataset:
        tasks = named_tasks(
            name,
            None,
            f"--dataset={name}",
            folder=Path.cwd(),
            env=None,
            permissions=permissions_of(options),
        )
        for task in tasks:
            sets += filter(None, sets_of(task))
    folder = make_kit(note)
    failed = 0
    for requirements in dict.fromkeys(sets):
        try:
            add_set(requirements, note)
        except FetchError as error:
            note(f"{', '.join(requirements)}: {error}")
            failed += 1
    whole = len(dict.fromkeys(sets))
    say(f"{folder}: {pluralize(whole - failed, 'set')} of packages of {whole} asked for")
    return 1 if failed else 0
