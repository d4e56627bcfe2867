"""The MySQL engine on real servers: answers, limits, and agents that mean harm.

Under Docker it is MySQL; with bubblewrap it is the server that this machine has, MariaDB mostly.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import docker
import pytest

from pytest_intercode.core.task import Database, Limits, Task
from pytest_intercode.databases.mysql import state
from pytest_intercode.databases.mysql.engine import MySqlEngine, image_source
from pytest_intercode.databases.mysql.server import MySqlServer
from pytest_intercode.databases.mysql.session import MySqlSession
from pytest_intercode.databases.protocol import Answer
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.sql.fields import SqlFields
from pytest_intercode.environments.sql.paper import PaperSqlEnvironment
from pytest_intercode.environments.sql.strict import SqlEnvironment
from pytest_intercode.errors import (
    EngineUnavailable,
    GoldRefused,
    ImageError,
    SandboxError,
    TaskError,
)
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.conftest import PIDS, owned_by, pids_of, wait_until_gone
from tests.support.thinning import ALL

SHOP = """\
CREATE USER 'owner'@'%' IDENTIFIED BY 'owner';
GRANT ALL PRIVILEGES ON *.* TO 'owner'@'%';
CREATE DATABASE shop_1;
USE shop_1;
CREATE TABLE item (
  id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(20) NOT NULL UNIQUE, price DECIMAL(6, 2),
  added DATE
);
INSERT INTO item (name, price, added) VALUES
  ('pen', 1.20, '2024-01-05'), ('ink', 7.50, '2024-02-01'), ('cap', 7.50, NULL);
CREATE TABLE sale (
  item_id INT, pieces INT CHECK (pieces > 0), FOREIGN KEY (item_id) REFERENCES item (id)
);
INSERT INTO sale VALUES (1, 3), (1, 1), (3, 2);
CREATE VIEW cheap AS SELECT name FROM item WHERE price < 5;
DELIMITER //
CREATE FUNCTION twice (n INT) RETURNS INT DETERMINISTIC
BEGIN
  RETURN 2 * n;
END //
CREATE PROCEDURE both_tables ()
BEGIN
  SELECT COUNT(*) FROM item;
  SELECT COUNT(*) FROM sale;
END //
DELIMITER ;
CREATE TABLE number (n INT PRIMARY KEY);
INSERT INTO number
  WITH RECURSIVE r AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 999) SELECT n FROM r;
CREATE DATABASE elsewhere;
CREATE TABLE elsewhere.item (name VARCHAR(20));
INSERT INTO elsewhere.item VALUES ('lure');
"""
NAMES = "SELECT name FROM item ORDER BY id"
# A base image that has MariaDB, as the official one has.
MARIADB = """\
FROM debian:bookworm-slim
RUN apt-get update \\
    && apt-get install -y --no-install-recommends mariadb-server-core \\
    && rm -rf /var/lib/apt/lists/*
"""
BOMB = "SELECT JSON_ARRAYAGG(REPEAT('x', 1000000)) FROM number a, number b"
ENDLESS = "SELECT COUNT(*) FROM number a, number b, number c, number d WHERE a.n + b.n + c.n < d.n"

Run = Callable[..., Answer]


# A server on bubblewrap is started by test_backend_choice; all of this is run there on demand.
BACKENDS = ["docker", "bubblewrap"] if ALL else ["docker"]


@pytest.fixture(scope="module", params=BACKENDS)
def provider(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SandboxProvider]:
    """A provider of each backend that has a server here."""
    earlier = set(sockets_of(os.getpid()))  # such as that of shims, one for a process
    if request.param == "docker":
        api: docker.APIClient = request.getfixturevalue("docker_api")
        before = owned_by(api, {os.getpid()})  # such as the judge of environments made elsewhere
        provider = SandboxProvider(SandboxSettings("docker"))
        yield provider
        provider.close()
        assert wait_until_gone(api, {os.getpid()}, but=before) == []
    else:
        _skip_without_server()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
            provider = SandboxProvider(SandboxSettings("bubblewrap"))
            yield provider
            provider.close()
            engine = getattr(provider.backend, "engine", None)
            assert isinstance(engine, Bubblewrap)
            assert not engine.sandboxes()
    assert set(sockets_of(os.getpid())) == earlier


def _skip_without_server() -> None:
    if not any(shutil.which(name, path="/usr/sbin:/usr/bin") for name in ("mariadbd", "mysqld")):
        pytest.skip("this machine has no mariadbd and no mysqld")
    try:
        engine = Bubblewrap()
    except EngineUnavailable as unavailable:
        pytest.skip(str(unavailable))
    all_ids = engine.all_ids
    engine.close()
    if not all_ids:
        pytest.skip("a server runs as a user of its own, and sandboxes have root alone here")


@pytest.fixture(scope="module")
def engine(provider: SandboxProvider) -> MySqlEngine:
    return provider.share("mysql", lambda: MySqlEngine(provider))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Database:
    script = tmp_path_factory.mktemp("shop") / "shop.sql"
    script.write_text(SHOP)
    return Database("mysql", "shop_1", (script,))


Open = Callable[..., MySqlSession]


@pytest.fixture
def open_session(engine: MySqlEngine, shop: Database) -> Iterator[Open]:
    """Return a function that opens a session; it is closed when the test is over."""
    opened: list[MySqlSession] = []

    def start(*, writes: bool = False) -> MySqlSession:
        opened.append(engine.session(shop, writes=writes, limits=Limits()))
        return opened[-1]

    yield start
    for session in opened:
        session.close()


@pytest.fixture
def is_mariadb(open_session: Open) -> bool:
    """Whether the server is MariaDB, and some words are other ones."""
    return "MariaDB" in str(rows(open_session(), "SELECT VERSION()"))


def crash(session: MySqlSession) -> Answer:
    """Kill the server while a statement of the session runs; return the answer."""
    kill = "sleep 0.3; kill -KILL $(pidof mariadbd mysqld)"
    killer = threading.Thread(target=session._server._sandbox.admin, args=(kill, 10))
    killer.start()
    answer = run(session, "SELECT SLEEP(20)", 20)
    killer.join()
    return answer


def run(session: MySqlSession, statement: str, timeout: float = 10.0, **bounds: int) -> Answer:
    bounds = {"max_rows": 1000, "max_bytes": 1 << 20, **bounds}
    return session.execute(statement, timeout, **bounds)


def rows(session: MySqlSession, statement: str) -> tuple[tuple[Any, ...], ...]:
    answer = run(session, statement)
    assert answer.result is not None, answer.error
    return answer.result.rows


def task(shop: Database, *gold: str, **fields: Any) -> Task:
    return Task("t", "Do it.", gold, "sql", "s", "s", fields=SqlFields(shop), **fields)


def sockets_of(pid: int) -> list[str]:
    """Name the folders for sockets that a process still holds open."""
    common = Path(tempfile.gettempdir()) / f"pytest-intercode-{os.getuid()}"
    open_files = [path.resolve() for path in Path(f"/proc/{pid}/fd").iterdir()]
    return [str(path) for path in open_files if common in path.parents]


# -- answers


def test_answers(open_session: Open) -> None:
    session = open_session()
    answer = run(session, "SELECT id, name AS n, price, added, NULL FROM item WHERE id < 3")
    assert answer.result is not None
    assert answer.result.columns == ("id", "n", "price", "added", "NULL")
    assert answer.result.rows == (
        (1, "pen", Decimal("1.20"), datetime.date(2024, 1, 5), None),
        (2, "ink", Decimal("7.50"), datetime.date(2024, 2, 1), None),
    )
    assert (answer.error, answer.code, answer.ended, answer.lost) == ("", None, "itself", False)
    assert 0 < answer.seconds < 30
    assert rows(session, "SELECT NAME FROM ITEM WHERE ID = 1") == (
        ("pen",),
    )  # lower_case_table_names
    assert rows(session, "SELECT 'Größe 日本 \U0001f600'") == (("Größe 日本 \U0001f600",),)
    assert rows(session, "SELECT 100 % 7") == ((2,),)
    assert rows(session, "SELECT twice(4)") == ((8,),)
    assert rows(session, "CALL both_tables()") == ((3,),)  # the first of its results
    assert rows(session, "SELECT * FROM cheap;") == (("pen",),)
    answer = run(session, "SET @mine = 3")
    assert replace(answer, seconds=0.0) == Answer()
    assert rows(session, "SELECT @mine") == ((3,),)


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [
        ("SELECT * FROM nothing", 1146, "Table 'shop_1.nothing' doesn't exist"),
        ("SELECT nothing FROM item", 1054, "Unknown column 'nothing'"),
        ("SELEC 1", 1064, "You have an error in your SQL syntax"),
        ("SELECT 1; SELECT 2", 1064, "You have an error in your SQL syntax"),
        ("SELECT nothing(1)", 1305, "FUNCTION shop_1.nothing does not exist"),
        ("", 1065, "Query was empty"),
        ("SELECT '\0'", None, "NUL"),
        ("SELECT '\ud800'", None, "lone surrogate '\\ud800'"),
        (f"SELECT '{'x' * 5_000_000}'", None, "5000009 bytes"),
        ("SELECT CONVERT(0xE4 USING latin1) FROM (SELECT 1) AS t", None, ""),
    ],
)
def test_errors(open_session: Open, statement: str, code: int | None, said: str) -> None:
    session = open_session()
    answer = run(session, statement)
    assert (answer.code, answer.lost) == (code, False)
    assert said in answer.error
    assert rows(session, NAMES)[0] == ("pen",)


def test_other_character_sets(open_session: Open) -> None:
    session = open_session()
    run(session, "SET NAMES latin1")
    answer = run(session, "SELECT CONVERT(0xE4 USING latin1) FROM number")
    assert "utf8mb4" in answer.error
    assert rows(session, "SELECT 1") == ((1,),)


def test_bounds_of_a_result(open_session: Open) -> None:
    session = open_session()

    def size(statement: str, **bounds: int) -> tuple[int, bool]:
        answer = run(session, statement, **bounds)
        assert answer.result is not None, answer.error
        return len(answer.result.rows), answer.result.truncated

    assert size("SELECT n FROM number", max_rows=1000) == (1000, False)
    assert size("SELECT n FROM number", max_rows=999) == (999, True)
    assert size("SELECT a.n FROM number a, number b, number c", max_rows=10) == (10, True)
    # each has 1000 bytes
    thousands = "SELECT REPEAT('x', 1000) FROM number"
    assert size(thousands, max_bytes=1_000_000) == (1000, False)
    assert size(thousands, max_bytes=999_999) == (999, True)
    # a gigabyte
    began = time.monotonic()
    assert size("SELECT REPEAT('x', 1000000) FROM number", max_bytes=4_000_000) == (4, True)
    assert time.monotonic() - began < 30
    # one row of 60 MB
    wide = ", ".join(["REPEAT('x', 3000000)"] * 20)
    answer = run(session, f"SELECT {wide}")
    assert answer.error
    assert answer.result is None
    assert rows(session, NAMES)[0] == ("pen",)


# -- the clock


@pytest.mark.parametrize(
    "statement", ["SELECT SLEEP(1000000)", "DO SLEEP(1000000)", ENDLESS], ids=lambda s: s[:9]
)
def test_the_clock_ends_a_statement_and_no_more(open_session: Open, statement: str) -> None:
    session = open_session()
    run(session, "SET @mine = 3")
    run(session, "SET SESSION max_execution_time = 0")
    answer = run(session, statement, 0.3)
    assert (answer.ended, answer.lost, answer.result) == ("timeout", False, None)
    assert answer.error
    assert 0.3 <= answer.seconds < 30
    for _ in range(20):  # the kill hits none of the statements after it
        assert rows(session, "SELECT @mine") == ((3,),)


def test_an_endless_result_is_stopped(open_session: Open) -> None:
    session = open_session()
    answer = run(
        session,
        "SELECT a.n FROM number a, number b, number c, number d",
        0.3,
        max_rows=10**9,
        max_bytes=10**9,
    )
    assert (answer.ended, answer.result) == ("timeout", None)
    assert answer.seconds < 30
    assert rows(session, NAMES)[0] == ("pen",)


def test_interrupt(open_session: Open) -> None:
    session = open_session()
    threading.Timer(0.3, session.interrupt).start()
    answer = run(session, "SELECT SLEEP(100)")
    assert (answer.ended, answer.result) == ("cancelled", None)
    assert answer.seconds < 30
    assert run(session, "SELECT 1").ended == "cancelled"


# -- harm

HOSTILE = [
    "DROP TABLE sale",
    "DROP DATABASE shop_1",
    "DELETE FROM item",
    "UPDATE item SET name = 'x'",
    "TRUNCATE item",
    "CREATE TABLE mine (a INT)",
    "CREATE TEMPORARY TABLE item (a INT)",
    "CREATE DATABASE mine",
    "CREATE USER mine",
    "GRANT ALL ON *.* TO CURRENT_USER()",
    "SET PASSWORD = 'mine'",
    "ALTER USER CURRENT_USER() IDENTIFIED BY 'mine'",
    "SET GLOBAL max_connections = 1",
    "SET PERSIST sql_mode = ''",
    "LOAD DATA INFILE '/etc/passwd' INTO TABLE item",
    "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE item",
    "SELECT LOAD_FILE('/etc/passwd')",
    "SELECT 'x' INTO OUTFILE '/tmp/x'",
    "SELECT * FROM mysql.user",
    "SHUTDOWN",
    "KILL 1",
    "FLUSH TABLES WITH READ LOCK",
    "LOCK TABLES item WRITE",
    "LOCK INSTANCE FOR BACKUP",
    "INSTALL PLUGIN mine SONAME 'mine.so'",
    "ANALYZE TABLE item",
    "USE elsewhere",
    "SET SESSION sql_select_limit = 1",
    "SET SESSION sql_mode = 'ANSI_QUOTES'",
    "SET SESSION max_execution_time = 1",
    "SET SESSION sort_buffer_size = 4294967296",
    "SET SESSION wait_timeout = 1",
    "SET autocommit = 0",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    "XA START 'mine'",
    "SELECT GET_LOCK('mine', 0)",
    "HANDLER item OPEN",
    "PREPARE mine FROM 'SELECT 1'",
    "SELECT SLEEP(1000000)",
    "SELECT BENCHMARK(1000000000000, SHA2('x', 512))",
    "SELECT GET_LOCK('mine', 0), SLEEP(1000000)",
    ENDLESS,
    "SELECT a.n FROM number a, number b, number c ORDER BY RAND()",
    "SELECT REPEAT('x', 1000000) FROM number a, number b",
    BOMB,
]


@pytest.mark.parametrize(
    "profile", [SqlEnvironment, pytest.param(PaperSqlEnvironment, marks=pytest.mark.slow)]
)
def test_harm_ends_with_its_episode(
    provider: SandboxProvider, shop: Database, profile: type[Environment]
) -> None:
    """After each, the next episode's gold and agent see what they should."""
    looking = task(shop, NAMES)
    held = "SELECT GET_LOCK('mine', 0), @@sql_mode, @@autocommit, @@sort_buffer_size, DATABASE()"
    clean = ""
    for action in ("SELECT 1", *HOSTILE):
        harmful = profile(provider, action_timeout=0.5)
        harmful.reset(task=looking)
        harmful.step(action)
        harmful.step(NAMES)
        harmful.close()
        after = profile(provider)
        after.reset(task=looking)
        observation = after.step(held)[0]
        clean = clean or str(observation)
        assert observation == clean, action
        after.step(NAMES)
        after.submit()
        assert after.final is not None
        assert after.final.value == 1.0, action
        after.close()


def test_use_does_not_redirect_gold(provider: SandboxProvider, shop: Database) -> None:
    for profile in (SqlEnvironment, PaperSqlEnvironment):
        environment = profile(provider)
        environment.reset(task=task(shop, "SELECT name FROM item"))
        environment.step("USE elsewhere")
        environment.step("SELECT name FROM item")
        environment.submit()
        assert environment.final is not None
        assert environment.final.value == 0.0
        environment.close()


def test_gold_is_tied_by_its_collation(provider: SandboxProvider, shop: Database) -> None:
    letters = "SELECT l FROM (SELECT 'b' AS l UNION ALL SELECT 'A' UNION ALL SELECT 'a') AS t"
    with contextlib.closing(SqlEnvironment(provider)) as environment:
        environment.reset(task=task(shop, f"{letters} ORDER BY l"))
        for direction in ("ASC", "DESC"):
            environment.step(f"{letters} ORDER BY l, l COLLATE utf8mb4_bin {direction}")
            assert environment.grade(None).value == 1.0
        environment.step(f"{letters} ORDER BY l DESC")
        assert environment.grade(None).value == 0.5


def test_sessions_cannot_see_or_kill_each_other(open_session: Open) -> None:
    mine, theirs = open_session(), open_session()
    secret = threading.Thread(target=run, args=(theirs, "SELECT SLEEP(1), 'secret'"))
    secret.start()
    time.sleep(0.3)
    number = rows(mine, "SELECT CONNECTION_ID()")[0][0]
    listed = rows(mine, "SHOW PROCESSLIST")
    assert [row[0] for row in listed] == [number]
    for other in range(max(1, number - 10), number + 10):
        if other != number:
            assert run(mine, f"KILL {other}").code in (1094, 1095)
    secret.join()
    assert rows(theirs, "SELECT 1") == ((1,),)


def test_a_server_that_dies_is_replaced(open_session: Open, is_mariadb: bool) -> None:
    """The session whose statement it was gets an error; the others hardly notice.

    MySQL's memory has an end; MariaDB bounds what a session takes, so that it has to be killed.
    """
    idle, variable, harmful = open_session(), open_session(), open_session()
    assert rows(idle, "SELECT 1") == ((1,),)
    run(variable, "SET @mine = 3")
    answer = crash(harmful) if is_mariadb else run(harmful, BOMB, 120, max_bytes=1 << 30)
    assert answer.lost
    assert answer.result is None
    assert "Lost connection" in answer.error
    assert rows(harmful, NAMES)[0] == ("pen",)
    answer = run(idle, "SELECT 2")
    assert (answer.result is not None, answer.lost) == (True, False)
    answer = run(variable, "SELECT @mine")
    assert answer.result is not None
    assert (answer.result.rows, answer.lost) == (((None,),), True)
    assert rows(open_session(), NAMES)[0] == ("pen",)
    # no session has noticed yet
    assert crash(open_session()).lost
    assert rows(open_session(), NAMES)[0] == ("pen",)


@pytest.mark.slow
def test_a_sandbox_that_is_gone_is_replaced(open_session: Open) -> None:
    session, other = open_session(), open_session()
    server = session._server
    server._sandbox.close()
    answer = run(session, "SELECT SLEEP(2)")
    assert answer.lost or answer.result is not None
    assert rows(session, NAMES)[0] == ("pen",)
    assert rows(other, NAMES)[0] == ("pen",)
    assert session._server is other._server is not server


def test_a_writers_sandbox_that_is_gone_is_an_error(open_session: Open) -> None:
    session = open_session(writes=True)

    def run_two() -> None:  # the sandbox ends before the first is sent, or while it runs
        assert run(session, "SELECT SLEEP(2)").lost
        run(session, "SELECT 1")

    session._server._sandbox.close()
    with pytest.raises(SandboxError, match="what was written with it"):
        run_two()


# -- sessions that write


def test_writers_do_not_meet(open_session: Open) -> None:
    one, other, looking = open_session(writes=True), open_session(writes=True), open_session()
    assert run(one, "INSERT INTO item (name) VALUES ('nib')").affected == 1
    assert run(one, "DROP TABLE sale").error == ""
    assert len(one.state().tables["item"].rows) == 4
    for session in (other, looking):
        assert len(rows(session, NAMES)) == 3
        assert len(rows(session, "SELECT * FROM sale")) == 3


@pytest.mark.parametrize(
    ("statements", "kept"),
    [
        ((), True),
        ((NAMES, "SET @mine = 3", "SELECT GET_LOCK('mine', 0)", "BEGIN"), True),
        (("UPDATE item SET price = 1 WHERE id = 1",), False),
        (("DROP TABLE sale",), False),
        (("SET PASSWORD = 'mine'",), False),
        # rolled back, but the next id is another one
        (("BEGIN", "INSERT INTO item (name) VALUES ('nib')", "ROLLBACK"), False),
    ],
    ids=["nothing", "looking", "update", "drop", "password", "rollback"],
)
def test_a_server_is_used_again_if_unchanged(
    engine: MySqlEngine,
    open_session: Open,
    is_mariadb: bool,
    statements: tuple[str, ...],
    kept: bool,
) -> None:
    session = open_session(writes=True)
    server = session._server
    for statement in statements:
        if is_mariadb:  # which wants to be given the hash of a password
            statement = statement.replace("'mine'", "PASSWORD('mine')", statement.count("WORD ="))
        assert run(session, statement).error == ""
    session.close()
    assert (server in engine._servers) == kept
    again = open_session(writes=True)
    assert (again._server is server) == kept
    run(again, "INSERT INTO item (name) VALUES ('nib')")
    assert rows(again, "SELECT MAX(id) FROM item") == ((4,),)
    assert rows(again, "SELECT @mine, IS_FREE_LOCK('mine')") == ((None, 1),)


def test_state(open_session: Open, is_mariadb: bool) -> None:
    session = open_session(writes=True)
    before = session.state()
    assert set(before.tables) == {"item", "sale", "number", "cheap"}
    assert before.tables["cheap"].rows == (("pen",),)
    assert not before.uncommitted
    for statement in (
        "CREATE TABLE extra (a INT DEFAULT 3, b TEXT, UNIQUE (a DESC), CHECK (a > 0))",
        "CREATE INDEX by_price ON item (price, name(4))",
        "CREATE TRIGGER tidy BEFORE INSERT ON item FOR EACH ROW SET NEW.name = trim(NEW.name)",
        "CREATE PROCEDURE look (IN n INT) SELECT n",
        "CREATE TEMPORARY TABLE item (hides INT)",
        "BEGIN",
        "INSERT INTO extra (b) VALUES ('unseen')",
    ):
        assert run(session, statement).error == "", statement
    after = session.state()
    assert after.uncommitted
    assert len(after.tables["item"].rows) == 3
    assert after.tables["extra"].rows == ()
    assert [name for name, _ in after.tables["extra"].columns] == ["a", "b"]
    assert "DEFAULT 3" in after.tables["extra"].columns[0][1]
    new = {name: text for name, text in after.others.items() if name not in before.others}
    assert new["BTREE index by_price on item"] == "price, name(4)"
    assert new["unique BTREE index a on extra"] == "a DESC"
    number = "INT ( 11 )" if is_mariadb else "INT"
    assert new["procedure look"] == f"( IN N {number} ) SELECT N"
    assert new["trigger tidy on item"].startswith("BEFORE INSERT SET NEW . NAME = TRIM")
    assert any(name.startswith("check of extra: ") for name in new)
    assert len(new) == 5
    run(session, "COMMIT")
    run(session, "LOCK TABLES extra WRITE")
    assert session.state().tables["extra"].rows == ((3, "unseen"),)
    run(session, "LOCK TABLES extra WRITE")
    session.interrupt()
    assert session.state().tables["extra"].rows == ((3, "unseen"),)


def test_a_state_that_is_more_than_is_read(
    open_session: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(writes=True)
    with monkeypatch.context() as patch:
        patch.setattr(state, "_MAX_ALL_ROWS", 3)
        assert "more than 3 rows" in session.state().unreadable
    with monkeypatch.context() as patch:
        patch.setattr(state, "_STATE_TIMEOUT", 0.0)
        assert "more than 0 s" in session.state().unreadable
    assert session.state().unreadable == ""
    session.abandon()
    assert session.state().unreadable


def test_a_view_of_the_agents_runs_with_the_agents_rights(open_session: Open) -> None:
    session = open_session(writes=True)
    for statement in (
        "CREATE FUNCTION dawdle (n INT) RETURNS INT DETERMINISTIC RETURN SLEEP(n)",
        "CREATE FUNCTION who () RETURNS INT DETERMINISTIC SQL SECURITY INVOKER "
        "RETURN (SELECT COUNT(*) FROM mysql.user)",
        "CREATE SQL SECURITY INVOKER VIEW slow AS SELECT dawdle(1000000)",
        "CREATE SQL SECURITY INVOKER VIEW nosy AS SELECT who()",
    ):
        assert run(session, statement).error == "", statement
    began = time.monotonic()
    tables = session.state().tables
    assert time.monotonic() - began < 15
    assert tables["slow"].truncated
    assert tables["nosy"].truncated
    assert tables["nosy"].rows == ()


def test_work_of_a_stopped_statement_is_undone(open_session: Open) -> None:
    session = open_session(writes=True)
    run(session, "CREATE TABLE many (a INT)")
    answer = run(session, "INSERT INTO many SELECT a.n FROM number a, number b, number c", 0.5)
    assert answer.ended == "timeout"
    assert rows(session, "SELECT COUNT(*) FROM many") == ((0,),)


def test_what_was_written_survives_the_server(open_session: Open) -> None:
    session = open_session(writes=True)
    run(session, "INSERT INTO item (name) VALUES ('nib')")
    assert crash(session).lost
    assert len(session.state().tables["item"].rows) == 4
    assert len(rows(session, NAMES)) == 4


def test_an_episode_that_writes(provider: SandboxProvider, shop: Database) -> None:
    gold = "UPDATE item SET price = 2 WHERE name = 'pen'", "DELETE FROM sale WHERE pieces = 1"
    for actions, solved in ((gold, True), (gold[:1], False), ((NAMES,), False)):
        environment = SqlEnvironment(provider)
        environment.reset(task=task(shop, *gold))
        for action in actions:
            environment.step(action)
        environment.submit()
        assert environment.final is not None
        assert (environment.final.value == 1.0) == solved
        environment.close()


# -- what is wrong with a suite, or with the engine


def test_gold_that_the_server_refuses(provider: SandboxProvider, shop: Database) -> None:
    environment = SqlEnvironment(provider)
    with pytest.raises(GoldRefused, match=r"Table 'shop_1\.nothing' doesn't exist"):
        environment.reset(task=task(shop, "SELECT * FROM nothing"))
    environment.close()


def test_no_such_database(engine: MySqlEngine, shop: Database) -> None:
    wrong = Database("mysql", "shop", shop.scripts)
    with pytest.raises(TaskError, match="no database 'shop'; they make: elsewhere, shop_1"):
        engine.session(wrong, writes=False, limits=Limits())


@pytest.mark.slow
def test_a_script_that_does_not_load(engine: MySqlEngine, tmp_path: Path) -> None:
    script = tmp_path / "broken.sql"
    script.write_text("CREATE DATABASE d;\nUSE d;\nCREATE TABEL t (a INT);\n")
    with pytest.raises(ImageError, match=r"(?s)loading 001-broken.sql.*ERROR 1064 .* at line 3"):
        engine.session(Database("mysql", "d", (script,)), writes=False, limits=Limits())


def test_an_engine_that_does_not_share_folders(
    provider: SandboxProvider, shop: Database, tmp_path: Path
) -> None:
    """A remote one, say: the server is up, and its socket is elsewhere."""
    for name in ("here", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)

    class Remote:
        def acquire(self, spec: SandboxSpec) -> Sandbox:
            mounts = ((str(tmp_path / "elsewhere"), spec.mounts[0][1]),)
            return provider.acquire(replace(spec, mounts=mounts))

    image = provider.image(image_source(shop.scripts))
    with pytest.raises(SandboxError, match="does not share this machine's folders"):
        MySqlServer(cast(Any, Remote()), image, Limits(), "reading", tmp_path / "here")


# -- MariaDB


@pytest.fixture(scope="module")
def mariadb(docker_api: docker.APIClient) -> Iterator[SandboxProvider]:
    """A provider whose servers are MariaDB's."""
    name = "pytest-intercode-test-mariadb:latest"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Dockerfile").write_text(MARIADB)
        printed = list(docker_api.build(path=folder, tag=name, rm=True, decode=True))
    assert "error" not in printed[-1], printed[-5:]
    provider = SandboxProvider(SandboxSettings(base_images={"debian:bookworm-slim": name}))
    yield provider
    provider.close()


def test_mariadb(mariadb: SandboxProvider, shop: Database) -> None:
    engine = mariadb.share("mysql", lambda: MySqlEngine(mariadb))
    session = engine.session(shop, writes=False, limits=Limits())
    assert "MariaDB" in rows(session, "SELECT VERSION()")[0][0]
    for statement in (*HOSTILE, "SET SESSION max_session_mem_used = 10000000000"):
        answer = run(session, statement, 0.2)
        assert answer.error or answer.result or answer.affected == 0, statement
    session.close()
    session = engine.session(shop, writes=False, limits=Limits())
    assert rows(session, NAMES) == (("pen",), ("ink",), ("cap",))
    assert rows(session, "SELECT IS_FREE_LOCK('mine'), @@autocommit") == ((1, 1),)
    session.close()
    gold = "UPDATE item SET price = 2 WHERE name = 'pen'"
    for actions, solved in (((gold,), True), ((NAMES,), False)):
        environment = SqlEnvironment(mariadb)
        environment.reset(task=task(shop, gold))
        for action in actions:
            environment.step(action)
        environment.submit()
        assert environment.final is not None
        assert (environment.final.value == 1.0) == solved
        environment.close()


# -- pytest runs

SUITE = """\
env: sql
defaults:
  database: {engine: mysql, name: shop_1, script: shop.sql}
tasks:
  - {id: names, query: Name the items., gold: SELECT name FROM item ORDER BY id}
  - {id: refused, query: This cannot be., gold: SELECT * FROM nothing}
  - {id: price, query: What does the ink cost?, gold: "SELECT price FROM item WHERE id = 2"}
"""
WAITS = """\
class Agent:
    def act(self, observation):
        open("waiting", "w").close()
        return "SELECT SLEEP(1000)"
"""


@pytest.fixture
def project(pytester: pytest.Pytester, docker_api: docker.APIClient) -> Path:
    (pytester.path / "shop.sql").write_text(SHOP)
    (pytester.path / "suite.yaml").write_text(SUITE)
    (pytester.path / "waits.py").write_text(WAITS)
    (pytester.path / "conftest.py").write_text(PIDS)
    return pytester.path


def test_a_run(pytester: pytest.Pytester, docker_api: docker.APIClient, project: Path) -> None:
    result = pytester.runpytest_subprocess("suite.yaml", "--intercode-agent=oracle", "-rx")
    result.assert_outcomes(passed=2, xfailed=1)
    result.stdout.fnmatch_lines(["*refused*the engine refuses gold: Table 'shop_1.nothing'*"])
    assert wait_until_gone(docker_api, pids_of(project)) == []


def test_sigkill_leaves_nothing(docker_api: docker.APIClient, project: Path) -> None:
    """The container is gone by itself, and a small process removes the sockets' folders."""
    command = [sys.executable, "-m", "pytest", "suite.yaml", "--intercode-agent=waits.py:Agent"]
    environ = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    killed = subprocess.Popen(command, cwd=project, env=environ, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (project / "waiting").exists():
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert owned_by(docker_api, {killed.pid})
    folders = list(map(Path, sockets_of(killed.pid)))
    assert folders
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert wait_until_gone(docker_api, {killed.pid}) == []
    while any(folder.exists() for folder in folders):
        time.sleep(0.05)
