"""Installed agents: a program in the sandbox that reaches a model through the gateway alone."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.agent_environment import AgentEnvironment, exhaust
from pytest_intercode.agents.answers import Answers
from pytest_intercode.agents.installed import services
from pytest_intercode.agents.loader import load_agent
from pytest_intercode.core.conversation import Exchange
from pytest_intercode.core.task import Task, Verification
from pytest_intercode.core.usage import Budget
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.errors import AgentLoadError, TaskError
from tests.support.conversations import converse, task_with_servers
from tests.support.installed import KEY, SUPPORT, World, program_world
from tests.support.model_server import Command, Request, Step

pytest.importorskip("aiohttp")

RECIPE = """\
about: the program of these tests
folder: program
program: installed_program.py
command: [python3, "{program}", "{model}", "{prompt}"]
resume: [python3, "{program}", "{model}", "{reply}", continue]
mcp: {server: '"{name}": {command}', separator: ", "}
variables: {MINE: "{home}/mine"}
files:
  mine/settings: "model {model} at {gateway}\\n"
  mine/servers: "{{servers}}"
arguments: {model: null, mood: fine}
"""


@pytest.fixture(scope="module", params=["docker", "bubblewrap", "docker by TCP"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("recipe")
    (folder / "template" / "skills").mkdir(parents=True)
    (folder / "template" / "skills" / "one.md").write_text("a skill\n")
    arguments = {"model": "m", "template": "template"}
    with program_world(request, folder, "installed_program.py", RECIPE, arguments) as new_world:
        yield new_world


def test_it_solves_a_task_with_its_own_tools(world: World) -> None:
    before = world.server.spent
    record = world.play(
        Command("cat $MINE/settings ~/skills/one.md; pwd; id -un", thought="I look."),
        Command("echo hi >x"),
        "All done.",
    )
    spent = (world.server.spent.input - before.input, world.server.spent.output - before.output)
    assert (record.outcome, record.reason) == ("solved", "")
    first, second, last = record.turns
    assert (first.action, first.thought) == (
        "cat $MINE/settings ~/skills/one.md; pwd; id -un",
        "I look.",
    )
    assert first.observation.startswith("model m at http://127.0.0.1:")
    assert first.observation.endswith("a skill\n/w\nroot\n")
    assert (second.action, second.observation) == ("echo hi >x", "")
    assert last.action == "submit All done."
    assert (record.usage.input_tokens, record.usage.output_tokens) == spent
    assert record.usage.requests == 3
    assert record.usage.cached_tokens == 3 * record.turns[0].usage.cached_tokens == 120
    assert [turn.usage.requests for turn in record.turns] == [1, 1, 1]
    assert record.usage.cost is not None
    assert record.left_behind == ()
    prompt = world.server.requests[-1].body["messages"][0]["content"]
    assert prompt.startswith("Write hi to x.")
    assert "/opt/intercode/home/answer" in prompt


def test_what_it_does_is_seen_before_it_ends(world: World) -> None:
    steps = [Command("echo hi >x"), Command("cat x"), "All done."]
    statuses: list[tuple[int, str, bool]] = []

    def answer(request: Request) -> Any:
        status = world.rollout.status()
        statuses.append((status.turns, status.action, status.tokens > 0))
        return steps.pop(0)

    record = world.watch(answer)
    assert record.outcome == "solved"
    (_, start, _), *others = statuses
    assert "echo hi" not in start  # the command that starts it
    assert others == [(1, "echo hi >x", True), (2, "cat x", True)]
    assert len(record.turns) == 3


def test_the_answer_is_what_it_wrote_down(world: World) -> None:
    steps = (Command("echo hi >x; echo 42 >/opt/intercode/home/answer"), "I wrote 42 down.")
    record = world.play(*steps, gold=("echo hi >x; echo 42",))
    assert record.outcome == "solved", record.reason
    assert world.play(*steps, gold=("echo hi >x; echo 43",)).outcome == "failed"


def test_its_home_and_program_are_not_graded(world: World) -> None:
    record = world.play(
        Command("dd if=/dev/zero of=$HOME/big bs=1M count=20 2>&1; echo x >$TMPDIR/y; echo hi >x"),
        Command("touch /opt/intercode/agent/x; rm -f /opt/intercode/gateway/forward.pl; ls / /opt"),
        "done",
        gold=("echo hi >x",),
    )
    assert record.outcome == "solved", record.reason
    assert record.turns[1].observation.count("Read-only file system") == 2


@pytest.mark.parametrize(
    ("limits", "turns"),
    [
        ({"budget": Budget(tokens=150)}, 2),
        ({"budget": Budget(cost=0.00012)}, 2),
        ({"max_turns": 2}, 2),
    ],
    ids=["tokens", "money", "turns"],
)
def test_a_budget_ends_it(world: World, limits: dict[str, Any], turns: int) -> None:
    before = len(world.server.requests)
    record = world.play(*(Command(f"echo {n}; sleep 0.1") for n in range(50)), "done", **limits)
    assert record.outcome == "out-of-budget", record.reason
    assert len(record.turns) == turns
    assert len(world.server.requests) - before == turns
    assert [turn.observation for turn in record.turns] == [f"{n}\n" for n in range(turns)]
    assert record.seconds < 10


def test_its_turns_end_it_though_that_is_noted_late(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests are refused at once; that the episode is over may wait for a lock."""

    def exhaust_late(env: AgentEnvironment, reason: str) -> None:
        time.sleep(2.0)
        exhaust(env, reason)

    monkeypatch.setattr(services, "exhaust", exhaust_late)
    record = world.play(*(Command(f"echo {n}") for n in range(50)), "done", max_turns=2)
    assert record.outcome == "out-of-budget", record.reason
    assert record.reason.startswith("2 of 2 turns used; ")


def test_a_program_that_does_not_listen_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_intercode.rollouts.agent_thread._COMMAND_STOP_TIMEOUT", 0.3)
    began = time.monotonic()
    for limits in ({"budget": Budget(tokens=150)}, {"max_turns": 2}):
        steps = (Command("echo hi >x"), Command("echo 2"), Command("echo 3"))
        record = world.play(*steps, query="DEAF", gold=("echo lo >x",), **limits)
        assert record.outcome == "out-of-budget", record.reason
        assert len(record.turns) == 2
        assert record.left_behind == ()
    assert record.reason.startswith("2 of 2 turns used; 1 of 1 changes")
    assert time.monotonic() - began < 30


def test_a_program_that_fails_is_the_agents_error(world: World) -> None:
    record = world.play(Step(status=400, text="no such model"))
    assert record.outcome == "agent-error"
    assert record.reason.startswith("mine exited with status 1")
    assert "refused: 400" in record.reason
    assert record.attempts == ()


def test_it_reaches_nothing_but_the_gateway(world: World) -> None:
    upstream = world.server.url.rpartition(":")[2]
    script = base64.b64encode((SUPPORT / "escape_attempts.py").read_bytes()).decode()
    tried = Command(f"echo {script} | base64 -d | python3 - {upstream}; env; echo hi >x")
    record = world.play(tried, "done")
    assert record.outcome == "solved", record.reason
    seen = json.loads(record.turns[0].observation.splitlines()[0])
    assert len(seen) == 20
    refused = [answer for answer in seen.values() if answer.startswith("HTTP/1.")]
    assert len(refused) == 13
    assert {answer.split()[1][0] for answer in refused} == {"4"}, seen
    assert seen["a-name"] == "no name"
    assert seen["the-docker-socket"] == "False"
    assert "connected" not in seen.values()
    assert KEY not in record.turns[0].observation
    assert KEY not in repr(record)
    assert "CONNECT 1.1.1.1:443" in record.turns[-1].log


def test_an_episode_that_takes_too_long(world: World) -> None:
    record = world.play(Command("sleep 60"), "done", timeout=3)
    assert record.outcome == "timed-out"
    assert record.seconds < 8
    assert record.left_behind == ()


def test_it_goes_on_with_what_the_tests_print(world: World) -> None:
    verification = Verification('cat x; [ "$(cat x)" = hi ]', parser="status")
    fields = {"env": "swe", "verification": verification, "fields": SweFields(submissions=2)}
    script = converse((Command("echo no >x"), "Done.", Command("echo hi >x"), "Done."), ["fail"])
    record = world.watch(script, **fields)
    assert (record.outcome, record.reason, record.submissions) == ("solved", "", 2)
    first, submission, second = record.turns[:3]
    assert (first.action, submission.action, second.action) == (
        "echo no >x",
        "submit",
        "echo hi >x",
    )
    assert submission.observation.endswith("printed:\n\nno\n")


def test_it_goes_on_with_what_the_user_says(world: World) -> None:
    before, requests = world.server.spent, len(world.server.requests)
    answers = Answers(["Write hi.", "To the file x."])
    steps = ("What shall I write?", "Where to?", Command("echo hi >x"), "All done.")
    task = Task("t", "Write.", ("echo hi >x",), "bash", "s", "s", workdir="/w")
    record = world.talk(task, converse(steps, ["Write hi.", "To the file x."]), answers)
    assert (record.outcome, record.reason) == ("solved", "")
    assert answers.questions == [
        ("What shall I write?", "Write hi."),
        ("Where to?", "To the file x."),
        ("All done.", None),
    ]
    work, submission = record.turns
    assert (work.action, submission.action) == ("echo hi >x", "submit All done.")
    assert record.usage.requests == len(world.server.requests) - requests == 4
    assert record.usage.input_tokens == world.server.spent.input - before.input
    assert record.dialogue == (
        Exchange(0, "What shall I write?", "Write hi."),
        Exchange(0, "Where to?", "To the file x."),
        Exchange(1, "All done."),
    )
    assert "Nobody answers questions" not in world.server.requests[requests].text


def test_a_reply_that_makes_it_fail_is_its_error(world: World) -> None:
    def script(request: Request) -> str | Step:
        return Step(status=400, text="I am lost") if "Yes." in request.text else "May I?"

    task = Task("t", "Write.", ("echo hi >x",), "bash", "s", "s", workdir="/w")
    record = world.talk(task, script, Answers(["Yes."]))
    assert record.outcome == "agent-error"
    assert "I am lost" in record.reason


def test_its_settings_have_the_servers_of_the_task(world: World) -> None:
    servers = {"tickets": "python3 server.py", "more": "python3 'server.py'"}
    steps = (Command("cat ~/mine/servers"), Command("echo 41 >x"), "done")
    record = world.talk(task_with_servers(servers), converse(steps, ()), Answers())
    assert (record.outcome, record.reason) == ("solved", "")
    assert json.loads(record.turns[0].observation) == servers


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("echo no such file >&2; exit 3", "ended with status 3 before it answered `initialize`; "),
        ("echo hello", "printed 'hello', which is not an answer to `initialize`"),
        ("exec sleep 60", "did not answer `initialize` in 1 s"),
    ],
)
def test_a_server_that_does_not_start_is_the_tasks_fault(
    world: World, monkeypatch: pytest.MonkeyPatch, command: str, problem: str
) -> None:
    monkeypatch.setattr("pytest_intercode.environments.mcp_servers._START_TIMEOUT", 1)
    requests = len(world.server.requests)
    with pytest.raises(TaskError) as raised:
        world.talk(task_with_servers({"bad": command}), converse(["done"], ()), Answers())
    assert str(raised.value).startswith(f"mcp: the server 'bad' ({command}) {problem}")
    assert "\n" not in str(raised.value)
    assert len(world.server.requests) == requests


def test_where_there_is_no_shell(world: World) -> None:
    record = world.play("done", env="python", gold=("1",))
    assert record.outcome == "agent-error"
    assert "an installed agent needs a shell" in record.reason


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("installed:codx", {}, r"there is no recipe 'codx'\. .* Did you mean 'codex'?"),
        ("claud", {}, "Did you mean 'claude'?"),
        ("codex:x", {}, "expected codex"),
        (
            "installed:mine.yaml",
            {},
            "no model is given: give --intercode-agent=installed:mine.yaml:model=... or *",
        ),
        ("installed:mine.yaml", {"modl": "m"}, "Did you mean 'model'?"),
        (
            "installed:mine.yaml",
            {"model": "m", "template": "x"},
            "template=...: there is no",
        ),
        ("installed:typo.yaml", {}, "typo.yaml: there is no placeholder {promt}; .*'prompt'?"),
        (
            "installed:two.yaml",
            {},
            "exactly one of npm, python and folder is needed, as the source of the program",
        ),
        ("installed:keys.yaml", {}, "keys.yaml: comand: Extra inputs are not permitted"),
        ("installed:out.yaml", {}, r"files: '../x' is not below the agent's home"),
        ("installed:gone.yaml", {}, "the recipe's folder .*/nowhere does not exist"),
        ("installed:empty.yaml", {}, "the bundle .* has no program nothing"),
        ("installed:npm.yaml", {}, "npm install failed: .*"),
        ("installed:resume.yaml", {}, "resume: no word contains {reply}"),
        ("installed:reply.yaml", {}, "there is no placeholder {reply}"),
        ("installed:servers.yaml", {}, "mcp: no file contains {servers}"),
        ("installed:word.yaml", {}, "there is no placeholder {mcp}"),
        ("installed:skills.yaml", {}, r"skills: '/x' is not below the agent's home"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, name: str, arguments: dict[str, str], said: str
) -> None:
    start = "program: nothing\ncommand: [x]\n"
    recipes = {
        "mine": RECIPE.replace("folder: program", "folder: ."),
        "typo": 'folder: .\nprogram: x\ncommand: ["{program}", "{promt}"]\n',
        "two": f"folder: .\nnpm: [a]\n{start}",
        "keys": f"folder: .\ncomand: []\n{start}",
        "out": f'folder: .\nfiles: {{"../x": ""}}\n{start}',
        "gone": f"folder: nowhere\n{start}",
        "empty": f"folder: .\n{start}",
        "resume": f"folder: .\nresume: [x, -c]\n{start}",
        "reply": 'folder: .\nprogram: x\ncommand: ["{reply}"]\n',
        "servers": f"folder: .\nmcp: {{server: x}}\n{start}",
        "skills": f"folder: .\nskills: /x\n{start}",
        "word": 'folder: .\nprogram: x\ncommand: ["{mcp}"]\n',
        "npm": f'npm: ["file:///nowhere/at/all"]\n{start}',
    }
    for recipe, written in recipes.items():
        (tmp_path / f"{recipe}.yaml").write_text(written)
    with pytest.raises(AgentLoadError, match=said) as caught:
        load_agent(name, arguments, tmp_path)
    assert "\n" not in str(caught.value)
