"""Problems of APPS, as rows with hidden tests.

A problem has inputs and outputs of a whole program or, with ``fn_name``, arguments and results of
calls. Both become hidden tests, and are not kept in any other form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pytest_intercode.errors import SuiteError
from pytest_intercode.system.rows import Row, json_problem, read_rows, read_text
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["read_apps"]


def read_apps(path: SuitePath) -> Iterator[tuple[str, Row]]:
    """Yield the place and the fields of each problem.

    Args:
        path: a file of rows with ``query``, ``gold`` and ``input_output``, or a folder of folders
            with ``question.txt``, ``solutions.json``, ``input_output.json``, ``metadata.json`` and
            ``starter_code.py``, of which only the first must exist.

    Raises:
        SuiteError: a file cannot be read, or has another form.
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
        raise SuiteError(f"{folder}: solutions.json must be a list, and metadata.json an object")
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
    """Return a problem's tests, and the function that they call; without tests, skip it.

    Args:
        place: the location of the problem, for messages.
        source: inputs and outputs, or their JSON text.
        code: the starter code or a solution, which shows whether the function is a method.
    """
    if isinstance(source, str):
        source = _parse_json(f"{place}: input_output", source)
    if not source:
        return {"skip": "it has no tests"}
    if not isinstance(source, dict) or not {"inputs", "outputs"} <= source.keys():
        raise SuiteError(f"{place}: input_output: an object with inputs and outputs is needed")
    inputs, outputs, name = source["inputs"], source["outputs"], source.get("fn_name")
    if not (isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs)):
        raise SuiteError(f"{place}: input_output: inputs and outputs must be lists of equal length")
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
    return read_text(path) if path.exists() else ""


def _read_json(path: SuitePath) -> Any:
    return _parse_json(str(path), _optional(path))


def _parse_json(place: str, text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{place}: not JSON: {json_problem(error)}") from None
