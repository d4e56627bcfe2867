"""``pytest-intercode merge``: the results of a run's shards in one file."""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.cli.printing import say, warn
from pytest_intercode.core.files import write_file
from pytest_intercode.core.text import pluralize
from pytest_intercode.errors import ConfigurationError

if TYPE_CHECKING:
    from pytest_intercode.results.merging import Merged

__all__ = ["HELP", "add_arguments", "run"]

HELP = "put the results of a run's shards into one file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("out", metavar="OUT.jsonl", type=Path, help="the file to write")
    parser.add_argument(
        "files", metavar="IN.jsonl", type=Path, nargs="+", help="results of the shards, in order"
    )
    parser.add_argument(
        "--last",
        action="store_true",
        help="of a try that several files graded, take the last file's; without it, that is an "
        "error",
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="merge although a shard is missing; without it, that is an error",
    )
    parser.add_argument("--force", action="store_true", help="replace OUT.jsonl if it is there")


def run(options: argparse.Namespace) -> int:
    """Merge the files, and say what came from where.

    Raises:
        ConfigurationError: a file is no results file, two hold other episodes of the same try, they
            are not all shards of one run, or the output is an input, is there already or cannot be
            written.
    """
    from pytest_intercode.results.files import read_records, to_text
    from pytest_intercode.results.merging import check_shards, merge

    out: Path = options.out.expanduser()
    paths: list[Path] = [path.expanduser() for path in options.files]
    _check(out, paths, options.force)
    read = [(path, read_records(path, warn)) for path in paths]
    if not any(records for _, records in read):
        raise ConfigurationError(f"{', '.join(map(str, paths))}: no recorded episode to merge")
    problem, short = check_shards(read)
    if problem and not options.partial:
        raise ConfigurationError(
            f"{problem}; name its file too, or merge what there is with --partial"
        )
    for line in filter(None, [problem, *short]):
        warn(line)
    merged = merge(read, last_counts=options.last)
    _warn_of_mixed("profile", [(path, each.profile) for path, found in read for each in found])
    _warn_of_mixed("agent", [(path, each.agent) for path, found in read for each in found])
    data = to_text(merged.records).encode()
    packed = gzip.compress(data, mtime=0) if out.suffix == ".gz" else data
    write_file(out, packed, existing="replace" if options.force else "keep")
    _print_counts(out, paths, merged)
    return 0


def _check(out: Path, paths: Sequence[Path], force: bool) -> None:
    for number, path in enumerate(paths):
        if out.exists() and path.exists() and out.samefile(path):
            raise ConfigurationError(
                f"{out}: this is one of the files to merge; the first name is that of a new file"
            )
        for other in paths[:number]:
            if path.exists() and other.exists() and path.samefile(other):
                raise ConfigurationError(f"{path}: is named twice")
    if out.exists() and not force:
        raise ConfigurationError(
            f"{out}: is there already; the first name is that of a new file (--force replaces it)"
        )


def _warn_of_mixed(name: str, values: Sequence[tuple[Path, str]]) -> None:
    where: dict[str, Path] = {}
    for path, value in values:
        where.setdefault(value, path)
    found = [f"{value} in {path}" for value, path in where.items() if value]
    if len(found) > 1:
        warn(f"these are not shards of one run: {name} {', '.join(found)}")


def _print_counts(out: Path, paths: Sequence[Path], merged: Merged) -> None:
    from pytest_intercode.results.summary import summarise

    made = summarise(merged.tries)
    say(
        f"{out}: {pluralize(len(merged.records), 'row')}, "
        f"{pluralize(made.tries, 'try', 'tries')} of {pluralize(made.tasks, 'task')}"
    )
    width = len(str(max(merged.kept)))
    for path, kept, duplicates in zip(paths, merged.kept, merged.duplicates, strict=True):
        more = f" (and {duplicates} that a later file has, too)" if duplicates else ""
        say(f"  {kept:>{width}} from {path}{more}")
    if merged.superseded:
        say(f"{pluralize(merged.superseded, 'row')} superseded by a later or graded try")
    if made.spoiled:
        say(f"{pluralize(made.spoiled, 'try', 'tries')} spoiled by the infrastructure")
    if made.task_errors:
        say(f"{pluralize(made.task_errors, 'try', 'tries')} with a task error")
