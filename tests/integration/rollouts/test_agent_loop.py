"""The event loop that the async agents of a run share, with a real client and real connections."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import results
from tests.support.chat_server import ChatServer, Request, warm_up

TASKS = 6

# A client that the module makes once, as the SDKs of agents do. It keeps connections alive.
CLIENT = """
import os
import openai

client = openai.AsyncOpenAI(base_url=os.environ["CHAT"], api_key="none", max_retries=0)


async def ask(text):
    answer = await client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": str(text)}]
    )
    return answer.choices[0].message.content


class Step:
    async def act(self, observation):
        return await ask(observation)


async def loop(task, env):
    observation = task.query
    while True:
        observation = env.step(await ask(observation))[0]
"""


def answer(request: Request) -> str:
    """Solve the tasks of :func:`many`: the query is what gold echoes."""
    return f"echo {request.last}" if request.last else "submit"


@pytest.fixture
def many(pytester: pytest.Pytester, pretend: Path) -> Path:
    """A suite of several tasks, in an environment that needs no sandbox."""
    tasks = [{"id": f"t{n}", "query": f"word{n}", "gold": f"echo word{n}"} for n in range(TASKS)]
    pretend.write_text(json.dumps({"env": "bash", "tasks": tasks}))
    return pretend


def run(pytester: pytest.Pytester, agent: str, *options: str) -> Any:
    return pytester.runpytest(
        "suite.yaml",
        f"--intercode-agent={agent}",
        "--intercode-results=r.jsonl",
        "-W",
        "error",
        *options,
    )


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("agent", ["Step", "loop"])
def test_a_client_of_the_module_serves_all_episodes(
    agent: str,
    concurrency: int,
    pytester: pytest.Pytester,
    many: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warm_up()
    # The first request of a client may take a second, where others are at work on this machine.
    monkeypatch.setattr("pytest_intercode.rollouts.agent_loop._SLOW_STEP", 60.0)
    (pytester.path / "shared.py").write_text(CLIENT)
    with ChatServer(answer) as server:
        monkeypatch.setenv("CHAT", server.url)
        result = run(pytester, f"shared.py:{agent}", f"--intercode-concurrency={concurrency}")
        connections = len(server._server._connections)
    result.assert_outcomes(passed=TASKS)
    assert [row["outcome"] for row in results(pytester.path / "r.jsonl")] == ["solved"] * TASKS
    assert connections <= concurrency  # they were kept alive from one episode to the next
    assert not [t for t in threading.enumerate() if t.name.startswith("intercode-loop")]
    assert "pending" not in result.stdout.str() + result.stderr.str()
