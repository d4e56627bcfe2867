"""The threads that run jobs in order, and whose thread is whose."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_intercode.rollouts.isolation import followed, owner, owning, threads_of
from pytest_intercode.rollouts.threads import Scheduler


class Work:
    """Jobs that count how many run at a time."""

    def __init__(self, number: int, threads: int) -> None:
        self.begun: list[int] = []
        self.most = 0
        self._left = iter(range(number))
        self._running = 0
        self._lock = threading.Lock()
        self.all_over = threading.Event()
        self._over = 0
        self._number = number
        self.scheduler = Scheduler(threads, self.next_job, name="test")

    def next_job(self) -> Callable[[], None] | None:
        number = next(self._left, None)
        if number is None:
            return None
        self.begun.append(number)
        return self.job

    def job(self) -> None:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        threading.Event().wait(0.001)
        with self._lock:
            self._running -= 1
            self._over += 1
            if self._over == self._number:
                self.all_over.set()


@settings(max_examples=20, deadline=None)
@given(number=st.integers(1, 40), threads=st.integers(1, 8))
def test_jobs_begin_in_order_and_never_too_many(number: int, threads: int) -> None:
    work = Work(number, threads)
    work.scheduler.wake()
    assert work.all_over.wait(30)
    work.scheduler.stop()
    assert work.scheduler.join(30)
    assert work.begun == list(range(number))
    assert work.most <= threads


def test_all_threads_are_used() -> None:
    meeting, over = threading.Barrier(4, timeout=30), threading.Event()
    left = iter(range(4))

    def meet() -> None:
        meeting.wait()  # breaks if fewer than four come
        over.set()

    scheduler = Scheduler(4, lambda: meet if next(left, None) is not None else None, name="test")
    scheduler.wake()
    assert over.wait(40)
    scheduler.stop()
    assert scheduler.join(30)


def test_nothing_begins_after_the_end() -> None:
    begun = []
    scheduler = Scheduler(2, lambda: begun.append(1) or (lambda: None), name="test")  # type: ignore[func-returns-value]
    scheduler.stop()
    scheduler.wake()
    assert scheduler.join(30)
    assert not begun


def test_an_idle_thread_asks_again_by_itself() -> None:
    there, over = threading.Event(), threading.Event()
    scheduler = Scheduler(
        1, lambda: over.set if there.is_set() else None, name="test", interval=0.01
    )
    scheduler.wake()
    there.set()
    assert over.wait(30)
    scheduler.stop()
    assert scheduler.join(30)


# -- owners


def test_threads_belong_to_whoever_started_them() -> None:
    seen: dict[str, object] = {}

    def note(name: str) -> None:
        seen[name] = owner()

    def child() -> None:
        note("child")
        grandchild = threading.Thread(target=note, args=("grandchild",))
        grandchild.start()
        grandchild.join()

    mine, others = object(), object()
    with followed():
        with owning(mine):
            thread = threading.Thread(target=child)
            thread.start()
            thread.join()
            note("self")
        with owning(others):
            thread = threading.Thread(target=note, args=("other",))
            thread.start()
            thread.join()
        note("nobody")
    assert seen == {
        "child": mine,
        "grandchild": mine,
        "self": mine,
        "other": others,
        "nobody": None,
    }


def test_threads_that_still_run_are_known_and_starting_is_as_it_was() -> None:
    before = threading.Thread.start
    end = threading.Event()
    mine = object()
    with followed(), owning(mine):
        assert threading.Thread.start is not before
        thread = threading.Thread(target=end.wait)
        thread.start()
        assert threads_of(mine) == [thread]
        assert threads_of(object()) == []
        end.set()
        thread.join()
        assert threads_of(mine) == []
    assert threading.Thread.start is before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_somebody_elses_patch_stays() -> None:
    start = threading.Thread.start
    following = followed()
    following.__enter__()
    ours = threading.Thread.start

    def theirs(self: threading.Thread) -> None:
        ours(self)

    threading.Thread.start = theirs  # type: ignore[method-assign]
    following.__exit__(None, None, None)
    assert threading.Thread.start is theirs
    threading.Thread.start = start  # type: ignore[method-assign]
