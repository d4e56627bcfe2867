"""Tasks of tau2-bench, as rows: a folder for each domain, as in ``data`` of its repository.

The folder of a domain (``tau2/domains/NAME``) contains its tasks, database and policy; ``tau2/src``
contains its code, and ``tau2/user_simulator`` the prompt of the model that plays a customer.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_intercode.errors import SuiteError
from pytest_intercode.system.rows import Row, form_problem, read_json, read_text
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["read_tau2"]

_GREETING = "Hi! How can I help you today?"  # sent for the agent, before it begins
_STOP_WORDS = ["###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"]
_MODEL = "gpt-4.1-2025-04-14"  # the default model for customers and judges
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._]+")
_DATABASES = re.compile(r"(user_)?db\.(json|toml)")
_QUERY = """\
You serve the customers of a company. Keep to its policy, which is below. In each turn, either call
a tool or write to the customer, and do not do both at once.

<policy>
{policy}
</policy>

The customer writes:"""
_RUBRIC = """\
The score is 1 if each of these statements holds for what the agent told the customer and did, and 0
if one of them does not:
{statements}"""


def read_tau2(path: SuitePath) -> Iterator[tuple[str, Row]]:
    """Yield the place and the fields of each task of a domain.

    Args:
        path: a file of tasks in the domain's folder. From ``tasks.json``, only the tasks of the
            split ``base`` are read, like in tau2-bench itself; from any other file, all tasks.

    Raises:
        SuiteError: a file cannot be read, or has another form.
    """
    folder = path.parent
    root = folder.parent.parent
    code = root / "src" / "tau2" / "domains" / folder.name
    data = [file for file in folder.iterdir() if _DATABASES.fullmatch(file.name)]
    texts = [file for file in folder.iterdir() if file.suffix == ".md"]
    world = {
        f"data/tau2/domains/{folder.name}/{file.name}": str(file.place()) for file in data + texts
    }
    modules = [file for file in code.iterdir() if file.suffix == ".py"] if code.is_dir() else []
    world |= {f"src/tau2/domains/{folder.name}/{file.name}": str(file.place()) for file in modules}
    has_tools = any(file.name == "user_tools.py" for file in modules)
    guidelines = "simulation_guidelines_tools.md" if has_tools else "simulation_guidelines.md"
    shared = {
        "query": _QUERY.format(policy=_read_policy(folder).strip()),
        "domain": folder.name,
        "world": world,
    }
    if not data or not modules:
        shared["skip"] = (
            f"{folder if not data else code}: there is no {'database' if not data else 'code'}"
        )
    prompt = read_text(root / "user_simulator" / guidelines).replace("<PERSONA_GUIDELINES>", "")
    for number, task in enumerate(_read_tasks(path), 1):
        place = f"{path}: task {number}"
        try:
            yield place, {**shared, **_row(task, prompt)}
        except (AttributeError, KeyError, TypeError) as error:
            raise SuiteError(f"{place}: not a task of tau2-bench: {form_problem(error)}") from None


def _read_policy(folder: SuitePath) -> str:
    if (folder / "policy.md").is_file():
        return read_text(folder / "policy.md")
    parts = {"main_policy": "main_policy.md", "tech_support_policy": "tech_support_manual.md"}
    texts = {name: read_text(folder / file) for name, file in parts.items()}
    return "\n".join(f"<{name}>\n{text}\n</{name}>" for name, text in texts.items())


def _read_tasks(path: SuitePath) -> list[Any]:
    tasks = read_json(path)
    if not isinstance(tasks, list):
        raise SuiteError(f"{path}: a list of tasks is needed")
    splits = path.parent / "split_tasks.json"
    if path.name != "tasks.json" or not splits.is_file():
        return tasks
    try:
        base = frozenset(read_json(splits)["base"])
        return [task for task in tasks if task["id"] in base]
    except (KeyError, TypeError) as error:
        raise SuiteError(f"{path}: not the tasks of {splits}: {form_problem(error)}") from None


def _row(task: Mapping[str, Any], prompt: str) -> Row:
    scenario = _scenario(task["user_scenario"])
    criteria = task.get("evaluation_criteria") or {"reward_basis": []}
    initial = task.get("initial_state") or {}
    row: Row = {
        "number": _NOT_IN_IDS.sub("-", task["id"]).strip("-"),
        "gold": [*map(_gold_call, criteria.get("actions") or ()), _gold_answer(criteria)],
        "user": {
            "instructions": f"{prompt}\n\n<scenario>\n{scenario}\n</scenario>",
            "opening": _GREETING,
            "stop": _STOP_WORDS,
            "stops_anywhere": True,
            "model": _MODEL,
        },
        "criteria": criteria,
        "initial": initial,
    }
    if initial.get("message_history"):
        row["skip"] = "it begins in the middle of a conversation"
    statements = criteria.get("nl_assertions") or ()
    if "NL_ASSERTION" in criteria.get("reward_basis", ()) and statements:
        rubric = _RUBRIC.format(statements="\n".join(f"- {text}" for text in statements))
        row["judge"] = {"rubric": rubric, "model": _MODEL, "votes": 1, "product": True}
    return row


def _gold_call(action: Mapping[str, Any]) -> str:
    call = {"name": action["name"], "arguments": action["arguments"]}
    if action.get("requestor", "assistant") == "user":
        call["requestor"] = "user"
    return json.dumps(call)


def _gold_answer(criteria: Mapping[str, Any]) -> str:
    """Return gold's message to the customer: the required information, and the statements."""
    texts = [*(criteria.get("communicate_info") or ()), *(criteria.get("nl_assertions") or ())]
    return f"submit {' '.join(' '.join(texts).split())}".rstrip()


def _scenario(scenario: Mapping[str, Any]) -> str:
    """Return the description of a customer and of their goal, for the prompt."""
    lines = []
    if scenario.get("persona") is not None:
        lines += ["Persona:", textwrap.indent(scenario["persona"], "\t")]
    lines += ["Instructions:", textwrap.indent(_instructions(scenario["instructions"]), "\t")]
    return "\n".join(lines)


def _instructions(instructions: str | Mapping[str, Any]) -> str:
    if isinstance(instructions, str):
        return instructions
    parts = [f"Domain: {instructions['domain']}"]
    for title, name in (
        ("Reason for call", "reason_for_call"),
        ("Known info", "known_info"),
        ("Unknown info", "unknown_info"),
        ("Task instructions", "task_instructions"),
    ):
        if instructions.get(name) is not None:
            parts.append(f"{title}:\n{textwrap.indent(instructions[name], chr(9))}")
    return "\n".join(parts)
