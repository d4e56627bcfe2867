import signal
from contextlib import contextmanager

import pytest

PARTS = 3000
MOVES = 60_000


@contextmanager
def within(seconds):
    """Fail what takes more than so many seconds of processor time."""

    def late(number, frame):
        raise AssertionError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.fixture
def large(store):
    """A store of many parts, of which every third has never been delivered."""
    store.connection.executemany(
        "INSERT INTO parts (id, number, name) VALUES (?, ?, ?)",
        ((at, f"P-{(at * 7) % PARTS:05}", f"part {at}") for at in range(PARTS)),
    )
    store.connection.executemany(
        "INSERT INTO moves (part, quantity) VALUES (?, ?)",
        ((at % PARTS, at % 5 - 1) for at in range(MOVES) if at % PARTS % 3),
    )
    store.connection.commit()
    return store


def test_a_long_list_is_quick(large):
    with within(1.5):
        rows = large.list()
    assert len(rows) == PARTS
    assert [number for number, _, _ in rows] == sorted(f"P-{at:05}" for at in range(PARTS))
    totals = {name: quantity for _, name, quantity in rows}
    for at in (0, 3, 4, 5, 2998):
        expected = sum(n % 5 - 1 for n in range(MOVES) if n % PARTS == at and at % 3)
        assert totals[f"part {at}"] == expected


def test_a_list_shows_parts_without_moves_and_used_up_ones(store):
    store.add("B", "used up")
    store.add("A", "never delivered")
    store.add("C", "some left")
    store.receive("B", 5)
    store.receive("C", 9)
    store.take("B", 5)
    store.take("C", 2)
    assert store.list() == [
        ("A", "never delivered", 0),
        ("B", "used up", 0),
        ("C", "some left", 7),
    ]


def test_a_list_of_nothing(store):
    assert store.list() == []
