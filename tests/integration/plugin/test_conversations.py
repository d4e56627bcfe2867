"""Tasks whose agent talks to a user: ``user:`` in suites, with replies or with a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import results
from tests.support.model_server import ModelServer, Request, Step, Tool

pytest.importorskip("aiohttp")
pytest.importorskip("openai")

SUITE = """\
env: sql
defaults:
  max_turns: 6
  database: {engine: sqlite, name: shop, script: shop.sql}
tasks:
  - id: count
    query: How many cheap books are there? Ask me what cheap is.
    gold: SELECT count(*) FROM book WHERE price <= 10
    user: USER
    audit: {weak-check: the shop has few books}
"""
SHOP = """\
CREATE TABLE book (title TEXT, price INTEGER);
INSERT INTO book VALUES ('A', 5), ('B', 10), ('C', 15);
"""
AGENTS = """\
class Asks:
    def run(self, task, env):
        price = "".join(filter(str.isdigit, task.query))
        if not price:
            return "What is cheap? DONE"
        env.step(f"SELECT count(*) FROM book WHERE price <= {price}")
        return "There you are."

class Chats:
    def run(self, task, env):
        while env.ask("Hello?") is not None:
            env.spend(input_tokens=10)

class Steps:
    def act(self, observation):
        return "submit"
"""
SCRIPTED = "{replies: [Ten dollars or less means 10.]}"
SIMULATED = "{persona: You sell books., goal: To you cheap is 10 dollars or less., model: small}"
GOLD = "SELECT count(*) FROM book WHERE price <= 10"

Play = Callable[..., pytest.RunResult]


@pytest.fixture
def play(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Play the suite with a user; without a server, no model is within reach."""
    (pytester.path / "shop.sql").write_text(SHOP)
    (pytester.path / "agents.py").write_text(AGENTS)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)

    def run(user: str, *arguments: str, agent: str = "agents.py:Asks") -> pytest.RunResult:
        (pytester.path / "suite.yaml").write_text(SUITE.replace("USER", user))
        return pytester.runpytest(
            *("suite.yaml", "--intercode-results=r.jsonl", f"--intercode-agent={agent}", *arguments)
        )

    return run


def row_of(folder: Path) -> dict[str, Any]:
    [row] = results(folder / "r.jsonl")
    return row


def user_says(request: Request) -> str:
    """Return what the user says next: the price, and then the last words."""
    replies = ("It is 10 dollars.", "Thanks. DONE")
    return replies[sum(message["role"] == "assistant" for message in request.body["messages"])]


# -- replies


def test_replies_continue_the_agents_conversation(play: Play, pytester: pytest.Pytester) -> None:
    play(SCRIPTED).assert_outcomes(passed=1)
    row = row_of(pytester.path)
    assert row["dialogue"] == [
        {"turn": 0, "message": "What is cheap? DONE", "reply": "Ten dollars or less means 10."},
        {"turn": 1, "message": "There you are."},
    ]
    assert (row["outcome"], row["summary"]["turns_taken"]) == ("solved", 1)
    assert "user_usage" not in row


def test_the_end_state_is_graded_and_not_what_is_said(
    play: Play, pytester: pytest.Pytester
) -> None:
    result = play("{replies: [It is 5., It is 4.]}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*1 said: What is cheap? DONE", "*the user: It is 5.", "*1 > SELECT*", "*2 said: There*"]
    )
    assert row_of(pytester.path)["outcome"] == "failed"


def test_gold_and_the_audit_need_no_user(play: Play, pytester: pytest.Pytester) -> None:
    play(SIMULATED, agent="oracle").assert_outcomes(passed=1)
    assert "dialogue" not in row_of(pytester.path)
    (pytester.path / "r.jsonl").rename(pytester.path / "gold.jsonl")
    play(SIMULATED, agent="replay:gold.jsonl").assert_outcomes(passed=1)
    result = pytester.runpytest("suite.yaml", "--intercode-audit")
    result.stdout.no_fnmatch_line("*plays the user*")
    assert result.parseoutcomes().get("passed")


@pytest.mark.parametrize(
    ("agent", "more"),
    [
        ("agents.py:Steps", []),
        ("react", ["model=m", "base_url=http://127.0.0.1:9"]),
        ("command:cat", []),
    ],
)
def test_an_agent_that_cannot_go_on_is_one_line(play: Play, agent: str, more: list[str]) -> None:
    result = play(SCRIPTED, *(f"--intercode-agent-arg={word}" for word in more), agent=agent)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    line = (
        f"ERROR: --intercode-agent={agent}: this agent cannot continue after a reply*(1 task of 1*)"
    )
    result.stderr.fnmatch_lines([line])


def test_an_agent_of_a_hook_that_cannot_go_on_is_one_line(
    play: Play, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("""
        import agents

        def pytest_intercode_make_agent(task):
            return agents.Steps()
    """)
    result = play(SCRIPTED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*: this agent cannot continue after a reply, so no user can*"])
    result.stdout.no_fnmatch_line("*raise ConfigurationError*")


# -- a model that plays the user


def test_a_model_plays_the_user(
    play: Play, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(user_says) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        play(SIMULATED, "--intercode-gateway-record=recorded").assert_outcomes(passed=1)
    live = row_of(pytester.path)
    assert live["dialogue"] == [
        {"turn": 0, "message": "What is cheap? DONE", "reply": "It is 10 dollars."},
        {"turn": 1, "message": "There you are.", "reply": "Thanks. DONE", "is_last": True},
    ]
    assert live["user_usage"]["input_tokens"] == server.spent.input == 200
    assert live["usage"]["requests"] == 0
    prompt = server.requests[0].body["messages"][0]["content"]
    assert "You sell books." in prompt
    assert "What you want: To you cheap is 10 dollars or less." in prompt
    assert server.requests[0].model == "small"
    # Once more, without a server.
    monkeypatch.delenv("OPENAI_BASE_URL")
    (pytester.path / "r.jsonl").unlink()
    play(SIMULATED, "--intercode-gateway-replay=recorded").assert_outcomes(passed=1)
    replayed = row_of(pytester.path)
    for key in ("dialogue", "user_usage", "usage", "outcome"):
        assert replayed[key] == live[key]


def test_the_runs_model_comes_before_the_suites(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(user_says) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        result = play(SIMULATED, "--intercode-user-model=large")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["intercode: models play users: large (1 task)"])
    assert {request.model for request in server.requests} == {"large"}


def test_each_side_has_its_budget(
    play: Play, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = SIMULATED.replace("}", ", max_turns: 3}")
    with ModelServer(lambda _: "Hello.") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        play(user, agent="agents.py:Chats").assert_outcomes(failed=1)
        row = row_of(pytester.path)
        assert row["outcome"] == "out-of-budget"
        assert row["reason"].startswith("3 of 3 replies of the user used")
        (pytester.path / "r.jsonl").unlink()
        # The agent's tokens are its own: what the user uses up is more than it has.
        play(user, "--intercode-max-tokens=25", agent="agents.py:Chats").assert_outcomes(failed=1)
        row = row_of(pytester.path)
        assert row["reason"].startswith("30 of 25 tokens used")
        assert row["user_usage"]["input_tokens"] == 300


def test_a_users_model_that_fails_counts_for_nothing(
    play: Play, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(lambda _: Step(status=404, text="no such model")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        result = play(SIMULATED)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the model 'small' that plays the user fails: *no such model*"])
    assert row_of(pytester.path)["outcome"] == "infrastructure-error"


def test_what_is_missing_is_one_line_before_the_agent_acts(play: Play) -> None:
    result = play(SIMULATED)
    result.stderr.fnmatch_lines(
        ["ERROR: *: task 'count': user: no model can be reached: set OPENAI_API_KEY, or *"]
    )
    result = play("{persona: You sell books.}")
    result.stderr.fnmatch_lines(
        ["ERROR: *suite.yaml:6: task 'count': user: no model is given: give *"]
    )
    result = play(SCRIPTED, "--intercode-gateway-record=recorded")  # there is nothing to record
    result.stderr.fnmatch_lines(["ERROR: *not for an agent in this process*"])


def test_money_is_not_limited_without_a_price(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(user_says) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        result = play(SIMULATED, "--intercode-run-max-cost=1")
        result.stderr.fnmatch_lines(["ERROR: --intercode-run-max-cost: the model that plays the*"])
        price = "--intercode-gateway-price=small=1/2"
        play(SIMULATED, "--intercode-run-max-cost=1", price).assert_outcomes(passed=1)


# -- agents that are models and programs


def test_the_chat_agent_with_tools_talks(
    play: Play, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server plays both, whose prompts differ."""

    def script(request: Request) -> str | Step:
        if "You play the user" in request.text:
            return user_says(request)
        if request.results:
            return "There are two."
        if "10 dollars" in request.text:
            return Step(calls=[Tool("execute", {"code": GOLD})])
        return "What is cheap?"

    with ModelServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        result = play(
            SIMULATED,
            *("--intercode-agent-arg=model=large", "--intercode-user-model=small"),
            f"--intercode-agent-arg=base_url={server.url}/v1",
            agent="tools",
        )
    result.assert_outcomes(passed=1)
    row = row_of(pytester.path)
    assert [said["message"] for said in row["dialogue"]] == ["What is cheap?", "There are two."]
    assert [said["turn"] for said in row["dialogue"]] == [0, 1]
    assert row["usage"]["requests"] == 3
    assert row["user_usage"]["requests"] == 2
    system = next(r for r in server.requests if r.model == "large").body["messages"][0]["content"]
    assert "There is a user, who may answer you" in system


@pytest.mark.parametrize("backend", ["bubblewrap", "docker"])
def test_a_conversation_about_a_sandbox(
    pytester: pytest.Pytester, backend: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(f"needs_{backend}" if backend == "docker" else "needs_sandboxes")
    (pytester.path / "suite.yaml").write_text("""\
env: bash
tasks:
  - id: write
    query: Write my name to /w/name.
    gold: echo Ada >name
    workdir: /w
    user: {replies: ["I am Ada.", Thanks.]}
""")
    (pytester.path / "agents.py").write_text("""\
async def agent(task, env):
    name = await asyncio.to_thread(env.ask, "Who are you?")
    env.step(f"echo {name.split()[-1].rstrip('.')} >name")
    assert env.ask("I did it.") == "Thanks."

import asyncio
""")
    result = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=agents.py:agent", "--intercode-results=r.jsonl"),
        f"--intercode-sandbox={backend}",
    )
    result.assert_outcomes(passed=1)
    row = row_of(pytester.path)
    assert row["sandbox"] == backend
    assert [said["reply"] for said in row["dialogue"]] == ["I am Ada.", "Thanks."]
