"""The sql environment, strict profile: statements run on the episode's own database.

The task's database names its engine. An engine is imported when a task first needs it, and shared
by all episodes of the process. Gold runs in a session of its own before the agent begins; the
agent's session has no access to it.
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
"""The most characters of an action; the strict profile does not run a longer one."""

Likeness: TypeAlias = Literal["alike", "nothing", "unlike", "never again"]

_MIN_ROOM = 200  # bytes of output for each statement, however many an action has
_OMITTED = "[... {} results in between are left out ...]"


class SqlEnvironment(Environment):
    """Plain SQL: an action is one or more statements, and the session keeps its state."""

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
        """Return no sandboxes, because engines start their own."""
        return []

    def _engine(self, database: Database) -> Engine:
        """Return the engine of a database, which the whole process shares."""
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
        """End immediately whatever reads the agent's database."""
        session = self._session
        if session is not None:
            session.abandon()

    # -- an episode; a profile may override each step

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
        """Run gold and return what ``grade`` needs of it.

        Raises:
            GoldRefused: the engine does not accept gold.
            GoldError: gold did not complete.
        """
        sessions = self.provider.share("sql-gold", KeptSessions)
        return play_gold(sessions, engine, task, self.action_timeout)

    def submission(self, action: str) -> str | None:
        """Return the answer if the action is a submission, such as ``submit`` or ``submit;``."""
        return super().submission("submit" if action.strip() == "submit;" else action)

    def execute(self, action: str) -> Observation:
        """Run an action's statements until the first error, and show each result."""
        texts, executed = self._run(action)
        self._alike.note(action, self._last)
        return Observation("\n".join(texts), executed=executed)

    def _run(self, action: str) -> tuple[list[str], bool]:
        """Run an action's statements within the action's timeout, until the first error.

        Returns:
            The text for each statement, and whether all of them ran. Only the last answer is kept.
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
            if size > 2 * limit:  # omit the previous text in favour of the last one
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
        """Add what the paper profile would have compared to the recorded state."""
        options, alike = self.current_task.reward, self._alike
        # For an empty action, InterCode's driver returns no rows; ours keeps the previous result.
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
        """Return what was compared, as builtins."""
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
    """Return the last statement's result in the form that is compared."""
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
    """Return the texts of an answer's rows, as InterCode compares them; None without a result."""
    if answer is None or answer.error or answer.result is None:
        return None
    return [str(row) for row in answer.result.rows]


def gold_problem(task: Task) -> str:
    """Return why the two profiles do not run a task's gold alike; empty if they do."""
    dialect = database_of(task).engine
    if all(compare_action(text, dialect) == "alike" for text in task.gold):
        return ""
    return "a statement of gold is not the same in both profiles"


# -- actions that both profiles run alike, so that one profile can be graded as the other


def compare_action(action: str, dialect: Dialect) -> Likeness:
    """Compare how the two profiles run an action.

    A strict action is one or more statements. InterCode sends an action unchanged to the server,
    which accepts one statement.

    Returns:
        ``alike``; ``nothing`` if there is nothing to run; ``unlike`` if they differ, but leave
        nothing behind; ``never again`` if later actions may find different states.
    """
    bare = action.strip()
    if not bare:
        return "nothing"
    if bare.startswith("submit") or action == "skip" or len(action) > MAX_ACTION:
        return "never again"  # only one of the profiles ends the episode or refuses the length
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
    """The answer to the last action, as long as both profiles would get the same.

    Attributes:
        answer: the last answer; None before the first.
        problem: why the other profile would have another answer; empty if it would not.
        nothing: the last action did not hold a statement.
        unlike_for_good: why both profiles differ from now on; empty while they do not.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.answer: Answer | None = None
        self.problem = ""
        self.nothing = False
        self.unlike_for_good = ""
        self._dialect = dialect

    def note(self, action: str, answer: Answer | None) -> None:
        """Record an action that was run, and its answer."""
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
