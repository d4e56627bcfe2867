"""What an agent is shown of its statements, and what it may type besides SQL."""

from __future__ import annotations

from pytest_intercode.core.task import Task
from pytest_intercode.databases.protocol import Answer, Cell, ResultSet
from pytest_intercode.databases.scan import Dialect, Statement
from pytest_intercode.environments.sql.fields import SqlFields
from pytest_intercode.rewards.sql_rows import canonical

__all__ = ["NOTHING", "dialect_of", "not_run", "show", "translate"]

NOTHING = "[nothing was run: the action holds no statement]"

_MAX_ROWS_SHOWN = 200
_MAX_CELL_SHOWN = 2000  # characters
_COUNTED = ("INSERT", "UPDATE", "DELETE", "REPLACE", "WITH")
_HINTS = {
    "SHOW": ".tables lists the tables, .schema NAME describes one",
    "DESCRIBE": ".schema NAME or PRAGMA table_info(NAME) describes a table",
    "DESC": ".schema NAME or PRAGMA table_info(NAME) describes a table",
    "USE": "there is one database, and it is open",
}
_NO_SHELL = "of the sqlite3 shell's own commands only .tables and .schema [NAME] are known"


def dialect_of(task: Task) -> Dialect:
    """Return the dialect of a task's database."""
    database = SqlFields.of(task).database
    return database.engine if database else "sqlite"


def translate(action: str, dialect: Dialect) -> str:
    """Return the SQL for a command of the ``sqlite3`` shell; other actions are unchanged."""
    words = action.strip().rstrip("; \t\n").split(None, 1)
    if dialect != "sqlite" or not words:
        return action
    if words == [".tables"]:
        return (
            "SELECT name FROM main.sqlite_master WHERE type IN ('table', 'view') "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        )
    if words[0] != ".schema":
        return action
    condition = ""
    if len(words) > 1:
        name = words[1]
        if len(name) > 1 and name[0] + name[-1] in ('""', "''", "``", "[]"):
            name = name[1:-1]
        name = name.replace("'", "''")
        condition = f"AND lower(tbl_name) = lower('{name}') "
    return (
        "SELECT sql || ';' AS \"schema\" FROM main.sqlite_master WHERE sql IS NOT NULL "
        f"{condition}ORDER BY tbl_name, type = 'table' DESC, name"
    )


def not_run(remaining: int) -> list[str]:
    """Return the note about statements that come after an error."""
    if not remaining:
        return []
    subject = (
        "statement after it was" if remaining == 1 else f"{remaining} statements after it were"
    )
    return [f"[the {subject} not run]"]


def show(
    statement: Statement, answer: Answer, dialect: Dialect, max_bytes: int, timeout: float
) -> str:
    """Return what an agent is shown of a statement.

    Args:
        statement: the statement.
        answer: the engine's answer.
        dialect: the engine's dialect.
        max_bytes: the approximate limit of the text.
        timeout: the seconds that its action had.
    """
    if answer.error:
        if answer.ended == "timeout" and not answer.lost:
            return f"Error: stopped after {timeout:g} s ({answer.error})"
        hint = ""
        if dialect == "sqlite" and not answer.lost:
            shell = statement.text.startswith(".")
            hint = _NO_SHELL if shell else _HINTS.get(statement.keyword, "")
        return _cut(f"Error: {answer.error}{f' ({hint})' if hint else ''}", max_bytes)
    if answer.result is not None:
        return _table(answer.result, max_bytes)
    if statement.keyword in _COUNTED:
        rows = "row" if answer.affected == 1 else "rows"
        return f"OK, {answer.affected} {rows} affected"
    return "OK"


def _table(result: ResultSet, max_bytes: int) -> str:
    """Format a result: the names of its columns, its rows, and their number."""
    alone = len(result.columns) == 1
    lines = [_cut(" | ".join(result.columns), max_bytes)]
    size = len(lines[0])
    shown_count = 0
    for row in result.rows[:_MAX_ROWS_SHOWN]:
        line = " | ".join(_cell(cell, alone) for cell in row)
        size += len(line.encode("utf-8", "replace")) + 1
        if size > max_bytes and shown_count:
            break
        lines.append(_cut(line, max_bytes))
        shown_count += 1
    count = len(result.rows)
    if shown_count < count or result.truncated:
        total = f"more than {count}" if result.truncated else f"{count}"
        rows = "row is" if shown_count == 1 else f"{shown_count} rows are"
        lines.append(f"[... only the first {rows} shown; the result has {total} rows ...]")
    else:
        lines.append("(1 row)" if count == 1 else f"({count} rows)")
    return "\n".join(lines)


def _cell(cell: Cell, alone: bool) -> str:
    """Format a cell; line ends are kept if the cell is the whole row."""
    if cell is None:
        return "NULL"
    if isinstance(cell, (bytes, bytearray)):
        text = f"x'{bytes(cell[:_MAX_CELL_SHOWN]).hex()}'"
    elif isinstance(cell, (bool, int, float, str)) or not isinstance(canonical(cell), str):
        text = str(cell)
    else:
        text = str(canonical(cell))  # a date or a time, as SQL writes it
    text = _cut(text, _MAX_CELL_SHOWN)
    return text if alone else text.replace("\r", "\\r").replace("\n", "\\n")


def _cut(text: str, max_characters: int) -> str:
    if len(text) <= max_characters:
        return text
    return f"{text[:max_characters]}[... {len(text) - max_characters} more characters ...]"
