"""``pytest-intercode view``: makes a page from a results file, or from two."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_intercode.cli.arguments import add_results_argument, results_stem
from pytest_intercode.cli.printing import note, open_browser, say
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system.files import same_file

__all__ = ["HELP", "add_arguments", "run"]

HELP = "make a page of a results file, or of two side by side"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_results_argument(parser)
    parser.add_argument(
        "other",
        metavar="OTHER",
        type=Path,
        nargs="?",
        help="a newer run to compare with the first",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.html",
        type=Path,
        help="where the page goes (default: next to the last results file)",
    )
    parser.add_argument("--title", help="what the page is called (default: what the runs are)")
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def run(options: argparse.Namespace) -> int:
    """Write the page and print where it is.

    Raises:
        ConfigurationError: a file is wrong, the extra ``html`` is missing, or the page cannot be
            written.
    """
    from pytest_intercode.page import write

    first: Path = options.results.expanduser()
    newer: Path | None = options.other and options.other.expanduser()
    last = newer or first
    default_output = last.with_name(f"{results_stem(last)}.html")
    output: Path = options.output.expanduser() if options.output else default_output
    if any(same_file(output, results) for results in (first, last)):
        raise ConfigurationError(f"--output={output}: this is the run itself; name another file")
    names = _names(first, last) if newer is not None else (results_stem(first), "")
    write(
        first,
        output,
        options.title,
        other=newer,
        names=names,
        warn=note,
        option="--output" if options.output else "",
    )
    say(f"written: {output}")
    if options.open:
        return 0 if open_browser(output.absolute().as_uri()) else 1
    return 0


def _names(first: Path, last: Path) -> tuple[str, str]:
    """Return names for two runs without names: those of their files, made different if equal."""
    names = results_stem(first), results_stem(last)
    if names[0] == names[1] and first.absolute() != last.absolute():
        names = (
            f"{first.absolute().parent.name}/{names[0]}",
            f"{last.absolute().parent.name}/{names[1]}",
        )
    return names if names[0] != names[1] else (f"{names[0]} (1)", f"{names[1]} (2)")
