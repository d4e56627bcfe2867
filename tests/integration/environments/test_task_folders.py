"""Our own task folders of Harbor and Terminal-Bench 1 are played: gold solves, nothing fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.environments.swe.gold import gold_actions
from pytest_intercode.environments.swe.kit import kit_with
from pytest_intercode.environments.swe.strict import SweEnvironment
from pytest_intercode.errors import EngineUnavailable, MissingProgram
from pytest_intercode.sandboxes.docker.engine import connect
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.catalogue import named_tasks, with_shared_verifier

_ROOT = Path(__file__).parents[3] / "examples"
_NAMES = sorted(str(path.relative_to(_ROOT)) for path in _ROOT.glob("*/*/task.*"))
_FOLDERS = [name.rpartition("/")[0] for name in _NAMES]
# The others are played by `scripts/test --all`; some need what `pytest-intercode kit` makes.
_QUICK = ("harbor/users", "harbor/separate", "harbor/steps", "terminal-bench/settings")


@pytest.fixture(scope="module")
def provider() -> Iterator[SandboxProvider]:
    try:
        connect().close()
    except EngineUnavailable as error:
        pytest.skip(str(error))
    made = SandboxProvider(
        sandbox="docker", pool_size=4, base_images={"ubuntu:24.04": "debian:bookworm-slim"}
    )
    yield made
    made.close()


def task_of(name: str) -> Task:
    (task,) = named_tasks(name, None, "", folder=_ROOT, env=None)
    if task.verification is not None and task.verification.place == "shell":
        task = with_shared_verifier(task)
    if task.skip:
        pytest.skip(task.skip)
    verification = task.verification
    if verification is not None and verification.kit is not None:
        try:
            kit_with(verification.kit, name)
        except MissingProgram as error:
            pytest.skip(str(error))
    return task


def played(provider: SandboxProvider, task: Task, actions: list[str]) -> SweEnvironment:
    environment = SweEnvironment(provider)
    try:
        environment.reset(task=task)
        for action in actions:
            environment.step(action)
        while not environment.over:  # once for each step that is left
            environment.step("submit")
    finally:
        environment.close()
    return environment


@pytest.mark.parametrize(
    "name",
    [n if n in _QUICK else pytest.param(n, marks=pytest.mark.slow) for n in _FOLDERS],
)
def test_gold_solves_and_nothing_fails(name: str, provider: SandboxProvider) -> None:
    task = task_of(name)
    solved = played(provider, task, gold_actions(task)).final
    assert solved is not None
    assert (solved.value, solved.reason) == (1.0, "")
    failed = played(provider, task, []).final
    assert failed is not None
    assert failed.value < 1.0
    assert failed.reason


def test_there_are_ten_of_each() -> None:
    assert sum(name.startswith("harbor/") for name in _FOLDERS) == 10
    assert sum(name.startswith("terminal-bench/") for name in _FOLDERS) == 10


def test_a_reward_that_the_agent_wrote_counts_for_nothing(provider: SandboxProvider) -> None:
    forged = [
        "mkdir -p /logs/verifier; echo 1 >/logs/verifier/reward.txt",
        """echo '{"reward": 1}' >/logs/verifier/reward.json""",
        "mkdir -p /tests; printf '#!/bin/bash\\necho 1 >/logs/verifier/reward.txt' >/tests/test.sh",
        "chmod 755 /tests/test.sh; while sleep 0.1; do echo 1 >/logs/verifier/reward.txt; done &",
    ]
    final = played(provider, task_of("harbor/two-scores"), forged).final
    assert final is not None
    assert final.value == 0.0


@pytest.mark.parametrize(
    "attack",
    [
        "printf '#!/bin/sh\\necho 4' >/tmp/cat; chmod 755 /tmp/cat; cp /tmp/cat /usr/bin/cat",
        "printf '#!/bin/sh\\necho 4' >/usr/local/bin/cat; chmod 755 /usr/local/bin/cat",
        "ln -sf /bin/true /usr/bin/bash",
        "rm -f /usr/bin/cat; mkdir /usr/bin/cat",
        "echo /tmp/evil.so >/etc/ld.so.preload",
    ],
)
def test_what_runs_the_tests_comes_from_the_image(attack: str, provider: SandboxProvider) -> None:
    task = task_of("harbor/two-scores")
    final = played(provider, task, [attack]).final
    assert final is not None
    assert final.value == 0.0
    assert "not tested: /" in final.reason
    solved = played(provider, task, [*gold_actions(task), attack]).final
    assert solved is not None
    assert solved.value == 1.0


def test_a_step_that_falls_short_ends_the_task(provider: SandboxProvider) -> None:
    environment = played(provider, task_of("harbor/steps"), [])
    assert environment.over == "submitted"
    assert len(environment.turns) == 1
    assert environment.final is not None
    assert environment.final.reason == "the step's reward is 0, and 1 is needed to go on"


def test_a_step_is_answered_by_the_next_query(provider: SandboxProvider) -> None:
    task = task_of("harbor/steps")
    environment = SweEnvironment(provider)
    try:
        first, _ = environment.reset(task=task)
        assert first == task.steps[0].query
        environment.step("echo first >list.txt")
        observation, reward, over, cut, _ = environment.step("submit")
        assert (observation, reward, over, cut) == (task.steps[1].query, 0.0, False, False)
        assert environment.step("cat next.txt")[0] == "second\n"
        environment.end("budget")
        assert environment.final is not None
        assert environment.final.value == 0.5  # the first step's and none of the second's
    finally:
        environment.close()
