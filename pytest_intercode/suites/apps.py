"""Rows of APPS: from InterCode's file, or from the folders that APPS itself is published in.

A problem has inputs and outputs of a whole program, or, with ``fn_name``, arguments and results of
calls. Both become hidden tests; nothing of them is left with the task otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.rows import read_rows

__all__ = ["read_apps"]


def read_apps(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
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
    for folder in sorted(path.iterdir()):
        if (folder / "question.txt").is_file():
            yield str(folder), _problem(folder)


def _problem(folder: Path) -> dict[str, Any]:
    question = _text(folder / "question.txt").strip()
    starter = _text(folder / "starter_code.py")
    solutions = _json(folder / "solutions.json") or [""]
    metadata = _json(folder / "metadata.json") or {}
    if not isinstance(solutions, list) or not isinstance(metadata, dict):
        raise SuiteError(f"{folder}: solutions.json holds a list, and metadata.json an object")
    row = {
        "query": f"{question}\n\n{starter.rstrip()}" if starter.strip() else question,
        "gold": str(solutions[0]),
        "problem": folder.name,
        "split": folder.parent.name,
        **_tests(str(folder), _json(folder / "input_output.json"), starter or str(solutions[0])),
    }
    if metadata.get("difficulty"):
        row["hardness"] = str(metadata["difficulty"])
    return row


def _tests(place: str, source: Any, code: str) -> dict[str, Any]:
    """Return a problem's tests, and what they call; it is skipped when it has none.

    Args:
        place: where it is.
        source: inputs and outputs, or the JSON text of them.
        code: what shows whether the function is a method: the starter code, or a solution.
    """
    if isinstance(source, str):
        source = _parsed(f"{place}: input_output", source) if source.strip() else None
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
        return {"tests": [{"input": given, "output": wanted} for given, wanted in pairs]}
    # Many results, but not all, stand in a list of their own. One task has it one way.
    if all(isinstance(output, list) and len(output) == 1 for output in outputs):
        outputs = [output[0] for output in outputs]
    calls = (given if isinstance(given, list) else [given] for given in inputs)
    return {
        "entry": f"Solution.{name}" if "class Solution" in code else name,
        "tests": [
            {"arguments": arguments, "result": result}
            for arguments, result in zip(calls, outputs, strict=True)
        ],
    }


def _lines(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path}: cannot be read: {error}") from None


def _json(path: Path) -> Any:
    text = _text(path)
    return _parsed(str(path), text) if text.strip() else None


def _parsed(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SuiteError(f"{place}: not JSON: {error}") from None
