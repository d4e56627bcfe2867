import pytest


@pytest.fixture(autouse=True)
def parts(store):
    store.add("R-100K", "Resistor 100k, 1%")
    store.add("C-10N", "Capacitor 10n")


def test_a_piece_of_the_name(store):
    assert store.find("sist") == [("R-100K", "Resistor 100k, 1%")]


def test_case_does_not_matter(store):
    assert store.find("CAPAC") == [("C-10N", "Capacitor 10n")]


def test_nothing(store):
    assert store.find("diode") == []


@pytest.fixture
def special(store):
    store.add("R-100", "Resistor 100 ohm, 10 ppm")
    store.add("T-1", "bc_547 transistor")
    store.add("T-2", "BC547 transistor")
    store.add("W-1", r"Adapter \ 6.3 mm, 50%_off")


@pytest.mark.parametrize(
    "text, numbers",
    [
        ("1%", ["R-100K"]),
        ("%", ["R-100K", "W-1"]),
        ("_", ["T-1", "W-1"]),
        ("BC_5", ["T-1"]),
        ("bc5", ["T-2"]),
        ("\\", ["W-1"]),
        ("\\_6", []),
        ("%_OFF", ["W-1"]),
        ("\\%", []),
        ("1%r", []),
        ("r%1", []),
    ],
    ids=range(11),
)
def test_every_character_stands_for_itself(store, special, text, numbers):
    assert [number for number, _ in store.find(text)] == numbers


def test_the_empty_text_is_in_every_name(store, special):
    assert len(store.find("")) == 6
