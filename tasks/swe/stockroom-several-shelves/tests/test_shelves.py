import sqlite3
from contextlib import closing

import pytest

from stockroom.__main__ import main

PARTS = """
CREATE TABLE parts (
    id INTEGER PRIMARY KEY, number TEXT NOT NULL UNIQUE, name TEXT NOT NULL%s
);
CREATE TABLE moves (
    id INTEGER PRIMARY KEY, part INTEGER NOT NULL REFERENCES parts (id),
    quantity INTEGER NOT NULL, supplier TEXT
);
"""
OLD = {
    "R-1": "A3",
    "R-2": "B12; a3",
    "R-3": " c1 ;C1;, C10,C9 ",
    "R-4": "",
    "R-5": None,
    "R-6": " ; ",
    "R-7": "AB07",
}


def make(path, shelves, version=2):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(PARTS % (", shelf TEXT" if version == 2 else ""))
        for number, shelf in shelves.items():
            connection.execute(
                "INSERT INTO parts (number, name) VALUES (?, ?)", (number, "part " + number)
            )
            if version == 2:
                connection.execute(
                    "UPDATE parts SET shelf = ? WHERE number = ?", (shelf, number)
                )
        connection.execute("INSERT INTO moves (part, quantity, supplier) VALUES (2, 7, 'Conrad')")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()


def dump(path):
    with closing(sqlite3.connect(path)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()
        return [version, *connection.iterdump()]


def where(path, capsys, number):
    assert main([path, "where", number]) == 0
    return capsys.readouterr().out


def test_an_old_file_is_converted(path, capsys):
    make(path, OLD)
    assert [where(path, capsys, number) for number in OLD] == [
        "A3\n",
        "A3, B12\n",
        "C1, C9, C10\n",
        "nobody knows\n",
        "nobody knows\n",
        "nobody knows\n",
        "AB07\n",
    ]


def test_what_else_is_in_an_old_file_stays(path, capsys):
    make(path, OLD)
    assert main([path, "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(OLD)
    assert lines[1].split() == ["7", "R-2", "part", "R-2"]
    assert main([path, "suppliers"]) == 0
    assert capsys.readouterr().out == "     7 Conrad: R-2\n"


def test_it_is_converted_once(path, capsys):
    make(path, OLD)
    main([path, "where", "R-1"])
    first = dump(path)
    main([path, "where", "R-1"])
    assert dump(path) == first
    assert first[0] == (3,)


def test_a_file_without_shelves_is_converted_too(path, capsys):
    make(path, {"R-1": None, "R-2": None}, version=1)
    assert where(path, capsys, "R-2") == "nobody knows\n"
    assert main([path, "put", "R-2", "A3"]) == 0
    assert where(path, capsys, "R-2") == "A3\n"


def test_the_old_column_is_gone(path, capsys):
    make(path, OLD)
    main([path, "list"])
    with closing(sqlite3.connect(path)) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(parts)")]
    assert columns == ["id", "number", "name"]


@pytest.mark.parametrize(
    "bad",
    ["under the desk", "A3; 12", "A3 B12", "A-3", "A3; B"],
    ids=["words", "digits", "blank", "dash", "letters"],
)
def test_a_file_that_cannot_be_converted_stays_as_it_was(path, capsys, bad):
    make(path, {**OLD, "R-8": bad, "R-9": "D1"})
    before = dump(path)
    assert main([path, "list"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"stockroom: {path}: ") and "R-8" in err
    assert len(err.splitlines()) == 1
    assert dump(path) == before


def test_files_of_later_versions_are_refused(path, capsys):
    main([path, "list"])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 4")
    before = dump(path)
    assert main([path, "list"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"stockroom: {path}: ")
    assert len(err.splitlines()) == 1
    assert dump(path) == before


def test_a_new_file(path, capsys):
    main([path, "add", "R-1", "Resistor"])
    for shelf in ("B2", " a10", "A9", "b2", "AA1"):
        assert main([path, "put", "R-1", shelf]) == 0
    assert where(path, capsys, "R-1") == "A9, A10, AA1, B2\n"


@pytest.mark.parametrize(
    "shelf",
    ["", "12", "A", "A1; B2", "A 1"],
    ids=["empty", "digits", "letters", "two", "blank"],
)
def test_put_takes_one_shelf(path, capsys, shelf):
    main([path, "add", "R-1", "Resistor"])
    assert main([path, "put", "R-1", shelf]) == 1
    assert capsys.readouterr().err.startswith("stockroom: ")
    assert where(path, capsys, "R-1") == "nobody knows\n"


def test_an_import_is_still_all_or_nothing(path, tmp_path, capsys):
    make(path, OLD)
    csv = tmp_path / "shop.csv"
    csv.write_text("number,quantity,supplier\nR-1,5,Conrad\nX,1,Conrad\n", encoding="utf-8")
    assert main([path, "import", str(csv)]) == 1
    main([path, "list"])
    assert capsys.readouterr().out.splitlines()[0].split()[:2] == ["0", "R-1"]
