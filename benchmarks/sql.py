"""SQL statements through an episode, against the bare driver on the same database.

For MySQL, that is PyMySQL with its own connection to the same server. For SQLite, it is the
standard library's module, which runs in our own process, whereas an episode's database has its own
process. The driver fetches all rows; an episode's step also splits the action, enforces its
timeout, and formats the result for the agent.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import backends
from benchmarks.measuring import Scale, Unavailable, in_turn, seconds
from benchmarks.table import Part, Row, duration
from pytest_intercode.core.task import Database, Limits, Task
from pytest_intercode.databases.mysql.engine import image_source
from pytest_intercode.databases.mysql.server import MySqlServer
from pytest_intercode.databases.mysql.session import MySqlSession
from pytest_intercode.environments.sql.fields import SqlFields
from pytest_intercode.environments.sql.strict import SqlEnvironment
from pytest_intercode.errors import IntercodeError
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings

NAME = "stock"
TABLE = "CREATE TABLE part (id INTEGER PRIMARY KEY, name VARCHAR(40), weight INTEGER)"
ROWS = ", ".join(f"({n}, 'part {n}', {n * 37 % 101})" for n in range(1, 201))
FILL = f"INSERT INTO part VALUES {ROWS}"
STATEMENTS = {
    "a statement of one row": "SELECT 1",
    "a query of 20 rows": "SELECT id, name, weight FROM part ORDER BY weight DESC, id LIMIT 20",
}


class OneServer:
    """An engine of the sql environment with one server, whose socket we have."""

    def __init__(self, server: MySqlServer) -> None:
        self._server = server

    def session(self, database: Database, *, writes: bool, limits: Limits) -> MySqlSession:
        """Open a session that only reads."""
        return MySqlSession(
            lambda _: (self._server, self._server.lease()),
            database.name,
            lambda server, account, _: server.give_back(account),
        )

    def close(self) -> None:
        """End the server."""
        self._server.close()


def compare(
    scale: Scale,
    provider: SandboxProvider,
    database: Database,
    driver: str,
    raw: Callable[[str], object],
) -> list[Row]:
    """Measure the statements through an episode and through the driver."""
    task = Task("t", "Look.", ("SELECT 1",), "sql", "b", "b", fields=SqlFields(database))
    environment = SqlEnvironment(provider, max_turns=1_000_000)
    environment.reset(task=task)
    count = scale.pick(100, 3)
    rows = []
    with contextlib.closing(environment):
        for name, statement in STATEMENTS.items():

            def each(work: Callable[[str], object], statement: str = statement) -> float:
                return seconds(lambda: [work(statement) for _ in range(count)]) / count

            times = in_turn(
                {"ours": lambda: each(environment.step), "raw": lambda: each(raw)},
                scale.pick(11, 2),
            )
            product, reference = times["ours"], times["raw"]
            rows.append(
                Row(
                    f"{name}, {database.engine}",
                    f"{1 / product:,.0f}/s ({duration(product)})",
                    f"{driver}: {1 / reference:,.0f}/s ({duration(reference)})",
                    product / reference,
                )
            )
    return rows


def measure(scale: Scale) -> Part:
    """Measure both engines; a note reports a missing one."""
    part = Part("SQL statements (the ratio is of times)")
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        try:
            part.rows += _mysql(scale, folder)
        except Unavailable as reason:
            part.notes.append(f"MySQL is not measured: {reason}")
        part.rows += _sqlite(scale, folder)
    return part


def _mysql(scale: Scale, folder: Path) -> list[Row]:
    try:
        import pymysql
    except ImportError:
        raise Unavailable("PyMySQL is not installed") from None
    script = folder / "stock.sql"
    script.write_text(f"CREATE DATABASE {NAME};\nUSE {NAME};\n{TABLE};\n{FILL};\n")
    shared = folder / "socket"
    shared.mkdir()
    shared.chmod(0o777)
    with contextlib.closing(SandboxProvider(SandboxSettings(backends()[0]))) as provider:
        scale.say("the image of a MySQL server is built when it is first used")
        try:
            image = provider.image(image_source([script]))
            server = MySqlServer(provider, image, Limits(), "reading", shared)
        except IntercodeError as error:
            raise Unavailable(str(error)) from None
        provider.share("mysql", lambda: OneServer(server))
        connection: Any = pymysql.connect(
            unix_socket=str(shared / "mysql.sock"), user="root", database=NAME
        )
        with contextlib.closing(connection), connection.cursor() as cursor:

            def raw(statement: str) -> None:
                cursor.execute(statement)
                cursor.fetchall()

            database = Database("mysql", NAME, (script,))
            return compare(scale, provider, database, "raw PyMySQL", raw)


def _sqlite(scale: Scale, folder: Path) -> list[Row]:
    script = folder / "stock-sqlite.sql"
    script.write_text(f"{TABLE};\n{FILL};\n")
    with (
        contextlib.closing(SandboxProvider()) as provider,
        contextlib.closing(sqlite3.connect(":memory:")) as connection,
    ):
        connection.executescript(script.read_text())
        database = Database("sqlite", NAME, (script,))
        return compare(
            scale,
            provider,
            database,
            "sqlite3, in the process",
            lambda statement: connection.execute(statement).fetchall(),
        )
