"""What runs rollouts on a node: told what to play, asked what came of it. It knows no Ray.

It is a concurrent executor whose rollouts come in messages and leave as messages. Of the run's
budget it has what the driver leases to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pytest_intercode.agents.loader import load_agent
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.usage import RunLimits
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import ConfigurationError, InfrastructureError
from pytest_intercode.gateway.prices import Price
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.results.format import to_line
from pytest_intercode.rollouts.agent_thread import SharedLoop
from pytest_intercode.rollouts.cluster.files import Parcel, Store, bundled_digest, with_paths
from pytest_intercode.rollouts.cluster.leases import LeasedBudget
from pytest_intercode.rollouts.cluster.messages import Message, decode, encode, error_of
from pytest_intercode.rollouts.cluster.output import KeptOutput
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.executors.concurrent import (
    ConcurrentExecutor,
    ConcurrentHandle,
    ConcurrentObserver,
)
from pytest_intercode.rollouts.executors.handle import Handle, PhaseName
from pytest_intercode.rollouts.isolation import SharedProcess, owner, owning
from pytest_intercode.rollouts.rollout import (
    Services,
    expect_sandboxes,
    fresh_agent,
)
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["LARGEST_RECORD", "Player", "differences", "greeting"]

LARGEST_RECORD = 32 * 1024 * 1024
"""Bytes of a record's line; one that is larger is its agent's fault."""

_THREADS = 4096  # the driver decides how many rollouts run; a thread is started when one is needed
_BATCH = 8 * 1024 * 1024  # bytes that are sent at a time, if no message is larger
_FAREWELL = 10.0  # seconds for cancelled rollouts to close their sandboxes
_SHOWN = 200  # characters of a query, in the record of an episode whose own record is too large
_WHEN: dict[PhaseName, str] = {"prepare": "setup", "run": "call", "close": "teardown"}


def greeting() -> Message:
    """Return what has to be the same on all nodes, and on the driver."""
    return {
        "pytest-intercode": _version("pytest-intercode"),
        "its files": bundled_digest()[:12],
        "Python": platform.python_version(),
        "Ray": _version("ray"),
    }


def differences(said: bytes, own: Message) -> str:
    """Say in what a node differs from this machine, or nothing.

    Args:
        said: its :func:`greeting`, as JSON.
        own: that of this machine.
    """
    try:
        theirs = json.loads(said)
    except (ValueError, RecursionError):
        theirs = None
    if not isinstance(theirs, dict):
        return "it does not say its versions"
    return ", ".join(
        f"{what} {theirs.get(what, 'unknown')!s:.40}, here {value}"
        for what, value in own.items()
        if theirs.get(what) != value
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


class _Played(KeptOutput):
    """A rollout of this node's, and what it printed.

    Attributes:
        job: the driver's number of it.
        attempt: which attempt at it this is.
        handle: the executor's; None before it is there.
        turns: how many turns it has taken.
        prepared: its environment was reset.
    """

    def __init__(self, job: int, attempt: int) -> None:
        super().__init__()
        self.job = job
        self.attempt = attempt
        self.handle: ConcurrentHandle | None = None
        self.turns = 0
        self.prepared = False


class Player(ConcurrentObserver):
    """Plays rollouts.

    Args:
        store: where what the driver sends is kept; by default in the user's caches.

    Attributes:
        closed: all of it has ended.
    """

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._settings = NodeSettings()
        self._changed = threading.Condition()
        self._out: deque[bytes] = deque()
        self._executor: ConcurrentExecutor | None = None
        self._provider: SandboxProvider | None = None
        self._factory: AgentFactory | None = None
        self._factory_lock = threading.Lock()
        self._shared_loop = SharedLoop()
        self._process = SharedProcess()
        self._played: dict[tuple[int, int], _Played] = {}
        self._of: dict[Handle, _Played] = {}
        self._missing: dict[tuple[int, int], tuple[Message, set[str]]] = {}
        self._parcels: dict[str, Parcel] = {}
        self._budget = LeasedBudget((), RunLimits(), self._say)
        self._closing = False
        self.closed = False
        self._last_heard = time.monotonic()

    # -- what the driver calls, one call after another

    def tell(self, data: bytes) -> None:
        """Take messages."""
        self._last_heard = time.monotonic()
        for message in decode(data):
            getattr(self, f"_on_{message['what']}")(message)

    def receive(self, digest: str, piece: bytes) -> None:
        """Take a piece of a file; an empty one ends it."""
        parcel = self._parcels.get(digest)
        if parcel is None:  # it was given up when an earlier piece could not be kept
            return
        try:
            whole = self._files.receive(parcel, piece)
        except InfrastructureError as error:
            self._fail_missing(digest, error)
            return
        if whole:
            for key, (message, missing) in list(self._missing.items()):
                missing.discard(digest)
                if not missing:
                    del self._missing[key]
                    self._play(message)

    def listen(self, patience: float) -> bytes:
        """Return what there is to say, as soon as there is something.

        Args:
            patience: seconds to wait for it.
        """
        self._last_heard = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: bool(self._out), patience)
            pieces: list[bytes] = []
            size = 0
            while self._out and (not pieces or size + len(self._out[0]) <= _BATCH):
                pieces.append(self._out.popleft())
                size += len(pieces[-1])
        return b"".join(pieces)

    def silence(self) -> float:
        """Return for how many seconds nothing was heard of the driver."""
        return time.monotonic() - self._last_heard

    def close(self) -> None:
        """End every rollout and every sandbox; may be called twice."""
        with self._changed:
            closing, self._closing = self._closing, True
        if closing:
            return
        executor = self._executor
        if executor is not None:
            executor.stop()
            for played in list(self._played.values()):
                if played.handle is not None:
                    played.handle.cancel("the run is over")
            executor.join(_FAREWELL)
        self._budget.close()
        self._shared_loop.close()
        if self._factory is not None:
            self._factory.close()
        if self._provider is not None:
            self._provider.close()
        self._say({"what": "closed"})
        self.closed = True

    # -- messages

    def _on_set_up(self, message: Message) -> None:
        """Take the settings of the run, and say whether they can be kept here."""
        settings = self._settings = NodeSettings.from_fields(message["settings"])
        os.environ.update(settings.variables)
        try:
            provider = self._provider = self._make_provider(settings)
            backend = provider.backend
            if settings.network and backend.shares_network:
                raise ConfigurationError(
                    f"--intercode-network: a sandbox of {backend.name} would share the node's "
                    "network, and reach the ports of Ray; take Docker, or --intercode-allow-host"
                )
            problem = backend.problem()
            if problem:
                raise ConfigurationError(problem)
            provider.check({"rootfs": "--intercode-rootfs", "registry": "--intercode-registry"})
        except Exception as error:
            self._say({"what": "unfit", "error": error_of(error)})
            return
        self._budget = LeasedBudget(
            settings.limited, RunLimits(seconds=settings.seconds), self._say, self._note_turns
        )
        self._executor = ConcurrentExecutor(
            Services(
                sandboxes=provider,
                make_agent=self._make_agent,
                run_budget=self._budget,
                isolate=lambda: self._process.episode(owner()),
                shared_loop=self._shared_loop,
            ),
            self,
            _THREADS,
            lambda: None,
        )
        self._say({"what": "ready", "backend": backend.name, "why": str(provider.choice)})

    def _on_play(self, message: Message) -> None:
        """Begin a rollout, as soon as all that it needs is here."""
        key = int(message["job"]), int(message["attempt"])
        self._played[key] = _Played(*key)
        wanted = [Parcel(*parcel) for _, parcel in message["files"]]
        wanted += [found for found in (self._settings.agent_parcel,) if found is not None]
        if self._settings.agent_file is not None:
            wanted.append(self._settings.agent_file[1])
        paths = [Path(path) for path, _ in message["files"]] + [Path("/nonexistent")] * 2
        try:
            missing = {
                parcel.digest
                for path, parcel in zip(paths, wanted, strict=False)
                if self._files.place(path, parcel) is None
            }
        except InfrastructureError as error:
            self._fail(self._played[key], error, "prepare")
            return
        if not missing:
            self._play(message)
            return
        self._missing[key] = message, missing
        for parcel in wanted:
            if parcel.digest in missing and parcel.digest not in self._parcels:
                self._parcels[parcel.digest] = parcel
                self._say({"what": "need", "digest": parcel.digest})

    def _on_cancel(self, message: Message) -> None:
        """End a rollout; its result is not wanted."""
        key = int(message["job"]), int(message["attempt"])
        played = self._played.get(key)
        if self._missing.pop(key, None) is not None:
            del self._played[key]
            self._say({"what": "failed", **_named(*key), "stage": "prepare", "error": {}})
        elif played is not None and played.handle is not None:
            played.handle.cancel(str(message["reason"]))

    def _on_granted(self, message: Message) -> None:
        """Take a part of the run's budget, or hear that none is left."""
        self._budget.granted(message)

    def _on_recall(self, message: Message) -> None:
        """Give back what is not used of it."""
        self._budget.recall()

    def _on_forget(self, message: Message) -> None:
        """Remove a file that no rollout needs any more, if it was sent to this process."""
        digest = str(message["digest"])
        if self._parcels.pop(digest, None) is not None:
            self._files.remove(digest)

    def _on_close(self, message: Message) -> None:
        """End everything, without keeping the caller waiting."""
        threading.Thread(target=self.close, name="intercode-close", daemon=True).start()

    # -- rollouts

    @property
    def _files(self) -> Store:
        if self._store is None:
            self._store = Store()
        return self._store

    def _make_provider(self, settings: NodeSettings) -> SandboxProvider:
        sandbox = replace(settings.sandbox, hidden=(self._files.folder,))
        return SandboxProvider(
            sandbox, progress=lambda line: self._say({"what": "line", "text": line})
        )

    def _play(self, message: Message) -> None:
        played = self._played[int(message["job"]), int(message["attempt"])]
        assert self._executor is not None, "a node is set up before it plays"
        try:
            spec = RolloutSpec.from_json(json.dumps(message["spec"]).encode())
            places = {}
            for path, parcel in message["files"]:
                found = self._files.place(Path(path), Parcel(*parcel))
                assert found is not None, "what is missing is waited for"
                places[Path(path)] = found
            spec = with_paths(spec, places, set())
        except Exception as error:
            self._fail(played, error, "prepare")
            return
        with self._executor.lock:  # it begins when we let go of it
            played.handle = self._executor.submit(spec)
            self._of[played.handle] = played

    def _make_agent(self, spec: RolloutSpec) -> Agent:
        with self._factory_lock:
            if self._factory is None:
                parameters = spec.parameters.keywords() if spec.parameters is not None else {}
                self._factory = self._load_agent(parameters.keys())
        return fresh_agent(self._factory, spec)

    def _load_agent(self, parameters: Collection[str]) -> AgentFactory:
        settings = self._settings
        name, folder = settings.agent, settings.agent_folder
        if settings.agent_parcel is not None:
            folder = self._files.place(Path("/nonexistent"), settings.agent_parcel)
            if settings.agent_below and ":" in name:  # the folder of a file is all that was sent
                head, _, attribute = name.rpartition(":")
                name = f"{Path(head).name}:{attribute}"
        if settings.agent_file is not None:
            path = self._files.place(*settings.agent_file)
            name = f"{name.partition(':')[0]}:{path}"
        gateway = None
        if settings.gateway is not None:
            prices = {key: Price(**price) for key, price in settings.gateway["prices"].items()}
            gateway = GatewaySettings.of_environment(**{**settings.gateway, "prices": prices})
        return load_agent(name, settings.agent_arguments, folder, gateway, parameters)

    def _note_turns(self, turns: int) -> None:
        """Tell the driver that the rollout of the present thread took turns.

        Should this process die under it, it is run again with the turns that are left.
        """
        played = owner()
        if isinstance(played, _Played) and (played.job, played.attempt) in self._played:
            played.turns += turns
            self._say(
                {"what": "turns", **_named(played.job, played.attempt), "turns": played.turns}
            )

    # -- what the executor notifies of, on the rollouts' threads

    @contextlib.contextmanager
    def surrounding(self, handle: ConcurrentHandle) -> Iterator[None]:
        """Keep what the rollout prints; forget it when all of it is over."""
        assert self._executor is not None
        with self._executor.lock:
            played = self._of[handle]
        try:
            with owning(played):
                yield
        finally:
            self._forget(played)
            del self._of[handle]

    def entering(self, handle: ConcurrentHandle, phase: PhaseName) -> None:
        """Note the phase that what is printed belongs to."""
        self._of[handle].phase = _WHEN[phase]

    def prepared(self, handle: Handle, environment: Environment) -> None:
        """Tell the driver, and have sandboxes started for a rollout like this one."""
        played = self._of[handle]
        played.prepared = True
        self._say({"what": "prepared", **_named(played.job, played.attempt)})
        provider: SandboxProvider | None = getattr(environment, "provider", None)
        if provider is not None and provider is self._provider:
            again = [handle.spec.task]
            with contextlib.suppress(InfrastructureError):  # the run is over
                provider.background(partial(expect_sandboxes, provider, again, handle.spec.profile))

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        """Send the record."""
        played = self._of[handle]
        line = to_line(record)
        if len(line) > LARGEST_RECORD:
            line = to_line(_too_large(record, len(line)))
        self._say(
            {
                "what": "ended",
                **_named(played.job, played.attempt),
                "line": line,
                "phases": _phases(handle),
                "output": played.take(),
            }
        )

    def failed(self, handle: Handle, error: BaseException) -> None:
        """Send what ended it."""
        played = self._of[handle]
        stage = "run" if played.prepared else "prepare"
        if isinstance(handle, ConcurrentHandle) and not handle.has_agent:
            stage = "agent"
        self._fail(played, error, stage, handle)

    def _fail(
        self, played: _Played, error: BaseException, stage: str, handle: Handle | None = None
    ) -> None:
        self._say(
            {
                "what": "failed",
                **_named(played.job, played.attempt),
                "stage": stage,
                "error": error_of(error),
                "phases": _phases(handle) if handle is not None else {},
                "output": played.take(),
            }
        )
        if handle is None:
            self._forget(played)

    def _fail_missing(self, digest: str, error: InfrastructureError) -> None:
        for key, (_, missing) in list(self._missing.items()):
            if digest in missing:
                del self._missing[key]
                self._fail(self._played[key], error, "prepare")
        self._parcels.pop(digest, None)

    def _forget(self, played: _Played) -> None:
        self._played.pop((played.job, played.attempt), None)

    def _say(self, message: Message) -> None:
        data = encode(message)
        with self._changed:
            self._out.append(data)
            self._changed.notify_all()


def _named(job: int, attempt: int) -> Message:
    return {"job": job, "attempt": attempt}


def _phases(handle: Handle) -> Message:
    now = time.time()
    phases = handle.phases if isinstance(handle, ConcurrentHandle) else {}
    return {
        name: [phase.began, phase.seconds or max(0.0, now - phase.began)]
        for name, phase in phases.items()
    }


def _too_large(record: EpisodeRecord, size: int) -> EpisodeRecord:
    """Return what is left of a record that is too large to be sent."""
    reason = (
        f"its record has {size / 1024**2:.0f} MiB, and a record may have "
        f"{LARGEST_RECORD // 1024**2} MiB"
    )
    slim = record.without_trajectory()
    return replace(
        slim,
        task=replace(slim.task, query=slim.task.query[:_SHOWN], tags=()),
        outcome="agent-error",
        reward=0.0,
        reason=reason,
        parts={},
        attempts=(),
        refused_hosts=(),
        turns=slim.turns[:1000],
    )
