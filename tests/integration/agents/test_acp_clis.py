"""Real agents that speak ACP: in the sandbox, as recipes, and on this machine, as ``acp:``."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.answers import Answers
from pytest_intercode.core.task import Task
from pytest_intercode.core.usage import Budget
from pytest_intercode.errors import AgentLoadError
from tests.support.conversations import call_tool, converse, task_with_servers
from tests.support.installed import KEY, World
from tests.support.model_server import Command, Request

pytestmark = pytest.mark.slow

RECIPES = {
    "qwen": """\
npm: ["@qwen-code/qwen-code@0.24.4"]
node: true
program: node_modules/@qwen-code/qwen-code/cli.js
protocol: acp
command: ["{bundle}/node/bin/node", "{program}", --acp, "--model={model}", --auth-type=openai]
variables: {QWEN_HOME: "{home}/qwen", QWEN_SANDBOX: "false", QWEN_CODE_NO_RELAUNCH: "true"}
arguments: {model: null}
""",
    "codex": """\
npm: ["@zed-industries/codex-acp@0.16.0"]
program: node_modules/@zed-industries/codex-acp-linux-*/bin/codex-acp
protocol: acp
session: {mode: full-access}
command: ["{program}"]
variables: {CODEX_HOME: "{home}/codex", INTERCODE_TOKEN: "{token}"}
files:
  codex/config.toml: |
    model = "{model}"
    model_provider = "intercode"
    check_for_update_on_startup = false
    web_search = "disabled"
    [analytics]
    enabled = false
    [model_providers.intercode]
    name = "intercode"
    base_url = "{gateway}/v1"
    env_key = "INTERCODE_TOKEN"
    wire_api = "responses"
arguments: {model: null}
""",
    # Kept for its own tools, which are those of its client.
    "claude-code": """\
npm: ["@zed-industries/claude-code-acp@0.16.2"]
node: true
program: node_modules/@zed-industries/claude-code-acp/dist/index.js
protocol: acp
command: ["{bundle}/node/bin/node", "{program}"]
""",
}
AGENTS = ("opencode-acp", "claude-acp", *list(RECIPES)[:2])


@contextlib.contextmanager
def opened_world(backend: str, name: str, folder: Path, **arguments: str) -> Iterator[World]:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    if name in RECIPES:
        (folder / f"{name}.yaml").write_text(RECIPES[name])
        name = f"{name}.yaml"
    try:
        world = World(backend, f"installed:{name}", arguments, folder)
    except AgentLoadError as error:
        pytest.skip(f"its packages cannot be had here: {error}")
    yield world
    world.close()


@pytest.fixture(scope="module", params=AGENTS)
def world(
    request: pytest.FixtureRequest, bubblewrap: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("recipe")
    with opened_world("bubblewrap", str(request.param), folder, model="gpt-5") as world:
        yield world


def without_checks(script: Any) -> Any:
    """Return a script for the agent alone; Qwen Code asks its model whether commands are safe."""

    def choose_step(request: Request) -> Any:
        names = json.dumps([tool.get("function") for tool in request.body.get("tools", [])])
        return "yes" if "respond_in_schema" in names else script(request)

    return choose_step


def play(world: World, *steps: str | Command, **fields: Any) -> Any:
    task = Task("t", "Write hi to x.", ("echo hi >x",), "bash", "s", "s", workdir="/w", **fields)
    return world.talk(task, without_checks(converse(steps, ())), Answers())


def test_it_solves_a_task_in_the_sandbox(world: World) -> None:
    record = play(world, Command("echo hi >x"), Command("cat x"), "All done.")
    assert (record.outcome, record.reason) == ("solved", "")
    first, second, last = record.turns
    assert (first.action, second.action) == ("echo hi >x", "cat x")
    assert "hi" in second.observation
    assert last.action == "submit All done."
    assert record.usage.input_tokens > 0
    assert record.left_behind == ()
    assert KEY not in repr(record)


def test_it_goes_on_with_two_replies(world: World) -> None:
    replies = ["Write the word hi.", "To the file x."]
    answers = Answers(replies)
    steps = ("What shall I write?", "Where to?", Command("echo hi >x"), "All done.")
    task = Task("t", "Write.", ("echo hi >x",), "bash", "s", "s", workdir="/w")
    record = world.talk(task, without_checks(converse(steps, replies)), answers)
    assert (record.outcome, record.reason) == ("solved", "")
    questions = [question for question, _ in answers.questions]
    assert len(questions) == 3
    # A newer codex begins with a notice that it does not know the model.
    assert all(map(str.endswith, questions, (*steps[:2], "All done.")))


def test_it_calls_a_tool_of_the_tasks_server(world: World) -> None:
    task = task_with_servers({"tickets": "exec python3 'server.py'"})
    script = call_tool("tickets", "count_tickets", Command("echo 41 >x"), "done")
    record = world.talk(task, without_checks(script), Answers())
    assert (record.outcome, record.reason) == ("solved", "")
    assert "41" in record.turns[0].observation


def test_turns_end_it(world: World) -> None:
    steps = [Command(f"echo {number}") for number in range(40)]
    record = play(world, *steps, "done", max_turns=3)
    assert record.outcome == "out-of-budget", record.reason
    assert [turn.action for turn in record.turns] == ["echo 0", "echo 1", "echo 2"]
    assert time.monotonic() - world.last_asked < 10


@pytest.mark.parametrize("backend", ["docker"])
def test_it_solves_a_task_on_docker(backend: str, docker_engine: None, tmp_path: Path) -> None:
    with opened_world(backend, "opencode-acp", tmp_path, model="gpt-5") as world:
        assert play(world, Command("echo hi >x"), "All done.").outcome == "solved"
        record = world.play(Command("echo 1"), "done", budget=Budget(tokens=100))
        assert record.outcome == "out-of-budget"


# -- on this machine


@pytest.fixture(scope="module")
def claude(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the command line of an agent whose tools are those of its client."""
    folder = tmp_path_factory.mktemp("claude")
    with opened_world("bubblewrap", "claude-code", folder) as world:
        program = RECIPES["claude-code"].split("program: ")[1].splitlines()[0]
        path = Path(world.factory.readonly[0][0], program)
    home = f"HOME={folder} CLAUDE_CONFIG_DIR={folder}/claude"
    return f"acp:env {home} IS_SANDBOX=1 node {path}"


@pytest.fixture(scope="module")
def opencode(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the command line of an agent that uses nothing of its client."""
    folder = tmp_path_factory.mktemp("opencode")
    with opened_world("bubblewrap", "opencode-acp", folder, model="m") as world:
        bundle = Path(world.factory.readonly[0][0])
    program = min(bundle.glob("node_modules/opencode-linux-*/bin/opencode"))
    options = {"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {}}}
    settings = {"share": "disabled", "model": "i/m", "provider": {"i": provider}}
    (folder / "opencode.json").write_text(json.dumps(settings))
    variables = f"HOME={folder} OPENCODE_CONFIG={folder}/opencode.json"
    return f"acp:env {variables} OPENCODE_DISABLE_MODELS_FETCH=1 {program} acp"


@contextlib.contextmanager
def world_here(agent: str, workspace: str, folder: Path) -> Iterator[World]:
    world = World("bubblewrap", agent, {"workspace": workspace}, folder, programs=True)
    yield world
    world.close()


def test_one_whose_tools_are_its_clients_acts_in_the_sandbox(claude: str, tmp_path: Path) -> None:
    steps = (Command("echo hi >x; echo $PPID >/only-there"), Command("cat x"), "All done.")
    with world_here(claude, "yes", tmp_path) as world:
        record = play(world, *steps)
    assert not Path("/only-there").exists()
    first, second, _ = record.turns
    assert first.action.endswith("echo hi >x; echo $PPID >/only-there")
    assert (first.tool, second.tool) == ("", "")
    assert second.observation == "hi\n"
    assert record.usage.requests == 3
    assert record.left_behind == ()


def test_one_with_tools_of_its_own_edits_a_copy(opencode: str, tmp_path: Path) -> None:
    with world_here(opencode, "yes", tmp_path) as world:
        record = play(world, Command("echo hi >x"), "All done.")
    assert (record.outcome, record.reason) == ("solved", "")
    assert (record.turns[0].action, record.turns[0].tool) == ("echo hi >x", "execute")


def test_one_that_needs_the_folder_here_says_how(claude: str, tmp_path: Path) -> None:
    assert not os.path.lexists("/w")
    with world_here(claude, "no", tmp_path) as world:
        record = play(world, "done")
    assert record.outcome == "agent-error"
    assert record.reason.startswith("the agent answers session/new with an error: ")
    assert record.reason.endswith("gets a copy by --intercode-agent-arg workspace=yes")
