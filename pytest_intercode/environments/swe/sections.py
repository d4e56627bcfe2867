"""The end state of a swe task, for the page: its tests, and what the agent changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.sections import Section, compare_table, show_marked_lines

__all__ = ["end_state_sections"]


def end_state_sections(state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
    """Show the tests, and the patch that the agent left."""
    sections = []
    tests = state.get("tests")
    if isinstance(tests, Mapping):
        lines = []
        for name, mark, meaning in (
            ("unfixed", "!", "fails, and has to pass"),
            ("broken", "!", "passed before, and fails"),
            ("fixed", "=", "passes"),
            ("kept", "=", "passes as before"),
        ):
            lines += [[mark, test, meaning] for test in tests[name]]
        sections.append(compare_table("Tests", ["test", "result"], lines))
    rewards = state.get("rewards")
    if isinstance(rewards, Mapping):  # of a machine's tests, which say themselves what they are
        lines = [["=" if v >= 1 else "!", name, f"{v:g}"] for name, v in rewards.items()]
        sections.append(compare_table("Rewards", ["part", "value"], lines))
    if state["patch"] or not isinstance(rewards, Mapping):
        patch = state["patch"].splitlines()
        marked = [[line[0], line[1:]] if line[:1] in ("+", "-") else ["", line] for line in patch]
        patch_lines = marked or [["", "nothing was changed"]]
        sections.append(show_marked_lines("Patch", patch_lines, same=None))
    if state["left_out"]:
        sections[-1]["note"] = f"Not tested: {', '.join(state['left_out'])}."
    return sections
