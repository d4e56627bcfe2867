"""What suites and rows of ctf tasks may say: one flag, tags of others, columns to ignore."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.loader import Suite, load_rows, load_suite

ROW = {"query": "q", "gold": "flag{x}"}


def load(folder: Path, text: str, *rows: dict[str, Any]) -> Suite:
    (folder / "suite.yaml").write_text(text)
    (folder / "rows.json").write_text(json.dumps([{**ROW, **row} for row in rows]))
    return load_suite(folder / "suite.yaml")


@pytest.mark.parametrize(
    ("gold", "found"),
    [("[a, b]", "['a', 'b']"), ("''", "['']"), ("' '", "[' ']")],
)
def test_a_ctf_task_has_one_flag(tmp_path: Path, gold: str, found: str) -> None:
    text = f"env: ctf\ntasks:\n  - {{id: a, query: q, gold: {gold}}}\n"
    with pytest.raises(SuiteError) as error:
        load(tmp_path, text)
    assert str(error.value) == (
        f"{tmp_path}/suite.yaml:3: task 'a': gold: a ctf task has one flag, found {found}"
    )
    assert len(load(tmp_path, text.replace("ctf", "bash")).tasks) == 1
    (tmp_path / "more.json").write_text(json.dumps([{**ROW, "gold": ["a", "b"]}]))
    with pytest.raises(SuiteError, match="a ctf task has one flag"):
        load_rows(tmp_path / "more.json", "ctf")


def test_tags_of_rows_become_names_of_marks(tmp_path: Path) -> None:
    tags = (["Reverse Engineering", "web"], "Crypto, web\tOld", ["a  b\n"], None)
    rows = [{"tags": each} for each in tags]
    suite = load(tmp_path, "env: ctf\nrows: {path: rows.json}\n", *rows)
    assert [task.tags for task in suite.tasks] == [
        ("reverse-engineering", "web"),
        ("crypto", "web", "old"),
        ("a-b",),
        (),
    ]


@pytest.mark.parametrize("tags", [["a+b"], [""], [3], 3, {"a": "b"}])
def test_tags_that_no_mark_can_have(tmp_path: Path, tags: Any) -> None:
    with pytest.raises(SuiteError, match=r"rows\.json, row 0: tags"):
        load(tmp_path, "env: ctf\nrows: {path: rows.json}\n", {"tags": tags})


def test_overrides_add_tags_and_replace_the_rest(tmp_path: Path) -> None:
    text = """\
env: ctf
defaults: {max_turns: 7}
tasks:
  - {id: own, query: q, gold: g, tags: [old]}
rows:
  path: rows.json
  id: "{task_id}"
overrides:
  own: {tags: [new]}
  "1": {tags: [network, crypto], max_turns: 3}
  "2": {hardness: hard}
"""
    rows = [{"task_id": n, "tags": ["Crypto"], "source": "s"} for n in range(3)]
    tasks = {task.id: task for task in load(tmp_path, text, *rows).tasks}
    assert tasks["own"].tags == ("old", "new")
    assert (tasks["0"].tags, tasks["0"].max_turns) == (("crypto",), 7)
    assert (tasks["1"].tags, tasks["1"].max_turns) == (("crypto", "network"), 3)
    assert (tasks["2"].tags, tasks["2"].hardness) == (("crypto",), "hard")
    assert tasks["1"].metadata == {"task_id": 1, "source": "s"}


def test_columns_to_ignore(tmp_path: Path) -> None:
    row = {"setup": "wget example", "hardness": "easy"}
    text = "env: ctf\nrows: {path: rows.json, ignore: [setup]}\n"
    (task,) = load(tmp_path, text, row).tasks
    assert (task.setup, task.hardness) == ((), "easy")
    assert task.metadata == {"setup": "wget example"}
    with pytest.raises(SuiteError, match="setup: a list is needed"):
        load(tmp_path, text.replace(", ignore: [setup]", ""), row)
