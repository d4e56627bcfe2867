"""Our own swe suite: its repositories, and that its tests tell gold from the base commit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.environments.swe.carrying import Carrying
from pytest_intercode.environments.swe.fields import repository_of
from pytest_intercode.environments.swe.gold import is_patch, paths_of_patch
from pytest_intercode.environments.swe.sentinels import sentinels_for
from pytest_intercode.rewards.verification import TestRun, reward_of_run
from pytest_intercode.sandboxes.protocol import Changes, Entry
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder

FOLDER = bundled_folder("tasks")
TASKS = load_suite(FOLDER / "swe.yaml").tasks
SOURCES = sorted((FOLDER / "swe").glob("*.export"))
QUICK = {"saldo-left-out-amount", "stencil-loop-leaks", "logturn-odd-names"}
_VARIABLES = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "PYTHONDONTWRITEBYTECODE": "1",
}
_PROGRAMS = ("git", "python3", "node", "gcc", "make", "perl", "prove", "lua5.4")


def git(folder: Path, *words: str, given: str = "") -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        env=_VARIABLES,
        input=given,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path | None], Path]:
    """A function from a stream to a bare repository with all that it holds."""
    folder = tmp_path_factory.mktemp("streams")

    def repository(source: Path | None) -> Path:
        assert source is not None
        bare = folder / source.stem
        if not bare.exists():
            git(folder, "init", "-q", "--bare", "-b", "main", str(bare))
            git(bare, "fast-import", "--quiet", given=source.read_text(encoding="utf-8"))
        return bare

    return repository


def lacking() -> str:
    """Return why the tests of the tasks cannot run on this machine, or nothing."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_VARIABLES["PATH"]) is None]
    if missing:
        return f"this machine lacks {', '.join(missing)}"
    asked = subprocess.run(
        ["python3", "-c", "import pytest"], env=_VARIABLES, capture_output=True, check=False
    )
    return "its python3 lacks pytest" if asked.returncode else ""


def verified(task: Task, folder: Path, *, gold: bool) -> Reward:
    """Play nothing, or gold, in a work tree at the base commit, and grade it there."""
    assert task.verification is not None
    if gold:
        git(folder, "apply", "--whitespace=error", given=task.gold[0])
    files = {path: spec.content for path, spec in task.verification.files.items()}
    sentinels = sentinels_for(task.verification)
    assert sentinels is not None, "the command leaves no place for sentinels"
    for path, content in {**files, sentinels.path: sentinels.text.encode()}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    done = subprocess.run(
        ["bash", "-c", sentinels.command],
        cwd=folder,
        env={**_VARIABLES, "HOME": str(folder.parent), **sentinels.variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=task.verification.timeout,
    )
    log = done.stdout.decode("utf-8", "replace")
    run = TestRun(done.returncode, "itself", log, {}, sentinels.passes, sentinels.fails)
    return reward_of_run(task.verification, run)[0]


def each_task() -> list[object]:
    return [
        pytest.param(task, id=task.id, marks=() if task.id in QUICK else pytest.mark.slow)
        for task in TASKS
    ]


@pytest.mark.parametrize("task", each_task())
def test_the_tests_tell_gold_from_the_base_commit(
    task: Task, imported: Callable[[Path | None], Path], tmp_path: Path
) -> None:
    if why := lacking():
        pytest.skip(why)
    repository = repository_of(task)
    assert repository is not None
    bare = imported(repository.source)
    for at in range(1 if task.id in QUICK else 3):
        for gold in (False, True):
            folder = tmp_path / f"{at}-{gold}" / "repo"
            folder.parent.mkdir()
            git(tmp_path, "clone", "-q", "--shared", "--no-checkout", str(bare), str(folder))
            git(folder, "checkout", "-q", "--detach", repository.commit)
            reward = verified(task, folder, gold=gold)
            right = {"fail_to_pass": float(gold), "pass_to_pass": 1.0}
            assert (reward.parts, reward.value) == (right, float(gold)), reward.reason


@pytest.mark.parametrize("task", TASKS, ids=[task.id for task in TASKS])
def test_a_task_is_whole(task: Task, imported: Callable[[Path | None], Path]) -> None:
    repository = repository_of(task)
    assert repository is not None
    assert repository.source in SOURCES
    assert task.verification is not None
    commit = repository.commit
    assert re.fullmatch("[0-9a-f]{40}", commit)
    bare = imported(repository.source)
    assert git(bare, "rev-parse", f"{commit}^{{commit}}").strip() == commit
    assert task.verification.fail_to_pass
    named = [*task.verification.fail_to_pass, *task.verification.pass_to_pass]
    assert len(set(named)) == len(named)
    (gold,) = task.gold
    assert is_patch(gold)
    changed = {f"/repo/{path}" for path in paths_of_patch(gold)}
    state = Changes(dict.fromkeys(changed, Entry("f", 0o644, 0, 0)))
    built = {"/repo/Makefile", "/repo/package.json"}
    assert Carrying(task).left_out(state, changed) <= built
    assert not paths_of_patch(gold) & set(task.verification.files)
    assert gold not in task.query
    assert task.hardness in {"easy", "medium", "hard"}
    own = FOLDER / "swe" / task.id
    there = {str(path.relative_to(own)) for path in own.rglob("*") if path.is_file()}
    assert there == {"gold.patch", *task.verification.files}


@pytest.mark.parametrize("source", SOURCES, ids=[source.stem for source in SOURCES])
def test_a_repository_has_a_history(source: Path, imported: Callable[[Path | None], Path]) -> None:
    bare = imported(source)
    commits = git(bare, "log", "--format=%ae %at", "main").split("\n")[:-1]
    assert 8 <= len(commits) <= 30
    assert len({commit.split()[0] for commit in commits}) >= 3
    times = [int(commit.split()[1]) for commit in commits]
    assert times == sorted(times, reverse=True)
    # the stream says which commits it holds
    text = source.read_text(encoding="utf-8")
    heads = re.findall(r"^commit .*\nmark .*\noriginal-oid ([0-9a-f]{40})$", text, re.MULTILINE)
    assert set(heads) == set(git(bare, "rev-list", "--all").split())


def test_the_suite_covers_what_it_should() -> None:
    assert len(TASKS) >= 30
    assert len(SOURCES) >= 8
    kinds = ["bug", "feature", "regression", "build", "flaky-test", "performance", "migration"]
    languages = ["python", "javascript", "shell", "c", "perl", "lua"]
    tags = Counter(tag for task in TASKS for tag in task.tags)
    assert all(tags[tag] for tag in (*kinds, "refactoring", *languages))
    assert min(Counter(task.hardness for task in TASKS).values()) >= 8
