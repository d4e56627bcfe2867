"""The sql environment, paper profile: InterCode 1.0.2 with its observations and its reward.

An observation is the text of the driver's rows, and grading compares the text of each. What is
left out of it: InterCode's one connection serves agent, gold and all episodes, so that ``use``
redirects gold, and a table that is dropped is gone for good. Here gold has a session of its own,
and nothing crosses from one episode to the next.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pytest_intercode.databases.protocol import Answer, Engine, Session
from pytest_intercode.environments.base import Observation, Profile
from pytest_intercode.environments.skipping import SkippingEnvironment
from pytest_intercode.environments.sql import SqlEnvironment
from pytest_intercode.environments.sql_gold import MAX_BYTES, MAX_ROWS, writes
from pytest_intercode.errors import SandboxError
from pytest_intercode.rewards.protocol import Reward
from pytest_intercode.rewards.sql_paper import sql_paper_reward
from pytest_intercode.suites.task import Task

__all__ = ["PaperSqlEnvironment"]

_SHOWN = 1024**2  # characters of an observation; InterCode has no limit
_KEPT = 2000  # rows of a side that are kept with the record


class PaperSqlEnvironment(SkippingEnvironment, SqlEnvironment):
    """SQL as InterCode sees it."""

    name = "sql"
    profile: Profile = "paper"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rows: list[str] | None = None

    def _submission(self, action: str) -> str | None:
        return "" if action.startswith("submit") else None

    def _start(self, task: Task) -> None:
        self._rows = None
        super()._start(task)

    def _play_gold(self, engine: Engine, task: Task) -> list[str]:
        """Return gold's rows; a gold that fails, or does not end, has none."""
        assert task.database is not None
        session = engine.session(task.database, writes=writes(task), limits=task.limits)
        try:
            rows: list[str] | None = None
            for statement in task.gold:
                answer = self._ask(session, statement)
                if answer.lost and answer.ended == "itself":
                    raise SandboxError("gold's session was lost")
                rows = _rows(answer)
            return rows or []
        finally:
            session.close()

    def _ask(self, session: Session, statement: str) -> Answer:
        if not statement.strip():
            return _NOTHING
        return session.execute(
            statement, self.action_timeout, max_rows=MAX_ROWS, max_bytes=MAX_BYTES
        )

    def _execute(self, action: str) -> Observation:
        assert self._session is not None
        answer = self._ask(self._session, action)
        self._rows = _rows(answer)
        text = str(None)
        if answer.error:
            text = f"Error executing query: {answer.error}"
        elif self._rows is not None:
            text = f"[{', '.join(self._rows)}]"
        if len(text) > _SHOWN:
            text = f"{text[:_SHOWN]}[... {len(text) - _SHOWN} more characters ...]"
        return Observation(text, executed=not answer.error)

    def _grade(self, answer: str | None) -> Reward:
        gold: list[str] = self._gold
        self._graded = partial(_both, self._rows, gold)
        return sql_paper_reward(self._rows, gold)


_NOTHING = Answer()


def _rows(answer: Answer) -> list[str] | None:
    """Return the text of an answer's rows; None if it has no result."""
    if answer.error:
        return None
    if answer is _NOTHING:
        return []  # InterCode's driver runs nothing, and finds no rows
    return None if answer.result is None else [str(row) for row in answer.result.rows]


def _both(agent: list[str] | None, gold: list[str]) -> dict[str, Any]:
    return {"agent": _kept(agent), "gold": _kept(gold)}


def _kept(rows: list[str] | None) -> dict[str, Any]:
    if rows is None:
        return {"rows": None}
    return {"rows": rows[:_KEPT], "count": len(rows)}
