"""``pytest-intercode top``: what this user's runs on this machine are doing."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.cli.printing import note, open_browser, say, say_json
from pytest_intercode.errors import ConfigurationError

if TYPE_CHECKING:
    from pytest_intercode.cli.living_runs import Runs
    from pytest_intercode.core.status import RunStatus

__all__ = ["HELP", "add_arguments", "run"]

HELP = "show the episodes that run on this machine, each with its last action"

_REFRESH_INTERVAL = 1.0  # seconds
_LONE_LINE = 80  # columns without a terminal; longer lines do not help in a log
# The alternate screen of the terminal, as editors use it, without a cursor; lines are not wrapped.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "pid", metavar="PID", nargs="?", type=int, help="only the run with this number"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--once",
        action="store_true",
        help="print it once, which is the default if the output is not a terminal",
    )
    kinds.add_argument("--json", action="store_true", help="print it once, as JSON: a list of runs")
    kinds.add_argument(
        "--stop",
        metavar="EPISODE|run",
        help="end one episode, by its node id or its task, or the run as Ctrl-C does",
    )
    kinds.add_argument(
        "--page",
        action="store_true",
        help="serve it as a page, which refreshes itself and can stop episodes, until Ctrl-C",
    )
    parser.add_argument(
        "--port", metavar="PORT", type=int, help="with --page: its port (default: any free one)"
    )
    parser.add_argument("--open", action="store_true", help="with --page: open it in the browser")


def run(options: argparse.Namespace) -> int:
    """Show the runs, once or until they are over; or stop a run or an episode.

    Raises:
        ConfigurationError: there is no run with this number, or nothing to stop; or this system
            cannot have runs, or the page cannot be served.
        SandboxError: other users may open the folder in which runs are found.
    """
    from pytest_intercode.cli.living_runs import find_runs, stop_episode, stop_run
    from pytest_intercode.system.platform import check_platform

    check_platform()
    _check(options)
    if options.page:
        _serve(options)
        return 0
    runs = find_runs(options.pid, note)
    if options.stop == "run":
        say(stop_run(runs))
    elif options.stop is not None:
        say(stop_episode(options.stop, runs))
    elif options.json:
        say_json(list(map(_as_json, runs.values())))
    elif not runs:
        say("you have no runs on this machine")
    elif options.once or not sys.stdout.isatty():
        _print(runs)
    else:
        _watch(runs, options.pid)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Check that options go together.

    Raises:
        ConfigurationError: they do not.
    """
    for name in ("port", "open"):
        if getattr(options, name) and not options.page:
            raise ConfigurationError(f"--{name} needs --page")


def _serve(options: argparse.Namespace) -> None:
    """Serve the page until Ctrl-C."""
    from pytest_intercode.cli.live_server import LiveServer
    from pytest_intercode.cli.living_runs import find_runs

    find_runs(options.pid, note)  # fails now if no run has this number
    server = LiveServer(options.pid, options.port or 0)
    print(f"{server.address}\nCtrl-C ends this page; runs go on.", flush=True)
    if options.open:
        address = server.address_for_browser()
        # On a thread: a browser in this terminal would wait for the page, and we for its end.
        threading.Thread(target=open_browser, args=(address,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        server.serve()


def _as_json(status: RunStatus) -> dict[str, Any]:
    rates = {
        "per_minute": status.per_minute,
        "remaining_seconds": status.remaining_seconds,
    }
    return {**status.to_json(), **rates}


def _print(runs: Runs) -> None:
    from pytest_intercode.cli.status_table import lines_of

    columns = shutil.get_terminal_size((_LONE_LINE, 24)).columns
    for line in lines_of(list(runs.values()), columns):
        print(line)


def _watch(runs: Runs, pid: int | None) -> None:
    """Show the runs on the terminal until they are over, or until Ctrl-C."""
    from pytest_intercode.cli.living_runs import find_runs
    from pytest_intercode.cli.status_table import lines_of

    seen_runs, silent = dict(runs), list[Path]()
    with contextlib.suppress(KeyboardInterrupt), _own_screen():
        while runs or silent:
            size = shutil.get_terminal_size()
            statuses, max_lines = list(runs.values()), size.lines - 1 - len(silent)
            lines = lines_of(statuses, size.columns, max_lines=max_lines)
            lines += [f"run {seen_runs[path].pid} does not answer" for path in silent]
            frame = "".join(f"{line}{_END_OF_LINE}\n" for line in lines)
            sys.stdout.write(f"{_HOME}{frame}{_END_OF_SCREEN}")
            sys.stdout.flush()
            time.sleep(_REFRESH_INTERVAL)
            try:
                runs = find_runs(pid)
            except ConfigurationError:
                runs = {}
            seen_runs |= runs
            silent = [path for path in seen_runs if path not in runs and path.exists()]
    if not runs:
        say("the run is over" if pid is not None else "all runs are over")


@contextlib.contextmanager
def _own_screen() -> Iterator[None]:
    """Draw on the alternate screen of the terminal; leave it at the end."""
    sys.stdout.write(_ENTER)
    try:
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
