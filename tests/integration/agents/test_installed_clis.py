"""The presets with their real programs: Codex CLI, Claude Code, opencode, Qwen Code and others."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pytest_intercode.agents.answers import Answers
from pytest_intercode.core.conversation import Conversation
from pytest_intercode.core.task import FileSpec, Limits, Task, Verification
from pytest_intercode.core.usage import Budget
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.environments.swe.gold import gold_actions
from pytest_intercode.errors import AgentLoadError, ConfigurationError
from pytest_intercode.projects.commands import Commands
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.support.conversations import call_tool, converse, task_with_servers
from tests.support.installed import KEY, World
from tests.support.model_server import Command, Request
from tests.support.ticket_address import serve_tickets

CONTINUING = ("codex", "claude", "opencode", "qwen", "gemini", "copilot", "kimi", "pi")
TAKING_SERVERS = (*CONTINUING[:-1], "cline")
PRESETS = (*CONTINUING, "cline", "mini-swe-agent")

# opencode does not tell its model; the others only of failures, in words that a command can print.
WITHOUT_STATUS = ("opencode", "gemini", "pi", "copilot", "kimi")

OWN_TOOL_NAMES = {
    "opencode": "tickets_count_tickets",
    "gemini": "mcp_tickets_count_tickets",
    "copilot": "tickets-count_tickets",
    "cline": "tickets__count_tickets",
}


@pytest.fixture(scope="module", params=["docker", "bubblewrap"])
def backend(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    request.getfixturevalue("docker_engine" if name == "docker" else name)
    return name


@pytest.fixture(scope="module", params=PRESETS)
def world(
    request: pytest.FixtureRequest, backend: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with opened_world(backend, str(request.param), tmp_path_factory) as world:
        yield world


@contextlib.contextmanager
def opened_world(
    backend: str, preset: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    if preset != "mini-swe-agent" and shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    try:
        world = World(backend, preset, {"model": "gpt-5"}, tmp_path_factory.mktemp("preset"))
    except AgentLoadError as error:
        pytest.skip(f"its packages cannot be had here: {error}")
    yield world
    world.close()


@pytest.mark.slow
def test_it_solves_a_task(world: World) -> None:
    before, earlier_requests = world.server.spent, len(world.server.requests)
    record = world.play(Command("echo hi >x"), Command("cat x"), Command("exit 3"), "done")
    assert (record.outcome, record.reason) == ("solved", "")
    if world.agent == "codex":  # whose analytics would wait for a network at its end
        assert time.monotonic() - world.last_asked < 4
    actions = [turn.action for turn in record.turns]
    assert actions[:3] == ["echo hi >x", "cat x", "exit 3"]
    statuses = [None] * 3 if world.agent in WITHOUT_STATUS else [0, 0, 3]
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
    assert record.usage.requests == len(world.server.requests) - earlier_requests
    assert record.left_behind == ()
    assert KEY not in repr(record)


@pytest.mark.slow
def test_it_mends_a_repository(world: World) -> None:
    task = load_suite(bundled_folder("tasks") / "swe.yaml").tasks[0]
    [gold] = gold_actions(task)
    record = world.play_task(task, Command(gold), Command("git status --short"), "done")
    assert record.outcome == "solved", record.reason
    assert record.turns[1].observation


@pytest.mark.slow
def test_a_budget_stops_it_within_a_request(world: World) -> None:
    before = len(world.server.requests)
    steps = [Command(f"echo {number}") for number in range(40)]
    record = world.play(*steps, "done", budget=Budget(tokens=300), timeout=60)
    assert record.outcome == "out-of-budget", record.reason
    assert len(world.server.requests) - before == 3  # of 107 tokens each
    assert "300 tokens used" in record.reason
    assert time.monotonic() - world.last_asked < 10


@pytest.mark.slow
def test_turns_stop_it_within_a_request(world: World) -> None:
    before = len(world.server.requests)
    steps = [Command(f"echo {number}") for number in range(40)]
    record = world.play(*steps, "done", max_turns=3, timeout=60)
    assert record.outcome == "out-of-budget", record.reason
    assert "3 of 3 turns used" in record.reason
    assert [turn.action for turn in record.turns] == ["echo 0", "echo 1", "echo 2"]
    assert sum(request.has_tools for request in world.server.requests[before:]) == 3
    assert time.monotonic() - world.last_asked < 10
    assert record.left_behind == ()


@pytest.mark.slow
def test_four_at_a_time(world: World) -> None:
    with ThreadPoolExecutor(4) as threads:
        runs = [threads.submit(world.play, Command("echo hi >x"), "done") for _ in range(4)]
    assert [run.result().outcome for run in runs] == ["solved"] * 4


# What a user and servers are to a program is its own, and no backend's.


@pytest.fixture(
    scope="module",
    params=["codex", *(pytest.param(name, marks=pytest.mark.slow) for name in CONTINUING[1:])],
)
def talking_world(
    request: pytest.FixtureRequest, bubblewrap: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with opened_world("bubblewrap", str(request.param), tmp_path_factory) as world:
        yield world


def test_it_goes_on_with_two_replies(talking_world: World) -> None:
    world = talking_world
    before = world.server.spent
    replies = ["Write the word hi.", "To the file x."]
    answers = Answers(replies)
    steps = ("What shall I write?", "Where to?", Command("echo hi >x"), "All done.")
    task = Task("t", "Write.", ("echo hi >x",), "bash", "s", "s", workdir="/w")
    record = world.talk(task, converse(steps, replies), answers)
    assert (record.outcome, record.reason) == ("solved", "")
    assert answers.questions == [
        ("What shall I write?", "Write the word hi."),
        ("Where to?", "To the file x."),
        ("All done.", None),
    ]
    assert record.turns[0].action == "echo hi >x"
    assert record.usage.input_tokens == world.server.spent.input - before.input
    last = next(request for request in reversed(world.server.requests) if request.has_tools)
    assert all(text in last.text for text in ("What shall I write?", "Where to?", *replies))
    assert record.left_behind == ()


@pytest.mark.slow
def test_a_model_plays_its_user(talking_world: World) -> None:
    replies = ["Write the word hi.", "To the file x."]
    steps = ("What shall I write?", "Where to?", Command("echo hi >x"), "All done.")
    agent_says = converse(steps, replies)

    def script(request: Request) -> Any:
        if "You play the user" not in request.text:
            return agent_says(request)
        spoken = sum(message["role"] == "assistant" for message in request.body["messages"])
        return [*replies, "Thanks. DONE"][spoken]

    conversation = Conversation(persona="You write things.", model="small")
    task = Task(
        *("t", "Write.", ("echo hi >x",), "bash", "s", "s"), workdir="/w", conversation=conversation
    )
    record = talking_world.simulate(task, script)
    assert (record.outcome, record.reason) == ("solved", "")
    assert [exchange.reply for exchange in record.dialogue] == [*replies, "Thanks. DONE"]
    assert [exchange.turn for exchange in record.dialogue] == [0, 0, 1]
    assert record.user_usage.requests == 3
    assert record.usage.input_tokens >= 400


@pytest.mark.parametrize(
    "talking_world",
    ["codex", *(pytest.param(name, marks=pytest.mark.slow) for name in TAKING_SERVERS[1:])],
    indirect=True,
)
def test_it_calls_a_tool_of_the_tasks_server(talking_world: World) -> None:
    task = task_with_servers({"tickets": "exec python3 'server.py'"})
    script = call_tool("tickets", "count_tickets", Command("echo 41 >x"), "done")
    record = talking_world.talk(task, script, Answers())
    assert (record.outcome, record.reason) == ("solved", "")
    call, work, _ = record.turns
    name = OWN_TOOL_NAMES.get(talking_world.agent, "mcp__tickets__count_tickets")
    assert call.action == f"{name}({{}})"
    assert "41" in call.observation
    assert work.action == "echo 41 >x"


@pytest.mark.slow
@pytest.mark.parametrize("talking_world", TAKING_SERVERS, indirect=True)
@pytest.mark.parametrize("transport", ["http", "sse"])
def test_it_calls_a_tool_of_a_server_with_an_address(talking_world: World, transport: str) -> None:
    script = call_tool("tickets", "count_tickets", Command("echo 41 >x"), "done")
    with serve_tickets(transport) as address:
        task = task_with_servers({"tickets": address}, limits=Limits(network=True))
        if (talking_world.agent, transport) == ("codex", "sse"):
            with pytest.raises(
                ConfigurationError, match="to servers by http and stdio, not by sse"
            ):
                talking_world.talk(task, script, Answers())
            return
        record = talking_world.talk(task, script, Answers())
    assert (record.outcome, record.reason) == ("solved", "")
    call, work, _ = record.turns
    assert call.action.endswith("count_tickets({})")
    assert "41" in call.observation
    assert work.action == "echo 41 >x"


@pytest.mark.parametrize(
    "talking_world",
    ["codex", *(pytest.param(name, marks=pytest.mark.slow) for name in CONTINUING[1:])],
    indirect=True,
)
def test_it_tells_its_model_of_the_tasks_skills(talking_world: World) -> None:
    skill = b"---\nname: zebra-notes\ndescription: How notes about zebras are kept.\n---\nIn x.\n"
    task = Task(
        *("t", "Write.", ("echo hi >x",), "swe", "s", "s"),
        workdir="/w",
        files={"/opt/skills/zebra-notes/SKILL.md": FileSpec("file", skill)},
        fields=SweFields(skills="/opt/skills"),
        verification=Verification("test -e /w/x", parser="status"),
    )
    earlier_requests = len(talking_world.server.requests)
    record = talking_world.play_task(task, Command("echo hi >x"), "done")
    assert (record.outcome, record.reason) == ("solved", "")
    texts = [request.text for request in talking_world.server.requests[earlier_requests:]]
    assert any("zebra-notes" in text for text in texts)
