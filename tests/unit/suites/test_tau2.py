"""Tasks of tau2-bench as suites read them: what is theirs, what is missing, what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_intercode.environments.tau2.fields import Tau2Fields
from pytest_intercode.errors import SuiteError
from pytest_intercode.rewards.tau2 import tau2_reward
from pytest_intercode.suites.loader import load_suite
from tests.support.tau2_library import RENEW, write_library


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_library(tmp_path)


def test_a_task(suite: Path) -> None:
    renew, unlock, refuse = load_suite(suite).tasks
    assert (renew.id, renew.env) == ("renew", "tau2")
    assert renew.gold == (RENEW, "submit due 15 march")
    assert json.loads(unlock.gold[0])["requestor"] == "user"
    assert renew.query.endswith("<policy>\nBe kind.\n</policy>\n\nThe customer writes:")
    conversation = renew.conversation
    assert conversation is not None
    assert conversation.instructions.endswith(
        "\n\n<scenario>\nPersona:\n\tYou are in a hurry.\nInstructions:\n\tDomain: library\n"
        "\tReason for call:\n\t\tKeep Dune for longer.\n\tTask instructions:\n\t\t-\n</scenario>"
    )
    assert conversation.stops_anywhere
    assert (renew.judge, unlock.judge) == (None, None)
    assert refuse.judge is not None
    assert refuse.judge.product
    assert refuse.judge.rubric.endswith("\n- The agent says that it costs one euro.")
    world = Tau2Fields.of(renew).world
    assert not [name for name in world if "tasks" in name]  # they have gold
    assert world["src/tau2/domains/library/tools.py"].is_file()


def test_its_split_base_is_what_is_on(suite: Path) -> None:
    folder = suite.parent / "tau2/domains/library"
    (folder / "split_tasks.json").write_text('{"base": ["[renew]"], "train": []}')
    assert [task.id for task in load_suite(suite).tasks] == ["renew"]
    (folder / "tasks.json").rename(folder / "tasks_full.json")
    suite.write_text(suite.read_text().replace("tasks.json", "tasks_full.json"))
    assert len(load_suite(suite).tasks) == 3


def test_without_its_database_or_its_code_it_is_skipped(suite: Path) -> None:
    (suite.parent / "tau2/domains/library/db.json").unlink()
    assert {task.skip for task in load_suite(suite).tasks} == {
        f"{suite.parent}/tau2/domains/library: there is no database"
    }


@pytest.mark.parametrize("criteria", [{}, {"evaluation_criteria": {"nl_assertions": ["Hi."]}}])
def test_what_may_be_left_out(suite: Path, criteria: dict[str, object]) -> None:
    task = {"id": "x", "user_scenario": {"instructions": "Ask."}, **criteria}
    (suite.parent / "tau2/domains/library/tasks.json").write_text(json.dumps([task]))
    (loaded,) = load_suite(suite).tasks
    assert loaded.judge is None  # by default the database and what was said are graded
    state = {"agent": {"premature": "", "calls": [], "conversation": []}}
    checks = {"db": False, "assertions": []}
    grading = {**state, "checks": checks, "criteria": Tau2Fields.of(loaded).criteria}
    assert tau2_reward(grading).value == 1.0  # without actions there is nothing to compare with


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "tasks.json: not JSON"),
        ("{}", "tasks.json: a list of tasks is needed"),
        ('[{"id": "x"}]', "tasks.json: task 1: not a task of tau2-bench: user_scenario is missing"),
        ("[7]", "tasks.json: task 1: not a task of tau2-bench: it has another form"),
    ],
)
def test_what_is_wrong_is_said(suite: Path, content: str, message: str) -> None:
    (suite.parent / "tau2/domains/library/tasks.json").write_text(content)
    with pytest.raises(SuiteError, match=message):
        load_suite(suite)


@pytest.mark.parametrize(
    ("splits", "message"),
    [("{}", "split_tasks.json: base is missing"), ("[]", "split_tasks.json: it has another")],
)
def test_splits_that_are_wrong(suite: Path, splits: str, message: str) -> None:
    (suite.parent / "tau2/domains/library/split_tasks.json").write_text(splits)
    with pytest.raises(SuiteError, match=message):
        load_suite(suite)
