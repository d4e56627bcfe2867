"""The runs of this user that live on this machine: what they do, and how one is stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from pytest_intercode.core.status import EpisodeStatus, RunStatus, clock
from pytest_intercode.core.text import pluralize
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system.control import NoAnswer, ask, ask_all, run_sockets

__all__ = ["Runs", "find_runs", "stop_episode", "stop_run"]

Runs: TypeAlias = "dict[Path, RunStatus]"
"""Runs by their sockets."""

# Seconds for the answers of all runs, of which one may wait a second for its workers.
_STATUS_TIMEOUT = 2.0
_STOP_TIMEOUT = 10.0  # seconds


def find_runs(pid: int | None, note: Callable[[str], object] = str) -> Runs:
    """Return the runs that answer.

    Args:
        pid: the number of the one that is meant; None for all.
        note: is told which do not answer; by default, nobody is.

    Raises:
        ConfigurationError: there is none with this number.
        SandboxError: others may open the folder that runs are found in.
    """
    paths = run_sockets()
    answers = ask_all(paths, {"request": "status"}, _STATUS_TIMEOUT)
    runs: Runs = {}
    for path in paths:
        try:
            runs[path] = RunStatus.from_json(answers[path]["run"])
        except (KeyError, TypeError, ValueError):
            if path.exists():  # else it has ended just now
                note(f"a run does not answer: {path}")
    if pid is None:
        return runs
    matches = {path: status for path, status in runs.items() if status.pid == pid}
    if not matches:
        raise ConfigurationError(
            f"{pid}: no run of yours on this machine has this number; "
            + (f"there are {_pids(runs)}" if runs else "there is none at all")
        )
    return matches


def stop_run(runs: Runs) -> str:
    """End a run as Ctrl-C does, and return a sentence on it.

    Args:
        runs: it, and no other.

    Raises:
        ConfigurationError: there is none, or there are several; or it cannot be ended.
    """
    if not runs:
        raise ConfigurationError("--stop=run: there is no run of yours on this machine")
    if len(runs) > 1:
        raise ConfigurationError(
            f"--stop=run: there are {_pids(runs)}; give the number of one as PID"
        )
    ((path, status),) = runs.items()
    _tell(path, {"request": "stop run"}, f"run {status.pid}")
    return f"run {status.pid}: interrupted, as by Ctrl-C"


def stop_episode(name: str, runs: Runs) -> str:
    """End an episode, and return a sentence on it.

    Args:
        name: its node id or its task, or what its item has in brackets.
        runs: the runs that it may be of.

    Raises:
        ConfigurationError: it is not one of theirs, or cannot be ended.
    """
    socket, episode = _only_episode(name, runs)
    _tell(socket, {"request": "stop", "episode": episode.item}, episode.item)
    turns = f"{episode.turns}/{episode.max_turns} turns"
    return f"{episode.item}: stopped after {turns} and {clock(episode.seconds)}"


def _pids(runs: Runs) -> str:
    return ", ".join(str(status.pid) for status in runs.values())


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
    silent = sum(run.silent for run in runs.values())
    note = f"; {pluralize(silent, 'process', 'processes')} without an answer" if silent else ""
    raise ConfigurationError(f"--stop={name}: {problem}; there are: {items}{note}")


def _tell(socket: Path, request: dict[str, Any], subject: str) -> None:
    """Have a run do something.

    Raises:
        ConfigurationError: it does not.
    """
    try:
        problem = ask(socket, request, _STOP_TIMEOUT).get("problem")
    except NoAnswer:
        problem = "the run does not answer"
    if problem:
        raise ConfigurationError(f"{subject}: {problem}")
