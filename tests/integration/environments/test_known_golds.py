"""Tries at one task: gold is played for the first, and where an agent left something else."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.oracle import make_oracle
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import FileSpec, ImageSource, RewardOptions, Task
from pytest_intercode.environments.bash import strict
from pytest_intercode.environments.bash.fields import BashFields
from pytest_intercode.environments.gold import GOLDS, Gold, GoldCache, GoldRun, gold_cache
from pytest_intercode.errors import GoldError
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.files import bundled_folder
from tests.support import puzzles
from tests.support.rollouts import play
from tests.unit.rollouts.test_turn_loop import acts

provider = puzzles.provider  # fixture: of each backend
quick_provider = puzzles.quick_provider
IMAGE = ImageSource(dockerfile=bundled_folder("dockerfiles") / "bash.Dockerfile")
KEY, LEFT = "0" * 32, "a" * 32
GOLD = "echo x >x; echo done"


@pytest.fixture
def golds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a word for each gold that was played."""
    played: list[str] = []

    class Counted(GoldRun):
        def __init__(self, provider: Any, spec: Any, play: Callable[[Sandbox], Gold]) -> None:
            def noted(sandbox: Sandbox) -> Gold:
                gold = play(sandbox)
                played.append("gold")
                return gold

            super().__init__(provider, spec, noted)

    monkeypatch.setattr(strict, "GoldRun", Counted)
    return played


def tried(provider: SandboxProvider, *actions: str, **fields: Any) -> EpisodeRecord:
    """Play an episode of an agent that sends these actions; without any, of the oracle."""
    spec = {name: fields.pop(name) for name in ("feedback", "profile") if name in fields}
    fields = {"query": "Do.", "gold": (GOLD,), "workdir": "/w", "env": "bash", **fields}
    task = Task(id="t", suite="s", dataset="s", **fields)
    agent = Agent("step", act=acts(*actions)) if actions else None
    services = Services(provider, make_agent=lambda spec: agent or make_oracle(spec.task))
    return play(Rollout(RolloutSpec(task, agent="mine", timeout=20, **spec), services))


def test_tries_that_do_as_gold_need_one_gold(provider: SandboxProvider, golds: list[str]) -> None:
    records = [tried(provider) for _ in range(3)]
    assert [record.outcome for record in records] == ["solved"] * 3
    assert golds == ["gold"]
    first, *others = (record.state for record in records)
    assert first["gold"]["output"] == "done\n"
    assert others == [first, first]  # what is recorded is the same


def test_another_way_to_the_same_state_is_gold_too(
    quick_provider: SandboxProvider, golds: list[str]
) -> None:
    fields = {"query": "another way"}
    tried(quick_provider, **fields)
    record = tried(quick_provider, "printf 'x\\n' | tee x | sed s/x/done/", "submit", **fields)
    assert (record.outcome, golds) == ("solved", ["gold"])


def test_what_differs_is_compared_with_a_gold_of_its_own(
    provider: SandboxProvider, golds: list[str]
) -> None:
    fields = {"query": "what differs", "reward": RewardOptions(scratch=("tmp",))}
    tried(provider, **fields)
    wrong = tried(provider, "echo y >x; echo done", "submit", **fields)
    assert (wrong.reward, golds) == (0.5, ["gold"] * 2)
    assert wrong.reason == "1 of 1 changes on disk differ from gold's, /w/x among them"
    assert wrong.state["diffs"] == {"/w/x": ["@@ -1 +1 @@", "-x", "+y"]}
    # A gold runs beside the agent after one that differed; right by the task's rules alone.
    scratch = tried(provider, "mkdir tmp; echo x >x; echo done", "submit", **fields)
    assert (scratch.outcome, golds) == ("solved", ["gold"] * 3)
    assert "/w/tmp" in scratch.state["agent"]["touched"]


def test_an_alternative_is_tried_where_gold_is_known(
    quick_provider: SandboxProvider, golds: list[str]
) -> None:
    fields = {"query": "alternative", "fields": BashFields((("echo z >z; echo done",),))}
    gold_alone = [{"output": 1.0, "files": 1.0, "gold_alone": 1.0}] * 2
    assert [tried(quick_provider, **fields).parts for _ in range(2)] == gold_alone
    assert golds.count("gold") <= 2  # of the first try; none of the second
    other = tried(quick_provider, "echo z >z; echo done", "submit", **fields)
    assert (other.outcome, other.parts["gold_alone"] < 1) == ("solved", True)


def test_feedback_grades_each_state_by_gold(
    quick_provider: SandboxProvider, golds: list[str]
) -> None:
    fields = {"query": "feedback", "feedback": "reward"}
    tried(quick_provider, **fields)
    record = tried(quick_provider, "echo y >x", GOLD, **fields)
    assert [turn.reward for turn in record.turns] == [0.0, 1.0]
    assert golds == ["gold"] * 2


@pytest.mark.parametrize(
    ("played", "changed"),
    [
        (2, {"gold": ("echo x >x; date >when; rm when; echo done",)}),  # looks at the time
        (2, {"gold": ("cat /proc/uptime >y; rm y; echo x >x; echo done",)}),
        (1, {"gold": (f"{GOLD}; false",), "audit": {"gold-runs": "it is to fail"}}),
        (2, {"profile": "paper"}),
    ],
    ids=["date", "uptime", "fails as declared", "paper"],
)
def test_how_often_gold_is_played_for_two_tries(
    quick_provider: SandboxProvider, golds: list[str], played: int, changed: dict[str, Any]
) -> None:
    for _ in range(2):
        assert tried(quick_provider, **changed).reward == 1.0
    assert golds == ["gold"] * played


def test_a_task_that_changed_has_another_gold(
    quick_provider: SandboxProvider, golds: list[str]
) -> None:
    for content in (b"1", b"1", b"2"):
        files = {"/w/f": FileSpec("file", content)}
        assert tried(quick_provider, files=files, gold=("cat f",)).outcome == "solved"
    assert golds == ["gold"] * 2


def test_an_old_gold_refuses_nobody(quick_provider: SandboxProvider, golds: list[str]) -> None:
    fields = {"query": "old"}
    tried(quick_provider, **fields)
    known = gold_cache(quick_provider)
    known.record_digest(list(known._left)[-1], LEFT)  # of a machine that has changed since
    assert tried(quick_provider, **fields).outcome == "solved"
    assert tried(quick_provider, **fields).outcome == "solved"
    assert golds == ["gold"] * 2


def test_golds_are_known_to_the_next_run(
    provider: SandboxProvider, tmp_path: Path, golds: list[str]
) -> None:
    for _ in range(2):
        with contextlib.closing(
            SandboxProvider(SandboxSettings(provider.choice.backend))
        ) as another:
            another.share(GOLDS, lambda: GoldCache(tmp_path / "golds"))
            assert tried(another).outcome == "solved"
    assert golds == ["gold"]


def test_tries_at_the_same_time_share_a_gold(quick_provider: SandboxProvider) -> None:
    known, go = GoldCache(), threading.Event()

    def play(sandbox: Sandbox) -> Gold:
        go.wait(10)
        known.record_digest(KEY, LEFT)
        return Gold(sandbox)

    run = GoldRun(quick_provider, SandboxSpec(quick_provider.image(IMAGE)), play)
    known.begin(KEY, run)
    assert known.has(KEY)
    found = quick_provider.background(lambda: known.digest(KEY))
    go.set()
    assert found.result(10) == LEFT
    run.stop()


def test_a_gold_that_failed_is_played_by_the_next(quick_provider: SandboxProvider) -> None:
    known = GoldCache()

    def play(sandbox: Sandbox) -> Gold:
        raise GoldError("it did not end")

    run = GoldRun(quick_provider, SandboxSpec(quick_provider.image(IMAGE)), play)
    known.begin(KEY, run)
    assert known.digest(KEY) is None
    run.stop()
