"""``pytest-intercode merge``: the results of a run's shards in one file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.errors import ConfigurationError

if TYPE_CHECKING:
    from pytest_intercode.results.merging import Merged

__all__ = ["HELP", "add_arguments", "run"]

HELP = "put the results of a run's shards into one file"

_SETTINGS = ("profile", "agent")


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
    parser.add_argument("--force", action="store_true", help="replace OUT.jsonl if it is there")


def run(options: argparse.Namespace) -> int:
    """Merge the files, and say what came from where.

    Raises:
        ConfigurationError: a file is no results file, two hold other episodes of the same try, or
            the output is an input, is there already or cannot be written.
    """
    from pytest_intercode.results.merging import merge
    from pytest_intercode.results.reading import read_results

    out: Path = options.out.expanduser()
    paths: list[Path] = [path.expanduser() for path in options.files]
    _check(out, paths, options.force)
    read = [(path, read_results(path, torn=_warn)) for path in paths]
    if not any(rows for _, rows in read):
        raise ConfigurationError(f"{', '.join(map(str, paths))}: no recorded episode to merge")
    merged = merge(read, last_counts=options.last)
    for name in _SETTINGS:
        _warn_of_mixed(name, read)
    _write(out, merged.rows)
    _tell(out, paths, merged)
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


def _warn(line: str) -> None:
    print(f"pytest-intercode: warning: {line}", file=sys.stderr)


def _warn_of_mixed(name: str, read: Sequence[tuple[Path, Sequence[dict[str, Any]]]]) -> None:
    where: dict[str, Path] = {}
    for path, rows in read:
        for row in rows:
            where.setdefault(str(row.get(name) or ""), path)
    told = [f"{value} in {path}" for value, path in where.items() if value]
    if len(told) > 1:
        _warn(f"these are not shards of one run: {name} {', '.join(told)}")


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows; the file is there with all of them, or not at all."""
    import gzip
    import json
    import os
    import tempfile

    data = "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in rows).encode()
    if path.suffix == ".gz":  # as it is read
        data = gzip.compress(data, mtime=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        begun = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            begun.chmod(0o666 & ~mask)  # mkstemp lets nobody else read
            begun.replace(path)
        finally:
            begun.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from None


def _tell(out: Path, paths: Sequence[Path], merged: Merged) -> None:
    tasks = len({each.key for each in merged.tries})
    print(
        f"{out}: {_count(len(merged.rows), 'row')}, {_count(len(merged.tries), 'try', 'tries')} of "
        f"{_count(tasks, 'task')}"
    )
    width = len(str(max(merged.kept)))
    for path, kept, doubled in zip(paths, merged.kept, merged.doubled, strict=True):
        already = f" (and {doubled} that a later file has, too)" if doubled else ""
        print(f"  {kept:>{width}} from {path}{already}")
    if merged.superseded:
        print(f"{_count(merged.superseded, 'row')} superseded by a later or graded try")
    spoiled = sum(not each.graded for each in merged.tries)
    if spoiled:
        print(f"{_count(spoiled, 'try', 'tries')} spoiled by the infrastructure")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
