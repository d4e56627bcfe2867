"""Rows of a dataset: JSON, JSONL, CSV and TSV files, plain or compressed with gzip."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_intercode.errors import MissingFile, SuiteError

__all__ = ["PICKLE_SUFFIXES", "ROW_SUFFIXES", "read_rows", "row_suffix"]

ROW_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv")
PICKLE_SUFFIXES = (".pkl", ".pickle")


def row_suffix(path: Path) -> str:
    """Return the ending that tells how rows are written, ``.gz`` left aside."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place (``file:line`` or ``file, row N``) and the fields of each row.

    Raises:
        SuiteError: the file cannot be read, or a row is not an object.
    """
    suffix = row_suffix(path)
    if suffix in PICKLE_SUFFIXES:
        raise SuiteError(
            f"{path}: pickle files are refused, because loading one runs whatever code is in it. "
            "Save the rows as JSON Lines instead: dataframe.to_json(path, orient='records', "
            "lines=True)"
        )
    if suffix not in ROW_SUFFIXES:
        allowed = ", ".join(ROW_SUFFIXES)
        raise SuiteError(f"{path}: rows come from {allowed} (or those with .gz), not {suffix!r}")
    text = _read(path)
    if suffix == ".json":
        yield from _json(path, text)
    elif suffix == ".jsonl":
        yield from _json_lines(path, text)
    else:
        yield from _separated(path, text, "\t" if suffix == ".tsv" else ",")


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix.lower() == ".gz" else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise MissingFile(f"{path}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path}: not UTF-8 text at byte {error.start}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise SuiteError(f"{path}: cannot be read: {error}") from None


def _json(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise SuiteError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    if isinstance(data, dict) and all(isinstance(value, dict) for value in data.values()):
        data = list(data.values())
    if not isinstance(data, list):
        raise SuiteError(f"{path}: a JSON file of rows is a list of objects, not {_name(data)}")
    for index, row in enumerate(data):
        yield _checked(f"{path}, row {index}", row)


def _json_lines(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise SuiteError(f"{path}:{number}: not JSON: {error.msg}") from None
        yield _checked(f"{path}:{number}", row)


def _separated(path: Path, text: str, delimiter: str) -> Iterator[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            place = f"{path}:{reader.line_num}"
            if None in row or None in row.values():
                raise SuiteError(f"{place}: has not as many fields as the header line")
            yield place, {name: value for name, value in row.items() if value != ""}
    except csv.Error as error:
        raise SuiteError(f"{path}:{reader.reader.line_num}: {error}") from None


def _checked(place: str, row: object) -> tuple[str, dict[str, Any]]:
    if not isinstance(row, dict):
        raise SuiteError(f"{place}: a row is an object with fields, not {_name(row)}")
    return place, row


def _name(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", type(None): "null"}
    return names.get(type(value), "true or false" if isinstance(value, bool) else "a number")
