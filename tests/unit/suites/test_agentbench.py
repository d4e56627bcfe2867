"""Tasks of AgentBench as suites read them, in files of the same form; and how answers are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import Database
from pytest_intercode.environments.checks.fields import Check, ChecksFields
from pytest_intercode.environments.sql.fields import SqlFields
from pytest_intercode.errors import SuiteError
from pytest_intercode.rewards.checks import checks_reward
from pytest_intercode.suites.agentbench import databases_script
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.rows import read_rows

SUITE = "suite: own\nenv: checks\nrows: {path: os, format: agentbench-os, id: '{number}'}\n"
COUNT = {
    "description": "How many dice are in /dice?",
    "create": {"local": "default", "init": [{"file": "init/dice.sh"}, "touch /dice"]},
    "evaluation": {
        "check": [None, {"language": "python", "file": "check/integer-match.py"}],
        "example": {"code": "wc -l </dice"},
    },
    "labels": ["file", "CPU"],
}
HOME = {
    "description": "What does ~/say print?",
    "start": "useradd -m jack && su - jack",
    "evaluation": {"match": "love"},
}
CALC = {
    "description": "Make a command calc.",
    "evaluation": {
        "check": {"language": "python", "code": "assert argv"},
        "example": "cp /bin/bc /bin/calc",
    },
}


def write(folder: Path, tasks: Any) -> Path:
    for name, content in {
        "os/data/2/own.json": json.dumps(tasks),
        "os/scripts/2/init/dice.sh": "#!/bin/bash\necho $RANDOM >/dice",
        "own.yaml": SUITE,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder / "own.yaml"


def test_tasks_of_the_operating_system(tmp_path: Path) -> None:
    count, home, calc = load_suite(write(tmp_path, [COUNT, HOME, CALC])).tasks
    assert (count.id, count.env, count.gold) == ("std-002-own-00000", "checks", ("wc -l </dice",))
    assert count.setup == ("RANDOM=1\n#!/bin/bash\necho $RANDOM >/dice", "touch /dice")
    assert count.fields == ChecksFields(compare="integer")
    assert {"file", "cpu"} <= set(count.tags)
    assert home.fields == ChecksFields(
        start="useradd -m jack && export HOME=/home/jack", match="love"
    )
    assert home.gold == ("submit love",)
    assert calc.fields == ChecksFields(checks=(Check("assert argv", "python"),))


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("x", "own.json: task 1: not a task of AgentBench: it has another form"),
        ({"description": "x"}, "own.json: task 1: not a task of AgentBench: evaluation is missing"),
        ({**COUNT, "create": {"init": {"file": "../../../x"}}}, "x"),
    ],
)
def test_other_files_are_refused_in_a_line(tmp_path: Path, tasks: Any, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        load_suite(write(tmp_path, tasks))


def test_questions_about_tables(tmp_path: Path) -> None:
    cells = [["it's", None], ["\\n", 2]]
    info = {"columns": [{"name": "a`b"}, {"name": "c"}], "rows": cells}
    shared = {"description": "Q?", "table": {"table_name": "t", "table_info": info}}
    rows = [
        {**shared, "type": ["other"], "label": ["x", 1], "add_description": "It is t."},
        {**shared, "type": ["INSERT"], "label": ["INSERT INTO t VALUES (1, 2)"]},
    ]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    script = databases_script(read_rows(tmp_path / "own.jsonl"))
    (tmp_path / "own.sql").write_text(script)
    assert "CREATE TABLE `t` (`a``b` TEXT, `c` TEXT);" in script
    assert r"INSERT INTO `t` VALUES ('it''s', 'None'), ('\\n', '2');" in script
    suite = tmp_path / "own.yaml"
    suite.write_text("suite: own\nenv: sql\nrows: {path: own.jsonl, format: agentbench-db}\n")
    question, change = load_suite(suite).tasks
    fields = SqlFields.of(question)
    assert fields.database == Database(
        "mysql", "agentbench_000", (tmp_path / "own.sql",), writes=False, optional=True
    )
    assert (fields.answers, question.gold) == (("x", "1"), ('submit ["x", "1"]',))
    assert question.query.startswith("Q?\nIt is t.\n\nSubmit")
    assert (change.gold, change.query) == (("INSERT INTO t VALUES (1, 2)",), "Q?")


@pytest.mark.parametrize(
    ("compare", "answer", "right", "reward"),
    [
        ("integer", " 12\n", "12\n", 1.0),
        ("integer", "+1_2", "12", 1.0),  # as AgentBench's int()
        ("integer", "12 lines", "12", 0.0),
        ("integer", "12.0", "12", 0.0),
        ("integer", "", "0", 0.0),
        ("integer", "9" * 5000, "9", 0.0),
        ("text", "a\r\nb ", "a\nb\n", 1.0),
        ("text", "A", "a", 0.0),
        ("", " love\n", "love", 1.0),
        ("", '"love"', "love", 0.0),
    ],
)
def test_how_an_answer_is_read(compare: str, answer: str, right: str, reward: float) -> None:
    agent = {"answer": answer, "statuses": [], "programs": []}
    gold = {"answer": right, "compare": compare, "checks": 0}
    assert checks_reward({"agent": agent, "gold": gold}).value == reward
