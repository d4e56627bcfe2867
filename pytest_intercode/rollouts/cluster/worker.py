"""What runs rollouts on a node: a threads executor whose rollouts come and leave as messages.

It knows no Ray; ``node.py`` makes a process of it. Of the run's budget it has what the driver
answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from pytest_intercode.agents.loader import load_agent
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import ConfigurationError, EngineUnavailable, InfrastructureError
from pytest_intercode.gateway.exchange import Price
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.results.format import to_line
from pytest_intercode.rollouts.agent_thread import SharedLoop
from pytest_intercode.rollouts.cluster.budget import RemoteBudget
from pytest_intercode.rollouts.cluster.files import FileCache, FileRef, with_paths
from pytest_intercode.rollouts.cluster.messages import Message, decode, encode, error_of
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.executor import Handle, Observer, PhaseName
from pytest_intercode.rollouts.isolation import SharedProcess, owner, owning
from pytest_intercode.rollouts.output import CapturedOutput
from pytest_intercode.rollouts.records import RecordBuilder
from pytest_intercode.rollouts.rollout import Services, expect_sandboxes, fresh_agent
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.rollouts.threads import ThreadsExecutor
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["MAX_RECORD", "NodeWorker"]

MAX_RECORD = 32 * 1024 * 1024
"""Bytes of a record's line; one that is larger is its agent's fault."""

_MAX_OUTPUT = 4 * 1024 * 1024  # characters of a rollout
_MAX_THREADS = 4096  # the driver decides how many rollouts run; a thread starts when it is needed
_MAX_BATCH = 8 * 1024 * 1024  # bytes that are sent at a time, if no message is larger
_CLOSE_TIMEOUT = 10.0  # seconds for cancelled rollouts to close their sandboxes
_PYTEST_PHASES: dict[PhaseName, str] = {"prepare": "setup", "run": "call", "close": "teardown"}
_ELSEWHERE = Path("/nonexistent")  # a path of the driver's that nothing here has


class _Attempt(CapturedOutput):
    """An attempt at a rollout, and what it printed.

    Attributes:
        names: what names it in messages.
        missing: digests of files that it waits for.
        handle: the executor's; None before it is there.
        turns: how many turns it has taken.
        prepared: its environment was reset.
    """

    def __init__(self, message: Message) -> None:
        super().__init__(_MAX_OUTPUT)
        self.message = message
        self.names = {"job": int(message["job"]), "attempt": int(message["attempt"])}
        self.missing: set[str] = set()
        self.handle: Handle | None = None
        self.turns = 0
        self.prepared = False

    @property
    def key(self) -> tuple[int, int]:
        """What names it here."""
        return self.names["job"], self.names["attempt"]


class NodeWorker(Observer):
    """Plays rollouts.

    Args:
        settings: what all of them have in common.
        cache: where what the driver sends is kept; by default in the user's caches.

    Attributes:
        backend: the backend of its sandboxes.
        closed: all of it has ended.

    Raises:
        ConfigurationError: the settings cannot be kept here.
    """

    def __init__(self, settings: NodeSettings, cache: FileCache | None = None) -> None:
        self._settings = settings
        self._files = cache or FileCache()
        self._changed = threading.Condition()
        self._messages: deque[bytes] = deque()
        self._factory: AgentFactory | None = None
        self._factory_lock = threading.Lock()
        self._shared_loop = SharedLoop()
        self._process = SharedProcess()
        self._attempts: dict[tuple[int, int], _Attempt] = {}
        self._attempt_of: dict[Handle, _Attempt] = {}
        self._requested: dict[str, FileRef] = {}  # of the driver, by digest
        self._arrivals = threading.RLock()  # guards who waits for which file
        self._closing = False
        self.closed = False
        self._last_contact = time.monotonic()
        os.environ.update(settings.variables)
        self._provider = _make_provider(settings, self._files, self._send)
        self.backend = self._provider.choice.backend
        self._budget = RemoteBudget(
            settings.limited, settings.seconds, self._send, self._note_turns
        )
        services = Services(
            sandboxes=self._provider,
            make_agent=self._make_agent,
            run_budget=self._budget,
            isolate=lambda: self._process.episode(owner()),
            shared_loop=self._shared_loop,
        )
        self._executor = ThreadsExecutor(services, self, _MAX_THREADS, lambda: None)

    # -- what the driver calls

    def handle(self, data: bytes) -> None:
        """Take messages."""
        self._last_contact = time.monotonic()
        for message in decode(data):
            getattr(self, f"_on_{message['what']}")(message)

    def receive(self, digest: str, pieces: Iterable[bytes]) -> None:
        """Take the content of a file."""
        with self._arrivals:
            ref = self._requested.get(digest)
        if ref is None:
            return
        try:
            self._files.receive(ref, pieces)
        except InfrastructureError as error:
            with self._arrivals:
                self._requested.pop(digest, None)
                waiting = self._waiting_for(digest)
            for attempt in waiting:
                self._decline(attempt, error)
            return
        with self._arrivals:
            waiting = self._waiting_for(digest)
            for attempt in waiting:
                attempt.missing.discard(digest)
        for attempt in waiting:
            if not attempt.missing:
                self._begin(attempt)

    def poll(self, timeout: float) -> bytes:
        """Return what there is for the driver, as soon as there is something.

        Args:
            timeout: seconds to wait for it.
        """
        self._last_contact = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: bool(self._messages), timeout)
            pieces: list[bytes] = []
            size = 0
            while self._messages and (not pieces or size + len(self._messages[0]) <= _MAX_BATCH):
                pieces.append(self._messages.popleft())
                size += len(pieces[-1])
        return b"".join(pieces)

    def idle_seconds(self) -> float:
        """Return for how many seconds the driver has not called."""
        return time.monotonic() - self._last_contact

    def close(self) -> None:
        """End every rollout and every sandbox; may be called twice."""
        with self._changed:
            closing, self._closing = self._closing, True
        if closing:
            return
        self._executor.stop()
        for attempt in list(self._attempts.values()):
            if attempt.handle is not None:
                attempt.handle.cancel("the run is over")
        self._executor.join(_CLOSE_TIMEOUT)
        self._budget.close()
        self._shared_loop.close()
        if self._factory is not None:
            self._factory.close()
        self._provider.close()
        self.closed = True

    # -- messages

    def _on_play(self, message: Message) -> None:
        """Begin a rollout, as soon as all that it needs is here."""
        attempt = _Attempt(message)
        self._attempts[attempt.key] = attempt
        settings = self._settings
        references = [(Path(path), FileRef(*ref)) for path, ref in message["files"]]
        if settings.agent_archive is not None:
            references.append((_ELSEWHERE, settings.agent_archive))
        if settings.agent_file is not None:
            references.append((_ELSEWHERE, settings.agent_file[1]))
        try:
            missing = [ref for path, ref in references if self._files.path_of(path, ref) is None]
        except InfrastructureError as error:
            self._decline(attempt, error)
            return
        with self._arrivals:
            attempt.missing = {ref.digest for ref in missing}
            for ref in missing:
                if ref.digest not in self._requested or not self._waiting_for(ref.digest, attempt):
                    self._send({"what": "need", "digest": ref.digest})
                self._requested[ref.digest] = ref
        if not missing:
            self._begin(attempt)

    def _waiting_for(self, digest: str, besides: _Attempt | None = None) -> list[_Attempt]:
        attempts = list(self._attempts.values())
        return [a for a in attempts if digest in a.missing and a is not besides]

    def _on_cancel(self, message: Message) -> None:
        """End a rollout; its result is not wanted."""
        attempt = self._attempts.get((int(message["job"]), int(message["attempt"])))
        if attempt is None:
            return
        if attempt.handle is not None:
            attempt.handle.cancel(str(message["reason"]))
        else:
            self._forget(attempt)
            self._send({"what": "failed", **attempt.names, "stage": "prepare", "error": {}})

    def _on_answer(self, message: Message) -> None:
        """Take an answer about the run's budget."""
        self._budget.take_answer(message)

    def _on_forget(self, message: Message) -> None:
        """Remove a file that no rollout needs any more, if it was sent to this process."""
        digest = str(message["digest"])
        with self._arrivals:
            requested = self._requested.pop(digest, None)
        if requested is not None:
            self._files.remove(digest)

    # -- rollouts

    def _begin(self, attempt: _Attempt) -> None:
        try:
            spec = RolloutSpec.from_json(json.dumps(attempt.message["spec"]).encode())
            paths = {}
            for path, ref in attempt.message["files"]:
                local_path = self._files.path_of(Path(path), FileRef(*ref))
                assert local_path is not None, "what is missing is waited for"
                paths[Path(path)] = local_path
            spec = with_paths(spec, paths, set())
        except Exception as error:
            self._fail(attempt, error, "prepare")
            return
        with self._executor.lock:  # it begins when we let go of it
            if attempt.key in self._attempts:  # else it was cancelled
                attempt.handle = self._executor.submit(spec)
                self._attempt_of[attempt.handle] = attempt
                attempt.message = {}  # it is large

    def _make_agent(self, spec: RolloutSpec) -> Agent:
        with self._factory_lock:
            if self._factory is None:
                parameters = spec.parameters.keywords() if spec.parameters is not None else {}
                self._factory = self._load_agent(parameters.keys())
        return fresh_agent(self._factory, spec)

    def _load_agent(self, parameters: Collection[str]) -> AgentFactory:
        settings = self._settings
        name, folder = settings.agent, settings.agent_folder
        if settings.agent_archive is not None:
            folder = self._files.path_of(_ELSEWHERE, settings.agent_archive)
            if settings.agent_subfolder and ":" in name:  # a file's folder is all that was sent
                head, _, attribute = name.rpartition(":")
                name = f"{Path(head).name}:{attribute}"
        if settings.agent_file is not None:
            path = self._files.path_of(*settings.agent_file)
            name = f"{name.partition(':')[0]}:{path}"
        gateway = None
        if settings.gateway is not None:
            prices = {key: Price(**price) for key, price in settings.gateway["prices"].items()}
            gateway = GatewaySettings.of_environment(**{**settings.gateway, "prices": prices})
        return load_agent(name, settings.agent_arguments, folder, gateway, parameters)

    def _note_turns(self, turns: int) -> None:
        """Report that the rollout of the present thread took turns.

        Should this process end under it, it is run again with the turns that remain.
        """
        attempt = owner()
        if isinstance(attempt, _Attempt) and attempt.key in self._attempts:
            attempt.turns += turns
            self._send({"what": "turns", **attempt.names, "turns": attempt.turns})

    # -- what the executor notifies of, on the rollouts' threads

    @contextlib.contextmanager
    def surrounding(self, handle: Handle) -> Iterator[None]:
        """Keep what the rollout prints; forget it when all of it is over."""
        with self._executor.lock:
            attempt = self._attempt_of[handle]
        try:
            with owning(attempt):
                yield
        finally:
            self._forget(attempt)
            del self._attempt_of[handle]

    def entering(self, handle: Handle, phase: PhaseName) -> None:
        """Note the phase that what is printed belongs to."""
        self._attempt_of[handle].phase = _PYTEST_PHASES[phase]

    def prepared(self, handle: Handle, environment: Environment) -> None:
        """Notify the driver, and have sandboxes started for a rollout like this one."""
        attempt = self._attempt_of[handle]
        attempt.prepared = True
        self._send({"what": "prepared", **attempt.names})
        provider = self._provider
        if getattr(environment, "provider", None) is provider:
            tasks = [handle.spec.task]
            with contextlib.suppress(InfrastructureError):  # the run is over
                provider.background(partial(expect_sandboxes, provider, tasks, handle.spec.profile))

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        """Send the record."""
        line = to_line(record)
        if len(line) > MAX_RECORD:
            line = to_line(RecordBuilder.too_large(record, len(line), MAX_RECORD))
        self._send_result(self._attempt_of[handle], {"what": "ended", "line": line})

    def failed(self, handle: Handle, error: BaseException) -> None:
        """Send what ended it."""
        attempt = self._attempt_of[handle]
        stage = ("run" if attempt.prepared else "prepare") if handle.has_agent else "agent"
        # Without its engine this node runs nothing, so another one is to begin it.
        declined = isinstance(error, EngineUnavailable) and not attempt.prepared
        self._fail(attempt, error, stage, declined=declined)

    def _decline(self, attempt: _Attempt, error: InfrastructureError) -> None:
        """Say that a rollout could not be begun here, so that another node begins it."""
        self._fail(attempt, error, "prepare", declined=True)

    def _fail(
        self, attempt: _Attempt, error: BaseException, stage: str, *, declined: bool = False
    ) -> None:
        if attempt.handle is None:
            self._forget(attempt)
        failure = {"what": "failed", "stage": stage, "declined": declined}
        self._send_result(attempt, {**failure, "error": error_of(error)})

    def _send_result(self, attempt: _Attempt, message: Message) -> None:
        present = time.time()
        phases = attempt.handle.phases if attempt.handle is not None else {}
        times = {
            name: [phase.began, phase.seconds or max(0.0, present - phase.began)]
            for name, phase in phases.items()
        }
        output = attempt.take_pieces()
        self._send({**message, **attempt.names, "phases": times, "output": output})

    def _forget(self, attempt: _Attempt) -> None:
        self._attempts.pop(attempt.key, None)

    def _send(self, message: Message) -> None:
        data = encode(message)
        with self._changed:
            self._messages.append(data)
            self._changed.notify_all()


def _make_provider(
    settings: NodeSettings, files: FileCache, send: Callable[[Message], None]
) -> SandboxProvider:
    """Return where sandboxes come from.

    Raises:
        ConfigurationError: there are none to be had, or not as the settings say.
    """
    sandbox = replace(settings.sandbox, hidden=(files.folder,))
    provider = SandboxProvider(sandbox, progress=lambda line: send({"what": "line", "text": line}))
    backend = provider.backend
    if settings.network and backend.shares_network:
        raise ConfigurationError(
            f"--intercode-network: a sandbox of {backend.name} would share the node's network, "
            "and reach the ports of Ray; take Docker, or --intercode-allow-host"
        )
    problem = backend.problem()
    if problem:
        raise ConfigurationError(problem)
    provider.check({"rootfs": "--intercode-rootfs", "registry": "--intercode-registry"})
    return provider
