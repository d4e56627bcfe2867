"""The strict reward for tasks that change a database: whether the end states are equal.

Both sides begin with equal databases. A *change* is one fact about the database that is true only
at the end or only at the start: a row of a table, a table's columns, a view, an index, a trigger,
a constraint. Rows are compared as multisets, columns in any order, and a view by its rows.

The value is 1.0 only when both sides made the same changes. Otherwise it is the share of changes
that both made, of those that either made, below 1; it is 0 if the agent makes none of gold's
changes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pytest_intercode.core.reward import Reward
from pytest_intercode.databases.protocol import Cell, State, Table
from pytest_intercode.rewards.recording import MAX_PARTIAL_REWARD, MAX_RECORDED_SIZE, sha256
from pytest_intercode.rewards.sql_rows import canonical

__all__ = [
    "Changes",
    "changes_between",
    "changes_state",
    "sql_changes_reward",
    "sql_changes_reward_again",
]

_MAX_ROWS = 100_000  # of all tables that may differ; more are not compared one by one

_Row: TypeAlias = "tuple[Cell, ...]"


@dataclass(frozen=True)
class Changes:
    """What one side did to the database.

    Attributes:
        added: the facts that are true only at the end, with their counts.
        removed: the facts that were true only at the start, with their counts.
        uncommitted: whether a transaction was left open, whose work does not count.
        unreadable: why the end state could not be read; empty if it could.
    """

    added: Mapping[str, int] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    uncommitted: bool = False
    unreadable: str = ""

    @property
    def too_many(self) -> bool:
        """Whether a table has too many rows to compare them one by one."""
        facts = (*self.added, *self.removed)
        return any(fact.startswith(("more rows of ", "too many rows of ")) for fact in facts)


def changes_between(before: State, after: State) -> Changes:
    """Return the changes from one state of a database to another."""
    old = Counter(f"{name} {text}".strip() for name, text in before.others.items())
    new = Counter(f"{name} {text}".strip() for name, text in after.others.items())
    remaining = _MAX_ROWS
    for name in sorted(before.tables.keys() | after.tables.keys()):
        old_rows, new_rows = _changed_rows(before.tables.get(name), after.tables.get(name))
        old.update(_facts(name, before.tables.get(name), old_rows, remaining))
        new.update(_facts(name, after.tables.get(name), new_rows, remaining))
        remaining = max(0, remaining - max(len(old_rows), len(new_rows)))
    unreadable = before.unreadable or after.unreadable
    return Changes(new - old, old - new, after.uncommitted, unreadable)


def _changed_rows(before: Table | None, after: Table | None) -> tuple[Counter[_Row], Counter[_Row]]:
    """Return the rows that are in only one of two tables; all, if their columns differ."""
    old, new = (Counter(table.rows if table else ()) for table in (before, after))
    if before is None or after is None or before.columns != after.columns:
        return old, new
    return old - new, new - old


def _facts(name: str, table: Table | None, rows: Counter[_Row], max_rows: int) -> Counter[str]:
    """Return a table's columns and the given rows of it as facts."""
    facts: Counter[str] = Counter()
    if table is None:
        return facts
    folded_name = name.casefold()
    columns = [(column.casefold(), declared) for column, declared in table.columns]
    order = sorted(range(len(columns)), key=lambda index: columns[index])
    facts[f"columns of {folded_name}: {json.dumps([columns[index] for index in order])}"] += 1
    if table.truncated:
        facts[f"more rows of {folded_name}"] += 1
    if len(rows) > max_rows:
        facts[f"too many rows of {folded_name}"] += sum(rows.values())
        return facts
    for row, count in rows.items():
        cells = [canonical(row[index]) for index in order]
        facts[f"row of {folded_name}: {json.dumps(cells)}"] += count
    return facts


def sql_changes_reward(agent: Changes, gold: Changes) -> Reward:
    """Return the strict reward of an end state, with its part ``changes``."""
    if agent.unreadable:
        reason = f"what was left of the database cannot be graded: {agent.unreadable}"
        return Reward(0.0, {"changes": 0.0}, reason)
    pairs = [
        (Counter(agent_facts), Counter(gold_facts))
        for agent_facts, gold_facts in ((agent.added, gold.added), (agent.removed, gold.removed))
    ]
    shared = sum((agent_facts & gold_facts).total() for agent_facts, gold_facts in pairs)
    union = sum((agent_facts | gold_facts).total() for agent_facts, gold_facts in pairs)
    if union and shared == union:
        return Reward(1.0, {"changes": 1.0})
    share = shared / union if union else 0.0
    reason = "nothing was changed"
    if agent.added or agent.removed:
        reason = f"{union - shared} of {union} changes to the database differ from gold's"
        agent_only = [
            f for f in (*agent.added, *agent.removed) if f not in {**gold.added, **gold.removed}
        ]
        if agent_only:
            reason += f", this among them: {agent_only[0][:80]}"
    if agent.uncommitted:
        reason += "; a transaction was left open, and its work is undone"
    return Reward(min(share, MAX_PARTIAL_REWARD), {"changes": share}, reason)


def changes_state(agent: Changes, gold: Changes) -> dict[str, Any]:
    """Return both sides as builtins; many or long facts become digests."""
    size = sum(len(fact) for side in (agent, gold) for fact in (*side.added, *side.removed))
    digested = size > MAX_RECORDED_SIZE

    def encode(facts: Mapping[str, int]) -> dict[str, int]:
        if not digested:
            return dict(facts)
        return {sha256(fact)[:16]: count for fact, count in facts.items()}

    sides = {
        name: {
            "added": encode(side.added),
            "removed": encode(side.removed),
            "uncommitted": side.uncommitted,
            **({"unreadable": side.unreadable} if side.unreadable else {}),
        }
        for name, side in (("agent", agent), ("gold", gold))
    }
    return {**sides, "digested": digested}


def sql_changes_reward_again(state: Mapping[str, Any]) -> Reward:
    """Return the reward from a record that :func:`changes_state` made."""
    return sql_changes_reward(Changes(**state["agent"]), Changes(**state["gold"]))
