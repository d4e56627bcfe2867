"""Phases of an episode: they do not overlap, whichever threads they are in."""

from __future__ import annotations

import threading
from contextvars import copy_context

import pytest

from pytest_intercode.core import phases as module
from pytest_intercode.core.phases import Phases, timed


class Clock:
    """Stands in the place of the module time: it goes on when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return 1e9 + self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_a_phase_within_another_interrupts_it(clock: Clock) -> None:
    phases = Phases()
    with phases.timed("agent"):
        clock.now += 1
        with phases.timed("tests"):
            clock.now += 2
            with timed("gold"):
                clock.now += 4
        with phases.timed("tests"):
            clock.now += 8
    clock.now += 16
    recorded = phases.recorded()
    assert recorded == {"agent": (1e9, 1), "tests": (1e9 + 1, 10), "gold": (1e9 + 3, 4)}
    assert [*recorded] == ["agent", "tests", "gold"]


def test_a_phase_in_another_thread_counts_once(clock: Clock) -> None:
    phases = Phases()
    begun, ended = threading.Event(), threading.Event()

    def grade() -> None:
        with timed("tests"):
            begun.set()
            ended.wait()
            clock.now += 2

    with phases.timed("agent"):
        clock.now += 1
        context = copy_context()
        thread = threading.Thread(target=lambda: context.run(grade))
        thread.start()
        begun.wait()
    ended.set()  # the inner one ends after the outer one
    thread.join()
    assert phases.recorded() == {"agent": (1e9, 1), "tests": (1e9 + 1, 2)}
    with phases.timed("carry"):
        clock.now += 4
    assert phases.recorded()["tests"] == (1e9 + 1, 2)


def test_time_of_no_episode_is_counted_nowhere(clock: Clock) -> None:
    phases = Phases()
    with phases.timed("start"):
        pass
    with timed("build"):
        clock.now += 1
    thread = threading.Thread(target=lambda: timed("gold").__enter__())  # has no context
    thread.start()
    thread.join()
    assert phases.recorded() == {}
