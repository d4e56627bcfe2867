"""``pytest-intercode history``: runs over time, from results files or a folder of kept runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_intercode.cli.arguments import count
from pytest_intercode.cli.printing import note, say, say_json, warn
from pytest_intercode.errors import ConfigurationError

__all__ = ["HELP", "add_arguments", "run"]

HELP = "show rate, cost and turns of runs over time, keep runs, and make a leaderboard"
_MAX_RUNS = 30  # default for each agent and treatment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "results",
        metavar="RESULTS",
        nargs="*",
        type=Path,
        help="results files, or folders of them",
    )
    parser.add_argument(
        "--keep",
        metavar="FOLDER",
        type=Path,
        help="add the runs to this folder, each once and as a small file, and show all that it has",
    )
    parser.add_argument(
        "--commit", metavar="TEXT", default="", help="the commit that runs are kept with"
    )
    parser.add_argument(
        "--last",
        metavar="N",
        type=count,
        default=_MAX_RUNS,
        help=f"show the last N runs of each agent and treatment (default: {_MAX_RUNS})",
    )
    parser.add_argument(
        "--leaderboard",
        action="store_true",
        help="add a leaderboard: all agents by rate, over the tasks that all have in common",
    )
    parser.add_argument(
        "--page", metavar="FILE.html", type=Path, help="also write all of it as a page with charts"
    )
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the history.

    Raises:
        ConfigurationError: an argument or a file is wrong, or a file cannot be written.
    """
    from pytest_intercode.results.history import keep, read_history
    from pytest_intercode.results.history_series import make_leaderboard, make_series, warnings_of
    from pytest_intercode.results.history_text import data, lines

    folder: Path | None = options.keep and options.keep.expanduser()
    page: Path | None = options.page and options.page.expanduser()
    _check(options, folder)
    if page is not None:
        from pytest_intercode.page import require

        require()
    paths = [path.expanduser() for path in options.results]
    # A run that is still being written is not kept: its later file would be another run.
    history = read_history(paths, warn if folder is None else None)
    if folder is not None:
        for path in keep(folder, history, options.commit):
            note(f"kept: {path}")
        history = read_history([folder])
    warnings = warnings_of(history)
    for line in warnings:
        warn(line)
    all_series = make_series(history, options.last)
    hidden_count = len({entry.run for entry in history}) - len(
        {step.entry.run for series in all_series for step in series.steps}
    )
    leaderboard = make_leaderboard(history) if options.leaderboard else None
    if options.json:
        say_json(data(all_series, leaderboard))
    else:
        for line in lines(all_series, leaderboard, hidden_count):
            say(line)
    if page is not None:
        from pytest_intercode.page.history import write_history

        write_history(page, all_series, leaderboard, warnings)
        note(f"written: {page}")
    return 0


def _check(options: argparse.Namespace, folder: Path | None) -> None:
    """Check that there is something to show.

    Raises:
        ConfigurationError: there is nothing to show, or arguments do not go together.
    """
    if folder is None and not options.results:
        raise ConfigurationError("history: name results files, or --keep=FOLDER with kept runs")
    if options.commit and folder is None:
        raise ConfigurationError(
            f"--commit={options.commit}: needs --keep=FOLDER, where runs are kept with it"
        )
    if folder is not None and not options.results and not folder.is_dir():
        raise ConfigurationError(
            f"--keep={folder}: there is no such folder; name results files to begin one"
        )
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"--keep={folder}: is not a folder; name one")
