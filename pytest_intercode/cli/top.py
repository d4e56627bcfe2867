"""``pytest-intercode top``: what the runs of this user on this machine do at the moment."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.cli.printing import note, say
from pytest_intercode.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import TypeAlias

    from pytest_intercode.core.status import EpisodeStatus, RunStatus

    Runs: TypeAlias = dict[Path, RunStatus]

__all__ = ["HELP", "add_arguments", "run"]

HELP = "show what runs on this machine do at the moment: each episode with its last action"

_REFRESH_INTERVAL = 1.0  # seconds
_ANSWER_TIMEOUT = 10.0  # seconds
_LONE_LINE = 80  # columns where there is no terminal; 200 columns of a log help nobody
# The other screen of the terminal, as editors use it, without a cursor; lines are not wrapped.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "pid", metavar="PID", nargs="?", type=int, help="only the run with this number"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="print it once, as is done in any case where the output is not a terminal",
    )
    parser.add_argument(
        "--json", action="store_true", help="print it once, as JSON: a list of runs"
    )
    parser.add_argument(
        "--stop",
        metavar="EPISODE|run",
        help="end one episode, by its node id or its task, or the run as Ctrl-C does",
    )


def run(options: argparse.Namespace) -> int:
    """Show the runs until they are over, or once; or stop one, or an episode of it.

    Raises:
        ConfigurationError: there is no run with this number, or nothing that is to be stopped; or
            this system has no runs.
        SandboxError: others may open the folder that runs are found in.
    """
    from pytest_intercode.system.platform import check_platform

    check_platform()
    runs = _runs(options.pid)
    if options.stop is not None:
        _stop(options.stop, runs)
    elif options.json:
        print(json.dumps(list(map(_as_json, runs.values())), indent=2))
    elif not runs:
        say("no run of yours on this machine")
    elif options.once or not sys.stdout.isatty():
        _print(runs)
    else:
        _watch(runs, options.pid)
    return 0


def _runs(pid: int | None) -> Runs:
    """Return the runs that answer, by their sockets; notes go to the standard error.

    Raises:
        ConfigurationError: there is none with this number.
    """
    from pytest_intercode.core.status import RunStatus
    from pytest_intercode.system.control import NoAnswer, ask, run_sockets

    runs: Runs = {}
    for path in run_sockets():
        try:
            answer = ask(path, {"request": "status"}, _ANSWER_TIMEOUT)
            runs[path] = RunStatus.from_json(answer["run"])
        except (NoAnswer, KeyError, TypeError, ValueError):
            if path.exists():  # else it has ended just now
                note(f"a run does not answer: {path}")
    if pid is None:
        return runs
    matches = {path: status for path, status in runs.items() if status.pid == pid}
    if not matches:
        pids = ", ".join(str(status.pid) for status in runs.values())
        raise ConfigurationError(
            f"{pid}: no run of yours on this machine has this number; "
            + (f"there are {pids}" if runs else "there is none at all")
        )
    return matches


def _stop(name: str, runs: Runs) -> None:
    """End a run, or one of its episodes.

    Args:
        name: ``run``, or what names the episode.
        runs: the runs that it may be, or be of.

    Raises:
        ConfigurationError: it is not one of them, or cannot be ended.
    """
    from pytest_intercode.cli.status_table import clock

    if name == "run":
        socket, status = _only_run(runs)
        _tell(socket, {"request": "stop run"}, f"run {status.pid}")
        say(f"run {status.pid}: interrupted, as by Ctrl-C")
    else:
        socket, episode = _only_episode(name, runs)
        _tell(socket, {"request": "stop", "episode": episode.item}, episode.item)
        turns = f"{episode.turns}/{episode.max_turns} turns"
        say(f"{episode.item}: stopped after {turns} and {clock(episode.seconds)}")


def _only_run(runs: Runs) -> tuple[Path, RunStatus]:
    if not runs:
        raise ConfigurationError("--stop=run: there is no run of yours on this machine")
    if len(runs) > 1:
        pids = ", ".join(str(status.pid) for status in runs.values())
        raise ConfigurationError(f"--stop=run: there are {pids}; give the number of one as PID")
    return next(iter(runs.items()))


def _only_episode(name: str, runs: Runs) -> tuple[Path, EpisodeStatus]:
    episodes = [(path, status) for path, run in runs.items() for status in run.episodes]
    matches = [pair for pair in episodes if pair[1].item == name]
    if not matches:  # it may be the task, or what the item has in brackets
        matches = [
            pair for pair in episodes if pair[1].task == name or pair[1].item.endswith(f"[{name}]")
        ]
    if len(matches) == 1:
        return matches[0]
    items = ", ".join(status.item for _, status in matches or episodes) or "none"
    problem = "names several" if matches else "no episode that runs is called so"
    raise ConfigurationError(f"--stop={name}: {problem}; there are: {items}")


def _tell(socket: Path, request: dict[str, Any], subject: str) -> None:
    """Have a run do something.

    Raises:
        ConfigurationError: it does not.
    """
    from pytest_intercode.system.control import NoAnswer, ask

    try:
        problem = ask(socket, request, _ANSWER_TIMEOUT).get("problem")
    except NoAnswer:
        problem = "the run does not answer"
    if problem:
        raise ConfigurationError(f"{subject}: {problem}")


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
    """Show the runs on the terminal until they are over, or the user has seen enough."""
    from pytest_intercode.cli.status_table import lines_of

    with contextlib.suppress(KeyboardInterrupt), _own_screen():
        while runs:
            size = shutil.get_terminal_size()
            statuses = list(runs.values())
            lines = lines_of(statuses, size.columns, max_lines=size.lines - 1)
            frame = "".join(f"{line}{_END_OF_LINE}\n" for line in lines)
            sys.stdout.write(f"{_HOME}{frame}{_END_OF_SCREEN}")
            sys.stdout.flush()
            time.sleep(_REFRESH_INTERVAL)
            try:
                runs = _runs(pid)
            except ConfigurationError:
                runs = {}
    if not runs:
        say("the run is over" if pid is not None else "no run is left")


@contextlib.contextmanager
def _own_screen() -> Iterator[None]:
    """Draw on the other screen of the terminal; at the end it is as it was."""
    sys.stdout.write(_ENTER)
    try:
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
