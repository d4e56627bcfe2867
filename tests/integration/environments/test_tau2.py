"""The tau2 environment: calls of tools, a customer who has tools, too, and what becomes of both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import main
from pytest_intercode.environments.tau2.strict import Tau2Environment
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.loader import load_suite
from tests.conftest import results
from tests.support import puzzles
from tests.support.judge_model import evidence_of, verdict
from tests.support.model_server import ModelServer, Request, Step, Tool
from tests.support.tau2_library import RENEW, UNLOCK, call, write_library

pytest.importorskip("aiohttp")
pytest.importorskip("openai")

quick_provider = puzzles.quick_provider

AGENTS = f"""
RENEW, UNLOCK = {RENEW!r}, {UNLOCK!r}
TOLD = "Dune is due 15 March."

class Idle:
    def run(self, task, env):
        return None

class Tells:
    def run(self, task, env):
        return TOLD

class Renews:
    def run(self, task, env):
        if "customer writes" in task.query:
            env.step(RENEW)
            return TOLD
        return "Goodbye."

class Hostile:
    '''Renews first; then it tries what must not have an effect, nor take the renewal away.'''
    actions = (
        RENEW,
        {call("lose_everything")!r},
        {call("_get", book_id="b1")!r},
        {call("update_db", update={"loans": {}})!r},
        {call("get_loan", "user", book_id="b1")!r},
        {call("get_loan", tool_name="renew_loan", book_id="b1")!r},
        UNLOCK,
        "import os; os.listdir('/opt/tau2')",
        {call("calculate", expression="9**9**9**9")!r},
        {call("get_loan", book_id="b1")!r},
        '{{"name": "get_loan", "arguments": {{"book_id": NaN, "more": 1e999}}}}',
        '{{"name": "get_loan", "arguments": {{"book_id": ' + "[" * 150 + "]" * 150 + '}}}}',
    )

    def run(self, task, env):
        for action in self.actions:
            print(env.step(action)[0])
        return TOLD

class Errs:
    def run(self, task, env):
        for _ in range(10):
            env.step({call("get_loan", book_id="x")!r})
        env.step(RENEW)
"""

Play = Callable[..., dict[str, Any]]


@pytest.fixture
def play(pytester: pytest.Pytester, needs_sandboxes: None, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Play a task of the library; return the record of the episode."""
    write_library(pytester.path)
    (pytester.path / "agents.py").write_text(AGENTS)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")

    def run(task: str, agent: str, model: Callable[[Request], Any], *more: str) -> dict[str, Any]:
        with ModelServer(model) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            pytester.runpytest(
                *("library.yaml", f"--intercode-agent={agent}", "-k", task),
                *("--intercode-results=r.jsonl", *more),
            )
        rows = results(pytester.path / "r.jsonl")
        return rows[-1]

    return run


def says(*replies: str) -> Callable[[Request], str]:
    """Return a customer who says this, one after the other; and a judge who is content."""

    def answer(request: Request) -> str:
        if "BEGIN" in json.dumps(request.body["messages"]):
            return verdict(1.0)
        count = sum(message["role"] == "assistant" for message in request.body["messages"])
        return str(replies[min(count, len(replies) - 1)])

    return answer


def test_gold_is_right_and_idling_is_not(play: Play, pytester: pytest.Pytester) -> None:
    play("renew or unlock or refuse", "oracle", says("."))
    assert {row["outcome"] for row in results(pytester.path / "r.jsonl")} == {"solved"}
    (pytester.path / "r.jsonl").unlink()
    play("renew or unlock", "agents.py:Idle", says("Hello.", "."))
    assert {row["outcome"] for row in results(pytester.path / "r.jsonl")} == {"failed"}


def test_the_customer_writes_first_and_ends_it_anywhere_in_a_message(play: Play) -> None:
    prompts: list[list[dict[str, Any]]] = []

    def customer(request: Request) -> str:
        prompts.append(request.body["messages"])
        return says("I want Dune for longer.", "Thanks ###STOP### and bye.")(request)

    row = play("renew", "agents.py:Renews", customer)
    assert row["outcome"] == "solved"
    assert [exchange["message"] for exchange in row["dialogue"]] == [
        "Hi! How can I help you today?",
        "Dune is due 15 March.",
    ]
    assert [message["role"] for message in prompts[0]] == ["system", "user"]
    system = prompts[0][0]["content"]
    assert system.startswith("Play a member of a library.\n\n\n<scenario>\nPersona:\n\tYou are")
    assert "policy" not in system


@pytest.mark.slow
def test_models_have_the_tools_of_their_side_by_name(play: Play) -> None:
    """The customer unlocks the card between two messages; the agent sees only what is said."""
    offered: dict[str, list[str]] = {}
    prompts: list[str] = []

    def model(request: Request) -> str | Step:
        offered[request.model] = [str(function["name"]) for function in request.functions]
        prompts.append(json.dumps(request.body["messages"]))
        if request.model == "agent-1":
            return "Please unlock your card." if not request.results else "Bye."
        if len(request.body["messages"]) < 4:
            return "My card does not work."
        if not request.results:
            return Step(calls=[Tool("unlock_card", {})])
        assert request.results == ["Done."]
        return "It works. ###STOP###"

    row = play("unlock", "tools", model, "--intercode-agent-arg=model=agent-1")
    assert row["outcome"] == "solved"
    assert offered["agent-1"] == ["get_loan", "renew_loan", "calculate"]
    assert offered["gpt-4.1-2025-04-14"] == ["check_card", "unlock_card"]
    assert row["end_state"]["agent"]["calls"] == [
        {"requestor": "user", "name": "unlock_card", "arguments": {}}
    ]
    assert row["user_usage"]["requests"] == 3
    assert [turn for turn in row["turn_history"]["actions"] if "unlock" in str(turn)] == []


def test_what_an_agent_sends_is_data_for_the_tools_alone(
    play: Play, pytester: pytest.Pytester
) -> None:
    """Other functions and the customer's tools are refused; a call that hangs loses no state."""
    row = play("renew", "agents.py:Hostile", says("Hello.", "###STOP###"))
    assert row["outcome"] == "solved", row
    observations = [str(text) for text in row["turn_history"]["observations"]]
    assert "'lose_everything' not found" in observations[1]
    assert "'_get' not found" in observations[2]
    assert "'update_db' not found" in observations[3]
    assert "'unlock_card' not found" in observations[6]
    assert "[not run: an action is" in observations[7]
    assert "gave no answer" in observations[8]
    assert json.loads(observations[9])["due"] == "2025-03-15"
    assert "unexpected keyword argument" in observations[10]
    assert "nested more than 20 deep" in observations[11]


def test_ten_failed_calls_end_it_without_a_reward(play: Play) -> None:
    row = play("renew", "agents.py:Errs", says("Hello.", "###STOP###"))
    assert (row["outcome"], row["reward"]) == ("out-of-budget", 0.0)
    assert "10 calls failed" in row["reason"]


def test_calls_that_are_refused_for_their_size_count_and_an_episode_begins_anew(
    quick_provider: SandboxProvider, tmp_path: Path
) -> None:
    task, *_ = load_suite(write_library(tmp_path)).tasks
    large = call("get_loan", book_id="x" * 100_001)
    environment = Tau2Environment(quick_provider)
    try:
        environment.reset(task=task)
        for _ in range(10):
            assert not environment.over
            observation, *_ = environment.step(large)
            assert "more than 100,000 characters" in observation
        assert environment.over == "budget"
        environment.end("budget")
        state = environment.end_state()
        assert (state["agent"]["premature"], state["agent"]["calls"]) == ("10 calls failed", [])
        environment.reset(task=task)
        state = environment.end_state()
        assert (state["agent"]["premature"], state["checks"]) == ("", {})
    finally:
        environment.close()


@pytest.mark.slow
def test_the_judge_sees_the_conversation_and_is_a_factor(
    play: Play, pytester: pytest.Pytester
) -> None:
    def model(request: Request) -> str:
        if request.body["messages"][0]["content"].startswith("Play"):
            return says("Emma for nothing, please.", "###STOP###")(request)
        assert "Emma for nothing" in evidence_of(request)
        return verdict(float("costs one euro" in evidence_of(request)), "said or not")

    row = play("refuse", "agents.py:Tells", model)
    assert (row["outcome"], row["reward"]) == ("failed", 0.0)
    assert (row["judge"]["product"], row["judge"]["reward"]) == (True, 1.0)
    assert main(["rescore", "r.jsonl", "--suite", "library.yaml", "--output", "again.jsonl"]) == 0
    [row] = results(pytester.path / "again.jsonl")
    assert row["reward"] == 0.0
