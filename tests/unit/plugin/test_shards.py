"""Parts of a suite that take the same time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.core.task import Task
from pytest_intercode.plugin.selection import split_by_time


def task(name: str, suite: str = "suite") -> Task:
    return Task(id=name, query=name, env="bash", suite=suite, dataset=suite, gold=("true",))


def times(**seconds: float) -> dict[tuple[str, str, str], float]:
    return {("bash", "suite", name): value for name, value in seconds.items()}


def ids(parts: list[list[Task]]) -> list[list[str]]:
    return [[task.id for task in part] for part in parts]


def test_the_longest_go_to_the_least_loaded_part() -> None:
    tasks = [task(name) for name in "abcdef"]
    parts = ids(split_by_time(tasks, 2, times(a=1, b=2, c=3, d=4, e=5, f=9)))
    assert sorted(parts) == [["a", "b", "d", "e"], ["c", "f"]]


def test_what_has_no_time_takes_the_median() -> None:
    # 5 is the median: the unknown one stands alone against 3 and 1, and not beside 9.
    tasks = [task(name) for name in ("three", "nine", "five", "unknown", "one")]
    parts = ids(split_by_time(tasks, 2, times(three=3, nine=9, five=5, one=7)))
    loads = {"three": 3, "nine": 9, "five": 5, "unknown": 6, "one": 7}
    assert sorted(sum(loads[name] for name in part) for part in parts) == [14, 16]
    none = split_by_time([task(name) for name in "abcd"], 2, {("sql", "other", "x"): 5.0})
    assert [len(part) for part in none] == [2, 2]


def test_suites_of_one_task_are_not_all_in_one_part() -> None:
    where = {
        next(at for at, part in enumerate(split_by_time([task("t", f"suite-{n}")], 4, {})) if part)
        for n in range(40)
    }
    assert where == {0, 1, 2, 3}


@given(st.lists(st.one_of(st.none(), st.floats(0, 1000)), max_size=40), st.integers(1, 9))
def test_each_task_is_in_one_part(seconds: list[float | None], parts: int) -> None:
    tasks = [task(str(at)) for at in range(len(seconds))]
    known = {
        ("bash", "suite", str(at)): each for at, each in enumerate(seconds) if each is not None
    }
    found = split_by_time(tasks, parts, known)
    assert len(found) == parts
    assert sorted(int(each.id) for part in found for each in part) == list(range(len(tasks)))
    for part in found:
        assert [int(each.id) for each in part] == sorted(int(each.id) for each in part)
    assert found == split_by_time(tasks, parts, dict(reversed(known.items())))
    # Longest first is never worse than 4/3 of the best, nor than the mean and the longest.
    if len(known) == len(tasks) and tasks:
        loads = [sum(known["bash", "suite", each.id] for each in part) for part in found]
        assert max(loads) <= sum(known.values()) / parts + max(known.values()) + 1e-6
