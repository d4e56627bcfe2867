import sqlite3

import pytest

from stockroom.importing import import_deliveries
from stockroom.store import StockError


@pytest.fixture(autouse=True)
def parts(store):
    store.add("R-1M", "Resistor 1M")
    store.add("C-10N", "Capacitor 10n")


def test_import(store):
    lines = ["number,quantity,supplier", "R-1M,100,Reichelt", "C-10N,50,"]
    assert import_deliveries(store, lines) == 2
    assert store.list() == [("C-10N", "Capacitor 10n", 50), ("R-1M", "Resistor 1M", 100)]


@pytest.mark.parametrize(
    "row, message",
    [
        ("X,1,Reichelt", "line 2: there is no part X"),
        ("R-1M,0,Reichelt", "line 2: 0 is no quantity"),
        ("R-1M,many,Reichelt", "line 2 cannot be read"),
        ("R-1M", "line 2 cannot be read"),
    ],
    ids=["unknown", "zero", "word", "short"],
)
def test_mistakes(store, row, message):
    with pytest.raises(StockError, match=message):
        import_deliveries(store, ["number,quantity,supplier", row])


HEAD = "number,quantity,supplier"


def others_view(path):
    """Return the moves that another program sees."""
    other = sqlite3.connect(path)
    try:
        return other.execute("SELECT quantity, supplier FROM moves ORDER BY id").fetchall()
    finally:
        other.close()


@pytest.mark.parametrize(
    "bad",
    ["X,1,Reichelt", "R-1M,0,Reichelt", "R-1M,many,R", "R-1M"],
    ids=["unknown", "zero", "word", "short"],
)
def test_a_mistake_and_nothing_is_received(store, path, bad):
    store.receive("R-1M", 3)
    with pytest.raises(StockError, match="line 4"):
        import_deliveries(store, [HEAD, "R-1M,100,Reichelt", "C-10N,50,", bad, "R-1M,1,"])
    assert store.quantity("R-1M") == 3
    assert store.quantity("C-10N") == 0
    assert others_view(path) == [(3, None)]


def test_neither_when_the_file_breaks_off(store, path):
    def lines():
        yield HEAD
        yield "R-1M,100,Reichelt"
        raise OSError("the stick was pulled out")

    with pytest.raises(OSError, match="pulled out"):
        import_deliveries(store, lines())
    store.receive("C-10N", 1)
    assert others_view(path) == [(1, None)]


def test_the_store_goes_on_as_before(store, path):
    with pytest.raises(StockError):
        import_deliveries(store, [HEAD, "R-1M,100,Reichelt", "X,1,"])
    store.receive("R-1M", 7, "Farnell")
    assert others_view(path) == [(7, "Farnell")]
    store.take("R-1M", 2)
    assert others_view(path) == [(7, "Farnell"), (-2, None)]
    assert import_deliveries(store, [HEAD, "R-1M,100,Reichelt"]) == 1
    assert others_view(path) == [(7, "Farnell"), (-2, None), (100, "Reichelt")]


def test_nobody_sees_half_of_a_file(store, path):
    seen = []

    def lines():
        yield HEAD
        for _ in range(5):
            yield "R-1M,1,Reichelt"
            seen.append(len(others_view(path)))

    assert import_deliveries(store, lines()) == 5
    assert seen == [0] * 5
    assert len(others_view(path)) == 5


def test_what_was_added_before_the_import_is_not_undone(store, path):
    store.add("D-1", "Diode")
    with pytest.raises(StockError):
        import_deliveries(store, [HEAD, "D-1,5,", "X,1,"])
    assert [number for number, _, _ in store.list()] == ["C-10N", "D-1", "R-1M"]
