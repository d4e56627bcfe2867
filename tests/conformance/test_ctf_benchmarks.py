"""Cybench and NYU CTF Bench: what can be played, that gold solves it, and that no flag is near.

INTERCODE_CYBENCH is the folder that ``pytest-intercode fetch cybench`` makes, INTERCODE_NYU_CTF a
clone of NYU CTF Bench with all of its files, or with those below 4 MiB.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_intercode import make
from pytest_intercode.core.task import Task
from pytest_intercode.suites.catalogue import named_tasks

_IN_PLAIN_SIGHT = {  # puzzles of what is in a file, and a flag that is its own placeholder
    *("2023q-rev-baby_s_first", "2023q-rev-baby_s_third", "2016q-for-kill", "lootstash"),
    *("2013q-msc-networking_1", "2013q-msc-networking_2"),
}


def benchmark(variable: str) -> tuple[str, Sequence[Task]]:
    path = os.environ.get(variable)
    if not path:
        pytest.skip(f"{variable} names no clone")
    return path, named_tasks(path, None, variable, folder=Path(), env=None)


VARIABLES = pytest.mark.parametrize("variable", ["INTERCODE_CYBENCH", "INTERCODE_NYU_CTF"])


def test_cybench_is_whole() -> None:
    _, tasks = benchmark("INTERCODE_CYBENCH")
    skipped = [task.id for task in tasks if task.skip]
    assert (len(tasks), sum(bool(task.services) for task in tasks)) == (39, 23)
    assert skipped == ["robust_cbc"]


def test_nyu_ctf_is_whole() -> None:
    _, tasks = benchmark("INTERCODE_NYU_CTF")
    reasons = [task.skip for task in tasks if task.skip and not task.skip.endswith(" is missing")]
    assert (len(tasks), len(reasons)) == (257, 7)


@VARIABLES
def test_no_flag_is_near(variable: str) -> None:
    _, tasks = benchmark(variable)
    near = {
        task.id
        for task in tasks
        if not task.skip
        and any(task.gold[0].encode() in spec.content for spec in task.files.values())
    }
    assert near <= _IN_PLAIN_SIGHT


@VARIABLES
def test_gold_solves_what_has_no_servers(variable: str) -> None:
    path, tasks = benchmark(variable)
    env = make("ctf", dataset=path)
    try:
        for task in (task for task in tasks if not task.skip and not task.services):
            env.reset(task=task)
            assert env.step("submit flag{wrong}")[1] == 0.0, task.id
            assert env.step(f"submit {task.gold[0]}")[1:3] == (1.0, True), task.id
    finally:
        env.close()
