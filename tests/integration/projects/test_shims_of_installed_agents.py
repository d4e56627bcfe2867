"""Shims and an agent that lives in the sandbox, with shells of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.environments.project.environment import ProjectEnvironment
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.projects.fakes import Fake
from pytest_intercode.projects.run import ProjectRun
from pytest_intercode.projects.shims import Shims
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.support import rollouts
from tests.support.installed import World, program_world
from tests.support.model_server import Command

pytest.importorskip("aiohttp")

# It is given the folder of a Node.js, which has an npm of its own, as the bundles of CLIs.
RECIPE = """\
folder: program
program: installed_program.py
node: true
command: [python3, "{program}", m, "{prompt}"]
"""

SLOW_PRESETS = (
    *("claude", "opencode", "qwen", "gemini", "pi", "copilot", "kimi", "cline", "mini-swe-agent"),
)


@pytest.fixture(scope="module", params=["bubblewrap", "docker by TCP"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("recipe")
    node_folder = folder / "program" / "node" / "bin"
    node_folder.mkdir(parents=True)
    for name in ("npm", "node"):
        (node_folder / name).write_text("#!/bin/sh\necho the real one\n")
        (node_folder / name).chmod(0o755)
    with program_world(request, folder, "installed_program.py", RECIPE, {}) as new_world:
        yield new_world


def play(world: World, shims: Shims, *script: object, max_turns: int = 9) -> EpisodeRecord:
    class Shimmed(ProjectEnvironment):
        @classmethod
        def spec(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
            spec = super().spec(task, provider)
            variables = (*spec.variables, *shims.variables)
            return replace(spec, variables=variables, readonly=(*spec.readonly, *shims.readonly))

        def prepare(self, sandbox: Sandbox, task: Task) -> None:
            shims.open(sandbox)
            super().prepare(sandbox, task)

    world.script = list(script)
    services = Services(
        world.provider,
        make_agent=lambda spec: world.factory.make(spec.task),
        make_environment=lambda spec: Shimmed(world.provider, max_turns=max_turns),
    )
    task = Task("t", "Add it.", (), "project", "s", "", workdir="/project", max_turns=max_turns)
    with contextlib.closing(shims):
        return rollouts.play(Rollout(RolloutSpec(task, agent=world.agent), services))


def test_its_shells_have_the_shims_first(world: World) -> None:
    shims = Shims(
        {"gh": Fake({"*": "faked"}), "npm": Fake({"*": "faked"})},
        ["tail", "mkdir", "cat", "git"],
        agent_programs=world.factory.programs,
    )
    record = play(
        world,
        shims,
        Command("gh pr create; npm install; node"),
        Command("bash -lc 'gh pr merge'; echo x | cat; git --version | cut -c-3"),
        "All done.",
    )
    assert (record.outcome, record.reason) == ("failed", record.reason)
    assert [turn.observation for turn in record.turns[:2]] == [
        "faked\nfaked\nthe real one\n",
        "faked\nx\ngit\n",
    ]
    # None of what starts and ends the agent, and reads its answer, is a call of the agent's.
    assert [str(call) for call in shims.calls] == [
        "gh pr create",
        "npm install",
        "gh pr merge",
        "cat",
        "git --version",
    ]


def test_nothing_stands_for_a_program_that_it_is_run_by(world: World) -> None:
    assert world.factory.programs == {"installed_program.py", "python3"}


@pytest.mark.parametrize("backend", ["bubblewrap", pytest.param("docker", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "preset", ["codex", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_PRESETS)]
)
def test_a_project_test_sees_what_real_programs_run(
    preset: str, backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Until its turns are used up, which ends it within a request."""
    request.getfixturevalue("docker_engine" if backend == "docker" else backend)
    try:
        world = World(backend, preset, {"model": "gpt-5"}, tmp_path)
    except AgentLoadError as error:
        pytest.skip(f"its packages cannot be had here: {error}")
    with contextlib.closing(world):
        fake = Fake({"pr *": "faked"})
        shims = Shims({"gh": fake}, ["uname"], agent_programs=world.factory.programs)
        steps = (Command("gh pr merge 7; uname -s"), Command("echo 2"), Command("echo 3"), "done")
        record = play(world, shims, *steps, max_turns=2)
        assert record.outcome == "out-of-budget", record.reason
        assert sum(request.has_tools for request in world.server.requests) == 2
        assert record.usage.input_tokens == world.server.spent.input
        assert record.usage.output_tokens == world.server.spent.output
    assert "faked" in record.turns[0].observation
    run = ProjectRun(record, None, shims.calls)
    calls = [str(call) for call in run.calls]
    assert calls.count("gh pr merge 7") == 1
    assert "uname -s" in calls
    assert run.ran("gh pr merge", ok=True)  # its status is the fake's
    assert run.order("gh pr merge", "uname -s")
    commands = [command for command in run.commands if command.source == "gateway"]
    assert [command.text for command in commands] == ["gh pr merge 7", "uname -s", "echo 2"]
