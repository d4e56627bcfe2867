"""A suite's regular expressions: what `re` makes of them, and the end of those that take ages."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_intercode.core.task import Normaliser, RewardOptions
from pytest_intercode.errors import PatternTooSlow, TaskError
from pytest_intercode.rewards import patterns
from pytest_intercode.rewards.bash_strict import BashState, bash_strict_reward
from pytest_intercode.rewards.patterns import substitute

HOLE = r"^(a+)+$"
MADE_FOR_IT = "a" * 40 + "!"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give a pattern a tenth of a second, in a process of the test's own."""
    made = patterns._Process()
    program = patterns._PROGRAM.replace(f", {patterns.SECONDS})", ", 0.1)")
    monkeypatch.setattr(patterns, "_PROGRAM", program)
    monkeypatch.setattr(patterns, "_process", made)
    yield
    made.close()


@settings(max_examples=30)
@given(st.text(), st.sampled_from([r"\d+", "^", r"\s+$", "(.)(.)", "é|\udc80"]))
def test_it_is_what_re_does(text: str, pattern: str) -> None:
    replace = r"<\g<0>>"
    assert substitute(pattern, replace, text) == re.sub(pattern, replace, text, flags=re.MULTILINE)


@pytest.mark.usefixtures("quick")
def test_a_pattern_that_takes_ages_is_ended() -> None:
    began = time.process_time()
    with pytest.raises(PatternTooSlow, match=r"the pattern '\^\(a\+\)\+\$' takes more than"):
        substitute(HOLE, "", MADE_FOR_IT)
    assert time.process_time() - began < 0.1  # it is another process that worked
    assert substitute(HOLE, "b", "aaa") == "b"  # a new one


def test_without_a_timer_of_the_kernel_it_is_ended_from_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patterns, "_ANSWER_TIMEOUT", 0.3)
    process = patterns._Process(timed=False)
    monkeypatch.setattr(patterns, "_process", process)
    with pytest.raises(PatternTooSlow, match="takes more than"):
        substitute(HOLE, "", MADE_FOR_IT)
    monkeypatch.setattr(patterns, "_ANSWER_TIMEOUT", 60.0)
    assert substitute(HOLE, "b", "aaa") == "b"
    process.close()
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


@pytest.mark.parametrize("system_limits", [True, False])
def test_a_pattern_that_needs_much_memory_is_ended(
    monkeypatch: pytest.MonkeyPatch, system_limits: bool
) -> None:
    program = patterns._PROGRAM.replace(str(patterns._MAX_MEMORY), str(100 * 1024**2))
    if not system_limits:  # as on macOS
        refuse = "    def refuse(*_): raise ValueError\n    resource.setrlimit = refuse\n"
        program = program.replace(
            "    signal.signal(signal.SIGPROF", refuse + "    signal.signal(signal.SIGPROF"
        )
    program = program.replace(f", {patterns.SECONDS})", ", 60)")
    made = patterns._Process()
    monkeypatch.setattr(patterns, "_PROGRAM", program)
    monkeypatch.setattr(patterns, "_process", made)
    try:
        with pytest.raises(PatternTooSlow, match="takes more than"):
            substitute("(?:a|b|(c))*x", "", "ab" * 3_000_000)
        assert substitute("a|b|(c)", "", "ab") == ""
    finally:
        made.close()


@pytest.mark.usefixtures("quick")
def test_an_output_made_for_it_earns_nothing() -> None:
    options = RewardOptions(normalise=(Normaliser("pattern", HOLE, "A"),))
    made, gold = BashState(MADE_FOR_IT), BashState("aa")
    assert bash_strict_reward(made, gold, options).value == 0.0
    assert bash_strict_reward(made, made, options).value == 1.0  # equal outputs need no pattern
    with pytest.raises(TaskError, match=r"reward.normalise: the pattern .* for gold's output"):
        bash_strict_reward(gold, made, options)


def test_several_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = pool.map(lambda n: substitute("x", str(n), "x" * n), range(100))
    assert list(made) == [str(n) * n for n in range(100)]


def test_somebody_kills_it() -> None:
    substitute("a", "b", "a")
    running = patterns._process._process
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    assert substitute("a", "b", "a") == "b"


@pytest.mark.usefixtures("quick")
def test_an_interrupted_answer_is_not_the_next_ones() -> None:
    substitute("a", "b", "a")
    timer = threading.Timer(0.02, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        substitute(HOLE, "", MADE_FOR_IT)
    timer.join()
    assert substitute("a", "b", "aca") == "bcb"


def test_a_forked_child_has_its_own() -> None:
    substitute("a", "b", "a")
    running = patterns._process._process
    assert running is not None
    fork = multiprocessing.get_context("fork")
    child = fork.Process(target=substitute, args=("a", "b", "ada"))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert patterns._process._process is running
    assert substitute("a", "b", "aea") == "beb"
