"""What a rollout printed on its node, as the driver takes it."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from pytest_intercode.rollouts.cluster.output import KeptOutput, give_out, pieces_of

_LOG = ["call", "log", "said", 30, "name", 1.0, "/path", 7]


def test_what_is_kept_is_taken() -> None:
    kept = KeptOutput()
    kept.write("stdout", "text")
    kept.log(logging.LogRecord("name", 30, "/path", 7, "said", None, None))
    pieces = kept.take()
    assert len(pieces) == 2
    assert pieces_of(pieces) == pieces


@pytest.mark.parametrize("said", [None, "text", {"a": 1}, 3, [[]], ["abc"], [["call", "stdout"]]])
def test_what_is_no_output_is_left_out(said: object) -> None:
    assert pieces_of(said) == []


@pytest.mark.parametrize("place", range(len(_LOG)))
@pytest.mark.parametrize("odd", [None, [], math.inf, math.nan, 10**400])
def test_odd_log_records_are_left_out(place: int, odd: object) -> None:
    piece: list[Any] = [*_LOG]
    piece[place] = odd
    assert pieces_of([piece, _LOG, ["call", "stderr", odd], ["call", "file", "x"]]) == [_LOG]


def test_nothing_drives_the_terminal(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    text = "one\n\x1b]0;title\x07"
    give_out([["call", "stdout", text], ["call", "log", text, 30, text, 1.0, text, 1]])
    [record] = caplog.records
    shown = [*capsys.readouterr(), caplog.text, record.name, record.pathname]
    assert not any(each in part for part in shown for each in "\x1b\x07")
    assert "title" in shown[0]
    assert "title" in record.getMessage()
