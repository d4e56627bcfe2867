"""Rows of a dataset: JSON, JSONL, CSV and TSV files, plain or compressed with gzip."""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_intercode.errors import MissingFile, SuiteError
from pytest_intercode.system.files import read_bounded
from pytest_intercode.system.suite_folder import SuitePath

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "Row",
    "form_problem",
    "is_row_file",
    "json_problem",
    "read_json",
    "read_rows",
    "read_text",
]

_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv")
_PICKLE_SUFFIXES = (".pkl", ".pickle")
_PARQUET = ".parquet"
_MAX_BYTES = 2 * 1024**3  # bytes of a file, unpacked

Row: TypeAlias = dict[str, Any]
_Place: TypeAlias = "Path | SuitePath"


def is_row_file(path: Path) -> bool:
    """Whether a path has the suffix of a file of rows."""
    return _suffix(path) in (*_SUFFIXES, *_PICKLE_SUFFIXES, _PARQUET)


def _suffix(path: _Place) -> str:
    """Return the suffix for the format of rows, ignoring ``.gz``."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_rows(path: Path | SuitePath) -> Iterator[tuple[str, Row]]:
    """Yield the place (``file:line`` or ``file, row N``) and the fields of each row.

    Raises:
        SuiteError: the file cannot be read, or a row is not an object.
    """
    suffix = _suffix(path)
    if suffix in _PICKLE_SUFFIXES:
        raise SuiteError(
            f"{path}: pickle files are refused, because loading one runs whatever code is in it. "
            "Save the rows as JSON Lines instead: dataframe.to_json(path, orient='records', "
            "lines=True)"
        )
    if suffix == _PARQUET:
        raise SuiteError(
            f"{path}: parquet files are not read; save the rows as JSON Lines: "
            "pandas.read_parquet(path).to_json(new, orient='records', lines=True)"
        )
    if suffix not in _SUFFIXES:
        formats = ", ".join(_SUFFIXES)
        raise SuiteError(
            f"{path}: rows are read from {formats} (or those with .gz), not {suffix!r}"
        )
    text = read_text(path)
    if suffix == ".json":
        yield from _read_json_rows(path, text)
    elif suffix == ".jsonl":
        yield from _read_json_lines(path, text)
    else:
        yield from _read_separated(path, text, "\t" if suffix == ".tsv" else ",")


def json_problem(error: ValueError | RecursionError) -> str:
    """Return why a text is not JSON, in a few words."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"


def form_problem(error: Exception) -> str:
    """Return in a few words why data does not have the expected form."""
    is_missing = isinstance(error, KeyError)
    return f"{error.args[0]} is missing" if is_missing else "it has another form"


def read_json(path: Path | SuitePath) -> Any:
    """Return the content of a JSON file.

    Raises:
        SuiteError: the file cannot be read, or is not JSON.
    """
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{path}: not JSON: {json_problem(error)}") from None


def read_text(path: Path | SuitePath) -> str:
    """Return the text of a file, unpacked if its name ends with ``.gz``.

    Raises:
        SuiteError: the file cannot be read, is not UTF-8, or is too large.
    """
    try:
        data = read_bounded(path, _MAX_BYTES)
        if data is None:
            raise SuiteError(
                f"{path}: holds more than {_MAX_BYTES // 1024**3} GiB, which is more than is read"
            )
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise MissingFile(f"{path}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path}: not UTF-8 text at byte {error.start}") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise SuiteError(f"{path}: cannot be read: {reason}") from None


def _read_json_rows(path: _Place, text: str) -> Iterator[tuple[str, Row]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise SuiteError(f"{path}{line}: not JSON: {json_problem(error)}") from None
    if isinstance(data, dict) and all(isinstance(value, dict) for value in data.values()):
        data = list(data.values())
    if not isinstance(data, list):
        raise SuiteError(
            f"{path}: a JSON file of rows must be a list of objects, not {_name(data)}"
        )
    for index, row in enumerate(data):
        yield _check_row(f"{path}, row {index}", row)


def _read_json_lines(path: _Place, text: str) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(text.split("\n"), start=1):  # strings may contain other line ends
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SuiteError(f"{path}:{number}: not JSON: {json_problem(error)}") from None
        yield _check_row(f"{path}:{number}", row)


def _read_separated(path: _Place, text: str, delimiter: str) -> Iterator[tuple[str, Row]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        while (row := _next_row(reader, len(text))) is not None:
            place = f"{path}:{reader.line_num}"
            if None in row or None in row.values():
                raise SuiteError(f"{place}: does not have as many fields as the header line")
            if len(row) < len(reader.fieldnames or ()):
                [(name, _)] = Counter(reader.fieldnames).most_common(1)
                raise SuiteError(f"{path}:1: the column {name!r:.80} occurs twice")
            yield place, {name: value for name, value in row.items() if value != ""}
    except csv.Error as error:
        raise SuiteError(f"{path}:{reader.reader.line_num}: {error}") from None


def _next_row(reader: csv.DictReader[str], max_characters: int) -> dict[str, str] | None:
    """Return the next row, whose fields may be longer than Python's default limit of 128 Ki."""
    usual = csv.field_size_limit(max_characters)  # a setting of the whole process
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(usual)


def _check_row(place: str, row: object) -> tuple[str, Row]:
    if not isinstance(row, dict):
        raise SuiteError(f"{place}: a row must be an object with fields, not {_name(row)}")
    return place, row


def _name(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", type(None): "null"}
    return names.get(type(value), "true or false" if isinstance(value, bool) else "a number")
