"""The end state of an sql task next to gold's, for the report page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.sections import Section, compare_lines, compare_unordered

__all__ = ["end_state_sections"]

_MAX_TIMES = 100  # how often one fact is repeated


def end_state_sections(state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
    """Compare the rows, or the added and removed facts."""
    agent, gold = state["agent"], state["gold"]
    if "added" in agent:
        return _sql_changes(state)
    notes = []
    if "runs" in agent:
        agent_rows, gold_rows = _rows(agent), _rows(gold)
        if agent.get("problem"):
            notes.append(f"The agent's: {agent['problem']}.")
        elif agent["width"] != gold["width"]:
            notes.append(f"Columns: {agent['width']}; gold has {gold['width']}.")
        if gold.get("ordered"):
            notes.append("The order of rows counts.")
    else:
        agent_rows, gold_rows = [str(row) for row in agent["rows"] or ()], [*map(str, gold["rows"])]
        if agent["rows"] is None:
            notes.append("The agent's last action gives no rows.")
    if state.get("digested") or state.get("ranked"):
        notes.append("Too long to be kept: equal numbers are equal rows.")
    ordered = "runs" not in gold or gold.get("ordered")
    section = (compare_lines if ordered else compare_unordered)("Result", agent_rows, gold_rows)
    equal = record.reward >= 1  # nothing else is compared
    if equal and not section["same"]:
        notes.append("Equal by the task's options.")
    return [{**section, "same": equal, **({"note": " ".join(notes)} if notes else {})}]


def _rows(side: Mapping[str, Any]) -> list[str]:
    return [" | ".join(map(_cell, row)) for rows, _ in side["runs"] for row in rows]


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list) and len(value) == 2:
        return str(value[1])
    return str(value)


def _facts(counted: Mapping[str, Any]) -> list[str]:
    """Repeat each fact as often as it is counted; the count in a file may be anything."""
    lines: list[str] = []
    for fact, count in counted.items():
        is_small = isinstance(count, int) and count <= _MAX_TIMES
        lines += [fact] * count if is_small else [f"{fact} ({count} times)"]
    return lines


def _sql_changes(state: Mapping[str, Any]) -> list[Section]:
    agent, gold = state["agent"], state["gold"]
    sections = []
    for title, key in (("What was added", "added"), ("What was removed", "removed")):
        agent_facts, gold_facts = (_facts(side[key]) for side in (agent, gold))
        if agent_facts or gold_facts:
            sections.append(compare_unordered(title, agent_facts, gold_facts))
    if not sections:
        sections.append(compare_unordered("Changes to the database", [], []))
    if state.get("digested"):
        sections[0]["note"] = "Too long to be kept: equal digests are equal facts."
    if agent.get("uncommitted"):
        sections[0] |= {"note": "The agent left a transaction open; its work is undone."}
    return sections
