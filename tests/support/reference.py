"""Writes docs/reference/ and docs/llms.txt from declarations.

Run as ``python -m tests.support.reference``. Each page is a function here, which returns its text.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest_intercode
from pytest_intercode.cli import make_parser
from pytest_intercode.core.record import OUTCOMES, UNGRADED
from pytest_intercode.environments.registry import builtin_kinds
from pytest_intercode.plugin import fixtures, hookspecs
from pytest_intercode.plugin.project_cells import OF_MARKS, RunOptions
from pytest_intercode.plugin.selection import TASK_ARGUMENTS
from pytest_intercode.results.schema import json_schema
from pytest_intercode.suites.schema import SuiteModel, task_model
from tests.support.pages import DOCS, first_sentence, navigation, title

__all__ = ["TEXTS", "write"]

_ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?([^`]+)`")
_FOLDERS = {  # of the package, in the order in which a reader comes to them
    "plugin": "Tests",
    "projects": "Tests of a project",
    "agents": "Agents",
    "core": "Tasks, turns and records",
    "suites": "Suites",
    "environments": "Environments",
    "sandboxes": "Sandboxes",
    "rollouts": "Rollouts",
    "results": "Results files",
    "rescoring": "Grading again",
    "gateway": "The gateway",
    "errors": "Errors",
}


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = [*head]
    lines = [columns, ["---"] * len(columns), *([*row] for row in rows)]
    cells = ([_cell(cell) for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|").removesuffix(".")


def _plain(text: str) -> str:
    """Return a text of a docstring as Markdown on one line."""
    text = _ROLE.sub(r"`\1`", " ".join(text.split()))
    return text.replace("``", "`")


def _attributes(doc: str) -> dict[str, str]:
    """Return what a docstring says of attributes or arguments, by their names."""
    section = re.split(r"\n(?:Attributes|Args):\n", doc)[-1]
    return dict(re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE))


def _functions(module: Any) -> list[ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(module))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def _doc(node: ast.FunctionDef) -> str:
    return inspect.cleandoc(ast.get_docstring(node) or "")


def marks() -> str:
    """Return the page of marks."""
    options = {**_attributes(inspect.getdoc(RunOptions) or ""), **OF_MARKS}
    return f"""\
# Marks

This page lists the arguments of `@pytest.mark.intercode(...)`, and the marks of items.

## Of a test of tasks

A test function that takes `intercode_episode`, or another fixture of a task, runs with each task
that its mark selects. One of `suite`, `dataset` and `env` is required.

{_meanings(TASK_ARGUMENTS)}
## Of a test of a project

A test function that takes `intercode_project` runs with each agent. `run()` takes the same
arguments, except the last three, and they override those of the mark.

{_meanings(options)}
## Of an item

Each item of a task has the mark `intercode` with `env`, `suite`, `dataset`, `hardness` and `tags`,
and plain marks for `-m`: the name of its environment, its tags, and the label of its agent, such as
`codex`. A tag does not become a mark if pytest, a usual plugin or an environment uses its name.
"""


def _meanings(texts: Mapping[str, str]) -> str:
    return _table(("argument", "meaning"), ((f"`{name}`", text) for name, text in texts.items()))


def fixtures_page() -> str:
    """Return the page of fixtures."""
    rows = []
    for node in _functions(fixtures):
        if node.decorator_list and "fixture" in ast.unparse(node.decorator_list[0]):
            value = re.sub(r"Iterator\[(.*)\]", r"\1", ast.unparse(node.returns or node))
            rows.append((f"`{node.name}`", f"`{value}`", _doc(node)))
    return f"""\
# Fixtures

This page lists the fixtures for test functions. [api.md](api.md) describes their classes.

{_table(("fixture", "type", "purpose"), rows)}"""


def hooks() -> str:
    """Return the page of hooks."""
    parts = [
        """\
# Hooks of conftest files

This page lists the hooks that a `conftest.py` or a plugin may implement. [hooks.md](../hooks.md)
has an example of each.
"""
    ]
    for node in _functions(hookspecs):
        doc = _doc(node)
        text = _plain(doc.partition("\nArgs:")[0].replace("\n\n", " "))
        arguments = _attributes(doc.partition("\nReturns:")[0])
        parts.append(f"\n## {node.name}\n\n{text}\n\n")
        annotations = {
            arg.arg: ast.unparse(arg.annotation or ast.Constant("")) for arg in node.args.args
        }
        parts.append(
            _table(
                ("argument", "type", "meaning"),
                ((f"`{k}`", f"`{annotations[k]}`", v) for k, v in arguments.items()),
            )
        )
        if "\nReturns:" in doc:
            parts.append(f"\nReturns: {_plain(doc.partition('Returns:')[2])}\n")
    return "".join(parts)


def outcomes() -> str:
    """Return the page of outcomes."""
    rows = []
    for name, text in OUTCOMES.items():
        verdict = "passed" if name == "solved" else "ERROR" if name in UNGRADED else "FAILED"
        rows.append((f"`{name}`", verdict, "no" if name in UNGRADED else "yes", text))
    return f"""\
# Outcomes

This page lists how an episode may end. [results.md](../results.md) explains what each outcome means
for a gate.

{_table(("outcome", "pytest", "counts in rates", "what happened"), rows)}"""


def commands() -> str:
    """Return the page of the command ``pytest-intercode``."""
    parts = [
        """\
# Commands

This page lists the commands of `pytest-intercode` and their arguments. The exit status is 0 on
success, 1 on failure, and 2 on wrong usage.
"""
    ]
    [subparsers] = [a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    helps = {action.dest: action.help or "" for action in subparsers._choices_actions}
    for name, parser in subparsers.choices.items():
        parts.append(f"\n## pytest-intercode {name}\n\n{_sentence(helps[name])}\n\n")
        actions = [action for action in parser._actions if action.dest != "help"]
        if actions:
            parts.append(_table(("argument", "meaning"), map(_argument, actions)))
    return "".join(parts)


def _argument(action: argparse.Action) -> tuple[str, str]:
    value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    if isinstance(value, tuple):
        value = " ".join(value)
    if action.choices is not None and action.metavar is None:
        value = "|".join(map(str, action.choices))
    if action.nargs in ("*", "+"):
        value += "..."
    names = ", ".join(action.option_strings)
    form = f"{names} {value}" if names and action.nargs != 0 else names or value
    text = action.help or ""
    if "%(" in text:
        text %= {**vars(action), "prog": "pytest-intercode"}
    return f"`{form}`", text


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".removesuffix(".") + "."


def records() -> str:
    """Return the page of a results file's line."""
    schema = json_schema()
    parts = [
        """\
# Fields of a record

This page lists the keys of a line of a results file, which is the JSON of one episode.
[episode-record.schema.json](../episode-record.schema.json) describes them for programs, and
[results.md](../results.md) explains how to read such files.

""",
        _keys(schema, pytest_intercode.EpisodeRecord),
    ]
    for name, part in schema["$defs"].items():
        if "properties" in part:
            parts.append(f"\n## {name}\n\n" + _keys(part, getattr(pytest_intercode, name, None)))
    return "".join(parts)


def _keys(schema: Mapping[str, Any], data_class: object) -> str:
    """Return a table of an object's keys, with what the schema says of them, or the class."""
    texts = _attributes(inspect.getdoc(data_class) or "")
    return _table(
        ("key", "type", "meaning"),
        (
            (f"`{name}`", describe_type(part), part.get("description") or texts.get(name, ""))
            for name, part in schema["properties"].items()
        ),
    )


def describe_type(schema: Mapping[str, Any]) -> str:
    """Return what a JSON Schema allows, in a few words."""
    if schema.get("$ref", "").endswith("/JsonValue"):
        return "anything"
    if "$ref" in schema:
        name = _label(schema["$ref"].rpartition("/")[2])
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        kinds = [describe_type(part) for part in schema["anyOf"]]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        items = schema.get("items", {})
        return f"list of {_plural(describe_type(items))}" if items else "list"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        values = next(iter(schema.get("patternProperties", {}).values()), values)
        return (
            f"object of {_plural(describe_type(values))}"
            if isinstance(values, dict) and values
            else "object"
        )
    return str(schema.get("type", "anything"))


def _plural(kinds: str) -> str:
    """Return the plural of JSON's types in a text of :func:`describe_type`."""
    return re.sub(r"\b(string|integer|number|boolean|object|list)\b(?! of)", r"\1s", kinds)


def suites() -> str:
    """Return the page of the fields of suites."""
    schema = SuiteModel.model_json_schema()
    forms = {"SuiteModel": schema, **schema["$defs"]}
    task, layer = forms.pop("TaskModel"), forms.pop("LayerModel")
    common = task["properties"]
    own_names = {name for name in common if name not in layer["properties"]}
    parts = [
        """\
# Fields of suites

This page lists the fields of a suite file. [suites.md](../suites.md) explains most of them by
example.
""",
        _form("Suite", forms.pop("SuiteModel")),
        _form("Task", task, own_names),
        _form("Defaults", layer),
    ]
    for kind in builtin_kinds():
        own = task_model(kind).model_json_schema()
        forms |= own["$defs"]
        description = inspect.getdoc(kind.fields_class) or ""
        fields = {
            "properties": own["properties"],
            "description": f"{description}\n    services: further machines, by name.\n"
            "    verification: how it is graded by running something.\n",
        }
        parts.append(_form(f"Tasks of {kind.name}", fields, {*own["properties"]} - {*common}))
    shown = sorted(forms.items())
    parts += [_form(_label(name), form) for name, form in shown if name not in _SHOWN]
    return "".join(parts)


_SHOWN = {"TaskModel", "LayerModel", "SuiteModel"}
_BECOMES = {
    "Evidence": "Artifact",
    "File": "FileSpec",
    "Health": "HealthCheck",
    "User": "Conversation",
}


def _form(label: str, schema: Mapping[str, Any], names: set[str] | None = None) -> str:
    """Return a section on a form: what it is, and its fields with what its docstring says."""
    description = schema.get("description", "")
    data_class = getattr(pytest_intercode, _BECOMES.get(label, label), None)
    texts = {**_attributes(inspect.getdoc(data_class) or ""), **_attributes(description)}
    required = schema.get("required", ())
    rows = [
        (
            f"`{name}`",
            describe_type(part).removesuffix(" or null")
            + (", required" if name in required else ""),
            texts[name],
        )
        for name, part in schema["properties"].items()
        if names is None or name in names
    ]
    head = _plain(re.split(r"\n\n|\n    ", description)[0])
    return f"\n## {label}\n\n{head}\n\n" + _table(("field", "type", "meaning"), rows)


def _label(name: str) -> str:
    return "Defaults" if name == "LayerModel" else name.removesuffix("Model")


def api() -> str:
    """Return the page of the public names, whose docstrings the site shows."""
    stub = ast.parse(Path(pytest_intercode.__file__).with_suffix(".pyi").read_text("utf-8"))
    names: dict[str, list[str]] = {folder: [] for folder in _FOLDERS}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            folder = str(node.module).split(".")[1]
            names[folder] += [f"{node.module}.{alias.name}" for alias in node.names]
    parts = [
        """\
# Public names

This page lists the names that you can import from `pytest_intercode`, by purpose. The site shows
their docstrings, as does `help(pytest_intercode.NAME)` in Python.
"""
    ]
    for folder, label in _FOLDERS.items():
        parts.append(f"\n## {label}\n")
        parts += [f"\n::: {name}\n" for name in sorted(names[folder], key=_last)]
    return "".join(parts)


def _last(name: str) -> str:
    return name.rpartition(".")[2].lower()


def llms() -> str:
    """Return the list of all pages for language models, each with its first sentence."""
    lines = ["# pytest-intercode", "", "> A pytest plugin that tests coding agents in sandboxes."]
    for part, pages in navigation():
        lines += ["", f"## {part or 'Begin'}", ""]
        lines += [
            f"- [{title(DOCS / page)}]({page}): {first_sentence(DOCS / page)}" for page in pages
        ]
    return "\n".join(lines) + "\n"


TEXTS: dict[str, Callable[[], str]] = {
    "reference/marks.md": marks,
    "reference/fixtures.md": fixtures_page,
    "reference/hooks.md": hooks,
    "reference/outcomes.md": outcomes,
    "reference/commands.md": commands,
    "reference/records.md": records,
    "reference/suites.md": suites,
    "reference/api.md": api,
    "llms.txt": llms,
}
"""What makes each file, by its path in docs/; the last one is made of the others."""


def write() -> None:
    """Write all of them."""
    for name, make in TEXTS.items():
        (DOCS / name).write_text(make(), "utf-8")


if __name__ == "__main__":
    write()
