"""Questions on a database whose answers are submitted in words."""

from __future__ import annotations

import pytest

from pytest_intercode.cli import main
from tests.conftest import results

SUITE = """\
suite: shop
env: sql
tasks:
  - id: open
    query: How many orders are open? Submit the number.
    answers: ["2"]
    gold: submit 2
    database: {engine: sqlite, name: shop, script: shop.sql}
"""
AGENTS = """
class Shows:
    def run(self, task, env):
        env.step("SELECT count(*) FROM orders")

class Submits:
    def run(self, task, env):
        text, *_ = env.step("SELECT count(*) FROM orders; DELETE FROM orders")
        assert "2" in text and "read" in text.lower(), text
        env.step("submit ['2.004']")
"""


def test_only_what_is_submitted_is_an_answer(pytester: pytest.Pytester) -> None:
    for name, text in {
        "suite.yaml": SUITE,
        "agents.py": AGENTS,
        "shop.sql": "CREATE TABLE orders (id); INSERT INTO orders VALUES (1), (2);",
    }.items():
        (pytester.path / name).write_text(text)
    path = pytester.path / "r.jsonl"
    rewards = {}
    for agent in ("oracle", "agents.py:Submits", "agents.py:Shows"):
        pytester.runpytest(
            "suite.yaml", f"--intercode-agent={agent}", f"--intercode-results={path}"
        )
        rewards[agent] = results(path)[-1]["reward"]
    assert rewards == {"oracle": 1.0, "agents.py:Submits": 1.0, "agents.py:Shows": 0.0}
    assert main(["rescore", str(path)]) == 0
    paper = ("--intercode-profile=paper", "--intercode-agent=oracle")
    result = pytester.runpytest("suite.yaml", *paper)
    result.stdout.fnmatch_lines(["*answers are graded by the strict profile alone*"])
