"""Installed agents that speak ACP: in their sandbox, whose port carries their standard streams."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.answers import Answers
from pytest_intercode.agents.loader import load_agent
from pytest_intercode.core.usage import Budget
from pytest_intercode.errors import AgentLoadError
from tests.support.conversations import converse, task_with_servers
from tests.support.installed import World, program_world
from tests.support.model_server import Command

pytest.importorskip("aiohttp")

RECIPE = """\
folder: program
program: installed_acp_program.py
protocol: acp
session: {permission: "{permission}", mode: bold}
command: [python3, "{program}", "{model}"]
arguments: {model: null, permission: once}
"""


@pytest.fixture(
    scope="module",
    params=["docker", "bubblewrap", pytest.param("docker by TCP", marks=pytest.mark.slow)],
)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("recipe")
    with program_world(
        request, folder, "installed_acp_program.py", RECIPE, {"model": "m"}
    ) as new_world:
        yield new_world


def test_it_solves_a_task_with_its_own_tools(world: World) -> None:
    record = world.play(Command("echo hi >x; pwd", thought="I look."), "All done.")
    assert (record.outcome, record.reason) == ("solved", "")
    first, last = record.turns
    assert (first.action, first.observation, first.thought) == (
        "echo hi >x; pwd",
        "/w\n",
        "I look.",
    )
    assert last.action == "submit All done."
    assert record.usage.requests == 2
    assert record.left_behind == ()
    greeting, session = (
        json.loads(message["content"]) for message in world.server.requests[-1].body["messages"][:2]
    )
    # It acts in its sandbox by itself.
    assert greeting["clientCapabilities"] == {}
    assert session == {"cwd": "/w", "mcpServers": []}


def test_it_goes_on_in_one_session_and_knows_the_servers(world: World) -> None:
    answers = Answers(["Write hi.", "To the file x."])
    steps = ("What shall I write?", "Where to?", Command("echo hi >x"), "All done.")
    task = task_with_servers({"tickets": "exec python3 server.py"}, gold=("echo hi >x",))
    record = world.talk(task, converse(steps, ["Write hi.", "To the file x."]), answers)
    assert (record.outcome, record.reason) == ("solved", "")
    assert [question for question, _ in answers.questions] == [steps[0], steps[1], steps[3]]
    messages = world.server.requests[-1].body["messages"]
    assert json.loads(messages[1]["content"])["mcpServers"] == [
        {
            "name": "tickets",
            "command": "/bin/sh",
            "args": ["-c", "exec python3 server.py"],
            "env": [],
        }
    ]
    assert record.turns[0].action == "echo hi >x"


def test_it_knows_a_server_with_an_address_by_the_transport_that_it_speaks(world: World) -> None:
    task = task_with_servers({"tickets": "https://tickets.example/mcp"}, gold=("echo hi >x",))
    record = world.talk(task, converse((Command("echo hi >x"), "All done."), []), Answers())
    assert (record.outcome, record.reason) == ("solved", "")
    [_, session, *_] = world.server.requests[-1].body["messages"]
    assert json.loads(session["content"])["mcpServers"] == [
        {"type": "http", "name": "tickets", "url": "https://tickets.example/mcp", "headers": []}
    ]
    task = task_with_servers({"tickets": "sse+https://tickets.example/sse"})
    record = world.talk(task, converse(("All done.",), []), Answers())
    assert record.outcome == "agent-error"
    assert "the agent does not speak to MCP servers by sse, as 'tickets'" in record.reason


@pytest.mark.parametrize(
    ("query", "limits"),
    [
        ("Go on.", {"budget": Budget(tokens=150)}),
        ("Go on.", {"max_turns": 2}),
        ("DEAF.", {"max_turns": 2}),
    ],
    ids=["tokens", "turns", "deaf"],
)
def test_a_budget_ends_it(world: World, query: str, limits: dict[str, Any]) -> None:
    steps = (Command(f"echo {n}; sleep 0.1") for n in range(50))
    record = world.play(*steps, "done", query=query, **limits)
    assert record.outcome == "out-of-budget", record.reason
    assert [turn.observation for turn in record.turns] == ["0\n", "1\n"]
    assert record.left_behind == ()
    assert record.seconds < 10


def test_its_time_ends_it(world: World) -> None:
    began = time.monotonic()
    record = world.play(Command("sleep 600"), "done", timeout=3)
    assert record.outcome == "timed-out", record.reason
    assert time.monotonic() - began < 60


def test_one_that_dies_is_the_agents_error(world: World) -> None:
    record = world.play("done", query="DIE.")
    assert record.outcome == "agent-error"
    assert record.reason == "mine exited with status 3; its last output: out of luck"


def test_one_that_kills_what_carries_it_is_the_agents_error(world: World) -> None:
    record = world.play(Command("kill -9 -1"), "done")
    assert record.outcome in ("agent-error", "failed"), record.reason
    assert record.attempts == ()


def test_a_model_that_refuses_is_said(world: World) -> None:
    record = world.play(Command("true"), "done", query="Go.", budget=Budget(tokens=1))
    assert record.outcome == "out-of-budget", record.reason


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            "command: [x, '{prompt}']",
            "protocol: acp: the protocol carries prompts, replies and MCP servers",
        ),
        ("command: [x]\nresume: [x, '{reply}']", "protocol: acp: the protocol carries"),
        ("command: [x]\nsession: {permission: maybe}", "session.permission: allowed are once"),
        ("command: [x]\nsession: {mode: '{moode}'}", "there is no placeholder {moode}"),
        ("command: [x]\nsession: {modes: a}", "session.modes: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_recipe_is_one_line(tmp_path: Path, lines: str, problem: str) -> None:
    (tmp_path / "r.yaml").write_text(f"folder: .\nprogram: x\nprotocol: acp\n{lines}\n")
    with pytest.raises(AgentLoadError) as raised:
        load_agent("installed:r.yaml", {}, tmp_path)
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_session_is_for_a_program_that_speaks_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("folder: .\nprogram: x\ncommand: [x]\nsession: {mode: a}\n")
    with pytest.raises(AgentLoadError, match="session: only a program with protocol: acp has it"):
        load_agent("installed:r.yaml", {}, tmp_path)
