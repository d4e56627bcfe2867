"""Phases of an episode: they do not overlap, whichever threads they are in."""

from __future__ import annotations

import threading
import time
from contextvars import copy_context

import pytest

from pytest_intercode.core.phases import Phases, timed

_STEP = 0.05


def test_a_phase_within_another_interrupts_it() -> None:
    phases = Phases()
    began = time.time()
    with phases.timed("agent"):
        time.sleep(_STEP)
        with phases.timed("tests"):
            time.sleep(_STEP)
            with timed("gold"):
                time.sleep(_STEP)
        with phases.timed("tests"):
            time.sleep(_STEP)
    recorded = phases.recorded()
    assert [*recorded] == ["agent", "tests", "gold"]
    assert recorded["agent"][0] == pytest.approx(began, abs=_STEP)
    assert recorded["agent"][1] == pytest.approx(_STEP, abs=_STEP / 2)
    assert recorded["tests"][0] == pytest.approx(began + _STEP, abs=_STEP)
    assert recorded["tests"][1] == pytest.approx(2 * _STEP, abs=_STEP / 2)
    assert recorded["gold"][1] == pytest.approx(_STEP, abs=_STEP / 2)


def test_a_phase_in_another_thread_counts_once() -> None:
    phases = Phases()
    begun, ended = threading.Event(), threading.Event()

    def grade() -> None:
        with timed("tests"):
            begun.set()
            ended.wait()
            time.sleep(_STEP)

    with phases.timed("agent"):
        context = copy_context()
        thread = threading.Thread(target=lambda: context.run(grade))
        thread.start()
        begun.wait()
    ended.set()  # the inner one ends after the outer one
    thread.join()
    recorded = phases.recorded()
    assert recorded["tests"][1] >= _STEP
    assert recorded["agent"][1] < _STEP
    with phases.timed("carry"):
        time.sleep(_STEP)
    assert phases.recorded()["tests"] == recorded["tests"]


def test_time_of_no_episode_is_counted_nowhere() -> None:
    phases = Phases()
    with phases.timed("start"):
        pass
    with timed("build"):
        time.sleep(0.002)
    thread = threading.Thread(target=lambda: timed("gold").__enter__())  # has no context
    thread.start()
    thread.join()
    assert phases.recorded() == {}
