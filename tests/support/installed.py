"""Episodes of installed agents, whose models a test plays."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_intercode.agents.loader import load_agent
from pytest_intercode.agents.protocol import AgentFactory
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.environments.base import Environment
from pytest_intercode.gateway.exchange import Price
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.projects.recordings import ItemRecording
from pytest_intercode.rollouts.rollout import Rollout, Services, default_environment
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.support import rollouts
from tests.support.model_server import ModelServer, Request

__all__ = ["KEY", "World"]

KEY = "sk-real-0123456789abcdef"
"""The key that the gateway holds."""


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
        self.script: list[Any] = []
        self.last_asked = 0.0
        self.agent = agent
        self.server = ModelServer(self._answer)
        self.server.__enter__()
        settings = GatewaySettings(
            upstreams={"openai": f"{self.server.url}/v1", "anthropic": self.server.url},
            keys={"openai": KEY, "anthropic": KEY},
            prices={"*": Price(1.0, 2.0)},
            **more,
        )
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
        if not request.has_tools:  # for a title
            return "A task"
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
                environment.recorder = recording.recorder
                environment.replayer = recording.replayer
            return environment

        services = Services(
            self.provider,
            make_agent=lambda spec: self.factory.make(spec.task),
            make_environment=make_environment,
        )
        return rollouts.play(Rollout(RolloutSpec(task, agent=self.agent, **spec), services))

    def close(self) -> None:
        self.provider.close()
        self.factory.close()
        self.server.__exit__(None, None, None)
