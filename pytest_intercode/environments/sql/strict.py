"""The sql environment, strict profile: statements run on a database of the episode's own.

The task's database says which engine runs it; an engine is imported when a task first needs it, and
shared by all episodes of the process. Gold runs in a session of its own before the agent begins;
the agent's session never knows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Database, Task
from pytest_intercode.core.turn import Observation, Profile
from pytest_intercode.databases.protocol import Answer, Engine, Session
from pytest_intercode.databases.scan import Dialect, split
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.sql.fields import SqlFields, database_of
from pytest_intercode.environments.sql.gold import (
    MAX_BYTES,
    MAX_ROWS,
    STATELESS,
    KeptSessions,
    SqlGold,
    play_gold,
    writes,
)
from pytest_intercode.environments.sql.text import NOTHING, not_run, show, translate
from pytest_intercode.rewards.recording import options_state
from pytest_intercode.rewards.sql_answers import read_answers, sql_answers_reward
from pytest_intercode.rewards.sql_changes import changes_between, changes_state, sql_changes_reward
from pytest_intercode.rewards.sql_paper import paper_rows_state
from pytest_intercode.rewards.sql_rows import canonical_rows
from pytest_intercode.rewards.sql_strict import Rows, Run, rows_state, sql_rows_reward
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = [
    "MAX_ACTION",
    "LastAlike",
    "SqlEnvironment",
    "compare_action",
    "gold_problem",
    "rows_of",
    "texts_of",
]

MAX_ACTION = 1024**2
"""Characters of an action; a longer one is not run by the strict profile."""

Likeness: TypeAlias = Literal["alike", "nothing", "unlike", "never again"]

_MIN_ROOM = 200  # bytes that each of many statements in one action is shown with
_OMITTED = "[... {} results in between are left out ...]"


class SqlEnvironment(Environment):
    """SQL as it is: an action is one or more statements, and the session remembers."""

    name = "sql"
    profile: Profile = "strict"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._session: Session | None = None
        self._gold: Any = None
        self._last: Answer | None = None
        self._alike = LastAlike("sqlite")
        self._graded: Callable[[], dict[str, Any]] = dict

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return nothing: engines start what they need themselves."""
        return []

    def _engine(self, database: Database) -> Engine:
        """Return the engine of a database; one for the process."""
        if database.engine == "sqlite":
            from pytest_intercode.databases.sqlite.engine import SqliteEngine

            return self.provider.share("sqlite", SqliteEngine)
        from pytest_intercode.databases.mysql.engine import MySqlEngine

        return self.provider.share("mysql", lambda: MySqlEngine(self.provider))

    def interrupt(self) -> None:
        """End the running action from another thread."""
        session = self._session
        if session is not None:
            session.interrupt()

    def abandon(self) -> None:
        """Let what reads the agent's database end at once."""
        session = self._session
        if session is not None:
            session.abandon()

    # -- an episode; a profile may do each step in its own way

    def start(self, task: Task) -> None:
        """Run gold, and open the agent's session."""
        database = database_of(task)
        engine = self._engine(database)
        self._last = None
        self._alike = LastAlike(database.engine)
        self._graded = dict
        if SqlFields.of(task).answers:
            self._session = engine.session(database, writes=False, limits=task.limits)
            return
        with self.phases.timed("gold"):
            self._gold = self._play_gold(engine, task)
        self._session = engine.session(database, writes=writes(task), limits=task.limits)

    def _play_gold(self, engine: Engine, task: Task) -> Any:
        """Run gold and return what ``grade`` needs to know of it.

        Raises:
            GoldRefused: the engine does not accept gold.
            GoldError: gold did not run to its end.
        """
        sessions = self.provider.share("sql-gold", KeptSessions)
        return play_gold(sessions, engine, task, self.action_timeout)

    def submission(self, action: str) -> str | None:
        """Return the answer if the action is a submission; ``submit;`` is one, too."""
        return super().submission("submit" if action.strip() == "submit;" else action)

    def execute(self, action: str) -> Observation:
        """Run an action's statements until the first error, and show each."""
        texts, executed = self._run(action)
        self._alike.note(action, self._last)
        return Observation("\n".join(texts), executed=executed)

    def _run(self, action: str) -> tuple[list[str], bool]:
        """Run an action's statements in the time that an action has, until the first error.

        Returns:
            What is shown of each, and whether all of them ran. The last answer alone is kept.
        """
        assert self._session is not None
        if len(action) > MAX_ACTION:
            self._last = Answer(error="the action is too long")
            return [f"[not run: an action has at most {MAX_ACTION} characters]"], False
        statements = split(translate(action, self._dialect), self._dialect)
        deadline = time.monotonic() + self.action_timeout
        limit = self.current_task.limits.output
        size = omitted = 0
        texts: list[str] = []
        for number, statement in enumerate(statements, 1):
            remaining = deadline - time.monotonic()
            answer = Answer(error="not begun", ended="timeout")
            if remaining > 0:
                answer = self._session.execute(
                    statement.text, remaining, max_rows=MAX_ROWS, max_bytes=MAX_BYTES
                )
            self._last = answer
            if size > 2 * limit:  # what comes before the last one gives way to it
                texts[-2 if omitted else -1 :] = [_OMITTED.format(omitted + 1)]
                omitted += 1
            room = max(limit - size, _MIN_ROOM)
            texts.append(show(statement, answer, self._dialect, room, self.action_timeout))
            size += len(texts[-1])
            if answer.error:
                return texts + not_run(len(statements) - number), False
        return texts or [NOTHING], bool(texts)

    @property
    def _dialect(self) -> Dialect:
        return database_of(self.current_task).engine

    def grade(self, answer: str | None) -> Reward:
        """Compare the last result, or the end state of the tables, with gold's."""
        assert self._session is not None
        if right := SqlFields.of(self.current_task).answers:
            answers = None if answer is None else read_answers(answer)
            state = {"agent": {"answers": answers}, "gold": {"answers": list(right)}}
            self._graded = lambda: state
            return sql_answers_reward(state)
        if answer is not None:
            self._last = None
            self._run(answer)
        gold: SqlGold = self._gold
        if gold.before is not None and gold.changes is not None:
            changes = changes_between(gold.before, self._session.state())
            self._graded = self._recorded(partial(changes_state, changes, gold.changes))
            return sql_changes_reward(changes, gold.changes)
        assert gold.rows is not None
        rows = rows_of(self._last)
        options = self.current_task.reward
        self._graded = self._recorded(
            partial(rows_state, rows, gold.rows, options, exact=gold.exact)
        )
        return sql_rows_reward(rows, gold.rows, options)

    def _recorded(self, compared: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
        """Add to a record what the paper profile would have compared."""
        options, alike = self.current_task.reward, self._alike
        # InterCode's driver finds no rows in nothing, where ours keeps the result before.
        unlike = alike.unlike_for_good if alike.nothing else alike.problem
        problem = unlike or gold_problem(self.current_task)
        answer, nothing, last = alike.answer, alike.nothing, self._gold.last

        def state() -> dict[str, Any]:
            paper: dict[str, Any] = {"problem": problem}
            if not problem:
                paper = paper_rows_state([] if nothing else texts_of(answer), texts_of(last) or [])
            return {**compared(), "options": options_state(options), "paper": paper}

        return state

    def end_state(self) -> dict[str, Any]:
        """Return what was compared as builtins."""
        return self._graded()

    @property
    def host(self) -> str:
        """The Docker host of the agent's server; empty for this machine."""
        return self._session.host if self._session is not None else ""

    def stop(self) -> None:
        """Close the agent's session."""
        session, self._session = self._session, None
        self._gold = None
        if session is not None:
            session.close()


def rows_of(last: Answer | None) -> Rows:
    """Return the last statement's result as it is compared."""
    if last is None:
        return Rows(problem="no statement was run")
    if last.ended != "itself":
        return Rows(problem="the last statement was stopped before it ended")
    if last.error:
        return Rows(problem=f"the last statement failed: {last.error}")
    if last.result is None:
        return Rows(problem="the last statement gives no rows")
    rows = canonical_rows(last.result.rows)
    return Rows(len(last.result.columns), (Run(rows),), truncated=last.result.truncated)


def texts_of(answer: Answer | None) -> list[str] | None:
    """Return the text of an answer's rows, as InterCode compares them; None if it has no result."""
    if answer is None or answer.error or answer.result is None:
        return None
    return [str(row) for row in answer.result.rows]


def gold_problem(task: Task) -> str:
    """Say why the two profiles do not run a task's gold alike; return nothing if they do."""
    dialect = database_of(task).engine
    if all(compare_action(text, dialect) == "alike" for text in task.gold):
        return ""
    return "a statement of gold is not the same in both profiles"


# -- which actions both profiles run alike, so that one can be graded as the other would


def compare_action(action: str, dialect: Dialect) -> Likeness:
    """Say how the two profiles run an action.

    A strict action is one or more statements; InterCode sends an action to the server as it is,
    which takes one.

    Returns:
        ``alike``; ``nothing`` to run; ``unlike``, which leaves nothing behind; ``never again``,
        where what the profiles run next may find different states.
    """
    bare = action.strip()
    if not bare:
        return "nothing"
    if bare.startswith("submit") or action == "skip" or len(action) > MAX_ACTION:
        return "never again"  # for one the end of the episode or too long, for the other not
    if translate(action, dialect) != action:
        return "unlike"
    statements = split(action, dialect)
    if len(statements) == 1:
        text = bare[:-1].rstrip() if bare.endswith(";") else bare
        if text == statements[0].text:
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
