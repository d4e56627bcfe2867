"""Plays one case as a real episode beside a good neighbour, and says what did not hold.

Agent and neighbour share a provider of sandboxes, as the episodes of a run do. The neighbour acts
for as long as the attack goes on, and solves its task only then.
"""

from __future__ import annotations

import base64
import contextlib
import re
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.loader import adapt
from pytest_intercode.agents.oracle import make_oracle
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.permissions import Permissions
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import IntercodeError
from pytest_intercode.rollouts.inline import InlineExecutor
from pytest_intercode.rollouts.isolation import SharedProcess
from pytest_intercode.rollouts.records import RecordBuilder
from pytest_intercode.rollouts.rollout import Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.loader import load_suite
from tests.attacks import faults, hostile_files
from tests.attacks.cases import Area, Case, Expected, Place
from tests.attacks.leftovers import Leftovers, looking_for_leftovers
from tests.support.second_engine import SecondEngine
from tests.support.world import made_world

__all__ = ["Scene", "Verdict", "play"]

SOLVE = "SOLVE"
_TIMEOUT = 30.0  # seconds for an episode, where a case does not say
_READY = 120.0  # seconds for the neighbour to start
_PAUSE = 0.1  # seconds between two of its actions


@dataclass
class Verdict:
    """What became of a case.

    Attributes:
        seen: in a few words, for the table.
        problems: what did not hold; empty if all did.
        seconds: how long it took.
    """

    seen: str = ""
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def must(self, holds: bool, problem: str) -> None:
        """Note a problem where something does not hold."""
        if not holds:
            self.problems.append(problem)


@dataclass
class Scene:
    """What a fault may reach.

    Attributes:
        provider: of all sandboxes.
        environment: the agent's.
        neighbour: the neighbour's; None without one.
        engine: the Docker engine of the test's own, if it has one.
    """

    provider: SandboxProvider
    environment: Environment | None = None
    neighbour: Environment | None = None
    engine: SecondEngine | None = None


def play(area: Area, case: Case, place: Place, engine: SecondEngine | None = None) -> Verdict:
    """Play an episode of a case; return what became of it."""
    verdict = Verdict()
    began = time.monotonic()
    with looking_for_leftovers() as (leftovers, _):
        _play(area, case, place, leftovers, verdict, engine)
    verdict.seconds = time.monotonic() - began
    lines = [
        line for line in leftovers.found if not (case.may_stay and re.search(case.may_stay, line))
    ]
    verdict.must(not lines, f"left behind: {'; '.join(lines[:5])}")
    return verdict


def _play(
    area: Area,
    case: Case,
    place: Place,
    leftovers: Leftovers,
    verdict: Verdict,
    engine: SecondEngine | None,
) -> None:
    with contextlib.ExitStack() as stack:
        world = None
        if case.world is not None:
            world = stack.enter_context(made_world())
            world.names = {name: [*lists] for name, lists in case.world.items()}
            stack.enter_context(world.entered())
        _play_in(area, case, place, leftovers, verdict, engine)
        expected_meetings = place.expected(case).meets
        if world is not None and expected_meetings is not None:
            other_addresses = {address for address, _ in world.met} - set(expected_meetings)
            verdict.must(
                not other_addresses,
                f"connections were made to {', '.join(sorted(other_addresses))}",
            )


def _play_in(
    area: Area,
    case: Case,
    place: Place,
    leftovers: Leftovers,
    verdict: Verdict,
    engine: SecondEngine | None,
) -> None:
    sandbox = "auto" if place.backend == "none" else place.backend
    provider = SandboxProvider(SandboxSettings(sandbox))
    scene = Scene(provider, engine=engine)
    shared = SharedProcess()
    try:
        neighbour = _Neighbour(area, place, scene, shared) if case.neighbour else None
        try:
            if neighbour is not None:
                neighbour.start()
            agent = _Attacker(area, case, scene)
            services = Services(
                provider, lambda _: agent.make(), isolate=lambda: shared.episode(agent)
            )
            options = {"timeout": _TIMEOUT, **area.options, **case.options}
            spec = RolloutSpec(_task(area, case), profile=place.profile, **options)
            record, seconds = _run(services, spec, partial(setattr, scene, "environment"))
            agent.join(verdict)
        finally:
            leftovers.watch(provider)
            if neighbour is not None:
                neighbour.finish(verdict, case.pace)
        _compare(place.expected(case), record, seconds, verdict)
    finally:
        leftovers.watch(provider)
        provider.close()


def _run(
    services: Services, spec: RolloutSpec, prepared: Callable[[Environment], None]
) -> tuple[EpisodeRecord, float]:
    """Run an episode; return its record, and the seconds from its first action to its grade."""
    handle = InlineExecutor(services).submit(spec)
    began = time.monotonic()
    try:
        agent, environment = handle.agent(), handle.environment()
        prepared(environment)
        began = time.monotonic()
        return handle.record(agent, environment), time.monotonic() - began
    except IntercodeError as error:
        return RecordBuilder(spec).failure(error), time.monotonic() - began
    finally:
        handle.close()


def _compare(expected: Expected, record: EpisodeRecord, seconds: float, verdict: Verdict) -> None:
    verdict.seen = f"{record.outcome}, reward {record.reward:.3g}"
    if record.attempts:
        verdict.seen += f", {len(record.attempts)} retried"
    reason = f" ({record.reason})" if record.reason else ""
    verdict.must(record.outcome in expected.outcome, f"it was {record.outcome}{reason}")
    if expected.reward is not None:
        near = abs(record.reward - expected.reward) < 0.005
        verdict.must(near, f"the reward was {record.reward:.3g}{reason}")
    if expected.most is not None:
        verdict.must(record.reward <= expected.most, f"the reward was {record.reward:.3g}{reason}")
    attempts = "; ".join(record.attempts)
    verdict.must(
        expected.attempts in (None, len(record.attempts)),
        f"{len(record.attempts)} attempts were made again ({attempts})",
    )
    verdict.must(seconds <= expected.seconds, f"it took {seconds:.1f} s")
    observations = [turn.observation for turn in record.turns]
    text = "\n".join([*observations, record.reason, record.detail, record.log])
    if expected.shows:
        verdict.must(
            any(re.search(expected.shows, observation) for observation in observations),
            f"no observation shows {expected.shows}: {[text[-300:] for text in observations]}",
        )
    if expected.hides:
        match = re.search(expected.hides, text)
        verdict.must(match is None, f"the agent sees {match and match[0]!r}")
    for line in expected.refused:
        is_named = line in record.refused_hosts
        verdict.must(is_named, f"{line} is not named among {', '.join(record.refused_hosts)}")
    if expected.reason:
        verdict.must(bool(re.search(expected.reason, record.reason)), f"the reason is{reason}")


def _task(area: Area, case: Case | None = None) -> Task:
    """Return the task of an area, with what a case has differently."""
    fields = {"id": "attacked" if case else "good", **area.task, **(case.task if case else {})}
    if case:  # another query is another task: gold is played for each case
        fields["query"] = f"{fields['query']} ({case.id})"
    folder = Path(tempfile.gettempdir())
    fields["files"] = {name: _made(file, folder) for name, file in fields.get("files", {}).items()}
    path = folder / f"{fields['id']}.yaml"
    path.write_text(yaml.safe_dump({"env": area.env, "tasks": [fields]}))
    try:
        data = Path(__file__).with_name("cases")
        return load_suite(path, data, Permissions(network=True)).tasks[0]
    finally:
        path.unlink()


def _made(file: Any, folder: Path) -> Any:
    """Return a file of a task; ``make`` in it names the function that writes it."""
    if not isinstance(file, dict) or "make" not in file:
        return file
    path = folder / "made"
    hostile_files.FILES[file["make"]](path)
    try:
        return {"base64": base64.b64encode(path.read_bytes()).decode(), "mode": "0755"}
    finally:
        path.unlink()


class _Attacker:
    """The agent of a case; each attempt of its episode gets a fresh one."""

    def __init__(self, area: Area, case: Case, scene: Scene) -> None:
        self._area = area
        self._case = case
        self._scene = scene
        self._attempts = 0
        self._timers: list[threading.Timer] = []
        self._failures: list[BaseException] = []

    def make(self) -> Agent:
        """Return an agent for one attempt."""
        self._attempts += 1
        if self._case.agent:
            agent = _defined(self._case.agent)
        else:
            agent = Agent("loop", run=partial(self._act, self._attempts), name="attacker")
        agent.again = self.make
        return agent

    def _act(self, attempt: int, view: TaskView, env: AgentEnvironment) -> None:
        for action in self._case.actions:
            if action.fault and attempt <= action.times:
                self._cause(action.fault, action.after)
            words = _solution(self._area, self._scene) if action.do == SOLVE else [action.do]
            for word in words:
                *_rest, terminated, truncated, _info = env.step(word)
                if terminated or truncated:
                    return

    def _cause(self, name: str, after: float) -> None:
        def cause() -> None:
            try:
                faults.FAULTS[name](self._scene)
            except BaseException as error:
                self._failures.append(error)

        if not after:
            cause()
            return
        timer = threading.Timer(after, cause)
        self._timers.append(timer)
        timer.start()

    def join(self, verdict: Verdict) -> None:
        """Wait for the faults, and note those that could not be made."""
        for timer in self._timers:
            timer.join()
        verdict.problems += [f"the fault was not made: {error!r}" for error in self._failures]


def _defined(source: str) -> Agent:
    names: dict[str, Any] = {}
    exec(compile(textwrap.dedent(source), "<the case's agent>", "exec"), names)
    return adapt(names["Agent"]() if "Agent" in names else names.get("act") or names["run"])


def _solution(area: Area, scene: Scene) -> Iterable[str]:
    if area.solve:
        return area.solve
    assert scene.environment is not None
    return scene.environment.current_task.gold


class _Neighbour:
    """A good agent, on a thread of its own."""

    def __init__(self, area: Area, place: Place, scene: Scene, shared: SharedProcess) -> None:
        self._idle = area.idle
        self._scene = scene
        self._task = task = _task(area)
        self._over, self._acts = threading.Event(), threading.Event()
        self._slowest = 0.0
        self._record: EpisodeRecord | None = None
        solve = make_oracle(task)

        def run(view: TaskView, env: AgentEnvironment) -> None:
            while not self._over.is_set():
                began = time.monotonic()
                env.step(self._idle)
                self._slowest = max(self._slowest, time.monotonic() - began)
                self._acts.set()
                self._over.wait(_PAUSE)
            solve.run(view, env)

        services = Services(
            scene.provider, lambda _: Agent("loop", run=run), isolate=lambda: shared.episode(self)
        )
        spec = RolloutSpec(task, profile=place.profile, max_turns=10_000, action_timeout=60.0)
        self._thread = threading.Thread(
            target=self._work, args=(services, spec), name="neighbour", daemon=True
        )

    def _work(self, services: Services, spec: RolloutSpec) -> None:
        try:
            self._record, _ = _run(services, spec, partial(setattr, self._scene, "neighbour"))
        finally:
            self._acts.set()

    def start(self) -> None:
        """Begin, and wait for the first action."""
        self._thread.start()
        self._acts.wait(_READY)

    def finish(self, verdict: Verdict, pace: float) -> None:
        """Let it solve its task, and note what it suffered."""
        self._over.set()
        self._thread.join(_READY)
        record = self._record
        if record is None:
            verdict.problems.append("the neighbour has no record")
            return
        result = f"{record.outcome}, reward {record.reward:.3g} ({record.reason})"
        verdict.must(
            record.outcome == "solved" and record.reward == 1.0, f"the neighbour: {result}"
        )
        reasons = "; ".join(record.attempts)
        verdict.must(not record.attempts, f"the neighbour was run again: {reasons}")
        slow = f"an action of the neighbour took {self._slowest:.1f} s"
        verdict.must(self._slowest <= pace, slow)
