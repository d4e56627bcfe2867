"""Alternatives of gold: each in a sandbox of its own, and the best match as a whole counts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from pytest_intercode.auditing.auditor import Auditor
from pytest_intercode.core.task import Task
from pytest_intercode.environments.bash.fields import BashFields
from pytest_intercode.environments.bash.strict import BashEnvironment
from pytest_intercode.errors import TaskError
from pytest_intercode.rewards.bash_strict import bash_strict_reward_again
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.integration.environments.test_bash_grading import rollout
from tests.support import puzzles
from tests.support.rollouts import play

provider = puzzles.provider  # fixture: of each backend

GOLD = ("echo one; echo 1 >x",)
OTHERS = (("cd .", "echo two; echo 2 >x"), ("echo three; echo 3 >y",))


@pytest.mark.parametrize(
    ("action", "reward", "gold_alone"),
    [
        (GOLD[0], 1.0, 1.0),
        ("echo two; echo 2 >x", 1.0, 0.0),
        ("echo three; echo 3 >y", 1.0, 0.0),
        ("echo one; echo 2 >x", 0.5, 0.5),  # the output of one, and the state of another
        ("echo three; echo 1 >x; echo 3 >y", 0.75, 0.25),
    ],
)
def test_the_best_as_a_whole_counts(
    provider: SandboxProvider, action: str, reward: float, gold_alone: float
) -> None:
    record = play(rollout(provider, action, "submit", gold=GOLD, fields=BashFields(OTHERS)))
    assert record.reward == pytest.approx(reward)
    assert record.parts["gold_alone"] == pytest.approx(gold_alone)
    again = bash_strict_reward_again(json.loads(json.dumps(record.state)))
    assert (again.value, again.parts) == (record.reward, record.parts)


def test_the_best_is_what_is_recorded(provider: SandboxProvider) -> None:
    action = "echo three; echo 3 >y"
    record = play(rollout(provider, action, "submit", gold=GOLD, fields=BashFields(OTHERS)))
    assert record.state["gold"]["output"] == "three\n"
    assert [None if each is None else each["gold"]["output"] for each in record.state["golds"]] == [
        *("one\n", "two\n"),
        None,
    ]
    record = play(rollout(provider, GOLD[0], "submit", gold=GOLD, fields=BashFields(OTHERS)))
    assert record.state["golds"] == [None]  # no other was looked at


def test_without_alternatives_nothing_is_different(provider: SandboxProvider) -> None:
    record = play(rollout(provider, GOLD[0], "submit", gold=GOLD, fields=BashFields((GOLD,))))
    assert record.reward == 1.0
    assert "gold_alone" not in record.parts
    assert "golds" not in record.state


def test_an_alternative_that_never_ends_is_the_tasks_fault(provider: SandboxProvider) -> None:
    fields = {"gold": GOLD, "fields": BashFields((("sleep 60",),)), "action_timeout": 0.5}
    with pytest.raises(TaskError, match=r"gold did not end within 0\.5 s: sleep 60"):
        play(rollout(provider, "true", "submit", **fields))


def test_paper_knows_gold_alone(provider: SandboxProvider) -> None:
    action = "echo three; echo 3 >y"
    fields = {"gold": GOLD, "fields": BashFields(OTHERS), "profile": "paper", "workdir": "/"}
    record = play(rollout(provider, action, "submit", **fields))
    assert record.reward < 1.0
    task = Task("t", "q", GOLD, "bash", "s", "d", fields=BashFields(OTHERS))
    assert len(BashEnvironment.sandboxes(task, provider)) == 4


def test_their_sandboxes_end(provider: SandboxProvider) -> None:
    """At once, though an alternative is at work."""
    played = rollout(provider, GOLD[0], "submit", gold=GOLD, fields=BashFields((("sleep 60",),)))
    began = time.monotonic()
    assert play(played).reward == 1.0  # gold is enough
    assert time.monotonic() - began < 30


@pytest.fixture
def audited() -> Iterator[Auditor]:
    provider = SandboxProvider(SandboxSettings("bubblewrap"))
    fields = {"workdir": "/w"}
    tasks = [
        Task("good", "q", GOLD, "bash", "s", "d", fields=BashFields(OTHERS), **fields),  # type: ignore[arg-type]
        Task("fails", "q", GOLD, "bash", "s", "d", fields=BashFields((("cat none",),)), **fields),  # type: ignore[arg-type]
        Task(
            "ends",
            "q",
            GOLD,
            "bash",
            "s",
            "d",
            fields=BashFields((("sleep 9",),)),
            action_timeout=0.3,
        ),
        Task("varies", "q", GOLD, "bash", "s", "d", fields=BashFields((("echo $RANDOM$RANDOM",),))),
    ]
    yield Auditor(tasks, provider, ["gold-runs", "gold-scores-1"])
    provider.close()


@pytest.mark.usefixtures("bubblewrap")
def test_the_audit_plays_them(audited: Auditor) -> None:
    found = {
        task.id: [(each.check, each.said) for each in audited.audit(task).findings]
        for task in audited.tasks
    }
    assert found["good"] == []
    assert found["fails"] == [("gold-runs", "alternative 1 of gold fails with status 1")]
    assert found["ends"] == [("gold-runs", "alternative 1 of gold does not run")]
    ((check, said),) = found["varies"]
    assert check == "gold-scores-1"
    assert said.startswith("alternative 1 of gold gets 0.00: ")


def test_variables_of_the_task(provider: SandboxProvider) -> None:
    fields = {"gold": ("echo $FILES",), "variables": (("FILES", "/a /b"),)}
    for profile in ("strict", "paper"):
        record = play(rollout(provider, "echo '/a /b'", "submit", profile=profile, **fields))
        assert record.reward == 1.0
