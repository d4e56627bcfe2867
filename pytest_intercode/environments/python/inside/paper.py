"""InterCode's Python interpreter, for the paper profile.

The agent's actions, the hidden tests and gold share one namespace, in which gold stays after the
grading. Output is returned with the result, but is lost if an exception was raised.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
from typing import Any

__all__ = ["execute", "grade", "main", "step"]

names: dict[str, Any] = {}


def execute(code: str) -> dict[str, str]:
    """Run code; return its output, or the message of the exception that it raised."""
    output, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            exec(compile(code, "<string>", "exec", 0, True), names)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return {"error": f"Error: {error}"}
    return {"output": output.getvalue(), "error": errors.getvalue()}


def step(action: str) -> tuple[str, bool]:
    """Run an action; return the observation, and whether it ran without an error."""
    try:
        if not action.strip().startswith("def ") and not _stands_alone(action):
            action = f"print({action})"
    except Exception as error:
        return f"Error executing action: {error}", False
    result = execute(action)
    return str(result), not result["error"]


def _stands_alone(action: str) -> bool:
    """Whether an action runs unchanged, without print: InterCode's rule, with its mistakes."""
    nodes = list(ast.walk(ast.parse(action)))
    prints = (isinstance(node, ast.Call) and _is_print(node.func) for node in nodes)
    kinds = (ast.Assign, ast.Import)
    return (
        action.startswith("assert") or any(prints) or any(isinstance(node, kinds) for node in nodes)
    )


def _is_print(function: ast.expr) -> bool:
    return isinstance(function, ast.Name) and function.id == "print"


def grade(
    name: str, test_name: str, setup: str, tests: list[str], gold: list[str]
) -> list[list[dict[str, str]]]:
    """Run the tests on the submission, then, in an emptied namespace, on gold.

    Args:
        name: the name of what was submitted.
        test_name: its name in the tests.
        setup: code that runs before the tests.
        tests: the tests.
        gold: the code of the reference answer, which stays in the namespace.
    """
    if name != test_name:
        execute(f"{test_name} = {name}")
    execute(setup)
    agents_results = [execute(test) for test in tests]
    names.clear()
    for code in gold:
        execute(code)
    execute(setup)
    return [agents_results, [execute(test) for test in tests]]


def main(request: dict[str, Any]) -> None:
    """Answer a request on standard output."""
    answer: Any = step(request["action"]) if "action" in request else grade(*request["grade"])
    print(f"\n{request['token']} 0 {json.dumps(answer)}", flush=True)
