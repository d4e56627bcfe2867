"""An event loop on a thread of its own."""

from __future__ import annotations

import sys

import pytest

from pytest_intercode.system.loop_thread import LoopThread


@pytest.fixture
def loop_thread() -> LoopThread:
    return LoopThread("test")


async def _answer() -> int:
    return 7


def test_it_answers_until_it_is_stopped(loop_thread: LoopThread) -> None:
    assert loop_thread.begin(_answer()).result(10) == 7
    loop_thread.stop(10)
    assert loop_thread.loop.is_closed()


def test_it_may_be_stopped_twice(loop_thread: LoopThread) -> None:
    loop_thread.stop(10)
    loop_thread.stop(10)


def test_what_runs_on_it_does_not_end_it(loop_thread: LoopThread) -> None:
    loop_thread.loop.call_soon_threadsafe(loop_thread.loop.stop)
    loop_thread.loop.call_soon_threadsafe(sys.exit)
    assert loop_thread.begin(_answer()).result(10) == 7
    loop_thread.stop(10)
