"""Findings of the audit, and which of them a suite acknowledges. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pytest_intercode.core.task import Task

__all__ = ["MEANINGS", "AuditedTask", "Finding", "acknowledge"]

MEANINGS: Mapping[str, str] = {
    "gold-runs": "gold runs to its end, in time, and every action of it with status 0",
    "gold-scores-1": "an agent that plays gold gets the reward 1.0",
    "gold-deterministic": "gold that is run a second later leaves the same",
    "noop-scores-0": "doing nothing does not solve the task",
    "empty-answer-fails": "an empty answer does not solve it",
    "wrong-answer-fails": "an answer that is certainly wrong does not solve it",
    "weak-check": "no changed gold solves it, unless a person finds it right",
    "files-used": "gold reads, or the query names, every file that is there",
    "scratch-clean": "gold leaves nothing in scratch that the query does not speak of",
    "no-duplicates": "no two tasks are the same",
    "judge-consistent": "a judge that is asked again about the same work says the same",
    "judge-labels": "a judge passes what people pass",
    "judge-firm": "no text talks a judge round",
}
"""What each check requires."""

_GOLD_CHECKS = ("gold-runs", "gold-scores-1", "gold-deterministic")
_MAX_EVIDENCE = 4000  # characters that are kept


@dataclass(frozen=True)
class Finding:
    """One problem that one check found in one task.

    Attributes:
        task: the task's id.
        check: the check's name, one of :data:`MEANINGS`.
        said: what is wrong, a sentence.
        evidence: the proof, such as a wrong answer that solves the task; it may quote gold.
        note: whether it is only reported, and is not a fault.
        acknowledged: why it is not a fault of the task, in the suite's own words.
    """

    task: str
    check: str
    said: str
    evidence: str = ""
    note: bool = False
    acknowledged: str = ""

    def __post_init__(self) -> None:
        if len(self.evidence) > _MAX_EVIDENCE:
            object.__setattr__(self, "evidence", f"{self.evidence[:_MAX_EVIDENCE]}[...]")

    @property
    def fault(self) -> bool:
        """Whether the task has to be fixed, or the finding acknowledged."""
        return not (self.note or self.acknowledged)

    def __str__(self) -> str:
        evidence = f"\n{self.evidence}" if self.evidence else ""
        return f"{self.check}: {self.said}{evidence}"

    def row(self) -> dict[str, Any]:
        """Return the finding as builtins."""
        return {**asdict(self), "fault": self.fault}


@dataclass(frozen=True)
class AuditedTask:
    """The result of auditing one task.

    Attributes:
        task: the task.
        findings: what was found.
        unused: the paths of files that gold does not use and nothing names.
        left_out: why it was not audited; empty if it was.
        broken: whether an error prevented the audit, such as a failure of the machine.
    """

    task: Task
    findings: tuple[Finding, ...] = ()
    unused: frozenset[str] = frozenset()
    left_out: str = ""
    broken: bool = False


def acknowledge(finding: Finding, task: Task) -> Finding:
    """Return a finding with its task's reason, if any; ``xfail`` is one for the checks of gold."""
    if finding.note:
        return finding
    reason = task.audit.get(finding.check, "")
    if not reason and finding.check in _GOLD_CHECKS:
        reason = task.xfail or ""
    return replace(finding, acknowledged=reason)
