"""Our own ctf suite: its solutions find the flags, and what takes no thought finds none.

The agents here know the suite's file, which a real agent never sees.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from pytest_intercode.environments.ctf.fields import CtfFields
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.support.bundled import play
from tests.support.thinning import every, thinned

SUITE = load_suite(bundled_folder("tasks") / "ctf.yaml")
KINDS = ("encoding", "crypto", "forensics", "reversing", "service")

AGENTS = r'''
import re

from pytest_intercode.system.files import bundled_folder
from pytest_intercode.suites.loader import load_suite

TASKS = {task.id: task for task in load_suite(bundled_folder("tasks") / "ctf.yaml").tasks}

# Everything in the working directory but times, as one line.
TREE = """{
find . -print0 | sort -z | xargs -0 stat -c '%n %F %a %u %g %N'
find . -type f -print0 | sort -z | xargs -0 sha256sum
} | sha256sum"""

# What setup left outside the working directory, and processes that can be looked into.
# A sandbox's own shell is not among them, and the keeper and its children cannot be.
SPY = """
find /etc /home /opt /root /run /srv /usr/local /var -newer /etc/hosts ! -type d
find /tmp /var/tmp /dev/shm -mindepth 1 ! -name .intercode
cat > /dev/shm/spy.py <<'END'
import os, sys
word = b"flag" + bytes([123])
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) in (os.getpid(), os.getppid()):
        continue
    for name in ("cmdline", "environ", "mem", "maps", "fd/0", "fd/3"):
        try:
            with open("/proc/" + pid + "/" + name, "rb") as file:
                found = file.read() if name == "cmdline" else word
        except OSError:
            continue
        if word in found:
            print(pid, name)
END
python3 /dev/shm/spy.py
"""


class Solver:
    """Runs the suite's own solution and submits the last flag that it printed."""

    def run(self, task, env):
        env.step(TREE)
        said = "".join(str(env.step(command)[0]) for command in TASKS[task.id].fields.solution)
        env.submit((re.findall(r"flag\{[^}]*\}", said) or ["none"])[-1])


class Searcher:
    """Submits all that a search for flags brings up."""

    def run(self, task, env):
        env.step(TREE)
        env.step(SPY)
        said = str(env.step(r"grep -rao 'flag{[^}]*}' . | tail -n 5")[0])
        for flag in re.findall(r"flag\{[^}]*\}", said):
            if env.submit(flag)[2]:
                return


def idle(observation):
    return "true"
'''


def seen(row: Any, turn: int) -> str:
    return str(row["turn_history"]["observations"][turn])


def test_the_suite_has_puzzles_of_all_kinds_and_grades() -> None:
    kinds = Counter(tag for task in SUITE.tasks for tag in task.tags)
    grades = Counter(task.hardness for task in SUITE.tasks)
    assert len(SUITE.tasks) >= 22
    assert set(kinds) == set(KINDS)
    assert kinds["service"] >= 2
    assert set(grades) == {"easy", "medium", "hard"}
    assert min(grades.values()) >= len(SUITE.tasks) / 4


def test_every_puzzle_has_one_flag_a_solution_and_a_query_that_tells_neither() -> None:
    flags = [task.gold[0] for task in SUITE.tasks]
    assert len(set(flags)) == len(flags)
    for task in SUITE.tasks:
        (flag,) = task.gold
        assert re.fullmatch(r"flag\{[^{}\s]{8,}\}", flag), task.id
        assert "flag{" in task.query, task.id
        assert flag not in task.query, task.id
        assert CtfFields.of(task).solution, task.id
        assert flag not in "".join(CtfFields.of(task).solution), task.id
        assert all(flag.encode() not in spec.content for spec in task.files.values()), task.id


@pytest.mark.usefixtures("bubblewrap")
def test_oracle_solves_every_puzzle(pytester: pytest.Pytester) -> None:
    one_in = every(2)
    options = thinned(pytester.path, one_in)
    _, result = play(pytester, "ctf", "oracle", "bubblewrap", *options)
    result.assert_outcomes(passed=len(SUITE.tasks[::one_in]))


@pytest.mark.usefixtures("bubblewrap")
def test_doing_nothing_solves_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(players=AGENTS)
    one_in = every(8)
    options = ["--intercode-max-turns=2", *thinned(pytester.path, one_in)]
    rows, result = play(pytester, "ctf", "players:idle", "bubblewrap", *options)
    result.assert_outcomes(failed=len(SUITE.tasks[::one_in]))
    assert {row["reward"] for row in rows.values()} == {0.0}


@pytest.mark.slow
@pytest.mark.usefixtures("docker_engine")
def test_solutions_find_every_flag_and_searching_finds_none(pytester: pytest.Pytester) -> None:
    """Both look at equal sandboxes, in which setup left nothing but the puzzle.

    All puzzles with ``scripts/test --all``, else every 24th.
    """
    pytester.makepyfile(players=AGENTS)
    one_in = every(24)
    number = len(SUITE.tasks[::one_in])
    options = thinned(pytester.path, one_in)
    solved, result = play(pytester, "ctf", "players:Solver", "docker", *options)
    result.assert_outcomes(passed=number)
    searched, result = play(pytester, "ctf", "players:Searcher", "docker", *options)
    result.assert_outcomes(failed=number)
    for identity, row in searched.items():
        assert re.fullmatch(r"[0-9a-f]{64}  -\n", seen(row, 0)), identity
        assert seen(row, 0) == seen(solved[identity], 0), identity
        assert seen(row, 1) == "", identity
