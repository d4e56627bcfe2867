"""APPS in both of its forms; all problems here are our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.environments.fields import CallTest, ProgramTest
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.environments.python.hidden_tests import entry_of
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder

PROGRAM = {"inputs": ["1 2\n", ["3", "4"]], "outputs": ["3\n", ["7"]]}
CALLS = {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]}
METHOD = {"fn_name": "add", "inputs": [[1, [2]]], "outputs": [[1, 2]]}


def load(folder: Path) -> tuple[Task, ...]:
    return load_suite(bundled_folder("tasks") / "datasets" / "apps.yaml", folder).tasks


def rows(folder: Path, *made: dict[str, Any]) -> tuple[Task, ...]:
    path = folder / "python" / "apps" / "ic_apps.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(list(made)))
    return load(folder)


def problem(folder: Path, name: str, files: dict[str, Any]) -> None:
    place = folder / "APPS" / name
    place.mkdir(parents=True)
    for file, content in files.items():
        (place / file).write_text(content if isinstance(content, str) else json.dumps(content))


def test_rows_of_programs(tmp_path: Path) -> None:
    gold = "print(sum(map(int, input().split())))"
    tasks = rows(
        tmp_path,
        {"query": "Add.", "gold": gold, "input_output": PROGRAM},
        {"query": "Add again.", "gold": gold, "input_output": json.dumps(PROGRAM)},
    )
    assert [task.id for task in tasks] == ["apps-00000", "apps-00001"]
    for task in tasks:
        assert PythonFields.of(task).tests == (
            ProgramTest("1 2\n", "3\n"),
            ProgramTest("3\n4", "7"),
        )
        assert (task.env, task.gold, entry_of(task), dict(task.metadata)) == (
            *("python", (gold,), "", {}),
        )


def test_rows_of_calls(tmp_path: Path) -> None:
    function, method, none = rows(
        tmp_path,
        {"query": "q", "gold": "def add(a, b): ...", "input_output": CALLS},
        {
            "query": "q",
            "gold": "class Solution:\n    def add(self, a, b): ...",
            "input_output": METHOD,
        },
        {"query": "q", "gold": "pass", "input_output": ""},
    )
    assert PythonFields.of(function).tests == (CallTest((1, 2), 3), CallTest((3, 4), 7))
    assert PythonFields.of(function).entry == "add"
    assert PythonFields.of(method).tests == (CallTest((1, [2]), [1, 2]),)
    assert PythonFields.of(method).entry == "Solution.add"
    assert (PythonFields.of(none).tests, none.skip) == ((), "it has no tests")


def test_results_are_taken_out_of_their_list_only_if_all_stand_in_one(tmp_path: Path) -> None:
    mixed = {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[3], [4, 5]]}
    (task,) = rows(tmp_path, {"query": "q", "gold": "def f(n): ...", "input_output": mixed})
    assert PythonFields.of(task).tests == (CallTest((1,), [3]), CallTest((2,), [4, 5]))


def test_folders(tmp_path: Path) -> None:
    problem(
        *(tmp_path, "train/0001"),
        {
            "question.txt": "Add two numbers.\n",
            "solutions.json": ["print(1)", "print(2)"],
            "input_output.json": PROGRAM,
            "metadata.json": {"difficulty": "interview", "url": "https://example.org"},
        },
    )
    problem(
        *(tmp_path, "test/0000"),
        {
            "question.txt": "Add.",
            "starter_code.py": "class Solution:\n    def add(self, a, b):\n",
            "input_output.json": METHOD,
        },
    )
    problem(tmp_path, "test/0002", {"question.txt": "Nothing is checked."})
    (tmp_path / "APPS" / "test" / "README").write_text("not a problem")
    train, method, none = load(tmp_path)
    assert (train.id, train.dataset, train.hardness) == (
        "apps-train-0001",
        "apps-train",
        "interview",
    )
    assert (train.query, train.gold) == ("Add two numbers.", ("print(1)",))
    assert PythonFields.of(train).tests[0] == ProgramTest("1 2\n", "3\n")
    assert train.metadata["problem"] == "0001"
    assert method.id == "apps-test-0000"
    assert method.query.endswith("class Solution:\n    def add(self, a, b):")
    assert (PythonFields.of(method).entry, method.gold) == ("Solution.add", ("",))
    assert (none.id, none.skip) == ("apps-test-0002", "it has no tests")


def test_what_is_expected_is_nowhere_but_in_the_tests(tmp_path: Path) -> None:
    (task,) = rows(tmp_path, {"query": "q", "gold": "def add(): ...", "input_output": CALLS})
    assert "7" not in repr((task.metadata, task.query, task.view()))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "input_output: not JSON"),
        ([1], "input_output: an object with inputs and outputs is needed"),
        ({"inputs": []}, "input_output: an object with inputs and outputs is needed"),
        ({"inputs": [1], "outputs": []}, "inputs and outputs must be lists of equal length"),
        ({"inputs": 1, "outputs": 2}, "inputs and outputs must be lists of equal length"),
    ],
)
def test_what_is_wrong(source: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=message) as raised:
        rows(tmp_path, {"query": "q", "gold": "g", "input_output": source})
    assert str(raised.value).startswith(f"{tmp_path}/python/apps/ic_apps.json, row 0: ")


def test_broken_folders(tmp_path: Path) -> None:
    problem(
        tmp_path, "test/0000", {"question.txt": "q", "solutions.json": "[", "metadata.json": {}}
    )
    with pytest.raises(SuiteError, match=r"0000/solutions\.json: not JSON"):
        load(tmp_path)
    (tmp_path / "APPS" / "test" / "0000" / "solutions.json").write_text('{"a": 1}')
    with pytest.raises(SuiteError, match=r"solutions\.json must be a list"):
        load(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"has none of python/apps/ic_apps\.json, APPS/train"):
        load(tmp_path)
