"""tau2-bench: gold reaches 1.0, and what grades is as its own evaluator.

The data are in ``tau2`` below INTERCODE_DATA, as ``pytest-intercode fetch tau2`` leaves them.
INTERCODE_TAU2 names the Python that has tau2-bench 1.0.1 installed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.rewards.tau2 import tau2_reward
from pytest_intercode.sandboxes.inside import text_of
from pytest_intercode.suites.catalogue import DataFolder, dataset_tasks
from tests.support.tau2_conversations import conversations, tasks_of
from tests.support.thinning import ALL

REFERENCE = Path(__file__).parents[1] / "support" / "tau2_reference.py"
DOMAINS = ("retail", "telecom", "airline")
_COUNT = 40 if ALL else 2  # tasks of a domain, with eight conversations on each


@pytest.fixture(scope="module")
def tau2_data(data: Path) -> Path:
    if not (data / "tau2").is_dir():
        pytest.skip(f"{data} has no tau2; pytest-intercode fetch tau2 --to {data} gets it")
    return data


@pytest.fixture
def evaluator() -> str:
    python = os.environ.get("INTERCODE_TAU2")
    if not python:
        pytest.skip("INTERCODE_TAU2 does not name the Python that has tau2-bench installed")
    return python


@pytest.fixture(scope="module")
def served(
    tau2_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, Any]]:
    """Return our program's names, with a domain's world: as in a sandbox, and here for speed.

    Once in a process, as modules of a domain keep the classes that they were imported with.
    """
    folder = tmp_path_factory.mktemp("served")
    (folder / "data").mkdir()
    (folder / "data" / "tau2").symlink_to(tau2_data / "tau2")
    (folder / "src").symlink_to(tau2_data / "tau2" / "src")
    names: dict[str, Any] = {"__name__": "served"}
    exec(text_of("pytest_intercode.environments.tau2.inside", "models", "world"), names)

    def serve(domain: str) -> dict[str, Any]:
        return {**names, "world": names["open_world"](domain, str(folder))}

    return serve


def in_child(work: Callable[[], Any]) -> Any:
    """Return what a function returns in a copy of this process."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.wait()
    return json.loads(answer)


@pytest.mark.timeout(3600 if ALL else 300)  # each conversation starts from databases of megabytes
@pytest.mark.parametrize("domain", DOMAINS)
def test_it_grades_as_its_own_evaluator_does(
    domain: str, tau2_data: Path, evaluator: str, served: Callable[[str], dict[str, Any]]
) -> None:
    """What each call returns, and the reward, of conversations right and wrong."""
    items = list(conversations(domain, tasks_of(tau2_data, domain, _COUNT)))
    result = subprocess.run(
        [evaluator, str(REFERENCE)],
        input="\n".join(map(json.dumps, items)),
        capture_output=True,
        text=True,
        check=True,
    )
    names = served(domain)
    rewards = set()
    for item, line in zip(items, result.stdout.splitlines(), strict=True):
        reference = json.loads(line)
        reward, texts = grade(names, item)
        assert reward == reference["reward"], item
        for (text, failed), (reference_text, reference_failed) in zip(
            texts, reference["results"], strict=True
        ):
            # What is refused by a type is refused in other words.
            assert failed == reference_failed
            assert text == reference_text or failed
        rewards.add(reward)
    assert rewards == {0.0, 1.0}


def grade(names: dict[str, Any], item: dict[str, Any]) -> tuple[float, list[Any]]:
    """Return the reward of a conversation, and what its calls return."""
    world, task = names["world"], item["task"]
    criteria, initial = task["evaluation_criteria"], task.get("initial_state") or {}
    calls = [line for line in item["lines"] if "name" in line]
    spoken = [line for line in item["lines"] if "name" not in line]
    request = {
        "calls": calls,
        "gold": criteria["actions"] or [],
        "assertions": criteria.get("env_assertions") or [],
    }

    def play() -> list[Any]:
        world.begin(initial)
        return [world.call(c["requestor"], c["name"], c["arguments"]) for c in calls]

    def check() -> dict[str, Any]:
        world.begin(initial)
        checks: dict[str, Any] = names["grade"](world, request)
        return checks

    premature = "" if item["ending"].endswith("_stop") else item["ending"]
    agent = {"calls": calls, "conversation": spoken, "premature": premature}
    state = {"criteria": criteria, "agent": agent, "checks": in_child(check)}
    reward = tau2_reward(state).value
    if "NL_ASSERTION" in criteria["reward_basis"] and criteria.get("nl_assertions"):
        reward *= item["verdict"]
    return reward, in_child(play)


_DESCRIBE = """
import json, sys
from tau2.registry import registry
from tau2.user.user_simulator import UserSimulator
world = registry.get_env_constructor(sys.argv[1])()
kits = [world.get_tools(), world.get_user_tools() if world.user_tools else []]
tasks = registry.get_tasks_loader(sys.argv[1])()
users = {
    task.id: UserSimulator("m", str(task.user_scenario), kits[1] or None).system_prompt
    for task in tasks[:20]
}
tools = [[tool.openai_schema for tool in kit] for kit in kits]
print(json.dumps({"tools": tools, "policy": world.get_policy(), "users": users}))
"""


@pytest.mark.parametrize("domain", DOMAINS)
def test_tools_policies_and_customers_are_described_as_there(
    domain: str, tau2_data: Path, evaluator: str, served: Callable[[str], dict[str, Any]]
) -> None:
    command = [evaluator, "-c", _DESCRIBE, domain]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    reference = json.loads(result.stdout.splitlines()[-1])
    names = served(domain)
    world = names["world"]
    assert [names["describe_tools"](kit) for kit in (world.tools, world.user_tools)] == reference[
        "tools"
    ]
    tasks = dataset_tasks(f"tau2-{domain}", DataFolder(tau2_data, "data"), "test")
    assert reference["policy"].strip() in tasks[0].query
    prompts = {task.conversation.instructions for task in tasks if task.conversation}
    assert {prompt.strip() for prompt in reference["users"].values()} <= {
        prompt.strip() for prompt in prompts
    }
