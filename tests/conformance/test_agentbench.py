"""AgentBench: gold reaches 1.0, and what grades is as its own code.

INTERCODE_AGENTBENCH is a clone of THUDM/AgentBench.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.databases.mysql.engine import MySqlEngine
from pytest_intercode.environments.checks.strict import ChecksEnvironment
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.environments.sql.fields import database_of
from pytest_intercode.rewards.checks import read_answer
from pytest_intercode.rewards.sql_answers import answers_are_right, read_answers
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.agentbench import databases_script
from pytest_intercode.suites.catalogue import data_folder, dataset_tasks
from pytest_intercode.suites.download import is_whole
from pytest_intercode.suites.upstream import files_of
from pytest_intercode.system.rows import read_rows
from tests.support.thinning import every

CODE = "src/server/tasks/dbbench/result_processor.py"
# Its published digest is not that of gold's end state, on AgentBench's own server neither.
OTHER_DIGEST = {225}


@pytest.fixture(scope="module")
def clone() -> Path:
    folder = os.environ.get("INTERCODE_AGENTBENCH")
    if not folder:
        pytest.skip("INTERCODE_AGENTBENCH does not name a clone of THUDM/AgentBench")
    return Path(folder)


@pytest.fixture(scope="module")
def tasks(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Task]]:
    data = tmp_path_factory.mktemp("data")
    for file in files_of("data/os_interaction/", "data/dbbench/"):
        assert is_whole(clone / file.path, file)
        (data / file.target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(clone / file.path, data / file.target)
    rows = data / "agentbench/dbbench/standard.jsonl"
    rows.with_suffix(".sql").write_text(databases_script(read_rows(rows)), "utf-8")
    return lambda name: dataset_tasks(name, data_folder(data, "--data"), name)


@pytest.fixture(scope="module")
def docker() -> Iterator[SandboxProvider]:
    provider = SandboxProvider(SandboxSettings("docker"))
    yield provider
    provider.close()


@pytest.fixture(scope="module")
def compare(clone: Path) -> Callable[..., bool]:
    """Return AgentBench's own function, without the server's client that it would import."""
    source = (clone / CODE).read_text("utf-8")
    names: dict[str, Any] = {"Database": object}
    exec(source.replace("from .interaction import Database", ""), names)

    def quietly(*arguments: Any) -> bool:
        with contextlib.redirect_stdout(io.StringIO()):
            return bool(names["DBResultProcessor"].compare_results(*arguments))

    return quietly


def rows_of(clone: Path) -> list[dict[str, Any]]:
    text = (clone / "data/dbbench/standard.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def test_the_tasks(tasks: Callable[[str], list[Task]]) -> None:
    machine, tables = tasks("agentbench-os"), tasks("agentbench-db")
    assert [task.id for task in machine if task.skip] == [
        "std-007-bootstrap-00000",
        "dev-001-dev-00008",
    ]
    assert (len(machine), len(tables)) == (170, 300)
    assert not [task.id for task in tables if task.skip]


def test_answers_are_compared_as_there(clone: Path, compare: Callable[..., bool]) -> None:
    rows = rows_of(clone)
    questions = [row for row in rows if row["type"][0] not in ("INSERT", "UPDATE", "DELETE")]
    outcomes = []
    for row, neighbour in zip(questions, [*questions[1:], questions[0]], strict=True):
        label, wrong = row["label"], neighbour["label"]
        for answers in (
            *(label, wrong, [*label, *wrong], label[::-1], label * 2, label[1:]),
            *([f"{text}%" for text in label], [f" '{text}' " for text in label]),
            *([text.upper() for text in label], [f"{text}.001" for text in label], ["None"]),
        ):
            is_right = answers_are_right(answers, label)
            assert is_right == compare(answers, label, row["type"][0]), (answers, label)
            text = str([(answer,) for answer in answers])  # as a driver shows rows
            assert answers_are_right(read_answers(text), label) == compare(text, label, "other")
            outcomes.append(is_right)
    assert len(outcomes) == 1100
    assert 250 < sum(outcomes) < 850


@pytest.mark.parametrize(("compare", "script"), [("integer", "integer"), ("text", "string")])
def test_scripts_that_compare_are_as_there(
    clone: Path, monkeypatch: pytest.MonkeyPatch, compare: str, script: str
) -> None:
    code = (clone / f"data/os_interaction/scripts/7/check/{script}-match.py").read_text()
    for answer in ("12", " 12\n", "+12", "1_2", "012", "12.0", "", "x", "a\r\nb", "a\nb ", "A\nb"):
        for right in ("12\n", "a\nb\n", "0"):
            monkeypatch.setattr(sys, "argv", ["-c", answer, right])
            with pytest.raises((SystemExit, ValueError)) as raised:
                exec(code, {"exit": sys.exit})
            is_accepted = isinstance(raised.value, SystemExit) and raised.value.code == 0
            value = read_answer(answer, compare)
            assert (value is not None and value == read_answer(right, compare)) == is_accepted


def test_gold_solves_machines(tasks: Callable[[str], list[Task]], docker: SandboxProvider) -> None:
    playable = [task for task in tasks("agentbench-os") if not task.skip]
    env = ChecksEnvironment(docker)
    for task in playable[:: every(24)]:
        env.reset(task=task)
        answer = kind_of("checks").gold_answer(task)
        for action in answer.actions:
            env.step(action)
        assert env.submit(answer.submitted or "")[1] == 1.0, task.id
    env.close()


def test_gold_leaves_the_published_digests(
    clone: Path, tasks: Callable[[str], list[Task]], docker: SandboxProvider
) -> None:
    """AgentBench compares digests of a table, as its server computes them, with published ones."""
    rows = rows_of(clone)
    changes = [(index, row) for index, row in enumerate(rows) if row.get("answer_md5")]
    all_tasks = tasks("agentbench-db")
    with contextlib.closing(MySqlEngine(docker)) as engine:
        for index, row in changes[:: every(50)]:
            task = all_tasks[index]
            session = engine.session(database_of(task), writes=True, limits=task.limits)
            answer = session.execute(task.gold[0], 10.0, max_rows=10, max_bytes=10000)
            assert not answer.error
            [table] = session.state().tables.values()
            session.close()
            digest = row["answer_md5"].strip("[]()").split(",")[0].strip("'")
            assert (digest_of(table.rows) == digest) == (index not in OTHER_DIGEST), index


def digest_of(rows: Sequence[Sequence[Any]]) -> str:
    """Return what AgentBench's query does; MySQL 9 has no MD5 any more."""
    texts = (",".join(str(cell) for cell in row if cell is not None) for row in rows)
    parts = sorted(hashlib.md5(text.encode()).hexdigest()[:5] for text in texts)
    return hashlib.md5(",".join(parts).encode()).hexdigest()
