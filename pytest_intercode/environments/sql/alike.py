"""Which actions of sql both profiles run alike, so that one can be graded as the other would.

A strict action is one or more statements; InterCode sends an action to the server as it is, which
takes one. Pure text and bookkeeping; nothing is run here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from pytest_intercode.databases.protocol import Answer
from pytest_intercode.databases.scan import Dialect, split
from pytest_intercode.environments.sql.text import translate

__all__ = ["LONGEST", "STATELESS", "LastAlike", "compare_action"]

LONGEST = 1024**2
"""Characters of an action; a longer one is not run by the strict profile."""

STATELESS = ("SELECT", "WITH", "VALUES", "TABLE", "EXPLAIN", "SHOW", "DESCRIBE", "DESC")
"""First words of statements that leave nothing in a session."""

Likeness: TypeAlias = Literal["alike", "nothing", "unlike", "never again"]


def compare_action(action: str, dialect: Dialect) -> Likeness:
    """Say how the two profiles run an action.

    Returns:
        ``alike``; ``nothing`` to run; ``unlike``, which leaves nothing behind; ``never again``,
        where what the profiles run next may find different states.
    """
    bare = action.strip()
    if not bare:
        return "nothing"
    if bare.startswith("submit") or action == "skip" or len(action) > LONGEST:
        return "never again"  # for one the end of the episode or too long, for the other not
    if translate(action, dialect) != action:
        return "unlike"
    statements = split(action, dialect)
    if len(statements) == 1:
        ended = bare[:-1].rstrip() if bare.endswith(";") else bare
        if ended == statements[0].text:
            return "alike"
    queries = all(statement.keyword in STATELESS for statement in statements)
    return "unlike" if queries else "never again"


class LastAlike:
    """The answer to the last action, for as long as both profiles would have it.

    Attributes:
        answer: the last that there was; None before the first.
        problem: why it is not what the other profile would have; empty if it is.
        nothing: no statement was run after it, but an action that holds none.
        unlike_for_good: why nothing is the same any more; empty while things are.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.answer: Answer | None = None
        self.problem = ""
        self.nothing = False
        self.unlike_for_good = ""
        self._dialect = dialect

    def note(self, action: str, answer: Answer | None) -> None:
        """Remember an action that was run, and its answer."""
        likeness = compare_action(action, self._dialect)
        self.nothing = likeness == "nothing"
        if likeness == "never again":
            self.unlike_for_good = _SEVERAL
        if self.nothing:
            return
        self.answer = answer
        self.problem = self.unlike_for_good or (_LAST if likeness == "unlike" else "")


_LAST = "the last action is not run alike by both profiles (several statements, or .tables)"
_SEVERAL = "an action is not run alike by both profiles (several statements, or a submission)"
