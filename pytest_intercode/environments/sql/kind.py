"""The sql kind: statements on one database; the last result or the changes are graded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import DATABASE_ENGINES, ImageSource, RewardOptions, Task, TaskView
from pytest_intercode.environments.answer import Answer, quote_both
from pytest_intercode.environments.kind import EnvironmentKind, Tool
from pytest_intercode.environments.recorded import (
    NotRecorded,
    RecordedEpisode,
    ends_with_skip,
    unsubmitted,
)
from pytest_intercode.errors import SuiteError

if TYPE_CHECKING:
    from pytest_intercode.databases.scan import Dialect
    from pytest_intercode.environments.sections import Section

__all__ = ["SqlKind"]

_EXAMPLES = {"sqlite": "SELECT sql FROM sqlite_master", "mysql": "SHOW TABLES"}


class SqlKind(EnvironmentKind):
    """Statements on a database."""

    name = "sql"
    profiles = MappingProxyType(
        {
            "strict": "pytest_intercode.environments.sql.strict:SqlEnvironment",
            "paper": "pytest_intercode.environments.sql.paper:PaperSqlEnvironment",
        }
    )
    fields = "pytest_intercode.environments.sql.fields:SqlFields"
    has_verification = False
    language = "SQL"
    labels = ("sql", "mysql", "mariadb", "sqlite", "sqlite3")
    suffix = ".sql"
    graded = "The last result, or the changes made in the database, are graded."
    answer = "a last SELECT, which is graded in place of the last result; mostly empty"
    answer_instruction = (
        "Leave the answer empty: your last result, or the data as you leave them, are graded."
    )
    tool = Tool("sql", "statement", "Run statements in the task's database.")
    continuation = "SQL goes on until a ; or an empty line"
    shows_workdir = False
    idle_action = "SELECT 1"
    siblings_are_wrong = True
    unrecorded = "gold's rows"
    prompt = """\
You work on the $engine database "$database". An action is $language for $engine.

What is graded is the result of your last statement or, if the task is to change data, the data as
you leave them. The result should have the columns that the task asks for and no others. Look at the
tables first if you can: you do not know their names yet.
"""

    def check(self, task: Task) -> None:
        """Check that the task has a database, which consists of files."""
        from pytest_intercode.environments.sql.fields import database_of

        database = database_of(task)
        for path in filter(None, (*database.scripts, database.file)):
            if path.is_dir():
                raise SuiteError(f"{task.source}: task {task.id!r}: database: {path} is not a file")

    def needs_sandbox(self, task: Task) -> bool:
        """Whether a server runs the statements, and not a Python library."""
        return self.extra(task) != ""

    def images(self, task: Task) -> list[ImageSource]:
        """Return the image of the server that has the task's database."""
        from pytest_intercode.environments.sql.fields import database_of

        if not self.needs_sandbox(task):
            return []
        from pytest_intercode.databases.mysql.engine import image_source

        return [image_source(database_of(task).scripts)]

    def extra(self, task: Task) -> str:
        """Return the extra of the server's client."""
        from pytest_intercode.environments.sql.fields import database_of

        return "" if database_of(task).engine == "sqlite" else "mysql"

    def data_of(self, task: Task) -> tuple[Any, ...]:
        """Return the data that a task works on, including its database."""
        from pytest_intercode.environments.sql.fields import SqlFields

        return (*super().data_of(task), SqlFields.of(task).database)

    def describe_code(self, task: TaskView) -> str:
        """Describe an action, for models: statements for an engine, in a database."""
        name = DATABASE_ENGINES.get(task.engine)
        engine = f" for {name}" if name else ""
        database = f", run in the database {task.database!r}" if task.database else ""
        return f"SQL statements{engine}{database}"

    def example_of(self, task: TaskView) -> str:
        """Return a statement that shows the tables of a database."""
        return _EXAMPLES.get(task.engine, self.example)

    def missing_input(self, text: str, engine: str) -> str:
        """Ask for a ``;`` at the end of a statement, or an empty line."""
        from pytest_intercode.databases.scan import split

        if engine == "sqlite" and text.lstrip().startswith("."):
            return ""
        *earlier, last = text.split("\n")
        if not last.strip() and any(line.strip() for line in earlier):
            return ""
        # Text that follows a complete statement begins another one.
        dialect = cast("Dialect", engine or "sqlite")
        if split(f"{text}\nx", dialect)[-1].text == "x" and split(text, dialect):
            return ""
        return "a ; at its end, or an empty line"

    def gold_answer(self, task: Task) -> Answer:
        """Return gold's statements, or a submission of the right answers."""
        from pytest_intercode.environments.sql.fields import SqlFields

        answers = SqlFields.of(task).answers
        return Answer(submitted=_in_json(answers)) if answers else super().gold_answer(task)

    def empty_answers(self, task: Task, state: Mapping[str, Any]) -> Iterator[Answer]:
        """Yield a result without rows that has as many columns as gold's."""
        from pytest_intercode.environments.sql.mutations import select_no_rows

        width = state.get("gold", {}).get("width", 1)
        yield Answer((select_no_rows(max(width, 1)),), description="no rows")

    def wrong_answers(self, task: Task) -> Iterator[Answer]:
        """Return gold with one part of its last statement changed, or changed answers."""
        from pytest_intercode.environments.sql.fields import SqlFields
        from pytest_intercode.environments.sql.mutations import change_gold

        if answers := SqlFields.of(task).answers:
            texts = (_in_json((*answers, "x")), _in_json(f"{text}x" for text in answers))
            return (Answer(submitted=text, description="answers changed") for text in texts)
        return change_gold(task)

    def normalise_gold(self, task: Task) -> str:
        """Return gold without comments and differences in layout and in the case of words."""
        from pytest_intercode.databases.scan import scan
        from pytest_intercode.environments.sql.text import dialect_of

        text = "\n".join(task.gold)
        tokens = [token for token in scan(text, dialect_of(task)) if token.text != ";"]
        return " ".join(t.text.casefold() if t.kind == "word" else t.text for t in tokens)

    def describe_unequal(self, state: Mapping[str, Any]) -> str:
        """Quote both sides."""
        return quote_both(state["agent"], state["gold"])

    def score(self, episode: RecordedEpisode) -> Reward:
        """Compare results or changes again; each profile also records what the other compares."""
        from pytest_intercode.rewards.sql_answers import sql_answers_reward
        from pytest_intercode.rewards.sql_changes import sql_changes_reward_again
        from pytest_intercode.rewards.sql_paper import sql_paper_reward_again

        record, paper = episode.record, episode.profile == "paper"
        if episode.played == episode.profile:
            if paper:
                return sql_paper_reward_again(episode.state)
            if "answers" in episode.state["agent"]:
                return sql_answers_reward(episode.state)
            if "added" in episode.state["agent"]:
                return sql_changes_reward_again(episode.state)
            return _score_rows(episode.state, episode.options)
        problem = ""
        if paper:
            if ends_with_skip(record):
                return Reward(0.0)
        elif not unsubmitted(record) and record.turns[-1].action.strip().rstrip("; ") != "submit":
            problem = "an answer behind submit is run by the strict profile alone"
        elif ends_with_skip(record):
            problem = "the episode ended with skip, and was not graded"
        other_state = episode.state.get(episode.profile, {})
        problem = problem or other_state.get("problem", "")
        if problem:
            raise episode.not_recorded(problem)
        if paper:
            return sql_paper_reward_again(other_state)
        return _score_rows(other_state, episode.options)

    def end_state_sections(self, state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
        """Return the answers, the rows, or the added and removed facts."""
        if "answers" in state["agent"]:
            from pytest_intercode.environments.sections import compare_table

            answers = (str(state[side]["answers"]) for side in ("agent", "gold"))
            line = ["=" if record.reward >= 1 else "!", "answers", *answers]
            return [compare_table("Answers", ["what", "agent's", "gold's"], [line])]
        from pytest_intercode.environments.sql.sections import end_state_sections

        return end_state_sections(state, record)


def _in_json(answers: Iterable[str]) -> str:
    return json.dumps([*answers], ensure_ascii=False)


def _score_rows(state: Mapping[str, Any], options: RewardOptions | None) -> Reward:
    from pytest_intercode.rewards.recording import options_again
    from pytest_intercode.rewards.sql_strict import sql_rows_reward_again

    recorded = options_again(state["options"])
    if options is not None and options != recorded:
        if state["digested"] or options.rows != recorded.rows:
            raise NotRecorded(
                "sql: what reward.rows says was applied when gold was run, and long results are "
                "recorded as digests: run it again with --intercode-agent=replay:FILE"
            )
        recorded = options
    return sql_rows_reward_again(state, recorded)
