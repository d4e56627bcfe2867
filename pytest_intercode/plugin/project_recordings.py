"""The recordings of project tests: which one a run has, and from which inputs it is made."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cached_property
from types import MappingProxyType
from typing import Literal, TypeAlias, cast

import pytest

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.conversation import Exchange
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.project.fields import ProjectFields
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.recording import EpisodeRecording
from pytest_intercode.plugin.hooks import Hooks
from pytest_intercode.plugin.masking import masks_of
from pytest_intercode.plugin.run import Run, agent_of
from pytest_intercode.projects.copying import WORKDIR
from pytest_intercode.projects.read_files import digests_of_layer, find_read_files
from pytest_intercode.projects.recordings import (
    ItemRecording,
    RecordingHead,
    RecordMode,
    open_recording,
    recording_path,
)
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.system.digest import value_digest

__all__ = ["Replay", "RunRecording", "is_recorded"]

Replay: TypeAlias = Literal["agent", "observations"]
"""How a recording is replayed: with the agent itself, or from the record of what it did."""

_REPLAYS = ("agent", "observations")


class RunRecording:
    """What a run of a project test does with its recording, decided before anything is started.

    Args:
        item: the test.
        run: the run of pytest.
        spec: what the rollout is to do.
        number: the number of the run in its test, from 1.
        replay: how a recording is replayed.
        inputs: the run's inputs besides its task, by names for messages, such as ``fake gh``.

    Raises:
        StaleRecording: the recording is stale, and may not be recorded again.
        ConfigurationError: no model may be called, or none can be; the recording cannot be read.
    """

    def __init__(
        self,
        item: pytest.Item,
        run: Run,
        spec: RolloutSpec,
        number: int,
        replay: Replay,
        inputs: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        if replay not in _REPLAYS:
            raise ConfigurationError(
                f"replay={replay!r:.60} is not one of {' and '.join(_REPLAYS)}"
            )
        self._task = spec.task
        self._node_id = item.nodeid
        settings = run.settings
        factory = run.composition.factory(agent_of(item))
        name = item.nodeid if number == 1 else f"{item.nodeid}.run{number}"
        head = RecordingHead.of_item(
            name,
            spec.task.query,
            treatment=spec.task.treatment,
            agent=spec.agent,
            agent_arguments=dict(spec.agent_arguments),
            agent_version=factory.version,
            inputs=_digest_inputs(spec.task, inputs),
            files=self._files,
        )
        self._recording: ItemRecording = open_recording(
            cast(RecordMode, settings.record or ""),
            recording_path(name, item.path),
            head,
            reaches_models=settings.gateway.reaches_models or not factory.uses_gateway,
            masks=masks_of(item.config),
        )
        # An agent that a hook makes is not identified, so its recording could not become stale.
        records = self._recording.action != "live"
        agent = Hooks(item.config).make_agent(spec.task) if records else None
        if agent is not None:
            _close(agent)
            raise ConfigurationError(
                "the hook pytest_intercode_make_agent makes the agent of this test, but "
                "recordings name the one of --intercode-agent: let the hook return None for tests "
                f"that are recorded (task.env is {spec.task.env!r}), or leave out "
                f"--intercode-record and move {self._recording.path} away"
            )
        self._observations = replay == "observations" or not factory.uses_gateway

    @cached_property
    def _files(self) -> Mapping[str, str]:
        """Digests of all files of the project's copy."""
        image = self._task.image
        digests: dict[str, str] = {}
        for layer in image.layers if image is not None else ():
            digests |= digests_of_layer(layer, WORKDIR)
        return digests

    @cached_property
    def _episode(self) -> EpisodeRecord | None:
        """The recorded episode; None where nothing is replayed."""
        recording = self._recording.recording
        return None if recording is None else recording.episode(self._task, self._node_id)

    def played(self) -> EpisodeRecord | None:
        """Return the recorded episode, if it is replayed without its agent.

        Raises:
            ConfigurationError: the recording has no episode.
        """
        return self._episode if self._observations else None

    def dialogue(self) -> tuple[Exchange, ...] | None:
        """Return what agent and user said in the recorded episode; None if there is no replay."""
        return None if self._episode is None else self._episode.dialogue

    @cached_property
    def exchanges(self) -> EpisodeRecording:
        """The recorder or replayer of what the agent exchanges with its model."""
        return EpisodeRecording(self._recording.recorder, self._recording.replayer)

    @property
    def exchanges_of_judges(self) -> EpisodeRecording | None:
        """The same for the agent's judges; None where models are called and nothing is recorded."""
        return None if self._recording.action == "live" else self.exchanges

    def attach(self, environment: Environment) -> None:
        """Record an environment's agent, or answer it from the recording."""
        environment.recording = self.exchanges

    def save(self, record: EpisodeRecord) -> None:
        """Write the recording, if this run records and its agent has come to its end.

        Raises:
            ConfigurationError: it is too large, or cannot be written.
        """
        if self._recording.recorder is not None:
            commands = (*self._task.setup, *ProjectFields.of(self._task).mcp.values())
            read_files = find_read_files(record.turns, self._files, WORKDIR, commands)
            self._recording.save(record, files=read_files)


def _close(agent: Agent) -> None:
    """Close an unused agent, on a thread as usual, since the test's may run an event loop."""

    async def close() -> None:
        value = agent.close()
        if inspect.isawaitable(value):
            await value

    with ThreadPoolExecutor(1) as executor, contextlib.suppress(Exception):
        executor.submit(lambda: asyncio.run(close())).result()


def is_recorded(item: pytest.Item) -> bool:
    """Whether a project test has a recording, which may be stale: its prompt is not known yet."""
    if "intercode_project" not in getattr(item, "fixturenames", ()):
        return False
    return recording_path(item.nodeid, item.path).is_file()


def _digest_inputs(task: Task, others: Mapping[str, object]) -> dict[str, str]:
    """Return digests of a run's inputs besides prompt and files, by names for messages."""
    inputs: dict[str, object] = {"setup": task.setup, **others}
    for field in fields(task.fields):
        if field.name != "commit":  # instead, each file has a digest
            inputs[field.name] = getattr(task.fields, field.name)
    answers = inputs.get("answers")
    if isinstance(answers, Mapping) and not _is_sorted(answers):
        inputs["answers"] = list(answers.items())
    return {name: value_digest(value) for name, value in inputs.items() if value}


def _is_sorted(answers: Mapping[object, object]) -> bool:
    """Whether answers need no digest of their order, which decides between two that match.

    The digest of a mapping ignores order, so it stands for texts in alphabetical order.
    """
    texts = [key for key in answers if isinstance(key, str)]
    return len(texts) == len(answers) and texts == sorted(texts)
