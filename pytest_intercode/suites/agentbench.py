"""Tasks of AgentBench, as rows: tasks of the operating system, and questions about tables.

Tasks of the operating system are in a folder with the layout of AgentBench's repository: ``data``
contains folders with files of tasks, and for each of them there is a folder in ``scripts``.
Questions about tables are in a file of rows, each with its table; an SQL script creates a database
for each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_intercode.errors import SuiteError
from pytest_intercode.system.rows import Row, form_problem, read_json, read_rows, read_text
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["databases_script", "read_agentbench_db", "read_agentbench_os"]

_COMPARED = {"check/integer-match.py": "integer", "check/string-match.py": "text"}
# These make a machine the same in every sandbox, gold's and the agent's.
_REWRITES = (
    # Give random numbers of bash and of the kernel a seed.
    (r"\A(?=.*\bRANDOM\b)", "RANDOM=1\n"),
    (
        r"\bcat /dev/urandom\b",
        "perl -e 'srand 1; 1 while print map chr(int rand 256), 1..4096'",
    ),
    # A subshell would draw different numbers.
    (r"(?<=head -c \$\(\()RANDOM\b", "(7 * d + f)"),
    # If all files were written in one tick of the clock, none would be the newest.
    (r"(i=\$\(\(i\+1\)\); done)\Z", r"\1; sleep 0.1; touch /usr/49.log"),
    # This empties a file through a descriptor whose number is above the limit of a sandbox.
    (r"\becho \d{5,}>", ": >"),
    # `su` would read the next actions as its input, and it ends immediately if there is no input.
    (r" && su - jack\Z", " && export HOME=/home/jack"),
)
_CHANGES = ("INSERT", "UPDATE", "DELETE")
_ADVICE = """

Submit the answer, which has to be exact: `submit ANSWER`, or several as a list in JSON."""
_SKIPPED = {
    "std-007-bootstrap-00000": "what it counts ends after a minute, and the answer with it",
    "dev-001-dev-00008": "its own check cannot read the sizes that du prints, such as 8.0K",
}


def read_agentbench_os(path: SuitePath) -> Iterator[tuple[str, Row]]:
    """Yield the place and the fields of each task of the operating system.

    Args:
        path: the folder with ``data`` and ``scripts``.

    Raises:
        SuiteError: a file cannot be read, or has another form.
    """
    for folder in _parts(path):
        scripts, prefix = path / "scripts" / folder.name, f"std-{int(folder.name):03d}"
        for file in sorted(folder.iterdir(), key=str):
            if file.suffix == ".json":
                yield from _read_file(file, scripts, prefix)
    development = path / "data" / "dev.json"
    if development.is_file():
        yield from _read_file(development, path / "scripts" / "dev", "dev-001")


def read_agentbench_db(path: SuitePath) -> Iterator[tuple[str, Row]]:
    """Yield the place and the fields of each question, or change, of a table.

    Args:
        path: the file of rows. The script of :func:`databases_script` is next to it, with the
            suffix ``.sql``.

    Raises:
        SuiteError: the file cannot be read, or has another form.
    """
    script = f"{path.below.rpartition('.')[0]}.sql"
    for index, (place, task) in enumerate(read_rows(path)):
        try:
            [kind], labels = task["type"], [*map(str, task["label"])]
            query = "\n".join(filter(None, (task["description"], task.get("add_description"))))
            row: Row = {"hardness": kind, "query": query}
        except (KeyError, TypeError, ValueError) as error:
            raise SuiteError(f"{place}: not a task of AgentBench: {error}") from None
        writes = kind in _CHANGES
        database = {"engine": "mysql", "name": _database(index), "script": script, "writes": writes}
        row["database"] = {**database, "optional": True}
        if writes:
            row["gold"] = labels[0]
        else:
            answer = json.dumps(labels, ensure_ascii=False)
            row |= {"answers": labels, "gold": f"submit {answer}", "query": f"{query}{_ADVICE}"}
        yield place, row


def databases_script(rows: Iterable[tuple[str, Row]]) -> str:
    """Return an SQL script for MySQL that creates a database for each row of a file."""
    lines = ["SET NAMES utf8mb4;"]
    for index, (_, task) in enumerate(rows):
        table = task["table"]
        info, name = table["table_info"], _quoted(table["table_name"])
        columns = [_quoted(column["name"]) for column in info["columns"]]
        lines += [f"CREATE DATABASE {_database(index)};", f"USE {_database(index)};"]
        lines.append(f"CREATE TABLE {name} ({', '.join(f'{column} TEXT' for column in columns)});")
        values = (f"({', '.join(map(_literal, row))})" for row in info["rows"])
        lines.append(f"INSERT INTO {name} VALUES {', '.join(values)};")
    return "\n".join([*lines, ""])


def _database(index: int) -> str:
    return f"agentbench_{index:03d}"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _literal(value: object) -> str:
    text = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"


def _parts(path: SuitePath) -> list[SuitePath]:
    entries = [entry for entry in (path / "data").iterdir() if entry.name.isdecimal()]
    return sorted(entries, key=lambda entry: int(entry.name))


def _read_file(file: SuitePath, scripts: SuitePath, prefix: str) -> Iterator[tuple[str, Row]]:
    tasks = read_json(file)
    for index, task in enumerate(tasks if isinstance(tasks, list) else [tasks]):
        place = f"{file}: task {index + 1}"
        identity = f"{prefix}-{file.name.removesuffix('.json')}-{index:05d}"
        try:
            skip = _SKIPPED.get(identity)
            yield place, {"number": identity, "skip": skip, **_os_row(task, scripts)}
        except (AttributeError, KeyError, TypeError) as error:
            raise SuiteError(f"{place}: not a task of AgentBench: {form_problem(error)}") from None


def _os_row(task: Mapping[str, Any], scripts: SuitePath) -> Row:
    create, evaluation = task.get("create"), task["evaluation"]
    if not isinstance(create, dict):  # one task has a list here, which AgentBench ignores
        create = {}
    init = create.get("init") or []
    row: Row = {
        "query": task["description"],
        "dockerfile": "agentbench-os-packages"
        if create.get("local") == "packages"
        else "agentbench-os",
        "setup": [
            _rewrite(_read_script(script, scripts)[1])
            for script in (init if isinstance(init, list) else [init])
        ],
        "start": _rewrite(_read_script(task.get("start", ""), scripts)[1]),
        "tags": [label.lower() for label in task.get("labels") or ()],
    }
    example = evaluation.get("example")
    if "match" in evaluation:
        return {**row, "match": evaluation["match"], "gold": f"submit {evaluation['match']}"}
    row["gold"] = _read_script(example, scripts)[1]
    checks = evaluation["check"]
    checks = checks if isinstance(checks, list) else [checks]
    if checks[0] is not None:
        texts = (_read_script(script, scripts) for script in checks)
        return {
            **row,
            "checks": [{"script": text, "language": language} for language, text in texts],
        }
    return {**row, "compare": _COMPARED.get(checks[1]["file"], "text")}


def _read_script(script: Any, scripts: SuitePath) -> tuple[str, str]:
    """Return the language and the text of a script that a task names."""
    if isinstance(script, str):
        return "bash", script
    text = read_text(scripts / script["file"]) if "file" in script else script["code"]
    return script.get("language", "bash"), text


def _rewrite(script: str) -> str:
    for pattern, replacement in _REWRITES:
        script = re.sub(pattern, replacement, script, flags=re.DOTALL)
    return script
