"""This user's active runs on this machine: what they are doing, and how to stop one."""

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

# Seconds for the answers of all runs, each of which may wait one second for its workers.
_STATUS_TIMEOUT = 2.0
_STOP_TIMEOUT = 10.0  # seconds


def find_runs(pid: int | None, note: Callable[[str], object] = str) -> Runs:
    """Return the runs that answer.

    Args:
        pid: the process number of one run; None for all.
        note: called with a line for each run that does not answer; by default, does nothing.

    Raises:
        ConfigurationError: there is no run with this number.
        SandboxError: other users may open the folder in which runs are found.
    """
    paths = run_sockets()
    answers = ask_all(paths, {"request": "status"}, _STATUS_TIMEOUT)
    runs: Runs = {}
    for path in paths:
        try:
            runs[path] = RunStatus.from_json(answers[path]["run"])
        except (KeyError, TypeError, ValueError):
            if path.exists():  # otherwise it has just ended
                note(f"a run does not answer: {path}")
    if pid is None:
        return runs
    matches = {path: status for path, status in runs.items() if status.pid == pid}
    if not matches:
        raise ConfigurationError(
            f"{pid}: you have no run with this process id on this machine; your runs: "
            + (_pids(runs) if runs else "none")
        )
    return matches


def stop_run(runs: Runs) -> str:
    """End a run as Ctrl-C does, and return a sentence about it.

    Args:
        runs: the run, and no other.

    Raises:
        ConfigurationError: there is no run, or there are several; or it cannot be ended.
    """
    if not runs:
        raise ConfigurationError("--stop=run: you have no runs on this machine")
    if len(runs) > 1:
        raise ConfigurationError(
            f"--stop=run: you have several runs, {_pids(runs)}; give one of these numbers as PID"
        )
    ((path, status),) = runs.items()
    _tell(path, {"request": "stop run"}, f"run {status.pid}")
    return f"run {status.pid}: interrupted, as by Ctrl-C"


def stop_episode(name: str, runs: Runs) -> str:
    """End an episode, and return a sentence about it.

    Args:
        name: its node id, its task, or the part of its item in brackets.
        runs: the runs to which it may belong.

    Raises:
        ConfigurationError: it does not belong to them, or cannot be ended.
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
    if not matches:  # it may be the task, or the part of the item in brackets
        matches = [
            pair for pair in episodes if pair[1].task == name or pair[1].item.endswith(f"[{name}]")
        ]
    if len(matches) == 1:
        return matches[0]
    items = ", ".join(status.item for _, status in matches or episodes) or "none"
    problem = (
        "several running episodes have this name" if matches else "no running episode has this name"
    )
    silent = sum(run.silent for run in runs.values())
    note = f"; {pluralize(silent, 'process', 'processes')} without an answer" if silent else ""
    raise ConfigurationError(f"--stop={name}: {problem}; there are: {items}{note}")


def _tell(socket: Path, request: dict[str, Any], subject: str) -> None:
    """Send a request to a run.

    Raises:
        ConfigurationError: the run does not do it.
    """
    try:
        problem = ask(socket, request, _STOP_TIMEOUT).get("problem")
    except NoAnswer:
        problem = "the run does not answer"
    if problem:
        raise ConfigurationError(f"{subject}: {problem}")
