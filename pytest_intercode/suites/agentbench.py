"""Tasks of AgentBench, as rows: its folder of the operating system, laid out as in its repository.

``data`` has files of tasks, in folders of which each belongs to a folder of ``scripts``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_intercode.errors import SuiteError
from pytest_intercode.system.rows import Row, json_problem, read_text
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["read_agentbench_os"]

_COMPARED = {"check/integer-match.py": "integer", "check/string-match.py": "text"}
# So that a machine is the same in every sandbox, gold's and the agent's.
_REWRITES = (
    # Bash's numbers, and those of the kernel, with a seed.
    (r"\A(?=.*\bRANDOM\b)", "RANDOM=1\n"),
    (
        r"\bcat /dev/urandom\b",
        "perl -e 'srand 1; 1 while print map chr(int rand 256), 1..4096'",
    ),
    # A subshell draws numbers of its own.
    (r"(?<=head -c \$\(\()RANDOM\b", "(7 * d + f)"),
    # Of files that were written in one tick of the clock, none is the newest.
    (r"(i=\$\(\(i\+1\)\); done)\Z", r"\1; sleep 0.1; touch /usr/49.log"),
    # Empties a file by a descriptor with this number, of which a sandbox has fewer.
    (r"\becho \d{5,}>", ": >"),
    # `su` would read the next actions there, and ends at once where nobody types.
    (r" && su - jack\Z", " && export HOME=/home/jack"),
)
_SKIPPED = {
    "std-007-bootstrap-00000": "what it counts ends after a minute, and the answer with it",
    "dev-001-dev-00008": "its own check cannot read the sizes that du prints, such as 8.0K",
}


def read_agentbench_os(path: SuitePath) -> Iterator[tuple[str, Row]]:
    """Yield the place and the fields of each task of the operating system.

    Args:
        path: the folder with ``data`` and ``scripts``.

    Raises:
        SuiteError: a file cannot be read, or does not hold what it should.
    """
    folders = [(entry, f"std-{int(entry.name):03d}") for entry in _parts(path)]
    for folder, prefix in folders:
        files = sorted((file for file in folder.iterdir() if file.suffix == ".json"), key=str)
        for file in files:
            yield from _read_file(file, path / "scripts" / folder.name, prefix)
    development = path / "data" / "dev.json"
    if development.is_file():
        yield from _read_file(development, path / "scripts" / "dev", "dev-001")


def _parts(path: SuitePath) -> list[SuitePath]:
    entries = [entry for entry in (path / "data").iterdir() if entry.name.isdecimal()]
    return sorted(entries, key=lambda entry: int(entry.name))


def _read_file(file: SuitePath, scripts: SuitePath, prefix: str) -> Iterator[tuple[str, Row]]:
    try:
        tasks = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{file}: not JSON: {json_problem(error)}") from None
    for index, task in enumerate(tasks if isinstance(tasks, list) else [tasks]):
        place = f"{file}: task {index + 1}"
        identity = f"{prefix}-{file.name.removesuffix('.json')}-{index:05d}"
        try:
            skip = _SKIPPED.get(identity)
            yield place, {"number": identity, "skip": skip, **_os_row(task, scripts)}
        except (AttributeError, KeyError, TypeError) as error:
            is_missing = isinstance(error, KeyError)
            problem = f"{error.args[0]} is missing" if is_missing else "it is of another form"
            raise SuiteError(f"{place}: not a task of AgentBench: {problem}") from None


def _os_row(task: Mapping[str, Any], scripts: SuitePath) -> Row:
    create, evaluation = task.get("create"), task["evaluation"]
    if not isinstance(create, dict):  # one task has a list there, which AgentBench ignores
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
    """Return the language and the text of a script, as a task names it."""
    if isinstance(script, str):
        return "bash", script
    text = read_text(scripts / script["file"]) if "file" in script else script["code"]
    return script.get("language", "bash"), text


def _rewrite(script: str) -> str:
    for pattern, replacement in _REWRITES:
        script = re.sub(pattern, replacement, script, flags=re.DOTALL)
    return script
