"""The presets with their real programs: Codex CLI, Claude Code, opencode, mini-swe-agent."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_intercode.core.usage import Budget
from pytest_intercode.environments.swe.gold import gold_actions
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.projects.commands import Commands
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.support.installed import KEY, World
from tests.support.model_server import Command

pytestmark = pytest.mark.slow

PRESETS = ("codex", "claude", "opencode", "qwen", "mini-swe-agent")


@pytest.fixture(scope="module", params=["docker", "bubblewrap"])
def backend(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    request.getfixturevalue("docker_engine" if name == "docker" else name)
    return name


@pytest.fixture(scope="module", params=PRESETS)
def world(
    request: pytest.FixtureRequest, backend: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    preset = str(request.param)
    if preset != "mini-swe-agent" and shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    try:
        made = World(backend, preset, {"model": "gpt-5"}, tmp_path_factory.mktemp("preset"))
    except AgentLoadError as error:
        pytest.skip(f"its packages cannot be had here: {error}")
    yield made
    made.close()


def test_it_solves_a_task(world: World) -> None:
    before, asked = world.server.spent, len(world.server.requests)
    record = world.play(Command("echo hi >x"), Command("cat x"), Command("exit 3"), "done")
    assert (record.outcome, record.reason) == ("solved", "")
    if world.agent == "codex":  # whose analytics would wait for a network at its end
        assert time.monotonic() - world.last_asked < 4
    actions = [turn.action for turn in record.turns]
    assert actions[:3] == ["echo hi >x", "cat x", "exit 3"]
    # opencode does not tell its model.
    statuses = [None] * 3 if world.agent == "opencode" else [0, 0, 3]
    assert [turn.status for turn in record.turns[:3]] == statuses
    assert all(turn.tool and turn.arguments is None for turn in record.turns[:3])
    commands = Commands.of(record.turns)
    assert [command.words[0] for command in commands] == ["echo", "cat", "exit"]
    assert commands.order("echo hi", "cat x")
    assert "hi" in record.turns[1].observation
    spent = world.server.spent
    assert record.usage.input_tokens == spent.input - before.input
    assert record.usage.output_tokens == spent.output - before.output
    assert record.usage.cached_tokens == spent.cached - before.cached
    assert record.usage.requests == len(world.server.requests) - asked
    assert record.left_behind == ()
    assert KEY not in repr(record)


def test_it_mends_a_repository(world: World) -> None:
    task = load_suite(bundled_folder("tasks") / "swe.yaml").tasks[0]
    [gold] = gold_actions(task)
    record = world.play_task(task, Command(gold), Command("git status --short"), "done")
    assert record.outcome == "solved", record.reason
    assert record.turns[1].observation


def test_a_budget_stops_it_within_a_request(world: World) -> None:
    before = len(world.server.requests)
    steps = [Command(f"echo {number}") for number in range(40)]
    record = world.play(*steps, "done", budget=Budget(tokens=300), timeout=60)
    assert record.outcome == "out-of-budget", record.reason
    assert len(world.server.requests) - before == 3  # of 107 tokens each
    assert "300 tokens used" in record.reason
    assert time.monotonic() - world.last_asked < 10


def test_four_at_a_time(world: World) -> None:
    with ThreadPoolExecutor(4) as threads:
        runs = [threads.submit(world.play, Command("echo hi >x"), "done") for _ in range(4)]
    assert [run.result().outcome for run in runs] == ["solved"] * 4
