"""The sql environment, paper profile: InterCode 1.0.2 with its observations and its reward.

An observation is the text of the driver's rows, and grading compares the text of each row. One
thing is not reproduced: InterCode uses a single connection for the agent, gold and all episodes, so
``use`` redirects gold, and a dropped table is gone for good. Here gold has a session of its own,
and an episode does not affect the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Observation, Profile
from pytest_intercode.databases.protocol import Answer, Engine, Session
from pytest_intercode.environments.paper import PaperEnvironment
from pytest_intercode.environments.sql.fields import SqlFields, database_of
from pytest_intercode.environments.sql.gold import (
    MAX_BYTES,
    MAX_ROWS,
    gold_statements,
    grouped_answer,
    writes,
)
from pytest_intercode.environments.sql.strict import SqlEnvironment, gold_problem, rows_of, texts_of
from pytest_intercode.errors import SandboxError, TaskError
from pytest_intercode.rewards.recording import options_state
from pytest_intercode.rewards.sql_paper import paper_rows_state, sql_paper_reward
from pytest_intercode.rewards.sql_strict import Rows, rows_state

__all__ = ["PaperSqlEnvironment"]

_MAX_SHOWN = 1024**2  # characters of an observation; InterCode has no limit
_WRITES = "the task changes its database, which a paper run does not compare"


@dataclass(frozen=True)
class _Gold:
    """Gold's rows, and those that the strict profile compares with, or why they are unknown."""

    rows: list[str]
    strict: Rows | None
    problem: str


class PaperSqlEnvironment(PaperEnvironment, SqlEnvironment):
    """SQL as in InterCode."""

    name = "sql"
    profile: Profile = "paper"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rows: list[str] | None = None

    def start(self, task: Task) -> None:
        """Run gold, and open the agent's session."""
        self._rows = None
        if SqlFields.of(task).answers:
            raise TaskError(
                f"{task.source}: task {task.id!r}: answers are graded by the strict profile alone"
            )
        super().start(task)

    def _play_gold(self, engine: Engine, task: Task) -> _Gold:
        """Return gold's rows; a gold that fails or does not end has no rows."""
        session = engine.session(database_of(task), writes=writes(task), limits=task.limits)
        try:
            answer = _NOTHING
            for statement in task.gold:
                answer = self._ask(session, statement)
                if answer.lost and answer.ended == "itself":
                    raise SandboxError("gold's session was lost")
            return _Gold(_rows(answer) or [], *self._strict_gold(session, task, answer))
        finally:
            session.close()

    def _strict_gold(self, session: Session, task: Task, last: Answer) -> tuple[Rows | None, str]:
        """Return the rows that the strict profile would compare with, or why they are unknown."""
        if writes(task):
            return None, _WRITES
        problem = gold_problem(task)
        if problem or last.result is None:
            return None, problem or "gold gives no rows"
        statement = gold_statements(task)[-1]
        rows, _ = grouped_answer(session, task, statement, last.result, self.action_timeout)
        return rows, ""

    def _ask(self, session: Session, statement: str) -> Answer:
        if not statement.strip():
            return _NOTHING
        return session.execute(
            statement, self.action_timeout, max_rows=MAX_ROWS, max_bytes=MAX_BYTES
        )

    def execute(self, action: str) -> Observation:
        """Run the action as one statement and show its rows as a Python list."""
        assert self._session is not None
        answer = self._ask(self._session, action)
        self._rows = _rows(answer)
        self._alike.note(action, answer)
        text = str(None)
        if answer.error:
            text = f"Error executing query: {answer.error}"
        elif self._rows is not None:
            text = f"[{', '.join(self._rows)}]"
        if len(text) > _MAX_SHOWN:
            text = f"{text[:_MAX_SHOWN]}[... {len(text) - _MAX_SHOWN} more characters ...]"
        return Observation(text, executed=not answer.error)

    def grade(self, answer: str | None) -> Reward:
        """Compare the last rows with gold's, as texts."""
        gold: _Gold = self._gold
        rows, options, strict = self._rows, self.current_task.reward, gold.strict
        problem = self._alike.unlike_for_good or self._alike.problem or gold.problem
        last = self._alike.answer

        def state() -> dict[str, Any]:
            strict_state: dict[str, Any] = {"problem": problem}
            if strict is not None and not problem:
                strict_state = rows_state(rows_of(last), strict, options)
                strict_state["options"] = options_state(options)
            return {**paper_rows_state(rows, gold.rows), "strict": strict_state}

        self._graded = state
        return sql_paper_reward(rows, gold.rows)


_NOTHING = Answer()


def _rows(answer: Answer) -> list[str] | None:
    """Return the text of an answer's rows; None if it has no result."""
    if answer is _NOTHING:
        return []  # InterCode's driver does not run anything then, and returns no rows
    return texts_of(answer)
