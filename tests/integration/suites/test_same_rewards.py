"""Rewards are the same task by task, whatever a run is made of: backend, concurrency, processes.

All bundled suites are played by an agent that solves some tasks and makes mistakes in the others,
so that rewards of all sizes occur. bubblewrap has the very trees that Docker's images hold, and
once the machine's own programs.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import ImageSource, Task
from pytest_intercode.environments.ctf.fields import CtfFields
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.results.files import read_results
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.integration.suites.test_bundled_python import WRONG
from tests.integration.suites.test_bundled_sql import mistaken
from tests.support.bundled import lacking
from tests.support.thinning import every

# Backend, concurrency, processes of xdist. Every twelfth task in one of the runs; on demand, all in
# all of them.
RUNS = list(itertools.product(("docker", "bubblewrap"), (1, 32), (0, 2)))
EVERY = every(12)
SUITES = {
    env: load_suite(bundled_folder("tasks") / f"{env}.yaml").tasks[::EVERY]
    for env in ("bash", "python", "ctf", "sql")
}
THINNING = f"""
def pytest_intercode_modify_tasks(tasks):
    tasks[:] = tasks[::{EVERY}]
"""

# Plays what is written for each task. {flag} stands for the last flag that was seen.
PLAYER = r"""
import json
import re
from pathlib import Path

PLAYS = json.loads(Path(__file__).with_name("plays.json").read_text())


class Player:
    def reset(self, task):
        self.left = list(PLAYS[f"{task.env}/{task.id}"])
        self.flag = "none"

    def act(self, observation):
        self.flag = (re.findall(r"flag\{[^}]*\}", observation) or [self.flag])[-1]
        return (self.left or ["submit"]).pop(0).replace("{flag}", self.flag)
"""

Rewards = dict[str, tuple[str, float, dict[str, float]]]
Play = Callable[..., Rewards]


def play_of(task: Task, nth: int) -> list[str]:
    """Return what is done in the nth task of a suite: what is right, in part right, or nothing."""
    way = nth % 4
    if way == 3:
        return ["submit"]
    if task.env == "bash":
        further = [[], ["echo more >more.txt"], ["echo something else"]][way]
        return [*task.gold, *further, "submit"]
    if task.env == "python":
        code = list(task.gold) if way == 0 else [WRONG[task.id]]
        return [*code, f"submit {PythonFields.of(task).entry}".strip()]
    if task.env == "sql":
        return [*(task.gold if way == 0 else mistaken(task)), "submit"]
    return [*CtfFields.of(task).solution, "submit {flag}"] if way < 2 else ["submit flag{no}"]


def rewards_of(path: Path) -> Rewards:
    rows = list(read_results(path))
    found = {
        f"{row['suite']}/{row['task_id']}": (row["outcome"], row["reward"], row["reward_parts"])
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def differing(one: Rewards, other: Rewards) -> dict[str, tuple[Any, Any]]:
    return {
        name: (one.get(name), other.get(name))
        for name in one.keys() | other.keys()
        if one.get(name) != other.get(name)
    }


@pytest.fixture(scope="module")
def trees(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Unpack the images of the suites; as Docker has them, but for bubblewrap."""
    folder = tmp_path_factory.mktemp("trees")
    api = docker_engine.api
    for name in ("bash", "python", "ctf"):
        dockerfile = bundled_folder("dockerfiles") / f"{name}.Dockerfile"
        image = DockerImages(api).resolve(ImageSource(dockerfile=dockerfile))
        (folder / name).mkdir()
        container = api.create_container(image, ["true"])["Id"]
        try:
            unpack = subprocess.Popen(["tar", "-xC", str(folder / name)], stdin=subprocess.PIPE)
            with unpack:
                assert unpack.stdin is not None
                for chunk in api.export(container):
                    unpack.stdin.write(chunk)
            assert unpack.returncode == 0
        finally:
            api.remove_container(container)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Return a function that plays suites and returns their rewards."""
    folder = tmp_path_factory.mktemp("plays")
    plays = {
        f"{env}/{task.id}": play_of(task, nth)
        for env, tasks in SUITES.items()
        for nth, task in enumerate(tasks)
    }
    (folder / "plays.json").write_text(json.dumps(plays))
    (folder / "player.py").write_text(PLAYER)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(THINNING)

    def run(*options: str, env: str = ",".join(SUITES)) -> Rewards:
        results = folder / "results.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", f"--intercode-env={env}"]
        command += ["--intercode-agent=player.py:Player", f"--intercode-results={results}"]
        command += ["-p", "no:cacheprovider", *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-3000:] + done.stderr
        return rewards_of(results)

    return run


@pytest.fixture(scope="module")
def reference(play: Play, docker_engine: DockerEngine) -> Rewards:
    """The rewards of the plainest run: on Docker, one after the other, in one process."""
    return play("--intercode-sandbox=docker")


def test_rewards_of_all_sizes_occur(reference: Rewards) -> None:
    """Or that they are equal would say little."""
    assert len(reference) == sum(map(len, SUITES.values()))
    for env, tasks in SUITES.items():
        outcomes = Counter(value for name, (value, _, _) in reference.items() if env in name)
        assert len(tasks) / 5 < outcomes["solved"] < len(tasks), env
    partial = [name for name, (_, reward, _) in reference.items() if 0 < reward < 1]
    assert {name.partition("/")[0] for name in partial} >= {"bash", "python", "sql"}
    assert len(partial) >= len(reference) / 4
    assert sum(reward == 0 for _, reward, _ in reference.values()) >= len(reference) / 5


@pytest.mark.parametrize(
    ("backend", "concurrency", "processes"),
    [
        pytest.param(*run, marks=() if run == ("docker", 32, 2) else pytest.mark.slow)
        for run in RUNS[1:]
    ],
)
@pytest.mark.usefixtures("bubblewrap")
def test_rewards_are_the_same(
    play: Play,
    reference: Rewards,
    request: pytest.FixtureRequest,
    backend: str,
    concurrency: int,
    processes: int,
) -> None:
    options = [f"--intercode-sandbox={backend}", f"--intercode-concurrency={concurrency}"]
    if backend == "bubblewrap":
        options += [f"--intercode-rootfs={request.getfixturevalue('trees')}"]
    options += ["-n", str(processes)] if processes else []
    assert differing(reference, play(*options)) == {}


@pytest.mark.slow
def test_rewards_are_the_same_with_the_machines_own_programs(
    play: Play, reference: Rewards, bubblewrap: Bubblewrap
) -> None:
    """As far as they are here; for the tasks of ctf, few machines have all."""
    options = ("--intercode-sandbox=bubblewrap", "--intercode-concurrency=4")
    mine = play(*options, env="bash,python,sql")
    missing = {f"bash/{name}" for name in lacking(SUITES["bash"], "bubblewrap")}
    wanted = {
        name: values
        for name, values in reference.items()
        if name.partition("/")[0] != "ctf" and name not in missing
    }
    assert len(wanted) > len(reference) / 2
    assert differing(wanted, {name: mine[name] for name in mine.keys() - missing}) == {}
