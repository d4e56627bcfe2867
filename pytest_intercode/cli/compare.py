"""``pytest-intercode compare``: what changed between two runs, and whether it is significant."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pytest_intercode.cli.printing import say, warn
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system.files import same_file, write_file

__all__ = ["HELP", "add_arguments", "run"]

HELP = "compare two recorded runs task by task, and report whether the newer one is worse"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("before", metavar="BEFORE.jsonl", type=Path, help="the older run's results")
    parser.add_argument("after", metavar="AFTER.jsonl", type=Path, help="the newer run's results")
    parser.add_argument(
        "--level",
        metavar="P",
        type=_share,
        default=0.05,
        help="the p-value up to which a difference is significant (default: 0.05)",
    )
    parser.add_argument(
        "--smallest",
        metavar="DROP",
        type=_share,
        default=0.10,
        help="the smallest drop of the success rate that matters (default: 0.10)",
    )
    parser.add_argument("--all", action="store_true", help="name every task that changed")
    parser.add_argument(
        "--output", metavar="FILE.json", type=Path, help="also write all of it as JSON"
    )
    parser.add_argument(
        "--fail-on-regression",
        action="store_true",
        help="exit with status 1 if the newer run is worse, or the runs have no task in common; of "
        "several agents or treatments, if one of them is worse",
    )


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text}: a number between 0 and 1 is needed, as 0.05")
    return value


def run(options: argparse.Namespace) -> int:
    """Print the comparison.

    Raises:
        ConfigurationError: a file is not a results file, or the output cannot be written.
    """
    from pytest_intercode.results.cell_comparison import ComparedCells
    from pytest_intercode.results.comparison import read_run
    from pytest_intercode.results.comparison_text import cell_lines

    paths = [options.before.expanduser(), options.after.expanduser()]
    output: Path | None = options.output and options.output.expanduser()
    if output is not None and any(same_file(output, path) for path in paths):
        raise ConfigurationError(f"--output={output}: this is one of the runs; name another file")
    if same_file(*paths):
        raise ConfigurationError(f"{paths[1]}: this is the same file; name the results of two runs")
    compared = ComparedCells(
        *(read_run(path, warn) for path in paths),
        level=options.level,
        smallest=options.smallest,
    )
    for line in compared.warnings():
        warn(line)
    for line in cell_lines(compared, everything=options.all):
        say(line)
    if output is not None:
        write_file(output, json.dumps(compared.data(), indent=1) + "\n", option="--output")
        say(f"written: {output}")
    failed = compared.regressed or not compared.verdicts
    return 1 if options.fail_on_regression and failed else 0
