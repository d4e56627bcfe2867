"""Statements of a MySQL connection and their clock, without a server."""

from __future__ import annotations

import time
from typing import Any, NoReturn

import pytest
from pymysql.err import MySQLError

from pytest_intercode.databases.mysql import wire
from pytest_intercode.databases.mysql.session import _STATELESS, MySqlSession
from pytest_intercode.databases.mysql.wire import NoAnswer, Watch


def test_a_statement_is_killed_then_its_connection_and_then_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "_KILL_TIMEOUT", 0.0)
    kills: list[str] = []
    watch = Watch(kills.append)
    watch.begin(0.0, 100)
    assert watch.wait() > 0
    assert (kills, watch.reason, watch.stopped, watch.killed) == (["QUERY"], "timeout", True, False)
    assert watch.wait() > 0
    assert (kills, watch.killed) == (["QUERY", "CONNECTION"], True)
    with pytest.raises(NoAnswer):
        watch.wait()


def test_a_slow_kill_has_its_time_when_it_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_KILL_TIMEOUT", 0.2)
    kills: list[str] = []

    def kill(what: str) -> None:
        time.sleep(0.25)
        kills.append(what)

    watch = Watch(kill)
    watch.begin(0.0, 100)
    watch.wait()
    watch.wait()
    assert kills == ["QUERY"]


def test_blanks_before_a_statement_take_no_time() -> None:
    begin_time = time.process_time()
    assert not _STATELESS.fullmatch(" " * 100_000 + "?")
    assert time.process_time() - begin_time < 1
    assert all(map(_STATELESS.fullmatch, ("select 1", " ( SELECT 1)", "(show tables)")))
    assert not any(map(_STATELESS.fullmatch, ("((select 1))", "select @a", "selected")))


class _Restarting:
    """A server that is down, and whose database the session has dropped."""

    mode = "writing"

    def __init__(self) -> None:
        self.answers: list[Any] = [_Connected(), OSError(), MySQLError(1049, ""), _Connected()]

    def connect(self, *_: object) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def restart(self) -> None:
        pass


class _Connected:
    open = False

    def thread_id(self) -> int:
        return 7

    def cursor(self, _: object) -> NoReturn:
        raise OSError


def test_a_session_goes_on_without_the_database_that_it_dropped() -> None:
    server: Any = _Restarting()
    session = MySqlSession(lambda _: (server, "agent"), "shop", lambda *_: None)
    session._connection = None
    with pytest.raises(OSError):  # noqa: PT011 - of the statement that a new connection is given
        session.execute("DO 0", 1.0, max_rows=1, max_bytes=1)
    assert server.answers == []
