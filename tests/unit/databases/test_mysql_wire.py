"""The clock of a MySQL connection's statements, without a server."""

from __future__ import annotations

import time

import pytest

from pytest_intercode.databases.mysql import wire
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
