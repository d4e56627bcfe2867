"""What the audit finds, and what a suite has to say of it. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pytest_intercode.core.task import AUDIT_CHECKS, Task

__all__ = ["MEANINGS", "Audited", "Finding", "acknowledged"]

MEANINGS: Mapping[str, str] = dict(
    zip(
        AUDIT_CHECKS,
        (
            "gold runs to its end, in time, and every action of it with status 0",
            "an agent that plays gold gets the reward 1.0",
            "gold that is run a second later leaves the same",
            "whoever does nothing does not solve the task",
            "an empty answer does not solve it",
            "an answer that is surely wrong does not solve it",
            "no changed gold solves it, unless a person finds it right",
            "gold reads, or the query names, every file that is there",
            "no two tasks are the same",
        ),
        strict=True,
    )
)
"""What each check asks for."""

_OF_GOLD = ("gold-runs", "gold-scores-1", "twins-agree")
_LONGEST = 4000  # characters of evidence that are kept


@dataclass(frozen=True)
class Finding:
    """One thing that one check found at one task.

    Attributes:
        task: the task's id.
        check: the check's name, one of :data:`MEANINGS`.
        said: what is wrong, a sentence.
        evidence: what shows it, such as the answer that was taken for right; it may quote gold.
        note: it is told, and is no fault.
        acknowledged: why it is no fault of the task, in the suite's own words.
    """

    task: str
    check: str
    said: str
    evidence: str = ""
    note: bool = False
    acknowledged: str = ""

    def __post_init__(self) -> None:
        if len(self.evidence) > _LONGEST:
            object.__setattr__(self, "evidence", f"{self.evidence[:_LONGEST]}[...]")

    @property
    def fault(self) -> bool:
        """Whether somebody has to mend the task, or to acknowledge it."""
        return not (self.note or self.acknowledged)

    def __str__(self) -> str:
        evidence = f"\n{self.evidence}" if self.evidence else ""
        return f"{self.check}: {self.said}{evidence}"

    def row(self) -> dict[str, Any]:
        """Return it as builtins."""
        return {**asdict(self), "fault": self.fault}


@dataclass(frozen=True)
class Audited:
    """What became of one task.

    Attributes:
        task: the task.
        findings: what was found.
        unread: the paths of files that gold did not read and nobody names.
        left_out: why it could not be audited; empty where it was.
        broken: that is the machine's fault, and not known of the task.
    """

    task: Task
    findings: tuple[Finding, ...] = ()
    unread: frozenset[str] = frozenset()
    left_out: str = ""
    broken: bool = False


def acknowledged(finding: Finding, task: Task) -> Finding:
    """Return a finding with what its task says of it; ``xfail`` speaks for gold."""
    if finding.note:
        return finding
    reason = task.audit.get(finding.check, "")
    if not reason and finding.check in _OF_GOLD:
        reason = task.xfail or ""
    return replace(finding, acknowledged=reason)
