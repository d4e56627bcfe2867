"""Rows of a dataset: JSON, JSONL, CSV and TSV files, plain or compressed with gzip; and APPS.

A problem of APPS has inputs and outputs of a whole program or, with ``fn_name``, arguments and
results of calls. Both become hidden tests, and are not kept otherwise.
"""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_intercode.errors import MissingFile, SuiteError
from pytest_intercode.system.files import read_bounded
from pytest_intercode.system.suite_folder import SuitePath

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["is_row_file", "json_problem", "read_apps", "read_rows"]

_SUFFIXES = (".json", ".jsonl", ".csv", ".tsv")
_PICKLE_SUFFIXES = (".pkl", ".pickle")
_PARQUET = ".parquet"
_MAX_BYTES = 2 * 1024**3  # unpacked

Row: TypeAlias = dict[str, Any]
_Place: TypeAlias = "Path | SuitePath"


def is_row_file(path: Path) -> bool:
    """Whether a path is named like a file of rows."""
    return _suffix(path) in (*_SUFFIXES, *_PICKLE_SUFFIXES, _PARQUET)


def _suffix(path: _Place) -> str:
    """Return the suffix that names the format of rows, without ``.gz``."""
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
            f"{path}: parquet is not read; save the rows as JSON Lines: "
            "pandas.read_parquet(path).to_json(new, orient='records', lines=True)"
        )
    if suffix not in _SUFFIXES:
        formats = ", ".join(_SUFFIXES)
        raise SuiteError(f"{path}: rows come from {formats} (or those with .gz), not {suffix!r}")
    text = _read(path)
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


def _read(path: _Place) -> str:
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
        raise SuiteError(f"{path}: a JSON file of rows is a list of objects, not {_name(data)}")
    for index, row in enumerate(data):
        yield _check_row(f"{path}, row {index}", row)


def _read_json_lines(path: _Place, text: str) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(text.split("\n"), start=1):  # texts may hold other line ends
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
        for row in reader:
            place = f"{path}:{reader.line_num}"
            if None in row or None in row.values():
                raise SuiteError(f"{place}: has not as many fields as the header line")
            yield place, {name: value for name, value in row.items() if value != ""}
    except csv.Error as error:
        raise SuiteError(f"{path}:{reader.reader.line_num}: {error}") from None


def _check_row(place: str, row: object) -> tuple[str, Row]:
    if not isinstance(row, dict):
        raise SuiteError(f"{place}: a row is an object with fields, not {_name(row)}")
    return place, row


def _name(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", type(None): "null"}
    return names.get(type(value), "true or false" if isinstance(value, bool) else "a number")


# -- APPS


def read_apps(path: SuitePath) -> Iterator[tuple[str, Row]]:
    """Yield the place and the fields of each problem.

    Args:
        path: a file of rows with ``query``, ``gold`` and ``input_output``, or a folder of folders
            with ``question.txt``, ``solutions.json``, ``input_output.json``, ``metadata.json`` and
            ``starter_code.py``, of which only the first must be there.

    Raises:
        SuiteError: a file cannot be read, or does not hold what it should.
    """
    if not path.is_dir():
        for place, row in read_rows(path):
            source = row.pop("input_output", None)
            yield place, {**row, **_tests(place, source, str(row.get("gold", "")))}
        return
    for folder in path.iterdir():
        if (folder / "question.txt").is_file():
            yield str(folder), _problem(folder)


def _problem(folder: SuitePath) -> Row:
    question = _optional(folder / "question.txt").strip()
    starter = _optional(folder / "starter_code.py")
    solutions = _read_json(folder / "solutions.json") or [""]
    metadata = _read_json(folder / "metadata.json") or {}
    if not isinstance(solutions, list) or not isinstance(metadata, dict):
        raise SuiteError(f"{folder}: solutions.json holds a list, and metadata.json an object")
    row = {
        "query": f"{question}\n\n{starter.rstrip()}" if starter.strip() else question,
        "gold": str(solutions[0]),
        "problem": folder.name,
        "split": folder.parent.name,
        **_tests(
            str(folder), _read_json(folder / "input_output.json"), starter or str(solutions[0])
        ),
    }
    if metadata.get("difficulty"):
        row["hardness"] = str(metadata["difficulty"])
    return row


def _tests(place: str, source: Any, code: str) -> Row:
    """Return a problem's tests, and what they call; it is skipped when it has none.

    Args:
        place: where it is.
        source: inputs and outputs, or the JSON text of them.
        code: what shows whether the function is a method: the starter code, or a solution.
    """
    if isinstance(source, str):
        source = _parse_json(f"{place}: input_output", source)
    if not source:
        return {"skip": "it has no tests"}
    if not isinstance(source, dict) or not {"inputs", "outputs"} <= source.keys():
        raise SuiteError(f"{place}: input_output: an object with inputs and outputs is needed")
    inputs, outputs, name = source["inputs"], source["outputs"], source.get("fn_name")
    if not (isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs)):
        raise SuiteError(f"{place}: input_output: inputs and outputs are lists of equal length")
    if not inputs:
        return {"skip": "it has no tests"}
    if not name:
        pairs = zip(map(_lines, inputs), map(_lines, outputs), strict=True)
        return {
            "tests": [
                {"input": program_input, "output": program_output}
                for program_input, program_output in pairs
            ]
        }
    # Most results, but not all, are in a list of one; within a problem all or none are.
    if all(isinstance(output, list) and len(output) == 1 for output in outputs):
        outputs = [output[0] for output in outputs]
    calls = (arguments if isinstance(arguments, list) else [arguments] for arguments in inputs)
    return {
        "entry": f"Solution.{name}" if "class Solution" in code else name,
        "tests": [
            {"arguments": arguments, "result": result}
            for arguments, result in zip(calls, outputs, strict=True)
        ],
    }


def _lines(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _optional(path: SuitePath) -> str:
    return _read(path) if path.exists() else ""


def _read_json(path: SuitePath) -> Any:
    return _parse_json(str(path), _optional(path))


def _parse_json(place: str, text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{place}: not JSON: {json_problem(error)}") from None
