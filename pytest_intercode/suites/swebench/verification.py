"""How a row's task of SWE-bench or a relative is graded: its script, and the parser of the log.

This is defined by the row itself, in a script or in commands; by a table, for the repository and
the version; or by two programs next to the rows. Nothing is run here.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from pytest_intercode.core.patches import Change, PatchError
from pytest_intercode.errors import ConfigurationError, MissingFile, SuiteError, suggestion
from pytest_intercode.rewards.eval_scripts import (
    TestPatch,
    changed_tests,
    common_script,
    image_script,
    parser_files,
    python_script,
    row_script,
    with_exit_status,
)
from pytest_intercode.rewards.test_logs.registry import UNTIMED, UnknownParser, parser_of_row
from pytest_intercode.suites.swebench.row import SwebenchRow
from pytest_intercode.suites.yaml_files import read_yaml
from pytest_intercode.system.rows import Row

__all__ = ["read_table", "read_verification"]

_MIRROR = re.compile(r"[^/]*/(.+?)__(.+)\.[0-9a-f]{8}")
_CASE = re.compile(r"\[case ([^\]]+)\]")
_PYTEST = re.compile(r"(?:python3?(?: -\w+)* -m )?pytest\b")  # gets sentinels by its environment
_PROGRAM = re.compile(r"^def parser\(", re.MULTILINE)
_WORK = "/workspace"
_PROGRAMS = ("run_script.sh", "parser.py")


# -- tables


class _Tests(BaseModel):
    """How some versions of a repository are tested."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    versions: list[str]
    commands: list[str]
    install: str = ""
    exports: list[str] = []
    build: list[str] = []


class _Repository(BaseModel):
    """How a repository is tested."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parser: str
    conda: bool = True
    absent: Literal["failed", "passed"] | None = None
    names: Literal["files", "modules", "cases", "none"] = "files"
    sentinels: bool = True  # whether pytest can get sentinels by its environment
    tests: list[_Tests]


_TABLE: TypeAdapter[dict[str, _Repository]] = TypeAdapter(dict[str, _Repository])


@cache
def read_table(path: Path) -> Mapping[str, _Repository]:
    """Return a table, by the repositories' names in lower case."""
    if not path.is_file():
        names = ", ".join(sorted(table_path.stem for table_path in path.parent.glob("*.yaml")))
        raise MissingFile(f"{path}: there is no such table; this folder has: {names or 'none'}")
    raw, _ = read_yaml(path)
    try:
        repositories = _TABLE.validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise SuiteError(f"{path}: {field}: {first['msg']}") from None
    return {name.lower(): tests for name, tests in repositories.items()}


# -- rows


def read_verification(row: SwebenchRow, tables: Path, fail_to_pass: Sequence[str]) -> Row:
    """Return how one row is tested, as fields of a verification.

    Args:
        row: the row.
        tables: the folder of the bundled tables.
        fail_to_pass: the tests that must pass now.

    Raises:
        SuiteError: a column, a table or a file next to the rows is missing or wrong.
        PatchRefused: the patch that adds the tests makes a change that is refused.
        UnknownParser: the parser of the tests' results is not available.
    """
    manifest = row.manifest
    if manifest.script is not None:
        tests = _test_by_script(row, row.text(manifest.script))
    elif manifest.beside is not None:
        return _test_by_programs(row, manifest.beside)
    elif manifest.commands is not None:
        tests = _test_by_commands(row, manifest.commands)
    else:
        tests = _test_by_table(row, tables, fail_to_pass)
    if row.fields.get(manifest.kind) == "fail_only":
        tests["absent"] = "passed"
    return tests


def _test_by_commands(row: SwebenchRow, column: str) -> Row:
    """Return how to test with commands from the row."""
    manifest = row.manifest
    changes = row.changes(manifest.test_patch) if manifest.test_patch else ()
    commands = row.commands(column)
    if not any(command.strip() for command in commands):
        raise row.error(column, "is empty")
    columns = (manifest.install, manifest.exports, manifest.build, manifest.results)
    install, exports, build, results = map(row.optional_commands, columns)
    if manifest.python:
        words = [shlex.quote(path) for path in changed_tests(changes)]
        commands = [*commands[:-1], " ".join([commands[-1], *words])]
        script = _script(
            row,
            python_script,
            changes,
            commands=[*build, *commands, *results],
            install="\n".join(install),
            exports=exports,
        )
        is_pytest = len(commands) == 1 and bool(_PYTEST.match(commands[0]))
        return _test_by_script(row, script) | {"sentinels": is_pytest}
    parser = row.text(manifest.parser)
    is_program = manifest.program and _PROGRAM.search(parser) is not None
    script = _script(
        row,
        row_script,
        changes,
        setup=[*exports, *install, *build],
        commands=commands,
        results=results,
        stop=manifest.stop,
        parser=parser if is_program else "",
    )
    if is_program:
        files = parser_files(parser)
        return {"command": script, "parser": "json_tests", "sentinels": False, "files": files}
    return _test_by_script(row, script)


def _test_by_script(row: SwebenchRow, script: str) -> Row:
    """Return how to test with a script, whose log is read by the row's parser."""
    manifest = row.manifest
    parser = _parser(row, row.text(manifest.parser)) + (UNTIMED if manifest.times else "")
    command = with_exit_status(script) if manifest.status else script
    return {"command": command, "parser": parser, "sentinels": False}


def _script(
    row: SwebenchRow, make: Callable[..., str], changes: Sequence[Change], **parts: Any
) -> str:
    """Return a script that applies the patch of the tests, if there is one, and runs them."""
    column = row.manifest.test_patch
    patch = row.text(column) if column else ""
    try:
        return make(TestPatch(row.at, row.commit, patch, changes), **parts)
    except PatchError as error:
        raise row.error(f"{column}", str(error)) from None


def _parser(row: SwebenchRow, name: str) -> str:
    instance = str(row.fields.get("instance_id", ""))
    try:
        return parser_of_row(name, instance, str(row.fields.get(row.manifest.version, "")))
    except UnknownParser:
        raise
    except ConfigurationError as error:
        raise row.error(row.manifest.parser, str(error)) from None


def _test_by_table(row: SwebenchRow, tables: Path, fail_to_pass: Sequence[str]) -> Row:
    manifest = row.manifest
    repository, tests = _look_up(row, tables)
    changes = row.changes(manifest.test_patch) if manifest.test_patch else None
    words = _arguments(row, repository.names, changes, fail_to_pass)
    commands = [*tests.commands[:-1], " ".join([tests.commands[-1], *words])]
    if changes is None:
        files = _files(fail_to_pass) if repository.names == "files" else []
        script = image_script(folder=row.at, files=files, commands=commands)
    elif repository.conda:
        preparation = {"install": tests.install, "exports": tests.exports}
        script = _script(row, python_script, changes, commands=commands, **preparation)
    else:
        script = _script(row, common_script, changes, commands=tests.commands, build=tests.build)
    fields = {
        "command": with_exit_status(script),
        "parser": _parser(row, repository.parser),
        "sentinels": bool(_PYTEST.match(commands[-1]))
        and repository.names == "files"
        and repository.sentinels,
    }
    return fields | ({"absent": repository.absent} if repository.absent else {})


def _look_up(row: SwebenchRow, tables: Path) -> tuple[_Repository, _Tests]:
    manifest = row.manifest
    name = manifest.table or ""
    in_suite = name.endswith((".yaml", ".yml"))
    table = read_table((row.folder / name).place() if in_suite else tables / f"{name}.yaml")
    repo = row.text(manifest.repo)
    if mirrored := _MIRROR.fullmatch(repo):
        repo = f"{mirrored[1]}/{mirrored[2]}"
    repository = table.get(repo.lower()) or table.get("default")
    if repository is None:
        raise row.error(
            manifest.repo,
            f"the table {name!r} does not say how {repo!r} is tested."
            f"{suggestion(repo.lower(), table)} It has: {', '.join(table)}",
        )
    version = str(row.fields.get(manifest.version, ""))
    for tests in repository.tests:
        if version in tests.versions or "*" in tests.versions:
            return repository, tests
    versions = [version for tests in repository.tests for version in tests.versions]
    raise row.error(
        manifest.version,
        f"the table {name!r} does not say how version {version!r} of {repo} is tested."
        f"{suggestion(version, versions)} It has: {', '.join(versions)}",
    )


def _arguments(
    row: SwebenchRow, names: str, changes: Sequence[Change] | None, fail_to_pass: Sequence[str]
) -> list[str]:
    """Return the arguments that select the tests to run."""
    if names == "none":
        return []
    if names == "cases":
        if row.manifest.test_patch:
            cases = _CASE.findall(row.text(row.manifest.test_patch))
        else:
            cases = [name.rpartition("::")[2] for name in fail_to_pass]
        return [shlex.quote(" or ".join(cases))]
    if changes is None:
        return [shlex.quote(file) for file in _files(fail_to_pass)]
    return [shlex.quote(word) for word in changed_tests(changes, modules=names == "modules")]


def _test_by_programs(row: SwebenchRow, pattern: str) -> Row:
    """Return how to test with two programs next to the rows."""
    folder = row.fill("beside", pattern)
    for name in _PROGRAMS:
        path = row.folder / folder / name
        if not path.is_file():
            raise MissingFile(
                f"{row.place}: {path} is not a file; the rows need the folder that {pattern!r} "
                "names next to them"
            )
    tests = ",".join(row.names(row.manifest.selected))
    command = image_script(
        folder=row.at,
        files=(),
        conda=False,
        commands=[f"cat {_WORK}/output.json"],
        setup=[
            row.text(row.manifest.before).strip().rpartition("\n")[2],
            f"bash {_WORK}/run_script.sh {shlex.quote(tests)} "
            f"> {_WORK}/stdout.log 2> {_WORK}/stderr.log",
            f"python3 {_WORK}/parser.py {_WORK}/stdout.log {_WORK}/stderr.log {_WORK}/output.json",
        ],
    )
    return {
        "command": command,
        "parser": "json_tests",
        "files": {f"{_WORK}/{name}": {"path": posixpath.join(folder, name)} for name in _PROGRAMS},
    }


def _files(names: Sequence[str]) -> list[str]:
    """Return the files of tests with pytest's node ids, without duplicates."""
    return list(dict.fromkeys(name.partition("::")[0] for name in names))
