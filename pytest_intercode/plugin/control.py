"""Answers the requests of ``pytest-intercode top``, on a socket in the run's private folder.

Under pytest-xdist each process has a socket. Clients ask the controller, which asks the workers.
Nothing is written, and no status is made, unless a client asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.status import EpisodeStatus, RunStatus
from pytest_intercode.core.text import one_line
from pytest_intercode.errors import SandboxError
from pytest_intercode.plugin.masking import masks_of
from pytest_intercode.plugin.progress import Progress
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.plugin.xdist import Workers, is_distributed, is_worker
from pytest_intercode.system.control import RUN_SOCKET, ControlSocket, ask_all
from pytest_intercode.system.platform import HAS_SANDBOXES, interrupt_main_thread

__all__ = ["Control"]

_THREAD = "intercode-control"
_WORKER_SOCKET = "worker-{}.sock"
_WORKER_TIMEOUT = 1.0  # seconds for the answers of all workers
_MAX_MASKED = 32 * 1024  # characters of an action that are searched for keys; more are not shown
_MAX_SHOWN = 300  # characters of an action that are shown
_NOT_RUNNING = "it is no longer running"
_SILENT = (
    "a process of the run, which may be running it, does not answer; try again, or stop the run"
)
_STOP_REASON = "by the user"


class Control:
    """Answers what other processes of this user ask about the run; a pytest plugin.

    Args:
        config: pytest's.
        settings: what the user asked for.
        workers: what the processes of the run share.
        progress: how far the run is.
    """

    def __init__(
        self, config: pytest.Config, settings: Settings, workers: Workers, progress: Progress
    ) -> None:
        self._config = config
        self._settings = settings
        self._workers = workers
        self._progress = progress
        self._socket: ControlSocket | None = None
        if is_distributed(config) and not is_worker(config):
            progress.under_way = self._ask_workers
        self._silent = 0  # workers that did not answer the last request

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Open the socket of a run that plays something, if there is a place for it."""
        config = self._config
        if config.option.collectonly or self._settings.plan or not HAS_SANDBOXES:
            return
        if not session.items and not is_distributed(config):
            return
        if is_worker(config) and self._workers.slots is None:
            return  # the controller has not started a run of ours
        name = _WORKER_SOCKET.format(self._workers.name) if is_worker(config) else RUN_SOCKET
        with contextlib.suppress(OSError, SandboxError):
            path = self._workers.folder() / name
            self._socket = ControlSocket(path, self._answer, name=_THREAD)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Remove the socket of a worker that has crashed, which would count as a silent worker."""
        with contextlib.suppress(OSError, SandboxError):
            (self._workers.folder() / _WORKER_SOCKET.format(node.gateway.id)).unlink()

    def pytest_unconfigure(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()

    # -- on the socket's thread

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        kind = request.get("request")
        if kind == "episodes":
            return {"episodes": [asdict(status) for status in self._episodes()]}
        if kind == "status":
            return {"run": self._status().to_json()}
        if kind == "stop":
            return {"problem": self._stop(str(request.get("episode")))}
        if kind == "stop run":
            return {"problem": self._interrupt()}
        return {"problem": "this release of pytest-intercode does not know this request"}

    def _stop(self, item: str) -> str:
        """Stop the episode of an item, here or in a worker; return why not, or nothing."""
        if self._is_controller:
            return self._have_stopped(item)
        for handle in self._progress.handles():
            if handle.spec.node_id == item:
                stopped = handle.stop(_STOP_REASON)
                return "" if stopped else "it runs on a node of a cluster; stop the run instead"
        return _NOT_RUNNING

    @staticmethod
    def _interrupt() -> str:
        """End the run as Ctrl-C does; return why not, or nothing."""
        if interrupt_main_thread():
            return ""
        return (
            "it ignores interrupts, like every process that a script starts in the background; "
            "end its process instead"
        )

    def _status(self) -> RunStatus:
        status = self._progress.status()
        episodes = status.episodes if self._is_controller else tuple(self._episodes())
        name = self._settings.run_name or ""
        return replace(status, name=name, silent=self._silent, episodes=episodes)

    def _episodes(self) -> Sequence[EpisodeStatus]:
        """Return the episodes that are running in this process, in a form that may be shown."""
        return [
            replace(status, worker=self._workers.name, action=self._shown(status.action))
            for status in self._progress.own_episodes(whole=True)
        ]

    def _shown(self, action: str) -> str:
        """Return the beginning of an action, on one line, escaped and without keys."""
        text = one_line(masks_of(self._config).text(action[:_MAX_MASKED]))
        return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."

    # -- of the controller, on any thread

    @property
    def _is_controller(self) -> bool:
        return is_distributed(self._config) and not is_worker(self._config)

    def _worker_sockets(self) -> list[Path]:
        with contextlib.suppress(OSError, SandboxError):
            return sorted(self._workers.folder().glob(_WORKER_SOCKET.format("*")))
        return []

    def _ask_workers(self) -> list[EpisodeStatus]:
        """Return the episodes that are running in the workers."""
        episodes: list[EpisodeStatus] = []
        silent = 0
        paths = self._worker_sockets()
        answers = ask_all(paths, {"request": "episodes"}, _WORKER_TIMEOUT)
        for path in paths:
            try:
                episodes += map(EpisodeStatus.from_json, answers[path]["episodes"])
            except (KeyError, TypeError, ValueError):
                silent += path.exists()  # a worker that has ended removes its socket
        self._silent = silent
        return [status for status in episodes if status.item not in self._progress.done]

    def _have_stopped(self, item: str) -> str:
        """Have the worker that plays an item's episode stop it; return why not, or nothing."""
        paths = self._worker_sockets()
        answers = ask_all(paths, {"request": "stop", "episode": item}, _WORKER_TIMEOUT)
        problems = [str(answer.get("problem")) for answer in answers.values()]
        for problem in problems:
            if problem != _NOT_RUNNING:
                return problem
        is_silent = any(path.exists() for path in paths if path not in answers)
        return _SILENT if is_silent else _NOT_RUNNING
