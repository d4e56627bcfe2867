"""What a rollout printed on its node, as the driver takes it."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
from typing import Any

import pytest

from pytest_intercode.rollouts.output import CapturedOutput, captured_pieces, print_pieces

_LOG = ["call", "log", "said", 30, "name", 1.0, "/path", 7]


def test_what_is_kept_is_taken() -> None:
    kept = CapturedOutput()
    kept.write("stdout", "text")
    kept.log(logging.LogRecord("name", 30, "/path", 7, "said", None, None))
    pieces = kept.take_pieces()
    assert len(pieces) == 2
    assert captured_pieces(pieces) == pieces


@pytest.mark.parametrize("said", [None, "text", {"a": 1}, 3, [[]], ["abc"], [["call", "stdout"]]])
def test_what_is_no_output_is_left_out(said: object) -> None:
    assert captured_pieces(said) == []


@pytest.mark.parametrize("place", range(len(_LOG)))
@pytest.mark.parametrize("odd", [None, [], math.inf, math.nan, 10**400])
def test_odd_log_records_are_left_out(place: int, odd: object) -> None:
    piece: list[Any] = [*_LOG]
    piece[place] = odd
    assert captured_pieces([piece, _LOG, ["call", "stderr", odd], ["call", "file", "x"]]) == [_LOG]


def test_nothing_drives_the_terminal(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    text = "one\n\x1b]0;title\x07"
    print_pieces([["call", "stdout", text], ["call", "log", text, 30, text, 1.0, text, 1]])
    [record] = caplog.records
    shown = [*capsys.readouterr(), caplog.text, record.name, record.pathname]
    assert not any(each in part for part in shown for each in "\x1b\x07")
    assert "title" in shown[0]
    assert "title" in record.getMessage()


def test_what_is_more_than_the_limit_is_not_kept() -> None:
    output = CapturedOutput(max_characters=100)
    for text in ("12345", "67890", "x" * 50, "and more"):
        output.write("stdout", text)
    assert [text for _, _, text in output.take_pieces()] == [
        *("1234567890", "\n[... more was not kept ...]\n")
    ]


def test_what_is_printed_in_many_small_pieces_has_the_same_limit() -> None:
    output = CapturedOutput(max_characters=100_000)
    for number in range(300_000):
        output.write("stdout", "")
        output.write(("stdout", "stderr")[number % 2], "x")
    assert len(output.take()) < 2000


def test_small_texts_of_a_stream_are_one() -> None:
    output = CapturedOutput()
    for number in range(3000):
        output.write("stdout", f"{number}")
        output.write("stdout", "\n")
    pieces = output.take_pieces()
    assert "".join(text for _, _, text in pieces) == "".join(f"{n}\n" for n in range(3000))
    assert len(pieces) < 10


def test_in_setup_only_what_belongs_there_is_taken() -> None:
    output = CapturedOutput()
    output.write("stdout", "first")
    output.phase = "call"
    output.write("stdout", "second")
    assert [text for _, _, text in output.take("setup")] == ["first"]
    assert [text for _, _, text in output.take("call", last=True)] == ["second"]
    assert output.over


def test_what_a_stream_cannot_encode_is_escaped() -> None:
    """A stream of records would end with the error."""
    command = "from pytest_intercode.rollouts.output import print_pieces\n"
    command += "print_pieces([['call', 'stdout', '\\xe9 \\u20ac'], ['call', 'stderr', '\\xe9']])"
    run = subprocess.run(
        [sys.executable, "-c", command],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
    )
    assert (run.stdout, run.stderr) == (rb"\xe9 \u20ac", rb"\xe9")


_PRINTING = """
import sys
from pytest_intercode.rollouts.isolation import owning
from pytest_intercode.rollouts.output import CapturedOutput, capture_process

capture_process()
output = CapturedOutput()
with owning(output):
    sys.stdout.reconfigure(line_buffering=True)
    print("captured", sys.stdout.encoding, sys.stdout.isatty())
    sys.stdout.buffer.write(b"bytes\\n")
print(output.take_pieces())
"""


def test_streams_that_are_captured_have_what_standard_streams_have() -> None:
    run = subprocess.run([sys.executable, "-c", _PRINTING], capture_output=True, check=True)
    assert run.stdout.decode().splitlines() == [
        *("bytes", "[['setup', 'stdout', 'captured utf-8 False\\n']]")
    ]
