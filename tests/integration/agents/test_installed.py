"""Installed agents: a program in the sandbox that reaches a model through the gateway alone."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.loader import load_agent
from pytest_intercode.agents.protocol import AgentFactory
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.usage import Budget
from pytest_intercode.gateway import GatewaySettings, Price
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.support.model_server import Command, ModelServer, Request, Step

pytest.importorskip("aiohttp")

SUPPORT = Path(__file__).parents[2] / "support"
KEY = "sk-real-0123456789abcdef"
RECIPE = """\
about: the program of these tests
folder: program
program: installed_program.py
command: [python3, "{program}", "{model}", "{prompt}"]
variables: {MINE: "{home}/mine"}
files:
  mine/settings: "model {model} at {gateway}\\n"
arguments: {model: null, mood: fine}
"""


class World:
    """A backend, a recipe, and a model that plays the script of the test."""

    def __init__(self, backend: str, folder: Path) -> None:
        self.script: list[Any] = []
        self.server = ModelServer(self._answer)
        self.server.__enter__()
        self.folder = folder
        (folder / "program").mkdir()
        shutil.copy(SUPPORT / "installed_program.py", folder / "program")
        (folder / "mine.yaml").write_text(RECIPE)
        self.settings = GatewaySettings(
            upstreams={"openai": f"{self.server.url}/v1"},
            keys={"openai": KEY},
            prices={"*": Price(1.0, 2.0)},
        )
        self.factory: AgentFactory = load_agent(
            "installed:mine.yaml", {"model": "m"}, folder, self.settings
        )
        self.provider = SandboxProvider(
            sandbox=backend, readonly=self.factory.readonly, scratch=self.factory.scratch
        )

    def _answer(self, request: Request) -> Any:
        return self.script[min(len(request.results), len(self.script) - 1)]

    def play(self, *script: Any, **fields: Any) -> EpisodeRecord:
        """Play one episode with a model that answers so."""
        self.script = list(script)
        spec = {name: fields.pop(name) for name in ("budget", "timeout") if name in fields}
        fields = {"env": "bash", "gold": ("echo hi >x",), "workdir": "/w", **fields}
        task = Task(id="t", query="Write hi to x.", suite="s", dataset="s", **fields)
        services = Services(self.provider, make_agent=lambda spec: self.factory.make(spec.task))
        rollout = Rollout(RolloutSpec(task, agent="installed:mine.yaml", **spec), services)
        try:
            environment = rollout.make_environment()
            rollout.prepare(environment)
            return rollout.run(rollout.make_agent(), environment)
        finally:
            rollout.close()

    def close(self) -> None:
        self.provider.close()
        self.factory.close()
        self.server.__exit__(None, None, None)


@pytest.fixture(scope="module", params=["docker", "bubblewrap"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    request.getfixturevalue("docker_engine" if request.param == "docker" else request.param)
    made = World(request.param, tmp_path_factory.mktemp("recipe"))
    yield made
    made.close()


def test_it_solves_a_task_with_its_own_tools(world: World) -> None:
    before = world.server.spent
    record = world.play(
        Command("cat $MINE/settings; pwd; id -un", thought="I look."),
        Command("echo hi >x"),
        "All done.",
    )
    spent = (world.server.spent.input - before.input, world.server.spent.output - before.output)
    assert (record.outcome, record.reason) == ("solved", "")
    first, second, last = record.turns
    assert (first.action, first.thought) == ("cat $MINE/settings; pwd; id -un", "I look.")
    assert first.observation.startswith("model m at http://127.0.0.1:")
    assert first.observation.endswith("/w\nroot\n")
    assert (second.action, second.observation) == ("echo hi >x", "")
    assert last.action == "submit All done."
    assert (record.usage.input_tokens, record.usage.output_tokens) == spent
    assert record.usage.requests == 3
    assert [turn.usage.requests for turn in record.turns] == [1, 1, 1]
    assert record.usage.cost is not None
    assert record.left_behind == ()
    prompt = world.server.requests[-1].body["messages"][0]["content"]
    assert prompt.startswith("Write hi to x.")
    assert "/opt/intercode/home/answer" in prompt


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
    assert record.seconds < 10


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


def test_where_there_is_no_shell(world: World) -> None:
    record = world.play("done", env="python", gold=("1",))
    assert record.outcome == "agent-error"
    assert "an installed agent needs a shell" in record.reason
