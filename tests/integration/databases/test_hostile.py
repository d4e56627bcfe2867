"""Agents that mean harm to SQLite: each is refused or stopped, and the next episode is as ever."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import Limits
from pytest_intercode.databases.sqlite import process, session
from pytest_intercode.databases.sqlite.process import SqliteProcess
from pytest_intercode.databases.sqlite.session import SqliteSession
from pytest_intercode.errors import GoldError
from pytest_intercode.rewards.sql_changes import sql_changes_reward_again
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.support.portable_ways import both_ways
from tests.support.sql_shop import (
    CHEAPEST,
    ENDLESS,
    RAISE,
    STUBBORN,
    Start,
    reason_of,
    reward_of,
)

way = both_ways


READING = [
    ("DROP TABLE item", "read-only"),
    ("DELETE FROM item", "read-only"),
    ("UPDATE item SET price = 0", "read-only"),
    ("CREATE TABLE x (a)", "read-only"),
    ("ALTER TABLE item RENAME TO thing", "read-only"),
    ("PRAGMA user_version = 5", "PRAGMA"),
    ("INSERT INTO sqlite_master VALUES (1, 2, 3, 4, 5)", "may not be modified"),
]
ANYWHERE = [
    ("ATTACH '/tmp/intercode-test.db' AS x", "ATTACH"),
    ("ATTACH ':memory:' AS x", "ATTACH"),
    ("DETACH main", "ATTACH"),
    ("VACUUM", "VACUUM"),
    ("VACUUM INTO '/tmp/intercode-test.db'", "VACUUM"),
    ("SELECT load_extension('/lib/x86_64-linux-gnu/libc.so.6')", "load_extension"),
    ("SELECT writefile('/tmp/intercode-test.db', 'x')", "writefile"),
    ("SELECT readfile('/etc/passwd')", "readfile"),
    ("SELECT fts3_tokenizer('simple')", "fts3_tokenizer"),
    ("PRAGMA writable_schema = 1", "PRAGMA"),
    ("PRAGMA journal_mode = WAL", "PRAGMA"),
    ("PRAGMA temp_store_directory = '/tmp'", "PRAGMA"),
    ("PRAGMA mmap_size = 1000000000", "PRAGMA"),
    ("PRAGMA cache_size = 1000000000", "PRAGMA"),
    ("PRAGMA hard_heap_limit = 0", "PRAGMA"),
    ("PRAGMA soft_heap_limit = 0", "PRAGMA"),
    ("SELECT * FROM pragma_hard_heap_limit", "PRAGMA"),
    ("CREATE VIRTUAL TABLE temp.x USING csv(filename='/etc/passwd')", "module"),
    ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "Error"),
    ("SELECT '" + "x" * 2_000_000 + "'", "not run"),
    ("SELECT \ud800", "not SQL"),
    ("SELECT '\0'", "null character"),
    ("SELECT ?", "bindings"),
    ("SELECT " + "a LIKE " * 2000 + "b", "Error"),
]


TOO_LONG = [
    ("SELECT randomblob(1000000000)", "too big"),
    ("SELECT zeroblob(1000000000)", "too big"),
    ("SELECT hex(zeroblob(16000000))", "too big"),
    ("SELECT '" + "é" * 700_000 + "'", "too large"),
]


@pytest.mark.parametrize(("action", "said"), READING + ANYWHERE)
def test_what_a_reading_session_refuses(start: Start, action: str, said: str) -> None:
    environment = start(CHEAPEST)
    observation = environment.step(action)[0]
    assert not observation.executed
    assert said in observation
    assert environment.step("SELECT count(*) FROM item")[0] == "count(*)\n5\n(1 row)"
    assert reward_of(start(CHEAPEST), CHEAPEST) == 1.0


@pytest.mark.parametrize(("action", "said"), ANYWHERE)
def test_what_a_writing_session_refuses(start: Start, action: str, said: str) -> None:
    environment = start(RAISE)
    observation = environment.step(action)[0]
    assert not observation.executed
    assert said in observation
    assert reward_of(environment, RAISE) == 1.0
    assert not Path("/tmp/intercode-test.db").exists()


@pytest.mark.parametrize(("action", "said"), TOO_LONG)
def test_long_values(start: Start, action: str, said: str) -> None:
    """Python 3.10 cannot set SQLite's limits; what the process may take is limited all the same."""
    environment = start(CHEAPEST, limits=Limits(memory=64 * 1024**2))
    observation = environment.step(action)[0]
    if sys.version_info >= (3, 11):
        assert not observation.executed
        assert said in observation
    assert len(observation) < 70_000
    assert reward_of(environment, CHEAPEST) == 1.0


@pytest.mark.parametrize(
    "action",
    [
        "DROP TABLE item",
        "DELETE FROM item",
        "DROP VIEW cheap; CREATE VIEW cheap AS " + ENDLESS,
        "CREATE TABLE x AS WITH RECURSIVE r(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM r LIMIT "
        "300000) SELECT n, hex(n) FROM r",
        "PRAGMA foreign_keys = 0; DELETE FROM item; INSERT INTO sale VALUES (77, 'x', 1)",
    ],
)
def test_what_one_episode_breaks_the_next_does_not_see(
    start: Start, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setattr("pytest_intercode.databases.sqlite.session._TABLE_TIMEOUT", 2.0)
    environment = start(RAISE, timeout=10.0)
    assert environment.step(action)[0].executed
    assert environment.submit()[1] < 1.0
    assert reward_of(start(RAISE), RAISE) == 1.0
    assert reward_of(start(CHEAPEST), CHEAPEST) == 1.0


@pytest.mark.parametrize(
    "action",
    [
        ENDLESS,
        "SELECT count(*) FROM " + ", ".join(["item"] * 30),
        "SELECT count(*) FROM " + ", ".join(["sqlite_master"] * 60),
        "CREATE TEMP TABLE x AS " + ENDLESS.replace("count(*)", "n"),
    ],
)
def test_what_never_ends_is_stopped(start: Start, action: str) -> None:
    environment = start(CHEAPEST, timeout=0.5)
    environment.step("CREATE TEMP TABLE kept (a)")
    began = time.monotonic()
    observation = environment.step(action)[0]
    assert time.monotonic() - began < 30.0
    assert observation == "Error: stopped after 0.5 s (interrupted)"
    assert not observation.executed
    assert environment.step("SELECT count(*) FROM kept")[0].executed
    assert reward_of(environment, CHEAPEST) == 1.0


def test_what_cannot_be_interrupted_is_killed(start: Start) -> None:
    environment = start(CHEAPEST, timeout=0.5)
    environment.step("CREATE TEMP TABLE kept (a)")
    began = time.monotonic()
    observation = environment.step(STUBBORN)[0]
    assert time.monotonic() - began < 30.0
    assert "was killed; a new session has no temporary tables" in observation
    assert not environment.step("SELECT * FROM kept")[0].executed
    assert reward_of(environment, CHEAPEST) == 1.0


def test_what_was_committed_survives_the_kill(start: Start) -> None:
    environment = start(RAISE, timeout=0.5)
    environment.step("CREATE TEMP TABLE kept AS SELECT 1 AS a; BEGIN; DELETE FROM sale; ROLLBACK")
    environment.step(RAISE)
    environment.step("SAVEPOINT s; DELETE FROM sale; ROLLBACK TO s; RELEASE s")
    environment.step("BEGIN; DELETE FROM item")
    observation = environment.step(STUBBORN)[0]
    assert "a new session has the database as it was last committed" in observation
    assert environment.step("SELECT a, (SELECT count(*) FROM item) FROM kept")[0].split()[
        -3:-1
    ] == [
        "5",
        "(1",
    ]
    assert environment.submit()[1] == 1.0


def test_a_long_result_is_cut_and_is_not_right(start: Start) -> None:
    environment = start("SELECT 1", timeout=20.0)
    endless = "WITH RECURSIVE r(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM r) SELECT n FROM r"
    observation = environment.step(endless)[0]
    assert observation.endswith("the result has more than 100000 rows ...]")
    assert environment.submit()[1] == 0.0
    assert reason_of(environment) == "the answer has more rows than can be right"
    environment = start("SELECT 1", timeout=20.0)
    large = "WITH RECURSIVE r(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM r LIMIT 1000) "
    observation = environment.step(large + "SELECT zeroblob(1000000) FROM r")[0]
    assert "the result has more than 67 rows" in observation
    assert len(observation) < 70_000


def test_many_statements_have_the_time_and_the_room_of_one_action(start: Start) -> None:
    environment = start(CHEAPEST, timeout=0.5)
    began = time.monotonic()
    some = ENDLESS.replace("FROM r)", "FROM r LIMIT 9)")
    observation = environment.step(";".join([some] * 10_000))
    assert time.monotonic() - began < 30.0
    assert "statements after it were not run]" in observation[0]
    observation = environment.step(";".join([some] * 20_000))
    assert observation[0] == "[not run: an action has at most 1048576 characters]"
    assert environment.submit()[1] == 0.0
    environment = start(CHEAPEST, timeout=20.0)
    wide = "WITH RECURSIVE r(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM r LIMIT 30) "
    observation = environment.step(f"{wide} SELECT hex(zeroblob(100000)) FROM r;" * 20)
    assert observation[0].executed
    assert len(observation[0]) < 100_000


MUCH = "WITH RECURSIVE r(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM r LIMIT 2000)"


def test_an_end_state_of_too_many_rows(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_MAX_STATE_ROWS", 3000)
    environment = start(RAISE)
    environment.step(RAISE)
    environment.step(";".join(f"CREATE TABLE t{n} AS {MUCH} SELECT n FROM r" for n in range(2)))
    assert environment.submit()[1] == 0.0
    said = "what was left of the database cannot be graded: it holds more than what is read"
    assert reason_of(environment) == said
    state = environment.recorded_state()
    assert sql_changes_reward_again(state).reason == said
    with pytest.raises(GoldError, match="it holds more than what is read"):
        start(*(f"CREATE TABLE t{n} AS {MUCH} SELECT n FROM r" for n in range(2)))


def test_definitions_without_end(start: Start) -> None:
    environment = start(RAISE)
    began = time.monotonic()
    environment.step(f"CREATE TABLE t (a{', CHECK (1)' * 15_000})")
    environment._session.state()  # type: ignore[union-attr]
    assert time.monotonic() - began < 20
    for name in ("x", "y", "z"):
        environment.step(f"CREATE TABLE {name} (a /* {'long ' * 190_000} */)")
    assert environment.submit()[1] == 0.0
    assert "its definitions are longer than what is read" in reason_of(environment)


def test_a_view_without_end_is_given_up_when_the_episode_is_cancelled(start: Start) -> None:
    environment = start(RAISE)
    for name in ("a", "b", "c"):
        environment.step(f"CREATE VIEW {name} AS {ENDLESS}")
    ended: list[float] = []
    thread = threading.Thread(target=lambda: ended.append(environment.submit()[1]))
    began = time.monotonic()
    thread.start()
    time.sleep(0.3)
    assert not ended
    environment.cancel("not wanted")
    thread.join(20)
    assert not thread.is_alive()
    assert time.monotonic() - began < 15
    assert ended in ([], [0.0])


def test_memory_is_limited(start: Start) -> None:
    environment = start(CHEAPEST, limits=Limits(memory=64 * 1024**2), timeout=20.0)
    many = "WITH RECURSIVE r(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM r LIMIT 200) "
    observation = environment.step(many + "SELECT group_concat(n), max(hex(randomblob(n))) FROM r")
    assert observation[0].executed
    hungry = "CREATE TEMP TABLE x AS " + many + "SELECT randomblob(1000000) AS b FROM r"
    observation = environment.step(hungry)
    assert "out of memory" in observation[0]
    assert reward_of(environment, CHEAPEST) == 1.0


def test_memory_that_sqlite_does_not_count_is_limited(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of Python, or of an SQLite that was compiled not to count it."""
    uncounted = (
        "from pytest_intercode.databases.sqlite.worker import Worker; "
        "Worker._limit_heap = lambda *_: None; "
    )
    start_worker = process._START.replace("import main; main()", f"import main; {uncounted}main()")
    assert uncounted in start_worker
    monkeypatch.setattr(process, "_START", start_worker)
    monkeypatch.setattr(process, "_MEMORY_SLACK", 64 * 1024**2)
    provider = SandboxProvider()
    try:
        environment = start(
            CHEAPEST, limits=Limits(memory=64 * 1024**2), timeout=60.0, provider=provider
        )
        many = "WITH RECURSIVE r(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM r LIMIT 400) "
        hungry = "CREATE TEMP TABLE x AS " + many + "SELECT zeroblob(4000000) AS b FROM r"
        observation = environment.step(hungry)[0]
        assert "out of memory" in observation
        assert not observation.executed
        assert reward_of(environment, CHEAPEST) == 1.0
        environment.close()
    finally:
        provider.close()


@pytest.mark.parametrize("query", [ENDLESS, STUBBORN])
def test_calling_off_ends_an_action(start: Start, query: str) -> None:
    environment = start(RAISE, timeout=60.0)
    environment.step(RAISE)
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(environment.step(query)))
    began = time.monotonic()
    thread.start()
    time.sleep(0.3)
    environment.stop_actions("timed out")
    thread.join(30)
    assert done
    assert environment.end("stopped").value == 1.0  # what was done before still counts
    assert time.monotonic() - began < 30.0


def test_calling_off_as_an_action_begins_ends_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end comes between the look whether the episode is over and the action."""
    environment = start(CHEAPEST, timeout=60.0)
    check_open = environment.episode.check_open
    looks: list[str] = []

    def check_then_end(*arguments: str) -> None:
        check_open(*arguments)
        looks.append(environment.over)
        if len(looks) == 2:  # that of the step, and that of what acts
            environment.stop_actions("timed out")

    monkeypatch.setattr(environment.episode, "check_open", check_then_end)
    began = time.monotonic()
    environment.step(ENDLESS)
    assert looks == ["", ""]
    assert time.monotonic() - began < 30.0


def test_what_is_abandoned_as_its_process_starts_is_not_read(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of an open transaction is read from a second process, which repeats the rest."""
    environment = start(RAISE)
    environment.step("BEGIN")
    environment.step(RAISE)
    agent_session = environment._session
    assert isinstance(agent_session, SqliteSession)
    start_process = agent_session._start

    def start_then_abandon() -> SqliteProcess:
        reader = start_process()
        agent_session.abandon()
        return reader

    monkeypatch.setattr(agent_session, "_start", start_then_abandon)
    assert agent_session.state().unreadable == "SQLite's process has ended"


def test_no_process_is_started_for_a_session_that_is_abandoned(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = start(RAISE, timeout=60.0)
    environment.step(RAISE)
    agent_session = environment._session
    assert isinstance(agent_session, SqliteSession)
    monkeypatch.setattr(agent_session, "_start", lambda: pytest.fail("one was started"))
    timer = threading.Timer(0.3, agent_session.abandon)
    timer.start()
    observation = environment.step(ENDLESS)[0]
    timer.join()
    assert "the session was lost with the statement" in observation


def test_closing_ends_an_action(start: Start) -> None:
    environment = start(CHEAPEST, timeout=60.0)
    thread = threading.Thread(target=lambda: environment.step(ENDLESS))
    thread.start()
    time.sleep(0.3)
    began = time.monotonic()
    environment.close()
    thread.join(30)
    assert not thread.is_alive()
    assert time.monotonic() - began < 30.0


def test_gold_is_not_in_the_agents_process(start: Start) -> None:
    """Neither its text nor its result; its memory is searched, as no query could."""
    secret = "found_in_no_agents_process"
    environment = start(f"SELECT '{secret}' || count(*) FROM item")
    environment.step("SELECT sqlite_version()")
    session = environment._session
    assert isinstance(session, SqliteSession)
    pid = session._live().pid
    found = b""
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            area, mode = line.split()[:2]
            first, last = (int(part, 16) for part in area.split("-"))
            if "r" not in mode or "[v" in line:
                continue
            memory.seek(first)
            try:
                found += memory.read(last - first)
            except OSError:
                continue
    assert b"CREATE TABLE item" in found
    assert secret.encode() not in found


def test_very_many_results_are_not_all_shown(start: Start) -> None:
    environment = start(CHEAPEST, limits=Limits(output=2000))
    statements = [f"SELECT printf('%200c', '{number}')" for number in range(999)]
    observation = str(environment.step("; ".join([*statements, CHEAPEST]))[0])
    assert observation.count("(1 row)") > 8
    assert len(observation) < 2 * 2000 + 500
    assert " results in between are left out ...]\nname\npen\n(1 row)" in observation
    assert reward_of(environment) == 1.0
