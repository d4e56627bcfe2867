"""Rows of SWE-bench and of its relatives, as fields of tasks for the environment ``swe``.

A manifest (``swebench:`` in a suite's ``rows``) says which column is what, and where it stands how
the tests are run: in a table by repository and version, in the row, or in files beside the rows.
Reads the rows and such files, and runs nothing.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from pytest_intercode.errors import ConfigurationError, MissingFile, SuiteError, suggestion
from pytest_intercode.suites.eval_scripts import (
    changed_tests,
    common_script,
    image_script,
    python_script,
    with_exit_status,
)
from pytest_intercode.suites.manifest import SwebenchModel
from pytest_intercode.suites.parser_names import parser_of_row
from pytest_intercode.suites.patches import (
    Change,
    PatchError,
    PatchRefused,
    heredoc,
    read_patch,
    reversed_patch,
)
from pytest_intercode.suites.rows import Row, read_rows
from pytest_intercode.suites.suite_folder import SuitePath
from pytest_intercode.suites.yaml_files import read_yaml

__all__ = ["dataset_of_rows", "read_swebench"]

_LONGEST_LIST = 32 * 1024**2  # characters of a list that is text
_MIRROR = re.compile(r"[^/]*/(.+?)__(.+)\.[0-9a-f]{8}")
_CASE = re.compile(r"\[case ([^\]]+)\]")
_PYTEST = re.compile(r"(?:python3?(?: -\w+)* -m )?pytest\b")  # takes tests of ours by itself
_DEPRECATED = "deprecated"
# Columns that only the rows of one form have; rows without them are classic ones.
_SIGNS = (
    ("eval_script", "swe-bench-5"),
    ("dockerhub_tag", "swe-bench-pro"),
    ("image_name", "swe-smith"),
    ("difficulty", "swe-bench-verified"),
)


# -- how to test


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
    sentinels: bool = True  # pytest is given tests of ours by its environment
    tests: list[_Tests]


_TABLE: TypeAdapter[dict[str, _Repository]] = TypeAdapter(dict[str, _Repository])


@cache
def _table(path: Path) -> Mapping[str, _Repository]:
    """Return a table by the repositories' names in lower case."""
    if not path.is_file():
        known = ", ".join(sorted(other.stem for other in path.parent.glob("*.yaml")))
        raise MissingFile(f"{path}: there is no such table; in this folder are: {known or 'none'}")
    raw, _ = read_yaml(path)
    try:
        found = _TABLE.validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise SuiteError(f"{path}: {where}: {first['msg']}") from None
    return {name.lower(): tests for name, tests in found.items()}


# -- rows


def dataset_of_rows(path: SuitePath, tables: Path) -> str | None:
    """Return the dataset whose manifest fits a file of rows, going by the first one.

    Args:
        path: the rows.
        tables: the folder of our own tables.
    """
    row = next((row for _, row in read_rows(path)), {})
    if "instance_id" not in row:
        return None
    for column, name in _SIGNS:
        if column in row:
            return name
    gym = str(row.get("repo", "")).lower() in _table(tables / "swe-gym.yaml")
    return "swe-gym" if gym else "swe-bench"


def read_swebench(
    path: SuitePath, manifest: SwebenchModel, folder: SuitePath, tables: Path
) -> Iterator[tuple[str, Row]]:
    """Yield the place and the fields of each row, those of a task included.

    Args:
        path: the rows.
        manifest: what their columns are.
        folder: where the files start that a manifest names.
        tables: the folder of our own tables.

    Raises:
        SuiteError: the rows, a table or a file beside them is wrong.
    """
    for place, row in read_rows(path):
        reader = _Reader(place, row, manifest, folder, tables)
        fields = reader.fields()
        big = manifest.big()
        yield place, {**{k: v for k, v in row.items() if k not in big}, **fields}


class _Reader:
    """Makes the fields of one row."""

    def __init__(
        self, place: str, row: Row, manifest: SwebenchModel, folder: SuitePath, tables: Path
    ) -> None:
        self._place = place
        self._row = row
        self._manifest = manifest
        self._folder = folder
        self._tables = tables

    def fields(self) -> Row:
        """Return the fields of the row's task."""
        row, manifest = self._row, self._manifest
        for column in manifest.columns():
            self._column(column)
        made: Row = {
            "query": str(row.get(manifest.query) or "").replace("\r\n", "\n").strip(),
            "workdir": manifest.at,
            "repository": {"at": manifest.at, "commit": self._filled("commit")},
            **self._image(),
        }
        skips = [self._split(), self._assets()]
        if not made["query"]:
            skips.append(f"it has no problem: {manifest.query} is empty")
            made["query"] = "(none)"
        fail_to_pass = self._names(manifest.fail_to_pass)
        if not fail_to_pass:
            skips.append(f"{manifest.fail_to_pass} is empty, so that doing nothing would solve it")
        try:
            made |= self._gold()
            made["verification"] = {
                "fail_to_pass": fail_to_pass,
                "pass_to_pass": self._names(manifest.pass_to_pass),
                "absent": manifest.absent,
                "timeout": manifest.timeout,
                "variables": manifest.variables,
                **self._tests(fail_to_pass),
            }
        except PatchRefused as refused:
            skips.append(str(refused))
            made["gold"] = made.get("gold", "(refused)")
            made["verification"] = {"command": "false", "parser": "status"}
        made["skip"] = next(filter(None, skips), None)
        return made

    # -- columns

    def _column(self, name: str) -> Any:
        """Return the value of a column; a name with dots leads into objects."""
        value: Any = self._row
        for part in [name] if name in self._row else name.split("."):
            if not isinstance(value, dict) or part not in value:
                raise SuiteError(
                    f"{self._place}: the column {name!r} is missing.{suggestion(name, self._row)} "
                    f"There are: {', '.join(self._row)}"
                )
            value = value[part]
        return value

    def _text(self, name: str) -> str:
        value = self._column(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise SuiteError(f"{self._place}: {name}: a text is needed, not {value!r:.60}")
        return value

    def _names(self, name: str) -> list[str]:
        """Return a list, which may be JSON or a literal of Python in a text."""
        value = self._column(name)
        if isinstance(value, str) and value.strip():
            value = _parsed(value)
            if value is None:
                raise SuiteError(
                    f"{self._place}: {name}: neither JSON nor a Python list, or cut short: "
                    f"{self._row[name][:60]!r}"
                )
        if not value:
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise SuiteError(f"{self._place}: {name}: a list of names is needed: {value!r:.60}")
        return value

    def _filled(self, field: str) -> str:
        pattern: str = getattr(self._manifest, field)
        try:
            return pattern.format_map(self._row)
        except (KeyError, AttributeError, IndexError, TypeError, ValueError) as error:
            raise SuiteError(
                f"{self._place}: {field}: the pattern {pattern!r} does not fit: "
                f"{type(error).__name__}: {error}. There are: {', '.join(self._row)}"
            ) from None

    # -- parts of a task

    def _split(self) -> str | None:
        split, wanted = self._row.get("split"), self._manifest.split
        if split == _DEPRECATED:
            return "its split is 'deprecated'"
        if split is not None and wanted is not None and split != wanted:
            raise SuiteError(
                f"{self._place}: split: {split!r:.40} is another split than {wanted!r}, which this "
                "dataset is"
            )
        return None

    def _assets(self) -> str | None:
        """Return why the tests miss files; rows of version 5 tell of them, and do not hold them."""
        assets = self._row.get("image_assets")
        if isinstance(assets, str):
            assets = _parsed(assets)
        if not isinstance(assets, dict) or not assets.get("test_patch"):
            return None
        return "its tests need files (image_assets) that rows do not hold"

    def _image(self) -> Row:
        if self._manifest.dockerfile is not None:
            path = self._filled("dockerfile")
            if (self._folder / path).is_file():
                return {"dockerfile": path}
        name, colon, tag = self._filled("image").partition(":")
        name = name.lower().replace("__", self._manifest.double)
        if self._manifest.namespace and "/" not in name:
            name = f"{self._manifest.namespace}/{name}"
        return {"image": f"{name}{colon}{tag}"}

    def _changes(self, column: str) -> tuple[Change, ...]:
        try:
            return read_patch(self._text(column))
        except PatchError as error:
            raise type(error)(f"{self._place}: {column}: {error}") from None

    def _gold(self) -> Row:
        if self._manifest.bug is None:
            changes = self._changes(self._manifest.gold)
            text = self._text(self._manifest.gold)
            if not changes:
                raise SuiteError(f"{self._place}: {self._manifest.gold}: is empty")
            return {"gold": text if text.endswith("\n") else f"{text}\n"}
        changes = self._changes(self._manifest.bug)
        if not changes:
            raise SuiteError(f"{self._place}: {self._manifest.bug}: is empty")
        return {
            "gold": reversed_patch(changes),
            "setup": [_planted(self._text(self._manifest.bug), self._manifest.at)],
        }

    def _tests(self, fail_to_pass: Sequence[str]) -> Row:
        manifest = self._manifest
        if manifest.script is not None:
            found = self._read_by_row(self._text(manifest.script))
        elif manifest.beside is not None:
            return self._beside(manifest.beside)
        elif manifest.commands is not None:
            changes = self._changes(manifest.test_patch) if manifest.test_patch else ()
            commands = self._commands(manifest.commands)
            build = self._commands(manifest.build) if manifest.build else ()
            script = self._script(common_script, changes, commands=commands, build=build)
            found = self._read_by_row(script)
        else:
            found = self._by_table(fail_to_pass)
        if self._row.get(manifest.kind) == "fail_only":
            found["absent"] = "passed"
        return found

    def _read_by_row(self, script: str) -> Row:
        """Return how to test by a script, whose log is read as the row says."""
        parser = self._parser(self._text(self._manifest.parser))
        return {"command": with_exit_status(script), "parser": parser, "sentinels": False}

    def _script(self, make: Callable[..., str], changes: Sequence[Change], **parts: Any) -> str:
        """Return a script that brings the patch of the tests, if there is one, and runs them."""
        at, column = self._manifest.at, self._manifest.test_patch
        commit, patch = self._filled("commit"), self._text(column) if column else ""
        try:
            return make(at=at, commit=commit, test_patch=patch, changes=changes, **parts)
        except PatchError as error:
            raise SuiteError(f"{self._place}: {column}: {error}") from None

    def _commands(self, column: str) -> list[str]:
        value = self._column(column)
        if isinstance(value, str) and not value.lstrip().startswith("["):
            return [value]
        return self._names(column)

    def _parser(self, name: str) -> str:
        instance = str(self._row.get("instance_id", ""))
        try:
            return parser_of_row(name, instance, str(self._row.get(self._manifest.version, "")))
        except ConfigurationError as error:
            raise SuiteError(f"{self._place}: {self._manifest.parser}: {error}") from None

    def _by_table(self, fail_to_pass: Sequence[str]) -> Row:
        manifest = self._manifest
        repository, tests = self._look_up()
        changes = self._changes(manifest.test_patch) if manifest.test_patch else None
        words = self._arguments(repository.names, changes, fail_to_pass)
        commands = [*tests.commands[:-1], " ".join([tests.commands[-1], *words])]
        if changes is None:
            files = _files(fail_to_pass) if repository.names == "files" else []
            script = image_script(at=manifest.at, files=files, commands=commands)
        elif repository.conda:
            script = self._script(
                python_script,
                changes,
                commands=commands,
                install=tests.install,
                exports=tests.exports,
            )
        else:
            script = self._script(
                common_script, changes, commands=tests.commands, build=tests.build
            )
        found = {
            "command": with_exit_status(script),
            "parser": self._parser(repository.parser),
            "sentinels": bool(_PYTEST.match(commands[-1]))
            and repository.names == "files"
            and repository.sentinels,
        }
        return found | ({"absent": repository.absent} if repository.absent else {})

    def _look_up(self) -> tuple[_Repository, _Tests]:
        manifest = self._manifest
        name = manifest.table or ""
        own = name.endswith((".yaml", ".yml"))
        table = _table((self._folder / name).place() if own else self._tables / f"{name}.yaml")
        repo = self._text(manifest.repo)
        if mirrored := _MIRROR.fullmatch(repo):
            repo = f"{mirrored[1]}/{mirrored[2]}"
        repository = table.get(repo.lower()) or table.get("default")
        if repository is None:
            raise SuiteError(
                f"{self._place}: {manifest.repo}: the table {name!r} does not say how {repo!r} is "
                f"tested.{suggestion(repo.lower(), table)} It has: {', '.join(table)}"
            )
        version = str(self._row.get(manifest.version, ""))
        for tests in repository.tests:
            if version in tests.versions or "*" in tests.versions:
                return repository, tests
        versions = [version for tests in repository.tests for version in tests.versions]
        raise SuiteError(
            f"{self._place}: {manifest.version}: the table {name!r} does not say how version "
            f"{version!r} of {repo} is tested.{suggestion(version, versions)} It has: "
            f"{', '.join(versions)}"
        )

    def _arguments(
        self, names: str, changes: Sequence[Change] | None, fail_to_pass: Sequence[str]
    ) -> list[str]:
        """Return the words that say which tests are run."""
        if names == "none":
            return []
        if names == "cases":
            if self._manifest.test_patch:
                cases = _CASE.findall(self._text(self._manifest.test_patch))
            else:
                cases = [name.rpartition("::")[2] for name in fail_to_pass]
            return [shlex.quote(" or ".join(cases))]
        if changes is None:
            return [shlex.quote(file) for file in _files(fail_to_pass)]
        return [shlex.quote(word) for word in changed_tests(changes, modules=names == "modules")]

    def _beside(self, pattern: str) -> Row:
        """Return how to test by two programs that lie beside the rows."""
        folder = self._filled("beside")
        for name in ("run_script.sh", "parser.py"):
            if not (self._folder / folder / name).is_file():
                raise MissingFile(
                    f"{self._place}: {self._folder / folder / name} is not a file; the rows need "
                    f"the folder that {pattern!r} names beside them"
                )
        manifest = self._manifest
        tests = ",".join(self._names(manifest.selected))
        bring = self._text(manifest.before).strip().rpartition("\n")[2]
        work = "/workspace"
        command = image_script(
            at=manifest.at,
            files=(),
            conda=False,
            commands=[f"cat {work}/output.json"],
            before=[
                bring,
                f"bash {work}/run_script.sh {shlex.quote(tests)} "
                f"> {work}/stdout.log 2> {work}/stderr.log",
                f"python3 {work}/parser.py {work}/stdout.log {work}/stderr.log {work}/output.json",
            ],
        )
        return {
            "command": command,
            "parser": "json_tests",
            "files": {
                f"{work}/{name}": {"path": posixpath.join(folder, name)}
                for name in ("run_script.sh", "parser.py")
            },
        }


def _parsed(text: str) -> Any:
    """Return what a text says, or None; nothing of it is run."""
    if len(text) > _LONGEST_LIST:
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return None


def _files(names: Sequence[str]) -> list[str]:
    """Return the files of tests that are named by pytest, each once."""
    return list(dict.fromkeys(name.partition("::")[0] for name in names))


def _planted(bug: str, at: str) -> str:
    """Return a command that brings a bug, and makes all of history one commit that has it."""
    git = f"git -C {shlex.quote(at)} -c user.name=base -c user.email=base@localhost"
    return "\n".join(
        [
            heredoc(f"{git} apply --index --whitespace=nowarn", bug, " || exit"),
            f"tree=$({git} write-tree) && commit=$({git} commit-tree -m base $tree) || exit",
            f"{git} update-ref HEAD $commit || exit",
            f"for remote in $({git} remote); do {git} remote remove $remote; done",
            f"branch=$({git} symbolic-ref -q HEAD)",
            f"{git} for-each-ref --format='%(refname)' | grep -vxF \"${{branch:-none}}\" "
            f"| sed 's/^/delete /' | {git} update-ref --no-deref --stdin || exit",
            f"(cd {shlex.quote(at)}/.git && rm -f FETCH_HEAD ORIG_HEAD)",
            f"{git} reflog expire --expire=now --all && {git} gc -q --prune=now",
        ]
    )
