"""Errors on their way from a node to the driver."""

from __future__ import annotations

import pytest

from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.core.turn import Turn
from pytest_intercode.errors import InfrastructureError, JudgeError, TaskError
from pytest_intercode.results.format import from_line
from pytest_intercode.rollouts.cluster.messages import (
    decode,
    encode,
    encode_answer,
    error_from,
    error_of,
    line_of,
)


@pytest.mark.parametrize("printed", ["", "1 failed\n", "x" * 30_000])
def test_an_error_keeps_what_the_tests_printed(printed: str) -> None:
    error = TaskError("gold cannot be verified")
    error.test_output = printed
    received = error_from(error_of(error), "node-1")
    assert isinstance(received, TaskError)
    assert (str(received), received.test_output) == (str(error), printed[:20_000])


def test_an_error_of_another_kind_has_nothing_of_it() -> None:
    received = error_from({**error_of(KeyError("x")), "test_output": "1 failed"}, "node-1")
    assert not isinstance(received, InfrastructureError)
    assert str(received) == "on node node-1: KeyError: 'x'"


def _quoting_record(size: int) -> EpisodeRecord:
    turn = Turn("cat file", '"\\' * (size // 2), executed=True)
    return EpisodeRecord(
        task=TaskRecord("t", "q", "bash"),
        outcome="solved",
        reward=1.0,
        turns=(turn,),
        max_turns=10,
        seconds=1.0,
        profile="strict",
    )


@pytest.mark.parametrize("size", [10, 9 * 1024**2, 18 * 1024**2])
def test_a_record_fits_into_a_message_however_it_is_escaped(size: int) -> None:
    record = from_line(decode(encode({"line": line_of(_quoting_record(size))}))["line"])
    assert record.outcome == ("solved" if size == 10 else "agent-error")


def test_output_that_is_too_much_in_json_is_left_out() -> None:
    printed = [["call", "stdout", "\N{PILE OF POO}" * 6 * 1024**2]]
    assert len(encode({"output": printed})) > 64 * 1024**2
    answer = decode(encode_answer({"line": "{}"}, printed))
    assert answer["line"] == "{}"
    assert answer["output"] == [["call", "stdout", "\n[... more was not kept ...]\n"]]


def test_an_error_of_a_judge_has_the_episode() -> None:
    error = JudgeError("judge: no model could be reached")
    error.record = _quoting_record(10)
    assert from_line(error_of(error)["line"]).turns == error.record.turns
