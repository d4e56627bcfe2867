"""The end state of a python task, for the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_intercode.environments.sections import Section, compare_table

__all__ = ["end_state_sections"]


def end_state_sections(state: Mapping[str, Any]) -> list[Section]:
    """Show the tests and what each did."""
    if "tests" in state:
        lines = [
            ["!" if failure else "=", f"{number}", str(failure or "passed")]
            for number, failure in enumerate(state["tests"], 1)
        ]
        return [compare_table("Hidden tests", ["test", "what it did"], lines)]
    agent, gold = state["agent"], state["gold"]
    tests = [*agent, *(test for test in gold if test not in agent)]
    lines = [
        [
            "=" if test in agent and agent[test] == gold.get(test) else "!",
            test,
            str(agent.get(test, "")),
            str(gold.get(test, "")),
        ]
        for test in tests
    ]
    return [compare_table("Tests", ["test", "agent", "gold"], lines)]
