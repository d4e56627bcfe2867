"""Episodes of installed agents, whose models a test plays."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.answers import Answers
from pytest_intercode.agents.loader import load_agent
from pytest_intercode.agents.protocol import AgentFactory
from pytest_intercode.agents.users import Users
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.environments.base import Environment
from pytest_intercode.gateway.exchange import Price
from pytest_intercode.gateway.recording import EpisodeRecording
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.projects.recordings import ItemRecording
from pytest_intercode.rollouts.rollout import Rollout, Services, default_environment
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.support import rollouts
from tests.support.conversations import make_talking
from tests.support.model_server import ModelServer, Request
from tests.support.tcp_engine import engine_by_tcp

__all__ = ["KEY", "SUPPORT", "World", "program_world"]

KEY = "sk-real-0123456789abcdef"
"""The key that the gateway holds."""
SUPPORT = Path(__file__).parent
"""Where the programs of the tests are."""


class World:
    """A backend, an installed agent, and a model that plays the script of the test.

    ``last_asked`` is when the model was asked last, by the monotonic clock.

    Args:
        backend: of the sandboxes.
        agent: as ``--intercode-agent`` names it.
        arguments: of the agent.
        folder: where a relative path of the agent starts.
        hosts: Docker hosts, as ``--intercode-docker-host`` has them.
        more: further settings of the gateway.
    """

    def __init__(
        self,
        backend: str,
        agent: str,
        arguments: Mapping[str, str],
        folder: Path,
        hosts: Sequence[str] = (),
        **more: Any,
    ) -> None:
        self.script: list[Any] | Callable[[Request], Any] = []
        self.last_asked = 0.0
        self.agent = agent
        self.server = ModelServer(self._answer, tokens=more.get("tokens"))
        self.server.__enter__()
        settings = GatewaySettings(
            upstreams={
                "openai": f"{self.server.url}/v1",
                "anthropic": self.server.url,
                "google": self.server.url,
            },
            keys={"openai": KEY, "anthropic": KEY, "google": KEY},
            prices={"*": Price(1.0, 2.0)},
            **more,
        )
        self.users = Users(settings)
        self.factory: AgentFactory = load_agent(agent, arguments, folder, settings)
        self.provider = SandboxProvider(
            SandboxSettings(
                backend,
                docker_hosts=hosts,
                readonly=self.factory.readonly,
                scratch=self.factory.scratch,
            )
        )

    def _answer(self, request: Request) -> Any:
        self.last_asked = time.monotonic()
        is_user = "You play the user" in request.text
        if not request.has_tools and not is_user:  # for a title
            return "A task"
        if callable(self.script):
            return self.script(request)
        return self.script[min(len(request.results), len(self.script) - 1)]

    def play(self, *script: Any, **fields: Any) -> EpisodeRecord:
        """Play one small task of bash, or of what the fields say, with a model that answers so."""
        spec = {
            name: fields.pop(name) for name in ("budget", "timeout", "recording") if name in fields
        }
        fields = {"env": "bash", "gold": ("echo hi >x",), "workdir": "/w", **fields}
        fields = {"query": "Write hi to x.", **fields}
        task = Task(id="t", suite="s", dataset="s", **fields)
        return self.play_task(task, *script, **spec)

    def play_task(
        self, task: Task, *script: Any, recording: ItemRecording | None = None, **spec: Any
    ) -> EpisodeRecord:
        """Play one episode with a model that answers so, and record or replay it."""
        self.script = list(script)

        def make_environment(spec: RolloutSpec) -> Environment:
            environment = default_environment(spec, self.provider)
            if recording is not None:
                environment.recording = EpisodeRecording(recording.recorder, recording.replayer)
            return environment

        return self._play(task, make_environment, **spec)

    def simulate(self, task: Task, script: Callable[[Request], Any]) -> EpisodeRecord:
        """Play one episode whose user is played by a model, which the script answers as well."""
        self.script = script
        return self._play(task, lambda spec: default_environment(spec, self.provider))

    def talk(self, task: Task, script: Callable[[Request], Any], answers: Answers) -> EpisodeRecord:
        """Play one episode of bash with a user, and with the MCP servers of the task."""
        self.script = script
        return self._play(task, make_talking(self.provider, answers))

    def watch(self, script: Callable[[Request], Any], **fields: Any) -> EpisodeRecord:
        """Play one small task of bash, or of what fields say, with a model that a function is."""
        self.script = script
        task = Task("t", "Write hi to x.", ("echo hi >x",), "bash", "s", "s", workdir="/w")
        task = replace(task, **fields)
        return self._play(task, lambda spec: default_environment(spec, self.provider))

    def _play(
        self, task: Task, make: Callable[[RolloutSpec], Environment], **spec: Any
    ) -> EpisodeRecord:
        services = Services(
            self.provider, lambda spec: self.factory.make(spec.task), make, users=self.users
        )
        self.rollout = Rollout(RolloutSpec(task, agent=self.agent, **spec), services)
        return rollouts.play(self.rollout)

    def close(self) -> None:
        self.provider.close()
        self.factory.close()
        self.users.close()
        self.server.__exit__(None, None, None)


@contextlib.contextmanager
def program_world(
    request: pytest.FixtureRequest,
    folder: Path,
    program: str,
    recipe: str,
    arguments: Mapping[str, str],
) -> Iterator[World]:
    """Give a world whose agent is a program of the tests.

    Args:
        request: of a fixture, whose parameter names the backend; Docker's may be ``by TCP``.
        folder: for the recipe, ``mine.yaml``, and the program's folder.
        program: a file of :data:`SUPPORT`.
        recipe: the recipe's text.
        arguments: of the agent.
    """
    backend = request.param.split()[0]
    request.getfixturevalue("docker_engine" if backend == "docker" else backend)
    (folder / "program").mkdir(exist_ok=True)
    shutil.copy(SUPPORT / program, folder / "program")
    (folder / "mine.yaml").write_text(recipe)
    with engine_by_tcp() if "TCP" in request.param else contextlib.nullcontext():
        world = World(backend, "installed:mine.yaml", arguments, folder)
        with contextlib.closing(world):
            yield world
