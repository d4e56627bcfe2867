"""Node ids and files that the README and docs/ name are there, or are made by what is shown."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from pytest_intercode.suites.catalogue import bundled_tasks

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
NODE_ID = re.compile(r"([\w./-]+)::test_solves\[([^\]]+)\]")
COMMAND = re.compile(r"^ *((?:pytest|pytest-intercode) (?:.*\\\n)*.*)$", re.MULTILINE)
FILE = re.compile(r"[\w./*-]+\.(?:jsonl|yaml|py)\b")
# What stands for the reader's own.
OWN = {"my_agent.py", "suite.yaml", "tasks.yaml", "suites/*.yaml"}
# What a page tells the reader to write to; shards come from the jobs of a matrix.
MADE = r"(?:--intercode-(?:results|predictions)|--output|-o)[= ]{name}\b|merge {name}\b"


@cache
def bundled_ids(env: str) -> set[str]:
    return {task.id for task in bundled_tasks(env, env)}


def commands(text: str) -> list[str]:
    return [each.partition("   #")[0].replace("\\\n", " ") for each in COMMAND.findall(text)]


def is_shown(page: str, name: str) -> bool:
    """Whether a page shows the content of a file, or examples/ has it."""
    name = name.lstrip("/")
    if any((ROOT / folder / name).is_file() for folder in (".", "examples", "examples/perl")):
        return True
    return re.search(rf"^```\w+ {re.escape(name)}$", PAGES[page], re.MULTILINE) is not None


def is_made(page: str, name: str) -> bool:
    """Whether a page says how a results file comes to be."""
    if name.startswith("shard-"):
        return "--intercode-shard" in PAGES[page]
    return re.search(MADE.format(name=re.escape(name)), PAGES[page]) is not None


def test_there_is_something_to_test() -> None:
    assert sum(len(NODE_ID.findall(text)) for text in PAGES.values()) >= 2
    assert sum(len(commands(text)) for text in PAGES.values()) > 50


@pytest.mark.parametrize("page", PAGES)
def test_node_ids(page: str) -> None:
    for suite, task in NODE_ID.findall(PAGES[page]):
        if suite.startswith("intercode/"):
            assert task in bundled_ids(suite.removeprefix("intercode/")), f"{suite}: no {task}"
        else:
            assert re.search(rf"\bid: {re.escape(task)}\b", PAGES[page]), f"{suite}: no {task}"


@pytest.mark.parametrize("page", PAGES)
def test_files(page: str) -> None:
    for command in commands(PAGES[page]):
        for name in FILE.findall(command):
            known = is_made(page, name) if name.endswith(".jsonl") else is_shown(page, name)
            assert known or name in OWN, f"{command}: where is {name} from?"
