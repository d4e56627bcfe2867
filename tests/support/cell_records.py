"""Records of several cells, made in code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_intercode.core.record import EpisodeRecord, Outcome, TaskRecord

__all__ = ["episode", "tries_of"]


def episode(
    task: str = "t",
    outcome: Outcome = "solved",
    *,
    agent: str = "codex",
    treatment: str = "",
    repeat: int = 1,
    item: int | None = None,
    node_id: str = "",
    **arguments: str,
) -> EpisodeRecord:
    """Return the record of an episode without turns; further keywords are the agent's arguments."""
    return EpisodeRecord(
        TaskRecord(task, f"Do {task}.", "bash", "suite", "set", "easy", (), repeat, treatment),
        outcome,
        float(outcome == "solved"),
        (),
        10,
        1.0,
        "strict",
        agent=agent,
        agent_arguments=arguments,
        item=item,
        node_id=node_id,
    )


def tries_of(
    solved: Iterable[str], failed: Iterable[str] = (), *, agent: str = "codex", treatment: str = ""
) -> Iterator[EpisodeRecord]:
    """Yield one try of each task in a cell: of those that it solves, and of those that it fails."""
    for outcome, tasks in (("solved", solved), ("failed", failed)):
        for task in tasks:
            yield episode(task, outcome, agent=agent, treatment=treatment)  # type: ignore[arg-type]
