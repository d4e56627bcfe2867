"""What the phases of an episode say of waiting for an image, for gold, and for tests."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any

from pytest_intercode.agents.loader import adapt
from pytest_intercode.core.phases import PHASES
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import ImageSource, Task, Verification
from pytest_intercode.environments.fields import CodeTest
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.support import puzzles
from tests.support.rollouts import play

quick_provider = puzzles.quick_provider  # fixture
provider = puzzles.provider  # fixture: of each backend


def played(provider: SandboxProvider, *actions: str, **fields: Any) -> EpisodeRecord:
    """Return the record of an agent that takes these actions."""

    def run(task: Any, env: Any) -> None:
        for action in actions:
            env.step(action)

    named = {"id": "t", "query": "Do.", "suite": "s", "dataset": "s", "gold": ()}
    task = Task(**{**named, **fields})
    services = Services(provider, make_agent=lambda spec: adapt(run))
    began = time.time()
    record = play(Rollout(RolloutSpec(task), services))
    ended = time.time()
    assert [*record.phases] == [name for name in PHASES if name in record.phases]
    for begin, seconds in record.phases.values():
        assert began <= begin <= ended
        assert seconds >= 0
    assert sum(seconds for _, seconds in record.phases.values()) <= ended - began
    return record


def test_waiting_for_gold_is_not_the_agents_time(quick_provider: SandboxProvider) -> None:
    record = played(quick_provider, "submit", env="bash", gold=("sleep 0.7; echo x",))
    assert record.phases["gold"][1] >= 0.4
    assert record.phases["agent"][1] < 0.3


def test_the_verifiers_time_is_not_the_agents(provider: SandboxProvider) -> None:
    verification = Verification(command="sleep 0.6; false", parser="status")
    actions = ("echo 1 >/root/x; sleep 0.3", "submit")
    record = played(provider, *actions, env="swe", workdir="/root", verification=verification)
    assert record.outcome == "failed"
    assert {"start", "agent", "carry", "tests"} <= record.phases.keys()
    assert 0.6 <= record.phases["tests"][1] < 1.5
    assert 0.3 <= record.phases["agent"][1] < 0.9


def test_with_rewards_as_feedback_the_tests_of_each_turn_are_counted(
    quick_provider: SandboxProvider,
) -> None:
    verification = Verification(command="sleep 0.3; false", parser="status")
    task = Task("t", "Do.", (), "swe", "s", "s", workdir="/root", verification=verification)

    def run(task: Any, env: Any) -> None:
        for action in ("echo 1 >x", "echo 2 >x", "submit"):
            env.step(action)

    services = Services(quick_provider, make_agent=lambda spec: adapt(run))
    record = play(Rollout(RolloutSpec(task, feedback="reward"), services))
    assert record.phases["tests"][1] >= 0.6


def test_waiting_for_a_build_is_its_own_phase(docker_engine: DockerEngine, tmp_path: Path) -> None:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(f"FROM debian:bookworm-slim\nRUN sleep 1; : {secrets.token_hex(8)}\n")
    own = SandboxProvider(SandboxSettings("docker"))
    try:
        image = ImageSource(dockerfile=dockerfile)
        record = played(own, "submit", env="bash", gold=("true",), image=image)
        again = played(own, "submit", env="bash", gold=("true",), image=image)
    finally:
        own.close()
        docker_engine.api.remove_image(record.image, force=True)
    assert record.phases["build"][1] >= 1
    assert record.phases["start"][1] < record.phases["build"][1] + 5
    assert "build" not in again.phases


def test_actions_that_are_played_again_are_carried(quick_provider: SandboxProvider) -> None:
    gold = "def f():\n    return 1\n"
    actions = ("import time; time.sleep(0.3)", gold, "submit f")
    fields = PythonFields((CodeTest("assert f() == 1"),))
    record = played(quick_provider, *actions, env="python", gold=(gold,), fields=fields)
    assert record.outcome == "solved"
    assert record.phases["carry"][1] >= 0.2
    assert "tests" in record.phases
