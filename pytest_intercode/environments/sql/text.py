"""What an agent sees of its statements, and what it may type that is no SQL."""

from __future__ import annotations

from pytest_intercode.databases.protocol import Answer, Cell, ResultSet
from pytest_intercode.databases.scan import Dialect, Statement
from pytest_intercode.rewards.sql_rows import canonical

__all__ = ["NOTHING", "not_run", "show", "translate"]

NOTHING = "[nothing was run: the action holds no statement]"

_SHOWN_ROWS = 200
_SHOWN_CELL = 2000  # characters
_COUNTED = ("INSERT", "UPDATE", "DELETE", "REPLACE", "WITH")
_HINTS = {
    "SHOW": ".tables lists the tables, .schema NAME describes one",
    "DESCRIBE": ".schema NAME or PRAGMA table_info(NAME) describes a table",
    "DESC": ".schema NAME or PRAGMA table_info(NAME) describes a table",
    "USE": "there is one database, and it is open",
}
_NO_SHELL = "of the sqlite3 shell's own commands only .tables and .schema [NAME] are known"


def translate(action: str, dialect: Dialect) -> str:
    """Return the SQL for what people type in the ``sqlite3`` shell, or the action as it is."""
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
    which = ""
    if len(words) > 1:
        name = words[1]
        if len(name) > 1 and name[0] + name[-1] in ('""', "''", "``", "[]"):
            name = name[1:-1]
        name = name.replace("'", "''")
        which = f"AND lower(tbl_name) = lower('{name}') "
    return (
        "SELECT sql || ';' AS \"schema\" FROM main.sqlite_master WHERE sql IS NOT NULL "
        f"{which}ORDER BY tbl_name, type = 'table' DESC, name"
    )


def not_run(left: int) -> list[str]:
    """Return what is said of statements that come after an error."""
    if not left:
        return []
    what = "statement after it was" if left == 1 else f"{left} statements after it were"
    return [f"[the {what} not run]"]


def show(statement: Statement, answer: Answer, dialect: Dialect, most: int, timeout: float) -> str:
    """Return what an agent sees of a statement.

    Args:
        statement: the statement.
        answer: what became of it.
        dialect: the engine's.
        most: bytes that it may have, roughly.
        timeout: seconds that its action had.
    """
    if answer.error:
        if answer.ended == "timeout" and not answer.lost:
            return f"Error: stopped after {timeout:g} s ({answer.error})"
        hint = ""
        if dialect == "sqlite" and not answer.lost:
            shell = statement.text.startswith(".")
            hint = _NO_SHELL if shell else _HINTS.get(statement.keyword, "")
        return _cut(f"Error: {answer.error}{f' ({hint})' if hint else ''}", most)
    if answer.result is not None:
        return _table(answer.result, most)
    if statement.keyword in _COUNTED:
        rows = "row" if answer.affected == 1 else "rows"
        return f"OK, {answer.affected} {rows} affected"
    return "OK"


def _table(result: ResultSet, most: int) -> str:
    """Write a result: the names of its columns, its rows, and how many there are."""
    alone = len(result.columns) == 1
    lines = [_cut(" | ".join(result.columns), most)]
    size = len(lines[0])
    shown = 0
    for row in result.rows[:_SHOWN_ROWS]:
        line = " | ".join(_cell(cell, alone) for cell in row)
        size += len(line.encode("utf-8", "replace")) + 1
        if size > most and shown:
            break
        lines.append(_cut(line, most))
        shown += 1
    count = len(result.rows)
    if shown < count or result.truncated:
        total = f"more than {count}" if result.truncated else f"{count}"
        rows = "row is" if shown == 1 else f"{shown} rows are"
        lines.append(f"[... only the first {rows} shown; the result has {total} rows ...]")
    else:
        lines.append("(1 row)" if count == 1 else f"({count} rows)")
    return "\n".join(lines)


def _cell(cell: Cell, alone: bool) -> str:
    """Write a cell; line ends stay as they are where a row is nothing but the cell."""
    if cell is None:
        return "NULL"
    if isinstance(cell, (bytes, bytearray)):
        text = f"x'{bytes(cell[:_SHOWN_CELL]).hex()}'"
    elif isinstance(cell, (bool, int, float, str)) or not isinstance(canonical(cell), str):
        text = str(cell)
    else:
        text = str(canonical(cell))  # a date or a time, as SQL writes it
    text = _cut(text, _SHOWN_CELL)
    return text if alone else text.replace("\r", "\\r").replace("\n", "\\n")


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}[... {len(text) - most} more characters ...]"
