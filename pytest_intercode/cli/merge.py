"""``pytest-intercode merge``: merges the results of a run's shards into one file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.cli.printing import say, warn
from pytest_intercode.core.text import pluralize
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system.files import same_file, writing

if TYPE_CHECKING:
    from pytest_intercode.results.merging import Merged

__all__ = ["HELP", "add_arguments", "run"]

HELP = "merge the results of a run's shards into one file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("out", metavar="OUT.jsonl", type=Path, help="the file to write")
    parser.add_argument(
        "files", metavar="IN.jsonl", type=Path, nargs="+", help="results of the shards, in order"
    )
    parser.add_argument(
        "--last",
        action="store_true",
        help="take the last file's result where several files graded a try, which is otherwise "
        "an error",
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="merge even if a shard is missing, which is otherwise an error",
    )
    parser.add_argument("--force", action="store_true", help="replace OUT.jsonl if it exists")


def run(options: argparse.Namespace) -> int:
    """Merge the files, and print how much came from which.

    Raises:
        ConfigurationError: a file is not a results file, two have different episodes of the same
            try, they are not all shards of one run, or the output is an input, already exists or
            cannot be written.
    """
    from pytest_intercode.results.files import read_records
    from pytest_intercode.results.format import to_line
    from pytest_intercode.results.merging import check_shards, merge

    output: Path = options.out.expanduser()
    paths: list[Path] = [path.expanduser() for path in options.files]
    _check(output, paths, options.force)
    files = [(path, read_records(path, warn)) for path in paths]
    if not any(records for _, records in files):
        raise ConfigurationError(
            f"{', '.join(map(str, paths))}: there are no recorded episodes to merge"
        )
    problem, short = check_shards(files)
    if problem and not options.partial:
        raise ConfigurationError(
            f"{problem}; name its file too, or merge what there is with --partial"
        )
    for line in filter(None, [problem, *short]):
        warn(line)
    merged = merge(files, last_counts=options.last)
    _warn_of_mixed(
        "profile", [(path, record.profile) for path, records in files for record in records]
    )
    with writing(output, existing="replace" if options.force else "keep") as file:
        for record in merged.records:
            file.write(f"{to_line(record)}\n".encode())
    _print_counts(output, paths, merged)
    return 0


def _check(output: Path, paths: Sequence[Path], force: bool) -> None:
    for number, path in enumerate(paths):
        if same_file(output, path):
            raise ConfigurationError(
                f"{output}: this is one of the files to merge; the first name is that of a new file"
            )
        if any(same_file(path, earlier) for earlier in paths[:number]):
            raise ConfigurationError(f"{path}: is given twice")
    if output.exists() and not force:
        raise ConfigurationError(
            f"{output}: already exists; the first name is that of a new file (--force replaces it)"
        )


def _warn_of_mixed(name: str, values: Sequence[tuple[Path, str]]) -> None:
    path_by_value: dict[str, Path] = {}
    for path, value in values:
        path_by_value.setdefault(value, path)
    origins = [f"{value} in {path}" for value, path in path_by_value.items() if value]
    if len(origins) > 1:
        warn(f"these are not shards of one run: {name} {', '.join(origins)}")


def _print_counts(output: Path, paths: Sequence[Path], merged: Merged) -> None:
    from pytest_intercode.results.cells import by_cell
    from pytest_intercode.results.summary import summarise

    summary = summarise(merged.tries)
    cells = list(map(str, by_cell(merged.tries)))
    say(
        f"{output}: {pluralize(len(merged.records), 'row')}, "
        f"{pluralize(summary.tries, 'try', 'tries')} of {pluralize(summary.tasks, 'task')}"
    )
    width = len(str(max(merged.record_counts)))
    for path, record_count, duplicates in zip(
        paths, merged.record_counts, merged.duplicates, strict=True
    ):
        hint = f" (and {duplicates} that a later file also has)" if duplicates else ""
        say(f"  {record_count:>{width}} from {path}{hint}")
    if len(cells) > 1:
        say(f"{len(cells)} cells: {', '.join(cells)}")
    if merged.superseded:
        say(f"{pluralize(merged.superseded, 'row')} superseded by a later or graded try")
    if summary.infrastructure_errors:
        tries = pluralize(summary.infrastructure_errors, "try", "tries")
        say(f"{tries} with an infrastructure error")
    if summary.task_errors:
        say(f"{pluralize(summary.task_errors, 'try', 'tries')} with a task error")
