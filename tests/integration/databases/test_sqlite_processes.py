"""SQLite's processes: what they can reach, what they leave behind, how they are replaced."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import Database, Limits, Task
from pytest_intercode.databases.sqlite import process
from pytest_intercode.databases.sqlite.engine import SqliteEngine
from pytest_intercode.databases.sqlite.session import SqliteSession
from pytest_intercode.environments.sql.fields import SqlFields
from pytest_intercode.environments.sql.gold import KeptSessions
from pytest_intercode.environments.sql.strict import SqlEnvironment
from pytest_intercode.errors import SandboxError, TaskError
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.support.portable_ways import PRELUDE, ROOT, both_ways
from tests.support.sql_shop import (
    CHEAPEST,
    ENDLESS,
    RAISE,
    SHOP,
    STUBBORN,
    Start,
    reward_of,
)

way = both_ways


def _session(engine: SqliteEngine, database: Database, writes: bool = False) -> SqliteSession:
    return engine.session(database, writes=writes, limits=Limits())


def _ask(session: SqliteSession, query: str) -> Any:
    answer = session.execute(query, 5.0, max_rows=100, max_bytes=10_000)
    return answer.result.rows if answer.result else answer.error or None


def test_a_process_can_open_no_file(sqlite_engine: SqliteEngine, shop: Database, way: str) -> None:
    pid = _session(sqlite_engine, shop)._live().pid
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    rows = {line[:26].strip(): line[26:].split()[:2] for line in limits}
    assert rows["Max file size"] == ["0", "0"]
    assert rows["Max core file size"] == ["0", "0"]
    assert (rows["Max address space"][0] == "unlimited") == (way == "portable")
    taken = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    free = next(number for number in range(100) if number not in taken)
    assert rows["Max open files"] == [str(free)] * 2  # so the next one to be opened is too many
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert environment == b"MALLOC_ARENA_MAX=1\0"


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_database_files(
    sqlite_engine: SqliteEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wal: bool,
    large: bool,
) -> None:
    path = tmp_path / "it's 100%?#.sqlite"
    connection = sqlite3.connect(path)
    if wal:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(SHOP)
    connection.close()
    before = path.read_bytes(), sorted(tmp_path.iterdir())
    if large:
        monkeypatch.setattr("pytest_intercode.databases.sqlite.engine._MAX_COPIED_BYTES", 100)
    database = Database("sqlite", "shop", file=path)
    reading = _session(sqlite_engine, database)
    assert _ask(reading, "SELECT count(*) FROM item") == ((5,),)
    assert "read-only" in _ask(reading, "DELETE FROM item")
    assert str(tmp_path) not in str(_ask(reading, "PRAGMA database_list"))
    _ask(reading, "CREATE TEMP TABLE x AS SELECT * FROM item")
    assert _ask(reading, "SELECT count(*) FROM x") == ((5,),)
    writing = _session(sqlite_engine, database, writes=True)
    assert _ask(writing, "DELETE FROM item") is None
    assert _ask(writing, "SELECT count(*) FROM item") == ((0,),)
    assert _ask(reading, "SELECT count(*) FROM item") == ((5,),)
    reading.close()
    writing.close()
    assert (path.read_bytes(), sorted(tmp_path.iterdir())) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("CREATE TABLE t (a);\n\nINSERT INTO t VALUES (1, 2);", r"x\.sql:3: table t has 1 columns"),
        ("ATTACH '/tmp/intercode-test.db' AS x;", r"x\.sql:1: ATTACH, DETACH and VACUUM cannot be"),
        ("CREATE TABLE t (a", r"x\.sql:1: incomplete input"),
    ],
)
def test_mistakes_in_scripts(
    sqlite_engine: SqliteEngine, tmp_path: Path, content: str, message: str
) -> None:
    script = tmp_path / "x.sql"
    script.write_text(content)
    with pytest.raises(TaskError, match=message):
        _session(sqlite_engine, Database("sqlite", "x", (script,)))


def test_several_scripts_and_what_is_no_database(
    sqlite_engine: SqliteEngine, tmp_path: Path
) -> None:
    first, second, third = (tmp_path / name for name in ("a.sql", "b.sql", "c.sqlite"))
    first.write_text("BEGIN; CREATE TABLE t (a); COMMIT; -- the end")
    second.write_text("INSERT INTO t VALUES (1)")
    third.write_text("no database, and more than sixteen bytes")
    assert _ask(
        _session(sqlite_engine, Database("sqlite", "x", (first, second))), "SELECT * FROM t"
    ) == ((1,),)
    with pytest.raises(TaskError, match=r"c\.sqlite: is not an SQLite database"):
        _session(sqlite_engine, Database("sqlite", "x", file=third))


def test_cells_come_as_they_are(sqlite_engine: SqliteEngine, shop: Database) -> None:
    session = _session(sqlite_engine, shop)
    row = (1, -(2**63), 2**63 - 1, 2.5, None, "é\n", "", b"\0\xff", b"", float("inf"))
    query = (
        "SELECT 1, -9223372036854775808, 9223372036854775807, 2.5, NULL, 'é\n', '', x'00ff', x'', "
        "9e999 UNION ALL SELECT NULL, 'a', x'01', 2, 1.5, NULL, 3, 'b', 4, 5"
    )
    assert _ask(session, query) == (row, (None, "a", b"\1", 2, 1.5, None, 3, "b", 4, 5))
    assert _ask(session, "SELECT CAST(x'ff61' AS TEXT)") == (("\\xffa",),)


OLD = """
import functools, sqlite3, sys

class Old(sqlite3.Connection):
    def __getattribute__(self, name):
        if name in ("serialize", "deserialize", "setlimit"):
            raise AttributeError(name)
        return super().__getattribute__(name)

sqlite3.connect = functools.partial(sqlite3.connect, factory=Old)
"""


def test_what_python_3_10_lacks_is_not_needed(
    start: Start, tmp_path: Path, shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_START", OLD + process._START)
    provider = SandboxProvider()
    script = tmp_path / "shop.sql"
    script.write_text(SHOP)
    file = tmp_path / "shop.sqlite"
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(SHOP)
    connection.close()
    for database in (
        Database("sqlite", "shop", (script,)),
        Database("sqlite", "shop", file=file),
    ):
        for gold in (CHEAPEST, RAISE):
            environment = SqlEnvironment(provider, action_timeout=2.0)
            environment.reset(
                task=Task("t", "q", (gold,), "sql", "s", "s", fields=SqlFields(database))
            )
            said = environment.step("SELECT length(hex(randomblob(900000000)))")[0]
            assert not said.executed
            assert reward_of(environment, gold) == 1.0
            environment.close()
    provider.close()
    assert not provider._state.started


CLIENT = """
import os, sys, threading, time
from pathlib import Path
from pytest_intercode.databases.sqlite.engine import SqliteEngine
from pytest_intercode.core.task import Database, Limits

engine = SqliteEngine()
database = Database("sqlite", "shop", (Path(sys.argv[1]),))
sessions = [engine.session(database, writes=writes, limits=Limits()) for writes in (True, False)]
pids = [session._process.pid for session in sessions] + [engine._forks._forker.pid]
if os.fork() == 0:  # it holds every pipe of its parent's
    time.sleep(20)
    os._exit(0)
query = sys.argv[2]
for session in sessions:
    run = lambda: session.execute(query, 60, max_rows=1, max_bytes=1)
    threading.Thread(target=run, daemon=True).start()
time.sleep(0.3)
print(*pids, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    "query", ["SELECT 1", ENDLESS, STUBBORN.replace("2000000000", "900000000")]
)
def test_nothing_outlives_a_client_that_is_killed(
    tmp_path: Path, shop: Database, way: str, query: str
) -> None:
    before = set(Path("/tmp").iterdir()) | set(Path("/dev/shm").iterdir())
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    script = CLIENT if way == "linux" else PRELUDE + CLIENT
    client = subprocess.Popen(
        [sys.executable, "-c", script, str(shop.scripts[0]), query],
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    assert client.stdout is not None
    pids = [int(word) for word in client.stdout.readline().split()]
    assert len(pids) == 3
    assert all(_alive(pid) for pid in pids)
    client.kill()
    client.wait()
    try:
        _wait_for_end(*pids)
    finally:
        os.killpg(client.pid, signal.SIGKILL)  # the child that it forked
        client.stdout.close()
    after = set(Path("/tmp").iterdir()) | set(Path("/dev/shm").iterdir())
    assert not [path for path in after - before if "sqlite" in path.name or "etilqs" in path.name]
    assert not list(tmp_path.iterdir())


def _wait_for_end(*pids: int) -> None:
    deadline = time.monotonic() + 10
    while any(map(_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(_alive, pids))


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_process_that_is_killed_is_replaced(start: Start) -> None:
    environment = start(RAISE)
    environment.step(RAISE)
    session = environment._session
    assert isinstance(session, SqliteSession)
    os.kill(session._live().pid, signal.SIGKILL)
    observation = environment.step("SELECT 1")[0]
    assert "the session was lost with the statement; a new session has the database" in observation
    assert environment.submit()[1] == 1.0


def test_an_origin_that_is_killed_is_replaced(
    sqlite_engine: SqliteEngine, shop: Database, way: str
) -> None:
    first = _session(sqlite_engine, shop)
    pid = first._live().pid
    origin = sqlite_engine._forks._forker
    assert origin is not None
    os.kill(origin.pid, signal.SIGKILL)
    origin.wait()
    if way == "portable":  # only its parent can see that the client ends
        _wait_for_end(pid)
    assert _ask(_session(sqlite_engine, shop), "SELECT count(*) FROM item") == ((5,),)
    assert "process has ended" not in str(_ask(first, "SELECT 1"))
    assert _ask(first, "SELECT count(*) FROM item") == ((5,),)


def test_an_origin_that_ended_before_its_fork_looked_is_missed() -> None:
    """The fork has another parent by then; it is told which one forked it."""
    script = (
        f"import sys; sys.path.append({str(ROOT)!r}); "
        "from pytest_intercode.databases.sqlite.worker import serve; "
        "serve(int(sys.argv[1]), gone=None, parent=int(sys.argv[2]))"
    )
    read_end, write_end = os.pipe()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    try:
        command = [sys.executable, "-c", script, str(read_end), str(ended.pid)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(read_end,)) as fork:
            assert fork.wait() == 0  # its pipes are open still
    finally:
        os.close(read_end)
        os.close(write_end)


def test_no_process_stays_when_sessions_end(sqlite_engine: SqliteEngine, shop: Database) -> None:
    sessions = [_session(sqlite_engine, shop) for _ in range(5)]
    pids = [session._live().pid for session in sessions]
    for session in sessions:
        session.close()
        session.close()
    assert not any(map(_alive, pids))
    origin = sqlite_engine._forks._forker
    assert origin is not None
    children = Path(f"/proc/{origin.pid}/task/{origin.pid}/children")
    _session(sqlite_engine, shop).close()  # the origin has heard of the others' end by now
    assert not set(map(int, children.read_text().split())) & set(pids)
    assert len(list(Path("/proc/self/fd").iterdir())) < 200
    sqlite_engine.close()
    assert origin.poll() is not None


def test_python_that_does_not_start(
    sqlite_engine: SqliteEngine, shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_intercode.databases.sqlite.process._START", "raise Exception('no')")
    with pytest.raises(SandboxError, match="SQLite's process cannot be started: Exception: no"):
        _session(sqlite_engine, shop)
    monkeypatch.undo()
    assert _ask(_session(sqlite_engine, shop), "SELECT 1") == ((1,),)


def test_sessions_in_many_threads(start: Start) -> None:
    rewards: list[float] = []

    def play() -> None:
        rewards.append(reward_of(start(CHEAPEST), CHEAPEST))
        rewards.append(reward_of(start(RAISE), RAISE))

    threads = [threading.Thread(target=play) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert rewards == [1.0] * 16


def test_few_sessions_of_golds_are_kept(
    start: Start, sql_provider: SandboxProvider, tmp_path: Path
) -> None:
    for number in range(12):
        script = tmp_path / f"{number}.sql"
        script.write_text(SHOP)
        database = Database("sqlite", "shop", (script,))
        assert reward_of(start(CHEAPEST, database=database), CHEAPEST) == 1.0
        assert reward_of(start(RAISE, database=database), RAISE) == 1.0
    kept = sql_provider.share("sql-gold", KeptSessions)
    assert len(kept._free) <= 8
    assert len(kept._before) <= 8
