"""Every kind of agent on a simulated Mac, whose engine shares no folder with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import AGENTS, SUITE, results
from tests.support.chat_server import ChatServer
from tests.support.model_server import Command, ModelServer, Request
from tests.support.portable.mac import Mac

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SUPPORT = Path(__file__).parents[1] / "support"
KEY = "sk-real-0123456789abcdef"

# Its actions are those of AGENTS, and it leaves a process behind.
PROGRAM = """\
import json, subprocess, sys
from agents import COMMANDS

subprocess.Popen(["sleep", "600"], start_new_session=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "task":
        remaining = [*COMMANDS[message["task"]["id"]], "submit"]
    if message["type"] == "end":
        break
    print(json.dumps({"action": remaining.pop(0)}), flush=True)
"""
ASKING = """\
import json, os, urllib.request

json.loads(input())
messages = [{"role": "user", "content": "Say a command."}]
parameters = {"properties": {"command": {"type": "string"}}}
tool = {"type": "function", "function": {"name": "bash", "parameters": parameters}}
while True:
    data = json.dumps({"model": "m", "messages": messages, "tools": [tool]}).encode()
    head = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, data, head)) as answer:
        message = json.load(answer)["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        print(json.dumps({"submit": ""}))
        break
    [call] = message["tool_calls"]
    print(json.dumps({"action": json.loads(call["function"]["arguments"])["command"]}), flush=True)
    content = json.loads(input())["observation"]
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
"""
RECIPE = """\
about: the program of these tests
folder: program
program: installed_program.py
command: [python3, "{program}", "{model}", "{prompt}"]
arguments: {model: null}
"""
CHAT_SUITE = """\
env: sql
defaults: {database: {engine: sqlite, name: shop, script: shop.sql}}
tasks:
  - {id: count, query: How many books are there?, gold: SELECT count(*) FROM book}
"""


@pytest.fixture
def small(project: Path) -> Path:
    """Return a project with the small suite, its agents, and their plan."""
    (project / "suite.yaml").write_text(SUITE)
    (project / "agents.py").write_text(AGENTS)
    (project / "program.py").write_text(PROGRAM)
    plan = {"prints": ["echo hello"], "writes": ["echo hi > out.txt"]}
    plan["both"] = [*plan["writes"], "echo done"]
    (project / "plan.json").write_text(
        json.dumps({name: [*actions, "submit"] for name, actions in plan.items()})
    )
    return project


def play(mac: Mac, folder: Path, agent: str, *options: str, **variables: str) -> list[Any]:
    """Play a suite of a folder; return its rows, which are all solved."""
    result = mac.pytest(
        *("suite.yaml", f"--intercode-agent={agent}", "--intercode-results=r.jsonl", *options),
        folder=folder,
        timeout=540,  # packages of agents come through a network
        **variables,
    )
    assert (folder / "r.jsonl").exists(), result.stdout
    rows = results(folder / "r.jsonl")
    assert {(row["outcome"], row["reward"]) for row in rows} == {("solved", 1.0)}, result.stdout
    assert result.returncode == 0, result.stdout
    return rows


@pytest.mark.parametrize(
    "agent",
    [
        "agents:Solver",
        "command:python3 program.py",
        f"mcp:python3 {SUPPORT}/same_agent/client.py {{task_id}} {{config}}",
        f"mcp:python3 {SUPPORT}/same_agent/client.py {{task_id}} {{config_http}}",
    ],
    ids=["class", "command", "mcp over stdio", "mcp over HTTP"],
)
def test_it_solves_the_suite(mac: Mac, small: Path, agent: str) -> None:
    assert len(play(mac, small, agent, PLAN=str(small / "plan.json"))) == 3


def test_a_chat_agent(mac: Mac, project: Path) -> None:
    (project / "suite.yaml").write_text(CHAT_SUITE)
    (project / "shop.sql").write_text("CREATE TABLE book (n); INSERT INTO book VALUES (1), (2);")
    with ChatServer(["```sql\nSELECT count(*) FROM book\n```"]) as server:
        options = [f"--intercode-agent-arg=base_url={server.url}", "--intercode-agent-arg=model=m"]
        [row] = play(mac, project, "single-turn", *options)
    assert row["usage"]["requests"] == 1


def test_a_program_at_the_gateway(mac: Mac, small: Path) -> None:
    (small / "asking.py").write_text(ASKING)
    with ModelServer([Command("echo hello"), "done"]) as server:
        [row] = play(
            *(mac, small, "command:python3 asking.py", "--intercode-gateway", "-k", "prints"),
            OPENAI_BASE_URL=f"{server.url}/v1",
            OPENAI_API_KEY=KEY,
        )
        usage = server.spent
    assert KEY not in json.dumps(row)
    assert row["usage"]["input_tokens"] == usage.input


def answer(request: Request) -> Any:
    """Solve the task ``writes``, whatever else a program asks for."""
    if not request.has_tools:  # for a title
        return "A task"
    return [Command("echo hi > out.txt"), "done"][min(len(request.results), 1)]


@pytest.mark.parametrize("agent", ["installed:mine.yaml", "codex", "claude", "mini-swe-agent"])
def test_an_agent_in_the_sandbox(mac: Mac, small: Path, agent: str) -> None:
    """It is installed for the sandbox, not for a Mac, and reaches the gateway alone."""
    if agent in ("codex", "claude") and shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    (small / "program").mkdir()
    shutil.copy(SUPPORT / "installed_program.py", small / "program")
    (small / "mine.yaml").write_text(RECIPE)
    with ModelServer(answer) as server:
        [row] = play(
            *(mac, small, agent, "-k", "writes", "--intercode-agent-arg=model=gpt-5"),
            OPENAI_BASE_URL=f"{server.url}/v1",
            ANTHROPIC_BASE_URL=server.url,
            OPENAI_API_KEY=KEY,
            ANTHROPIC_API_KEY=KEY,
        )
    assert row["turn_history"]["actions"][0] == "echo hi > out.txt"
    assert KEY not in json.dumps(row)
