"""``pytest-intercode export``: a results file in another tool's format."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_intercode.cli.arguments import add_results_argument, results_stem
from pytest_intercode.cli.printing import note, say, warn
from pytest_intercode.core.text import pluralize
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.export import FORMATS, export, format_of
from pytest_intercode.system.files import same_file

__all__ = ["HELP", "add_arguments", "run"]

HELP = "write a results file as ATIF, as inspect_ai's log, or as chat messages"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_results_argument(parser)
    parser.add_argument(
        "--format",
        metavar="|".join(FORMATS),
        required=True,
        help="; ".join(f"{name}: {entry.help}" for name, entry in FORMATS.items()),
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        type=Path,
        help="where it goes (default: next to the results file)",
    )
    parser.add_argument("--force", action="store_true", help="replace existing files")


def run(options: argparse.Namespace) -> int:
    """Write the export and print where it is.

    Raises:
        ConfigurationError: the format is not known, the file is not a results file, or the output
            is the results file, already exists or cannot be written.
    """
    export_format = format_of(options.format)
    results: Path = options.results.expanduser()
    output: Path | None = options.output and options.output.expanduser()
    if output is None:
        output = results.with_name(f"{results_stem(results)}{export_format.suffix}")
    _check(results, output, folder=export_format.folder, force=options.force)
    episode_count = export(results, export_format.name, output, warn)
    # If the output is a pipe or the terminal itself, nothing else may be written to it.
    report = say if output.is_file() or output.is_dir() else note
    report(f"{output}: {pluralize(episode_count, 'episode')}, as {export_format.name}")
    return 0


def _check(results: Path, output: Path, *, folder: bool, force: bool) -> None:
    """Refuse an output that cannot be written, before anything is read."""
    if not output.exists():
        return
    if same_file(output, results):
        raise ConfigurationError(f"--output={output}: this is the run itself; name another path")
    if folder and not output.is_dir():
        raise ConfigurationError(f"--output={output}: a folder is needed, and this is a file")
    if not folder and output.is_dir():
        raise ConfigurationError(f"--output={output}: a file is needed, and this is a folder")
    exists = any(output.iterdir()) if folder else output.is_file()
    if exists and not force:
        raise ConfigurationError(f"--output={output}: already exists; --force replaces it")
