"""Agents that are programs, led through the gateway by ``--intercode-gateway``."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import results
from tests.integration.gateway.conftest import KEY
from tests.support.model_server import Command, ModelServer

# An agent on the standard library alone: it does what the model says, in its own environment.
AGENT = """\
import json, os, sys, urllib.error, urllib.request

task = json.loads(input())["task"]
messages = [{"role": "user", "content": task["query"]}]
parameters = {"properties": {"command": {"type": "string"}}}
tool = {"type": "function", "function": {"name": "bash", "parameters": parameters}}
shown = ""
for name in [*filter(str.isdigit, os.listdir("/proc"))]:
    try:
        with open(f"/proc/{name}/cmdline") as file:
            shown += file.read()
    except OSError:
        pass
with open(f"/proc/{os.getppid()}/environ") as file:
    shown += file.read()
with open("environment.json", "w") as file:
    json.dump({**os.environ, "SHOWN": shown}, file)


def ask():
    data = json.dumps({"model": "m", "messages": messages, "tools": [tool]}).encode()
    head = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, data, head)) as answer:
            return json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        sys.exit(f"status {error.code}: {error.read().decode()}")


while True:
    message = ask()
    messages.append(message)
    if not message.get("tool_calls"):
        print(json.dumps({"submit": "", "usage": {"input_tokens": 5, "output_tokens": 5}}))
        break
    [call] = message["tool_calls"]
    action = json.loads(call["function"]["arguments"])["command"]
    print(json.dumps({"action": action}), flush=True)
    observation = json.loads(input())["observation"]
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": observation})
"""
COMMAND = f"command:{shlex.quote(sys.executable)} -S agent.py"

Play = Callable[..., "dict[str, Any]"]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer([Command("echo hello"), "done"]) as running:
        yield running


@pytest.fixture
def play(
    pytester: pytest.Pytester, pretend: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> Play:
    """Runs one task in this process, and returns its row of the results."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "another")
    monkeypatch.setenv("MY_COPY", f"it is {KEY}")
    (pytester.path / "agent.py").write_text(AGENT)

    def play_one(*more: str, agent: str = COMMAND) -> dict[str, Any]:
        pytester.runpytest(
            *("suite.yaml", "-k=prints", f"--intercode-agent={agent}", "-pno:cacheprovider"),
            *("--intercode-results=r.jsonl", "--intercode-timeout=60", *more),
        )
        [row] = results(pytester.path / "r.jsonl")
        return row

    return play_one


def test_the_tokens_of_a_program_are_counted_and_the_key_is_nowhere(
    play: Play, server: ModelServer, pytester: pytest.Pytester
) -> None:
    row = play(
        "--intercode-gateway", "--intercode-gateway-record=recorded", "--intercode-html=p.html"
    )
    assert (row["outcome"], row["reward"]) == ("solved", 1.0)
    assert row["turn_history"]["actions"] == ["echo hello", "submit"]
    assert row["usage"]["requests"] == 2
    assert row["usage"]["cached_tokens"] == 80
    assert (row["usage"]["input_tokens"], row["usage"]["output_tokens"]) == (200, 14)
    assert (server.spent.input, server.spent.output) == (200, 14)
    seen = json.loads((pytester.path / "environment.json").read_text())
    assert not [name for name, value in seen.items() if KEY in value]
    assert not {"ANTHROPIC_AUTH_TOKEN", "MY_COPY"} & set(seen)
    assert seen["OPENAI_API_BASE"] == seen["OPENAI_BASE_URL"]
    assert seen["ANTHROPIC_API_KEY"] == seen["OPENAI_API_KEY"]
    assert seen["ANTHROPIC_BASE_URL"] + "/v1" == seen["OPENAI_BASE_URL"]
    files = [path for path in pytester.path.rglob("*") if path.is_file()]
    assert {"001.json", "002.json", "p.html"} <= {path.name for path in files}
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_budget_ends_a_program_in_the_middle(play: Play, server: ModelServer) -> None:
    row = play("--intercode-gateway", "--intercode-max-tokens=100")
    assert row["outcome"] == "out-of-budget"
    assert row["reason"].startswith("107 of 100 tokens used")
    assert len(server.requests) == 1
    assert row["usage"]["input_tokens"] == 100


def test_money_is_counted_by_prices(play: Play) -> None:
    price = "--intercode-gateway-price=m=10/100/1"
    row = play("--intercode-gateway", price, "--intercode-max-cost=1")
    assert row["outcome"] == "solved"
    assert row["usage"]["cost"] == pytest.approx(2 * (60 * 10 + 40 + 7 * 100) / 1e6)


def test_a_recorded_run_is_replayed_without_a_model(
    play: Play, server: ModelServer, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester
) -> None:
    first = play("--intercode-gateway-record=recorded")
    asked = len(server.requests)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.delenv("OPENAI_API_KEY")
    again = play("--intercode-gateway-replay=recorded")
    for key in ("outcome", "reward", "turn_history", "usage"):
        assert again[key] == first[key]
    assert len(server.requests) == asked

    agent = pytester.path / "agent.py"
    agent.write_text(AGENT.replace('task["query"]', '"Print " + task["query"]'))
    row = play("--intercode-gateway-replay=recorded")
    assert row["outcome"] == "agent-error"
    assert "the recording lacks a request: POST /v1/chat/completions, model m" in row["reason"]
    assert "messages[0].content: recorded 'Print the word" in row["reason"]


def test_what_is_refused_is_shown(play: Play, pytester: pytest.Pytester) -> None:
    agent = pytester.path / "agent.py"
    agent.write_text(AGENT.replace('/chat/completions"', '/files"'))
    row = play("--intercode-gateway")
    assert row["outcome"] == "agent-error"
    shown = "[gateway: POST /v1/files: the gateway does not serve this]"
    assert shown in row["log"]


def test_a_program_that_speaks_mcp(
    play: Play, server: ModelServer, pytester: pytest.Pytester
) -> None:
    agent = pytester.path / "agent.py"
    agent.write_text(
        AGENT.replace('json.loads(input())["task"]', '{"query": "say"}').split("while")[0]
    )
    agent.write_text(agent.read_text() + "ask()\nprint('asked')\nask()\n")
    row = play("--intercode-gateway", agent=f"mcp:{sys.executable} {{here}}/agent.py")
    assert (row["usage"]["input_tokens"], row["usage"]["output_tokens"]) == (200, 14)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--intercode-gateway", "--intercode-max-cost=1"],
            "does not know prices, so cost cannot be limited: give --intercode-gateway-price",
        ),
        (
            ["--intercode-gateway-price=m=3"],
            "--intercode-gateway-price m=3: prices per million tokens are needed, INPUT/OUTPUT",
        ),
        (["--intercode-gateway-replay=no"], "there is no such folder"),
        (
            ["--intercode-gateway", "--intercode-agent=agent.py:Agent"],
            "the gateway (--intercode-gateway) is for programs",
        ),
    ],
)
def test_a_mistake_is_one_line(
    options: list[str], said: str, pytester: pytest.Pytester, pretend: Path
) -> None:
    (pytester.path / "agent.py").write_text("class Agent:\n    act = print\n")
    done = pytester.runpytest("suite.yaml", f"--intercode-agent={COMMAND}", *options)
    assert done.ret == 4
    assert said in done.stderr.str() + done.stdout.str()
    assert "Traceback" not in done.stderr.str() + done.stdout.str()


def test_an_address_that_is_none(
    pytester: pytest.Pytester, pretend: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "user:secret@host")
    arguments = ("suite.yaml", f"--intercode-agent={COMMAND}", "--collect-only")
    assert pytester.runpytest(*arguments).ret == 0  # others do not use it
    done = pytester.runpytest(*arguments[:2], "--intercode-gateway")
    done.stderr.fnmatch_lines(["*OPENAI_BASE_URL: the gateway needs an address such as https://*"])
    assert "secret" not in done.stderr.str()
