"""The judge test on two tasks, and what it counts."""

from __future__ import annotations

from collections import Counter

import pytest

from pytest_intercode.core.task import FORMAT_NAMES, RewardOptions, Task
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.campaigns.judge import Judged, crossed, judge, pairs, table

LENIENT = RewardOptions(lenient=FORMAT_NAMES)


def task(name: str, gold: str, second: str) -> Task:
    metadata = {"gold2": second}
    return Task(name, "q", (gold,), "bash", "s", "d", reward=LENIENT, metadata=metadata)


@pytest.mark.parametrize("seed", range(20))
def test_shuffled_pairs_are_of_other_tasks(seed: int) -> None:
    tasks = [task(str(n), f"echo {n}", f"printf {n % 7}") for n in range(30)]
    all_pairs = pairs(tasks, seed)
    assert [pair.equivalent for pair in all_pairs] == [True] * 30 + [False] * 30
    equivalent, shuffled = all_pairs[:30], all_pairs[30:]
    assert [pair.command for pair in equivalent] == [each.metadata["gold2"] for each in tasks]
    assert Counter(p.command for p in shuffled) == Counter(p.command for p in equivalent)
    assert not [p for p in shuffled if p.command in (p.task.gold[0], p.task.metadata["gold2"])]
    assert all_pairs == pairs(tasks, seed)


def test_precision_recall_and_f1() -> None:
    judged = Judged()
    for equivalent, accepted in ((True, True),) * 3 + (
        (True, False),
        (False, True),
        (False, False),
    ):
        judged.add(equivalent, accepted)
    assert (judged.precision, judged.recall, judged.f1) == (0.75, 0.75, 0.75)
    assert "| `mine` | 0.750 | 0.750 | 0.750 | 1 refused, 1 accepted |" in table({"mine": judged})
    assert Judged().f1 == 0.0


@pytest.mark.usefixtures("bubblewrap")
def test_two_tasks() -> None:
    provider = SandboxProvider(SandboxSettings("bubblewrap"))
    tasks = [task("a", "echo b; echo a", "printf 'a\\nb\\n'"), task("b", "echo 7 >/x", "echo 7>/y")]
    try:
        judgements = list(judge(pairs(tasks, 1), provider))
    finally:
        provider.close()
    judged = {(pair.task.id, pair.equivalent): accepted for pair, accepted, _ in judgements}
    assert judged["a", True] == {"paper": False, "strict": False, "strict, lenient": True}
    assert not any(judged["b", True].values())
    assert not any(judged["a", False].values())
    assert not any(judged["b", False].values())
    records = [record for _, _, record in judgements]
    assert all(records)
    a = records[0]
    assert a is not None
    assert crossed([(tasks[0], a), (tasks[0], a)]) == (2, {"strict": 0, "strict, lenient": 2})
