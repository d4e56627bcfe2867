"""The react agent reads what real models wrote: InterCode's recorded ReAct runs.

A recording has thoughts and actions apart; each pair is put together again as the model wrote it,
answered by a local server, and has to come out of the agent as the recorded action. What InterCode
could not run (``did not contain sql code``) must not be run here either. No sandbox is needed: the
environment returns the recorded observations.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.chat import make_factory
from pytest_intercode.agents.chat.parsing import parse_react
from pytest_intercode.core.task import Database, Task, TaskFields, TaskView
from pytest_intercode.core.turn import Observation, StepResult
from pytest_intercode.environments.sql.fields import SqlFields
from tests.support.chat_server import ChatServer, Request
from tests.support.thinning import every

_LEAST = 0.99
# The parser reads all of them in CI; through client and server goes every eighth episode of SQL's.
_EVERY = every(24)
_END = "\n"
_ENVS = {"ic_bash": "bash", "ic_sql": "sql"}


@pytest.fixture(scope="module", autouse=True)
def docker_answers() -> None:
    """Nothing here needs Docker."""


@pytest.fixture(
    scope="module", params=["bash_fs1_gpt-3.5_react.json.gz", "sql_spider_gpt-3.5_react.json.gz"]
)
def rows(request: pytest.FixtureRequest, recordings: Path) -> list[dict[str, Any]]:
    path = recordings / request.param
    return list(json.loads(gzip.decompress(path.read_bytes())).values())


def test_there_are_no_other_recordings(recordings: Path) -> None:
    found = {path.name for path in recordings.glob("*_react.json.gz")}
    assert found == {"bash_fs1_gpt-3.5_react.json.gz", "sql_spider_gpt-3.5_react.json.gz"}


def steps(row: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield thought, action and observation of an episode."""
    history = row["turn_history"]
    yield from zip(history["thoughts"], history["actions"], history["observations"], strict=True)


def recorded(action: str, observation: str) -> tuple[str, str]:
    """Return what a recorded action came to: the way it was taken, and the code that was run."""
    if action.strip() == "submit":
        return "submit", ""
    if re.search(r"Your last `execute` action did not contain \w+ code", observation):
        return "none", ""
    code = re.fullmatch(r"execute\[(.*)\]\s*(?:Obs\w*[\s\d]*)?", action, re.DOTALL)
    assert code is not None, action
    return "execute", code[1].strip()


class Recorded:
    """An environment that knows one answer to each turn."""

    has_user = False

    def __init__(self, task: TaskView, observations: list[str]) -> None:
        self.task = task
        self.came: list[tuple[str, str]] = []
        self.thoughts: list[str] = []
        self._observations = observations

    def _turn(self, kind: str, text: str) -> StepResult:
        self.came.append((kind, text))
        over = len(self.came) == len(self._observations)
        left = len(self._observations) - len(self.came)
        observation = Observation(self._observations[len(self.came) - 1], turns_left=left)
        return observation, 0.0, over, False, {}

    def step(self, action: str) -> StepResult:
        return self._turn("execute", action)

    def submit(self, answer: str = "") -> StepResult:
        return self._turn("submit", answer)

    def pass_turn(self, action: str, observation: str) -> StepResult:
        return self._turn("none", "")

    def think(self, text: str) -> None:
        self.thoughts.append(text)

    def spend(self, **_: Any) -> None:
        pass


def test_recorded_actions_come_back(
    rows: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[str] = []

    def script(request: Request) -> str:
        return answers.pop(0)

    total = right = thoughts = 0
    wrong: list[str] = []
    if len(rows) > 500:
        rows = rows[::_EVERY]
    with ChatServer(script) as server:
        factory = make_factory("react", "", {"model": "any", "base_url": server.url}, tmp_path)
        try:
            for row in rows:
                server.requests.clear()
                played = list(steps(row))
                answers[:] = [
                    f"Thought {number}: {thought}\nAction {number}: {action}"
                    for number, (thought, action, _) in enumerate(played, 1)
                ]
                name = _ENVS[row["environment"]]
                fields = SqlFields(Database("mysql", "recorded")) if name == "sql" else TaskFields()
                task = Task(
                    *("1", row["query"], ("",), name, "recorded", "recorded"), fields=fields
                )
                env = Recorded(task.view(len(played)), [seen for *_, seen in played])
                factory.make(task).run(env.task, cast(AgentEnvironment, env))
                expected = [recorded(action, seen) for _, action, seen in played]
                total += len(played)
                pairs = zip(expected, env.came, strict=True)
                wrong += [
                    f"{theirs} came out as {ours}" for theirs, ours in pairs if theirs != ours
                ]
                thoughts += env.thoughts == [_bare(thought) for thought, _, _ in played]
        finally:
            factory.close()
    right = total - len(wrong)
    with capsys.disabled():
        print(
            f"\n{right} of {total} recorded actions ({right / total:.2%}) come back, "
            f"and all thoughts of {thoughts} of {len(rows)} episodes"
        )
    assert right / total >= _LEAST, "\n".join(wrong[:20])
    assert thoughts / len(rows) >= _LEAST


def _bare(thought: str) -> str:
    return re.sub(r"^Thought \d+: ", "", thought).strip()


def _wrapped(before: str, action: str, after: str, between: str = "") -> str:
    """Put marks of code around an action; text that is none would be code with them."""
    if action.startswith(("execute[", "submit")):
        return f"{before}{between}{action}{between}{after}"
    return action


# Other ways to write the same.
VARIANTS: dict[str, Callable[[int, str, str], str]] = {
    "as recorded": lambda n, t, a: f"Thought {n}: {t}\nAction {n}: {a}",
    "no numbers": lambda n, t, a: f"Thought: {t}\nAction: {a}",
    "no thought": lambda n, t, a: f"Action: {a}",
    "own lines": lambda n, t, a: f"Thought:\n{t}\n\nAction:\n{a}\n",
    "bold": lambda n, t, a: f"**Thought {n}:** {t}\n\n**Action {n}:** {a}",
    "headings": lambda n, t, a: f"### Thought {n}: {t}\n\n### Action {n}: {a}",
    "backticks": lambda n, t, a: f"Thought: {t}\nAction: {_wrapped('`', a, '`')}",
    "a fence around": lambda n, t, a: f"Thought: {t}\nAction:\n{_wrapped('```', a, '```', _END)}",
    "thinking tags": lambda n, t, a: (
        f"<think>Maybe execute[ls]?</think>\nThought: {t}\nAction: {a}"
    ),
    "prose behind": lambda n, t, a: f"Thought: {t}\nAction: {a}\n\nLet me see what comes [if any].",
    "goes on": lambda n, t, a: (
        f"Thought {n}: {t}\nAction {n}: {a}\nObservation {n}: [('x',)]\n"
        f"Thought {n + 1}: So it is x.\nAction {n + 1}: submit"
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_recorded_actions_come_back_from_other_formats(
    rows: list[dict[str, Any]], variant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    total = 0
    wrong: list[str] = []
    for row in rows:
        for number, (thought, action, seen) in enumerate(steps(row), 1):
            answer = VARIANTS[variant](number, thought, action)
            parsed = parse_react(answer, _ENVS[row["environment"]])
            expected = recorded(action, seen)
            total += 1
            if (parsed.kind, parsed.text) != expected:
                wrong.append(f"{answer!r}\n  is {(parsed.kind, parsed.text)}\n  not {expected}")
    with capsys.disabled():
        print(f"\n{variant}: {total - len(wrong)} of {total} ({1 - len(wrong) / total:.2%})")
    assert 1 - len(wrong) / total >= _LEAST, "\n".join(wrong[:20])
