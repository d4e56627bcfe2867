"""Our process on a node: a threads executor whose rollouts come and leave as JSON.

Ray runs a :class:`Node` as an async actor, in its own process. The methods that the driver calls
take bytes, numbers and references to bytes, return bytes, and do not raise, because Ray would send
an exception as a pickle. For the run's budget it asks an actor next to the driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import platform
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pytest_intercode.agents.loader import load_agent
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.agents.users import Users
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import (
    ConfigurationError,
    EngineUnavailable,
    InfrastructureError,
    RolloutCancelled,
)
from pytest_intercode.gateway.exchange import Price
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.judging.judges import Judges
from pytest_intercode.rollouts.agent_thread import SharedLoop
from pytest_intercode.rollouts.cluster.budget import RemoteBudget
from pytest_intercode.rollouts.cluster.files import FileCache, FileRef, bundled_digest, with_paths
from pytest_intercode.rollouts.cluster.messages import (
    Message,
    encode,
    encode_answer,
    error_of,
    line_of,
)
from pytest_intercode.rollouts.cluster.settings import AgentSource, NodeSettings
from pytest_intercode.rollouts.executor import Handle, Observer, PhaseName
from pytest_intercode.rollouts.isolation import SharedProcess, followed, owner, owning
from pytest_intercode.rollouts.output import CapturedOutput, capture_process
from pytest_intercode.rollouts.rollout import Services, expect_sandboxes, fresh_agent
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.rollouts.threads import ThreadsExecutor
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["Node", "differences", "versions"]

_MAX_OUTPUT = 4 * 1024 * 1024  # characters of a rollout's output
_MAX_THREADS = 4096  # the driver decides how many rollouts run; a thread starts when it is needed
_PYTEST_PHASES: dict[PhaseName, str] = {"prepare": "setup", "run": "call", "close": "teardown"}
_ELSEWHERE = Path("/nonexistent")  # a path on the driver that does not exist here
_BUDGET_TIMEOUT = 60.0  # seconds in which the actor next to the driver answers
_DRIVER_TIMEOUT = 60.0  # seconds without a call from the driver, after which a node ends itself
_CHECK_INTERVAL = 2.0
_REPORT_TIMEOUT = 5.0  # seconds for the driver to ask again, as it does after each answer
_CANCEL_TIMEOUT = 10.0  # seconds for cancelled rollouts to close their sandboxes
_CLOSE_TIMEOUT = 8.0  # seconds for all sandboxes to close; they end with this process in any case


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all nodes and on the driver."""
    return {
        "pytest-intercode": _version("pytest-intercode"),
        "its files": bundled_digest()[:12],
        "Python": platform.python_version(),
        "Ray": _version("ray"),
    }


def differences(reported: Message, expected: dict[str, str]) -> str:
    """Describe the differences of a node's versions from this machine's; empty if there are none.

    Args:
        reported: the node's :func:`versions`.
        expected: the versions of this machine.
    """
    return ", ".join(
        f"{name} {reported.get(name, 'unknown')!s:.40}, here {value}"
        for name, value in expected.items()
        if reported.get(name) != value
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


class _Attempt(CapturedOutput):
    """An attempt at a rollout, and its output.

    Attributes:
        number: the number by which the driver identifies it.
        handle: the executor's handle; None until all files that it needs are here.
        cancelled: why it must not begin; empty if it may.
        turns: how many turns it has taken; None before its environment was reset.
        answer: the answer for the driver.
    """

    def __init__(self, number: int) -> None:
        super().__init__(_MAX_OUTPUT)
        self.number = number
        self.handle: Handle | None = None
        self.cancelled = ""
        self.turns: int | None = None
        self.answer: Future[bytes] = Future()

    def end(self, message: Message) -> None:
        """Answer the driver, adding the output and the times of the phases."""
        present = time.time()
        phases = self.handle.phases if self.handle is not None else {}
        times = {
            name: [phase.began, phase.seconds or max(0.0, present - phase.began)]
            for name, phase in phases.items()
        }
        self.answer.set_result(encode_answer({**message, "phases": times}, self.take_pieces()))

    def fail(self, error: BaseException, stage: str, *, declined: bool = False) -> None:
        """Answer with the error that ended it.

        Args:
            error: the error.
            stage: the stage that failed: ``agent``, ``prepare`` or ``run``.
            declined: whether it could not be begun here, so that another node must begin it.
        """
        self.end({"stage": stage, "declined": declined, "error": error_of(error)})


class Node(Observer):
    """Plays rollouts.

    Args:
        cache: the cache for files that the driver sends; by default in the user's caches.
    """

    _settings: NodeSettings
    _provider: SandboxProvider
    _executor: ThreadsExecutor

    def __init__(self, cache: FileCache | None = None) -> None:
        self._cache = cache
        self._changed = threading.Condition()  # guards the next three attributes
        self._turns: dict[int, int] = {}  # by attempt, changed since the driver last asked
        # The turns in the last answer, which may have been lost; None before the first answer.
        self._sent: dict[int, int] | None = None
        self._lines: list[str] = []  # lines for the user since the driver last asked
        self._attempts: dict[int, _Attempt] = {}
        self._attempt_of: dict[Handle, _Attempt] = {}
        self._factories: dict[int, AgentFactory] = {}  # by the indexes of their agents
        self._factory_lock = threading.Lock()
        self._shared_loop = SharedLoop()
        self._process = SharedProcess()
        self._received: set[str] = set()  # digests of files that this process put into the cache
        self._last_contact = time.monotonic()
        self._set_up = self._closed = False
        self._stack = contextlib.ExitStack()

    # -- called by the driver

    async def versions(self) -> bytes:
        """Set up the process, which runs only this actor; return its versions."""
        threading.Thread(target=self._watch, name="intercode-watch", daemon=True).start()
        self._stack.enter_context(followed())
        capture_process()
        return encode(versions())

    async def set_up(self, data: bytes) -> bytes:
        """Take the settings of the run; return the backend of sandboxes, or a problem."""
        self._last_contact = math.inf  # no driver timeout until this has answered
        try:
            await asyncio.to_thread(self._take_settings, NodeSettings.from_json(data))
        except Exception as error:
            return encode({"problem": " ".join(str(error).split())})
        finally:
            self._last_contact = time.monotonic()
        self._set_up = True
        return encode({"backend": self._provider.choice.backend})

    async def play(self, data: bytes) -> bytes:
        """Run a rollout; return its record or its failure, or which files have to be sent first."""
        self._last_contact = time.monotonic()
        message = json.loads(data)
        # Register it now, so that `cancel` finds it even while its files are looked up.
        attempt = self._attempts[message["attempt"]] = _Attempt(message["attempt"])
        try:
            spec = await asyncio.to_thread(self._make_spec, message)
            if isinstance(spec, list):
                attempt.answer.set_result(encode({"needs": spec}))
            else:
                self._begin(attempt, spec)
        except Exception as error:
            attempt.fail(error, "prepare", declined=isinstance(error, InfrastructureError))
        if attempt.handle is None:
            del self._attempts[attempt.number]
        return await asyncio.wrap_future(attempt.answer)

    async def receive(self, fields: Sequence[str], references: Sequence[Any]) -> bytes:
        """Take a file out of Ray's object store; answer with an error if it cannot be stored."""
        ref = FileRef(*fields)  # type: ignore[arg-type]
        try:
            await asyncio.to_thread(self._files.receive, ref, map(_content, references))
        except InfrastructureError as error:
            return encode({"error": error_of(error)})
        self._received.add(ref.digest)
        return encode({})

    async def forget(self, digest: str) -> None:
        """Remove a file that no rollout needs any more, if it was sent to this process."""
        if digest in self._received:
            self._received.remove(digest)
            self._files.remove(digest)

    async def cancel(self, number: int, reason: str) -> None:
        """End an attempt whose result is not needed any more."""
        with self._executor.lock:
            attempt = self._attempts.get(number)
            if attempt is not None:
                attempt.cancelled = reason
                if attempt.handle is not None:
                    attempt.handle.cancel(reason)

    async def news(self, timeout: float) -> bytes:
        """Return news of rollouts since the last call, as soon as there are any.

        Args:
            timeout: seconds to wait for news.
        """
        self._last_contact = time.monotonic()
        return await asyncio.to_thread(self._take_news, timeout)

    async def close(self) -> None:
        """End every rollout and every sandbox."""
        await asyncio.to_thread(self._close)

    def _take_settings(self, settings: NodeSettings) -> None:
        """Create everything that all rollouts share.

        Raises:
            ConfigurationError: the settings cannot be applied here.
        """
        self._settings = settings
        self._files = self._cache or FileCache()
        os.environ.update(settings.variables)
        self._provider = _make_provider(settings, self._files, self._report_line)
        self._judges = Judges(_gateway_settings(settings))
        self._users = Users(_gateway_settings(settings), settings.user_model)
        call = _budget_call(settings.budget) if settings.budget else None
        services = Services(
            sandboxes=self._provider,
            make_agent=self._make_agent,
            users=self._users,
            run_budget=RemoteBudget(settings.seconds, call, settings.process, self._note_turns),
            isolate=lambda: self._process.episode(owner()),
            shared_loop=self._shared_loop,
            judges=self._judges,
        )
        self._executor = ThreadsExecutor(services, self, _MAX_THREADS, lambda: None)

    def _take_news(self, timeout: float) -> bytes:
        with self._changed:
            self._sent = {}  # asking again means that the last answer has arrived
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turns or self._lines, timeout)
            news = {"turns": list(self._turns.items()), "lines": self._lines}
            self._sent, self._turns, self._lines = self._turns, {}, []
        return encode(news)

    def _close(self) -> None:
        self._executor.stop()
        for attempt in list(self._attempts.values()):
            if attempt.handle is not None:
                attempt.handle.cancel("the run is over")
        self._executor.join(_CANCEL_TIMEOUT)
        self._shared_loop.close()
        self._users.close()
        for factory in self._factories.values():
            factory.close()
        self._judges.close()
        self._provider.close()
        self._closed = True

    def _watch(self) -> None:
        """End this process when the driver, the network or the node that started it is gone."""
        parent = os.getppid()
        last_check = time.monotonic()
        resumed = 0.0
        while True:
            time.sleep(_CHECK_INTERVAL)
            present = time.monotonic()
            if present - last_check > 2 * _CHECK_INTERVAL + 1:  # this process was suspended
                resumed = present
            last_check = present
            if self._closed:  # normally Ray ends this process, but Ray may be gone
                time.sleep(_CHECK_INTERVAL)
                os._exit(0)
            if os.getppid() != parent:  # the node is gone; the sandboxes end with this process
                os._exit(72)
            if present - max(self._last_contact, resumed) > _DRIVER_TIMEOUT:
                if self._set_up:
                    thread = threading.Thread(target=self._close, daemon=True)
                    thread.start()
                    thread.join(_CLOSE_TIMEOUT)
                os._exit(71)

    # -- rollouts

    def _begin(self, attempt: _Attempt, spec: RolloutSpec) -> None:
        with self._executor.lock:  # the rollout begins when this is released
            if attempt.cancelled:
                attempt.fail(RolloutCancelled(attempt.cancelled), "prepare")
            else:
                attempt.handle = self._executor.submit(spec)
                self._attempt_of[attempt.handle] = attempt

    def _make_spec(self, message: Message) -> RolloutSpec | list[FileRef]:
        """Return the spec with paths of this machine, or the references of missing files."""
        refs = {Path(path): FileRef(*ref) for path, ref in message["files"]}
        paths = {path: self._files.path_of(path, ref) for path, ref in refs.items()}
        missing = [refs[path] for path, local_path in paths.items() if local_path is None]
        spec = RolloutSpec.from_json(message["spec"])
        agent_files = self._settings.agents[self._place_of(spec)].files
        missing += [ref for ref in agent_files if self._files.path_of(_ELSEWHERE, ref) is None]
        if missing:
            return missing
        return with_paths(spec, {path: local for path, local in paths.items() if local}, set())

    def _make_agent(self, spec: RolloutSpec) -> Agent:
        with self._factory_lock:
            place = self._place_of(spec)
            factory = self._factories.get(place)
            if factory is None:
                parameters = spec.parameters.keywords() if spec.parameters is not None else {}
                agent = self._settings.agents[place]
                factory = self._factories[place] = self._load_agent(agent, parameters.keys())
        return fresh_agent(factory, spec)

    def _place_of(self, spec: RolloutSpec) -> int:
        """Return the index of the agent that plays a rollout: the only one, or the named one."""
        agents = self._settings.agents
        names = ((agent.name, agent.arguments) for agent in agents)
        name = (spec.agent, spec.agent_arguments)
        return 0 if len(agents) == 1 else [*names].index(name)

    def _load_agent(self, agent: AgentSource, parameters: Collection[str]) -> AgentFactory:
        settings = self._settings
        name, folder = agent.name, settings.agent_folder
        if agent.archive is not None:
            folder = self._files.path_of(_ELSEWHERE, agent.archive)
            if agent.subfolder and ":" in name:  # only the file's own folder was sent
                head, _, attribute = name.rpartition(":")
                name = f"{Path(head).name}:{attribute}"
        if agent.file is not None:
            path = self._files.path_of(_ELSEWHERE, agent.file)
            name = f"{name.partition(':')[0]}:{path}"
        gateway, sandbox = _gateway_settings(settings), self._provider.settings
        return load_agent(name, agent.arguments, folder, gateway, parameters, sandbox=sandbox)

    def _note_turns(self, turns: int) -> None:
        """Report that the current thread's rollout took turns.

        If this process ends during it, the rollout is run again with the remaining turns.
        """
        attempt = owner()
        if isinstance(attempt, _Attempt) and not attempt.answer.done():
            with self._changed:
                attempt.turns = self._turns[attempt.number] = (attempt.turns or 0) + turns
                self._changed.notify_all()

    def _wait_until_known(self, number: int) -> None:
        """Wait until the driver knows that the agent of an attempt begins.

        If the agent immediately ended this process, the report would be lost with it, and the loss
        would count as the node's. :meth:`_watch` handles a driver that is gone.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: number not in self._turns and number not in (self._sent or ()),
                _REPORT_TIMEOUT if self._sent is not None else 0.0,
            )

    def _report_line(self, line: str) -> None:
        with self._changed:
            self._lines.append(line)
            self._changed.notify_all()

    # -- called by the executor, on the rollouts' threads

    @contextlib.contextmanager
    def surrounding(self, handle: Handle) -> Iterator[None]:
        """Capture the rollout's output; forget the attempt when it is over."""
        with self._executor.lock:
            attempt = self._attempt_of[handle]
        try:
            with owning(attempt):
                yield
        finally:
            del self._attempts[attempt.number], self._attempt_of[handle]

    def entering(self, handle: Handle, phase: PhaseName) -> None:
        """Set the phase to which output belongs."""
        self._attempt_of[handle].phase = _PYTEST_PHASES[phase]

    def prepared(self, handle: Handle, environment: Environment) -> None:
        """Notify the driver, and have sandboxes started for a further rollout like this one."""
        self._note_turns(0)
        self._wait_until_known(self._attempt_of[handle].number)
        provider = self._provider
        if provider.provides_for(environment):
            upcoming = [(handle.spec.task, provider)]
            with contextlib.suppress(InfrastructureError):  # the run is over
                expect = partial(expect_sandboxes, provider, upcoming, handle.spec.profile)
                provider.background(expect)

    def ended(self, handle: Handle, record: EpisodeRecord) -> None:
        """Answer with the record."""
        self._attempt_of[handle].end({"line": line_of(record)})

    def failed(self, handle: Handle, error: BaseException) -> None:
        """Answer with the error that ended it."""
        attempt = self._attempt_of[handle]
        prepared = attempt.turns is not None
        stage = ("run" if prepared else "prepare") if handle.has_agent else "agent"
        # Without its engine this node cannot run anything, so another one must begin it.
        declined = isinstance(error, EngineUnavailable) and not prepared
        attempt.fail(error, stage, declined=declined)


def _gateway_settings(settings: NodeSettings) -> GatewaySettings | None:
    """Return how models are reached; None to use this machine's environment variables."""
    if settings.gateway is None:
        return None
    prices = {key: Price(**price) for key, price in settings.gateway["prices"].items()}
    return GatewaySettings.of_environment(**{**settings.gateway, "prices": prices})


def _make_provider(
    settings: NodeSettings, files: FileCache, report: Callable[[str], None]
) -> SandboxProvider:
    """Return the provider of sandboxes.

    Raises:
        ConfigurationError: there is no backend, or it does not support the settings.
    """
    sandbox = replace(settings.sandbox, hidden=(files.folder,))
    provider = SandboxProvider(sandbox, progress=report)
    backend = provider.backend
    if settings.network and backend.shares_network:
        raise ConfigurationError(
            f"--intercode-network: a sandbox of {backend.name} would share the node's network, "
            "and reach the ports of Ray; use Docker, or --intercode-allow-host"
        )
    problem = backend.problem()
    if problem:
        raise ConfigurationError(problem)
    provider.check({"rootfs": "--intercode-rootfs", "registry": "--intercode-registry"})
    return provider


def _budget_call(name: str) -> Callable[..., Callable[[], object]]:
    """Return a function that calls methods of the actor that counts the run's budget."""
    import ray

    actor = ray.get_actor(name)

    def call(method: str, *arguments: object) -> Callable[[], object]:
        answer = getattr(actor, method).remote(*arguments).future()
        return lambda: answer.result(_BUDGET_TIMEOUT)

    return call


def _content(reference: Any) -> bytes:
    """Return an object of Ray's store.

    Raises:
        OSError: it is not available any more.
    """
    try:
        content: bytes = reference.future().result()
    except Exception as error:
        raise OSError(str(error)) from None
    return content
