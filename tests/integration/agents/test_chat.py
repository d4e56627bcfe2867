"""Every chat baseline against a local server, through the real client and the whole plugin.

The environment is sql on SQLite, which needs no sandbox.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pytest_intercode.databases.sqlite.engine
import pytest_intercode.environments.sql.strict  # noqa: F401
from pytest_intercode.environments.ctf.fields import CtfFields
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.conftest import results
from tests.support.chat_server import ChatServer, Reply, Script, calls, warm_up

SUITE = """\
env: sql
defaults:
  max_turns: 6
  database: {engine: sqlite, name: shop, script: shop.sql}
tasks:
  - id: count
    query: How many books cost $10 or less?
    gold: SELECT count(*) FROM book WHERE price <= 10
"""
SHOP = """\
CREATE TABLE book (title TEXT, price INTEGER);
INSERT INTO book VALUES ('A', 5), ('B', 10), ('C', 15);
"""
GOLD = "SELECT count(*) FROM book WHERE price <= 10"
BLOCK = f"```sql\n{GOLD}\n```"
WRONG = "```sql\nSELECT count(*) FROM book\n```"

Play = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    warm_up()


@pytest.fixture(autouse=True)
def shop(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    (pytester.path / "suite.yaml").write_text(SUITE)
    (pytester.path / "shop.sql").write_text(SHOP)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)


def run(pytester: pytest.Pytester, agent: str, url: str, *more: str) -> pytest.RunResult:
    """Run the task with an agent; words without a dash are arguments of the agent."""
    words = [w for word in more for w in ([word] if word[:1] == "-" else [_ARGUMENT, word])]
    return pytester.runpytest(
        *("suite.yaml", f"--intercode-agent={agent}", "--intercode-results=r.jsonl"),
        *(_ARGUMENT, f"base_url={url}", _ARGUMENT, "model=test-model", *words),
    )


_ARGUMENT = "--intercode-agent-arg"


@pytest.fixture
def play(pytester: pytest.Pytester) -> Play:
    """Play the task against a server with a script; return the results row and the requests."""

    def play(agent: str, script: Script, *more: str) -> dict[str, Any]:
        with ChatServer(script) as server:
            run(pytester, agent, server.url, *more)
        (row,) = results(Path("r.jsonl"))
        row["requests"] = server.requests
        return dict(row)

    return play


def actions(row: dict[str, Any]) -> list[str]:
    return list(row["turn_history"]["actions"])


def bodies(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [request.body for request in row["requests"]]


def roles(body: dict[str, Any]) -> str:
    return " ".join(message["role"] for message in body["messages"])


# -- each strategy as it should go


def test_single_turn_takes_one_action(play: Play) -> None:
    row = play("single-turn", [f"I count.\n{BLOCK}"])
    assert (row["outcome"], row["reward"]) == ("solved", 1.0)
    assert actions(row) == [GOLD]
    assert row["turn_history"]["rewards"] == [1.0]
    assert row["summary"]["turns_taken"] == 1
    assert row["turn_history"]["thoughts"][0] == "I count."
    (body,) = bodies(row)
    assert roles(body) == "system user"
    assert "SQLite" in body["messages"][0]["content"]
    assert "How many books cost $10 or less?" in body["messages"][1]["content"]
    assert play("single-turn", [WRONG])["outcome"] == "failed"


def test_try_again_sees_rewards_and_stops_at_one(play: Play) -> None:
    row = play("try-again", [WRONG, "```sql\nSELECT author FROM book\n```", BLOCK])
    assert (row["outcome"], row["reward"]) == ("solved", 1.0)
    assert actions(row) == ["SELECT count(*) FROM book", "SELECT author FROM book", GOLD]
    last = bodies(row)[-1]
    assert roles(last) == "system user assistant user assistant user"
    first_try, second_try = (last["messages"][at]["content"] for at in (3, 5))
    assert "Reward: 0\n" in first_try
    assert "(5 turns left)" in first_try
    assert "no such column: author" in second_try
    never = play("try-again", [WRONG] * 6)
    assert (never["outcome"], len(actions(never))) == ("out-of-budget", 6)


def test_react_thinks_acts_and_submits(play: Play) -> None:
    row = play(
        "react",
        [
            "Thought: Which columns are there?\nAction: execute[SELECT sql FROM sqlite_master]",
            f"Thought: I count.\nAction: execute[{GOLD}]\nObservation: [(7,)]\nThought: 7",
            "Thought: Two it is.\nAction: submit",
        ],
    )
    assert row["outcome"] == "solved"
    assert actions(row) == ["SELECT sql FROM sqlite_master", GOLD, "submit"]
    assert row["turn_history"]["thoughts"] == ["Which columns are there?", "I count.", "Two it is."]
    sent = bodies(row)[-1]["messages"]
    assert "CREATE TABLE book" in sent[3]["content"]
    assert "(7,)" not in str(sent)  # what the model made up is not what it is reminded of


def test_plan_solve_plans_then_works_then_refines(play: Play) -> None:
    plan = "1. Look at the tables.\n2. Count the books."
    row = play("plan-solve", [plan, "```sql\nSELECT 1\n```", WRONG, BLOCK, "submit"])
    assert row["outcome"] == "solved"
    assert actions(row) == ["SELECT 1", "SELECT count(*) FROM book", GOLD, "submit"]
    assert row["turn_history"]["thoughts"][0] == plan
    asked = [body["messages"][-1]["content"] for body in bodies(row)]
    assert "numbered list" in asked[0]
    assert "Step 1 of 2: Look at the tables." in asked[1]
    assert "Step 2 of 2: Count the books." in asked[2]
    assert "The plan is carried out." in asked[3]
    assert plan in str([m["content"] for m in bodies(row)[-1]["messages"]][2])
    for body in bodies(row):
        assert roles(body) == "system user" + " assistant user" * (len(body["messages"]) // 2 - 1)
    unrefined = play("plan-solve", [plan, WRONG, BLOCK], "refine=0")
    assert (unrefined["outcome"], actions(unrefined)[-1]) == ("solved", "submit")


def test_tools_are_called(play: Play) -> None:
    looks = ("execute", {"code": "SELECT sql FROM sqlite_master"})
    row = play("tools", [calls(looks, text="I look."), calls(("execute", {"code": GOLD})), DONE])
    assert row["outcome"] == "solved"
    assert actions(row) == ["SELECT sql FROM sqlite_master", GOLD, "submit"]
    assert row["turn_history"]["thoughts"][0] == "I look."
    first, _, last = bodies(row)
    assert [tool["function"]["name"] for tool in first["tools"]] == ["execute", "submit"]
    assert first["tools"][0]["function"]["parameters"]["required"] == ["code"]
    assert roles(last) == "system user assistant tool assistant tool"
    assert last["messages"][2]["tool_calls"][0]["id"] == last["messages"][3]["tool_call_id"]
    assert "CREATE TABLE book" in last["messages"][3]["content"]


DONE = calls(("submit", {}))


def test_several_tool_calls_are_all_done_in_order_up_to_submit(play: Play) -> None:
    many = calls(
        ("execute", {"code": "SELECT 1"}),
        ("execute", {"code": GOLD}),
        ("submit", {"answer": ""}),
        ("execute", {"code": "DROP TABLE book"}),
    )
    row = play("tools", [many])
    assert row["outcome"] == "solved"
    assert actions(row) == ["SELECT 1", GOLD, "submit"]
    two = calls(("execute", {"code": "SELECT 1"}), ("execute", {"code": "SELECT 2"}))
    row = play("tools", [two, DONE])
    last = bodies(row)[-1]
    assert roles(last) == "system user assistant tool tool"
    ids = [call["id"] for call in last["messages"][2]["tool_calls"]]
    assert ids == [message["tool_call_id"] for message in last["messages"][3:]]
    assert len(set(ids)) == 2


def test_a_tool_submits_an_answer(play: Play) -> None:
    row = play("tools", [calls(("submit", {"answer": GOLD}))])
    assert (row["outcome"], actions(row)) == ("solved", [f"submit {GOLD}"])


# -- answers that are none

EMPTY, PROSE = Reply(text=""), "I think that there are two."
GOOD: dict[str, list[str | Reply]] = {
    "single-turn": [BLOCK],
    "try-again": [BLOCK],
    "react": [f"Action: execute[{GOLD}]", "Action: submit"],
    "plan-solve": [BLOCK, "submit"],
    "tools": [calls(("execute", {"code": GOLD})), DONE],
}


@pytest.mark.parametrize("bad", [EMPTY, PROSE, Reply(text=None)], ids=["empty", "prose", "null"])
@pytest.mark.parametrize("agent", ["try-again", "react", "plan-solve", "tools"])
def test_an_answer_without_an_action_costs_a_turn_and_is_told(
    play: Play, agent: str, bad: str | Reply
) -> None:
    plan = ["1. Count."] if agent == "plan-solve" else []
    row = play(agent, [*plan, bad, *GOOD[agent]])
    assert row["outcome"] == "solved"
    assert row["turn_passed"][:2] == [True, False]
    assert actions(row)[0] == (bad if isinstance(bad, str) else "")
    told = row["turn_history"]["observations"][0]
    assert told.startswith("No action was taken, and a turn was used: ")
    assert row["turn_history"]["valid_action"][0] is False
    after = bodies(row)[len(plan) + 1]["messages"]
    assert told in after[-1]["content"]
    assert "(5 turns left)" in after[-1]["content"]
    assert after[-2]["content"]  # no empty message is sent back
    assert row["usage"]["requests"] == len(row["requests"])


def test_single_turn_has_no_second_answer(play: Play) -> None:
    for bad in (PROSE, EMPTY, "```sql\n```", Reply(text="```sql\nDROP", finish_reason="length")):
        row = play("single-turn", [bad])
        assert row["outcome"] == "failed"
        assert (row["turn_passed"], len(row["requests"])) == ([True], 1)


@pytest.mark.parametrize("agent", ["try-again", "react", "tools", "plan-solve"])
def test_a_model_that_never_acts_uses_up_its_turns(play: Play, agent: str) -> None:
    row = play(agent, lambda request: "")
    assert row["outcome"] == "out-of-budget"
    assert row["turn_passed"] == [True] * 6
    assert len(row["requests"]) == 6


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("execute", '{"code": "SELECT 1'), "are not JSON"),
        (("execute", '"SELECT 1"'), "not a JSON object"),
        (("execute", f'{{"code": {"[" * 1000}{"]" * 1000}}}'), "are nested too deeply"),
        (("execute", f'{{"code": {"[" * 200_000}'), "are nested too deeply"),
        (("execute", ""), "execute needs the argument code"),
        (("execute", {"command": "SELECT 1"}), "execute needs the argument code"),
        (("execute", {"code": ["SELECT 1"]}), "execute needs the argument code"),
        (("execute", {"code": " "}), "execute needs the argument code"),
        (("run", {"code": "SELECT 1"}), "there is no tool 'run'"),
        (("multi_tool_use.parallel", {"tool_uses": []}), "no tool 'multi_tool_use.parallel'"),
        (("", {}), "there is no tool ''"),
        (("submit", {"answer": {"a": 1}}), "not a text"),
    ],
)
def test_a_wrong_tool_call_costs_a_turn_and_is_told(
    play: Play, call: tuple[str, Any], told: str
) -> None:
    row = play("tools", [calls(call), *GOOD["tools"]])
    assert row["outcome"] == "solved"
    assert row["turn_passed"] == [True, False, False]
    assert told in row["turn_history"]["observations"][0]
    answer, result = bodies(row)[1]["messages"][-2:]
    assert told in result["content"]
    assert result["tool_call_id"] == answer["tool_calls"][0]["id"]
    sent = answer["tool_calls"][0]["function"]["arguments"]
    assert sent.startswith("{")  # servers that read them again find JSON
    assert sent.endswith("}")
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", answer["tool_calls"][0]["function"]["name"])


def test_the_model_is_told_of_blocks_that_were_not_run(play: Play) -> None:
    row = play("try-again", [f"{WRONG}\nor\n{BLOCK}", BLOCK])
    assert actions(row) == ["SELECT count(*) FROM book", GOLD]
    assert "only the first of 2 code blocks" in bodies(row)[1]["messages"][-1]["content"]


# -- servers that do not answer


@pytest.mark.parametrize("agent", list(GOOD))
def test_transient_errors_are_tried_again(play: Play, agent: str) -> None:
    plan = ["1. Count."] if agent == "plan-solve" else []
    row = play(
        agent,
        [
            Reply(status=429, headers={"Retry-After": "0.01"}, body={"error": {"message": "no"}}),
            Reply(status=503, headers={"Retry-After": "0.01"}),
            *plan,
            *GOOD[agent],
        ],
    )
    assert row["outcome"] == "solved"
    assert row["usage"]["requests"] == len(row["requests"]) - 2  # those that were answered


def test_dropped_connections_are_tried_again(play: Play) -> None:
    row = play("react", [Reply(drop="headers"), *GOOD["react"]])
    assert row["outcome"] == "solved"


@pytest.mark.parametrize("agent", list(GOOD))
def test_an_error_that_stays_is_an_agent_error_with_its_words(play: Play, agent: str) -> None:
    body = {"error": {"message": "The server\n is on fire", "code": 500}}
    failing = Reply(status=500, headers={"retry-after-ms": "1"}, body=body)
    row = play(agent, lambda request: failing, "retries=2")
    assert row["outcome"] == "agent-error"
    assert row["reason"].endswith("answered 500 (3 tries): The server is on fire")
    assert "http://127.0.0.1:" in row["reason"]
    assert (row["detail"], len(row["requests"])) == ("", 3)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(status=404, body={"detail": "no such model"}), "answered 404: no such model"),
        (Reply(status=200, body={"error": {"message": "late"}}), "gave no chat completion: late"),
    ],
)
def test_permanent_errors_are_not_tried_again(play: Play, reply: Reply, words: str) -> None:
    row = play("react", [reply])
    assert (row["outcome"], row["detail"]) == ("agent-error", "")
    assert words in row["reason"]
    assert len(row["requests"]) == 1


def test_a_refused_connection_names_the_address(pytester: pytest.Pytester) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        result = run(pytester, "react", url, "retries=1")
    result.assert_outcomes(failed=1)
    (row,) = results(Path("r.jsonl"))
    assert row["outcome"] == "agent-error"
    expected = f"the chat server {url} cannot be reached (2 tries): Connection refused"
    assert row["reason"] == expected
    result.stdout.fnmatch_lines([f"*{expected}*"])


@pytest.mark.parametrize("place", ["headers", "body"])
def test_a_silent_server_is_given_up_after_its_time(play: Play, place: Any) -> None:
    row = play("react", [Reply(stall=place)] * 2, "timeout=0.3", "retries=1")
    assert row["outcome"] == "agent-error"
    assert row["reason"].endswith("was silent for 0.3 s (2 tries)")
    assert play("react", [Reply(stall=place), *GOOD["react"]], "timeout=0.3")["outcome"] == "solved"


@pytest.mark.parametrize("agent", list(GOOD))
def test_an_episode_whose_time_is_up_leaves_a_stalled_request(play: Play, agent: str) -> None:
    plan = ["1. Count."] if agent == "plan-solve" else []
    began = time.monotonic()
    script = [*plan, *GOOD[agent][:-1], Reply(stall="body")]
    row = play(agent, script, "--intercode-timeout=1")
    assert time.monotonic() - began < 20  # and not the 300 s of the client
    assert row["left_behind"] == []
    solved = agent in ("react", "tools", "plan-solve")  # the state is graded as it is
    assert row["outcome"] == ("solved" if solved else "timed-out")


# -- what is sent, counted and shown


def test_sampling_is_sent_as_it_is_given(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = play("single-turn", [BLOCK])["requests"][0]
    assert set(plain.body) == {"model", "messages"}
    assert plain.body["model"] == "test-model"
    row = play(
        "single-turn",
        [BLOCK],
        *("temperature=0", "seed=7", "max_tokens=50", "api_key=secret"),
        'extra_body={"reasoning_effort": "low"}',
    )
    (request,) = row["requests"]
    sent = {key: request.body[key] for key in ("temperature", "seed", "max_tokens")}
    assert sent == {"temperature": 0, "seed": 7, "max_tokens": 50}
    assert request.body["reasoning_effort"] == "low"
    assert request.headers["authorization"] == "Bearer secret"
    assert "secret" not in Path("r.jsonl").read_text()


def test_the_usual_environment_variables_are_enough(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChatServer([BLOCK]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
        monkeypatch.setenv("OPENAI_MODEL", "model-of-environment")
        pytester.runpytest("suite.yaml", "--intercode-agent=single-turn").assert_outcomes(passed=1)
    (request,) = server.requests
    assert request.headers["authorization"] == "Bearer from-environment"
    assert request.body["model"] == "model-of-environment"


def test_tokens_and_cost_are_counted(play: Play) -> None:
    priced = ("input_price=2", "output_price=10", "cached_price=0.5")
    usage = {"prompt_tokens": 1400, "completion_tokens": 100}
    cached = {"prompt_tokens_details": {"cached_tokens": 400}}
    body = {"choices": [{"index": 0, "message": {"content": "?"}}], "usage": usage | cached}
    script = [Reply(body=body), *GOOD["react"]]
    row = play("react", script, *priced)
    expected = {"requests": 3, "input_tokens": 1600, "output_tokens": 120, "cost": 0.0038}
    expected["cached_tokens"] = 400
    assert row["usage"] == pytest.approx(expected)
    first = {"requests": 1, "input_tokens": 1400, "output_tokens": 100, "cost": 0.0032}
    first["cached_tokens"] = 400
    assert row["turn_usage"][0] == pytest.approx(first)  # also where it could not be read
    unpriced = play("react", script)
    assert unpriced["usage"] == {**expected, "cost": None}


def test_a_budget_of_tokens_or_money_ends_the_episode(play: Play) -> None:
    looks = "Action: execute[SELECT 1]"
    row = play("react", [looks] * 6, "--intercode-max-tokens=250")
    assert (row["outcome"], len(row["requests"])) == ("out-of-budget", 3)
    priced = ("input_price=1e4", "output_price=0", "--intercode-max-cost=1.5")
    row = play("react", [f"Action: execute[{GOLD}]", looks], *priced)
    assert (row["outcome"], actions(row)) == ("solved", [GOLD])  # graded as it is
    assert row["usage"]["cost"] == pytest.approx(2.0)


def test_money_cannot_be_limited_without_prices(pytester: pytest.Pytester) -> None:
    result = run(pytester, "react", "http://127.0.0.1:9/v1", "--intercode-max-cost=1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_server_that_reports_no_usage(play: Play) -> None:
    script = [Reply(text=text, usage=None) for text in ("Action: execute[SELECT 1]", "submit")]
    row = play("react", script)
    assert row["usage"] == {"requests": 2, "input_tokens": 0, "output_tokens": 0, "cost": None}
    assert row["turn_logs"][0] == "the chat server does not report how many tokens it used"
    row = play("react", script, "input_price=1", "output_price=1")
    assert row["outcome"] == "agent-error"
    assert "does not report how many tokens it used" in row["reason"]


def test_reasoning_of_the_server_is_a_thought(play: Play) -> None:
    message = {"role": "assistant", "content": BLOCK, "reasoning_content": "Let me see."}
    row = play("single-turn", [Reply(body={"choices": [{"index": 0, "message": message}]})])
    assert row["turn_history"]["thoughts"][0] == "Let me see."


def test_long_observations_and_histories_are_clipped(play: Play) -> None:
    long = "SELECT group_concat(title || price, '{}') || printf('%.500c', 'x') FROM book"
    script = [f"Action: execute[{long.format(number)}]" for number in range(4)]
    limits = ("observation_limit=100", "history=400")
    row = play("react", [*script, "submit"], *limits)
    last = bodies(row)[-1]["messages"]
    assert "characters are left out here" in last[-1]["content"]
    assert roles(bodies(row)[-1]).startswith("system user assistant user")
    assert "earlier turn" in last[1]["content"]
    assert len(last) < 8
    assert len(row["turn_history"]["observations"][0]) > 500  # the record is whole


def test_prompts_of_ones_own(play: Play, pytester: pytest.Pytester) -> None:
    folder = pytester.path / "mine"
    folder.mkdir()
    (folder / "single-turn.txt").write_text("Just $language in ```$fence. It costs $$5.")
    row = play("single-turn", [BLOCK], "prompts=mine")
    system, user = bodies(row)[0]["messages"]
    assert system["content"] == "Just SQL in ```sql. It costs $5."
    assert user["content"] == "Task: How many books cost $10 or less?"  # ours
    assert "prompts of" in row["turn_logs"][0]
    assert row["turn_logs"][0].endswith("mine: single-turn")


def test_a_wrong_argument_is_one_line(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=react", _ARGUMENT, "modell=x", _ARGUMENT, "seed=1")
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lines = [*result.outlines, *result.errlines]
    (line,) = [line for line in lines if "modell" in line]
    assert "the agent 'react' has no such argument" in line
    assert line.endswith("Did you mean 'model'?")


# -- the other environments


@pytest.mark.parametrize("env", ["bash", "python", "ctf"])
def test_react_in_a_sandbox(pytester: pytest.Pytester, env: str, needs_sandboxes: None) -> None:
    tasks = load_suite(bundled_folder("tasks") / f"{env}.yaml").tasks
    task = tasks[0]
    code = "\n".join(CtfFields.of(task).solution if env == "ctf" else task.gold)
    submits = f"submit {task.gold[0]}" if env == "ctf" else "submit"
    with ChatServer([f"Action: execute[{code}]", f"Action: {submits}"]) as server:
        result = pytester.runpytest(
            *(f"--intercode-env={env}", "-k", task.id, "--intercode-agent=react"),
            *(_ARGUMENT, f"base_url={server.url}", _ARGUMENT, "model=any"),
        )
    result.assert_outcomes(passed=1, deselected=len(tasks) - 1)
