"""An answer to a task: what the oracle and the audit play."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer", "quote_both"]

_MAX_CHARACTERS = 300  # of each side


@dataclass(frozen=True)
class Answer:
    """Actions, and what is submitted after them.

    Attributes:
        actions: the actions.
        submitted: the text that is submitted. None for gold that is graded without a submission;
            the audit then submits nothing.
        description: what it is, for people.
        certain: it is certainly wrong; otherwise a person has to judge.
        note: if it solves the task, this is worth a note, but not a fault.
    """

    actions: tuple[str, ...] = ()
    submitted: str | None = None
    description: str = ""
    certain: bool = True
    note: bool = False

    @property
    def evidence(self) -> str:
        """Its text, as evidence for the audit."""
        return "\n".join([*self.actions, f"submit {self.submitted or ''}".rstrip()])


def quote_both(first: Any, second: Any) -> str:
    """Return two values that differ as JSON, shortened."""
    a, b = (json.dumps(side, ensure_ascii=False, default=str) for side in (first, second))
    return f"{a[:_MAX_CHARACTERS]}, then {b[:_MAX_CHARACTERS]}"
