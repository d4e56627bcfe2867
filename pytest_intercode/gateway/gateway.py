"""The gateway of one pytest process: a thread with an event loop that serves its sessions."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.masking import Masks
from pytest_intercode.gateway.recording import EpisodeRecording, FolderRecorder, folder_replayer
from pytest_intercode.gateway.session import KeepTokens, Session
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.system.extras import has_extra, need
from pytest_intercode.system.forks import MakingProcess
from pytest_intercode.system.loop_thread import LoopThread

if TYPE_CHECKING:
    from pytest_intercode.gateway.server import Server

__all__ = ["Gateway"]

_THREAD = "intercode-gateway"  # threads with this name are not reported as left behind
_STOP_TIMEOUT = 10.0  # seconds for running requests to end
_CHECK_TIMEOUT = 45.0  # seconds to check the servers; two connections may take 20 each


class Gateway:
    """Serves the sessions of one process; it listens from the first :meth:`open` to :meth:`close`.

    Args:
        settings: where requests go, and what they may ask for.

    Raises:
        ConfigurationError: the extra ``gateway`` is not installed, or a setting is wrong.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        if not has_extra("gateway"):
            raise ConfigurationError(need("gateway", "the gateway"))
        settings.check()
        self.settings = settings
        self._process = MakingProcess("this gateway belongs")
        self._lock = threading.Lock()
        self._serving: tuple[Server, LoopThread] | None = None
        self._port = 0
        self._closed = False

    def open(
        self,
        key: str,
        *,
        spend: Callable[..., None],
        refused: Callable[[], str] = lambda: "",
        socket: Path | None = None,
        recording: EpisodeRecording | None = None,
        keep: KeepTokens | None = None,
    ) -> Session:
        """Open a session for one episode.

        Args:
            key: identifies the episode (task and repetition) in recordings.
            spend: called on one of the gateway's threads with the fields of each exchange's
                :class:`~pytest_intercode.core.usage.Usage`; once it raises
                :class:`~pytest_intercode.errors.BudgetExhausted`, further requests are refused.
            refused: returns why no more requests are served, or the empty string; called for each
                request on the gateway's thread, so it must not block.
            socket: the path of a Unix socket for this session only. Requests through it without
                a token are noted in this session's refusals, other sessions' tokens are refused
                there, and its connections are counted separately.
            recording: records or replays this session; by default, the folders of the run are used.
            keep: called on the same threads with the tokens of each answer, if the settings name a
                server that returns them.

        Raises:
            ConfigurationError: it cannot listen, or the recording cannot be read or written.
        """
        self._process.check()
        recording = recording or self._recording_of_run(key)
        with self._lock:
            server, thread = self._start()
            session = Session(
                key,
                self._port,
                spend=spend,
                refused=refused,
                recorder=recording.recorder,
                replayer=recording.replayer,
                close=self._end,
                check=self._check_servers,
                masked=lambda: server.upstream.secrets,
                signs=self.settings.signs,
                keep=keep if self.settings.tokens is not None else None,
            )
            try:
                thread.begin(server.add(session, socket)).result()
            except OSError as error:
                raise ConfigurationError(
                    f"the gateway cannot listen on {socket}: {error.strerror or error}"
                ) from None
        return session

    def _recording_of_run(self, key: str) -> EpisodeRecording:
        """Return a recording from the settings: a folder to record to or to replay, or neither."""
        settings = self.settings
        if settings.record:
            masks = Masks.of_machine((*settings.secrets, *settings.hidden))
            return EpisodeRecording(recorder=FolderRecorder(settings.record, key, masks))
        if settings.replay:
            masks = Masks.of_machine((*settings.secrets, *settings.hidden))
            return EpisodeRecording(replayer=folder_replayer(settings.replay, key, masks))
        return EpisodeRecording()

    def close(self) -> None:
        """End all sessions, and stop listening; may be called twice."""
        if not self._process.is_this:
            return
        with self._lock:
            self._closed = True
            serving, self._serving = self._serving, None
        if serving is None:
            return
        server, thread = serving
        with contextlib.suppress(Exception):
            thread.begin(server.stop()).result(_STOP_TIMEOUT)
        thread.stop(_STOP_TIMEOUT)

    def _end(self, session: Session) -> None:
        """End a session; after the end of the gateway, only mark it as ended."""
        session.end("the episode is over")
        serving = self._serving
        if serving is None or not self._process.is_this:
            return
        server, thread = serving
        with contextlib.suppress(Exception):
            thread.begin(server.remove(session)).result(_STOP_TIMEOUT)

    def _check_servers(self) -> str:
        """Return why no server can be used; empty if one can be used, or if that is not known."""
        if self._serving is None:
            return ""
        server, thread = self._serving
        future = thread.begin(server.upstream.outage())
        try:
            return future.result(_CHECK_TIMEOUT)
        except concurrent.futures.TimeoutError:
            future.cancel()
            return ""

    def _start(self) -> tuple[Server, LoopThread]:
        """Return the server and its thread; start them if necessary."""
        if self._closed:
            raise ConfigurationError("the run is over: the gateway is closed")
        if self._serving is not None:
            return self._serving
        from pytest_intercode.gateway.server import Server

        thread = LoopThread(_THREAD)
        server = Server(self.settings)
        try:
            self._port = thread.begin(server.start()).result()
        except OSError as error:
            thread.stop(_STOP_TIMEOUT)
            raise ConfigurationError(
                f"the gateway cannot listen: {error.strerror or error}"
            ) from None
        self._serving = server, thread
        return self._serving
