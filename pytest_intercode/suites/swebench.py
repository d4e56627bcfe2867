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
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from pytest_intercode.core.text import clipped, one_line
from pytest_intercode.errors import ConfigurationError, MissingFile, SuiteError, suggestion
from pytest_intercode.suites.eval_scripts import (
    changed_tests,
    common_script,
    image_script,
    parser_files,
    python_script,
    row_script,
    with_exit_status,
)
from pytest_intercode.suites.manifest import REPOSITORY_NAME, SwebenchModel, fields_of
from pytest_intercode.suites.parser_names import UNTIMED, UnknownParser, parser_of_row, untimed
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

_SHOWN = 40  # characters of a column's name in a message
_SHOWN_ALL = 600  # characters of all of them
_LONGEST_LIST = 32 * 1024**2  # characters of a list that is text
_MIRROR = re.compile(r"[^/]*/(.+?)__(.+)\.[0-9a-f]{8}")
_CASE = re.compile(r"\[case ([^\]]+)\]")
_PYTEST = re.compile(r"(?:python3?(?: -\w+)* -m )?pytest\b")  # takes tests of ours by itself
_FOLDER = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[\w.+@-]+)+", re.ASCII)
_COMMIT = re.compile(r"(?!-)[\w./+@^~-]+", re.ASCII)
_IMAGE = re.compile(r"(?![-./])[\w./-]+(?::[\w./-]+)*(?:@sha256:[0-9a-f]{64})?", re.ASCII)
_PROGRAM = re.compile(r"^def parser\(", re.MULTILINE)
_DEPRECATED = "deprecated"
_OWN = frozenset(("gold", "query", "verification"))  # columns of rows in our own form
_NO_FORM = {  # signs of forms that are known and cannot be played
    "expected_output_json": "R2E-Gym",
    "fix_patch": "Multi-SWE-bench",
}


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
        names = ", ".join(sorted(table_path.stem for table_path in path.parent.glob("*.yaml")))
        raise MissingFile(f"{path}: there is no such table; in this folder are: {names or 'none'}")
    raw, _ = read_yaml(path)
    try:
        repositories = _TABLE.validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise SuiteError(f"{path}: {field}: {first['msg']}") from None
    return {name.lower(): tests for name, tests in repositories.items()}


# -- rows


def dataset_of_rows(
    path: SuitePath, manifests: Mapping[str, SwebenchModel], tables: Path
) -> str | None:
    """Return the dataset whose manifest fits a file of rows, going by the first one.

    A manifest fits if it reads all columns that say how the row is tested, and the row has all that
    it needs.

    Args:
        path: the rows.
        manifests: those of the forms that there are, by the datasets' names.
        tables: the folder of our own tables.

    Returns:
        None for rows of our own form.

    Raises:
        SuiteError: no manifest fits, or several.
    """
    place, row = next(iter(read_rows(path)), ("", {}))
    if not row or (_OWN.intersection(row) and "instance_id" not in row):
        return None
    fitting = [name for name, manifest in manifests.items() if _fits(row, manifest, tables)]
    if len(fitting) == 1:
        return fitting[0]
    dataset = next((name for column, name in _NO_FORM.items() if row.get(column)), None)
    if fitting:
        problem = f"these rows could be of {' or '.join(fitting)}"
    elif dataset:
        problem = f"these rows look like those of {dataset}, which cannot be played"
    else:
        problem = f"these rows are of no known form ({', '.join(manifests)})"
    raise SuiteError(
        f"{place}: {problem}. Their columns are: {_columns(row)}. Name the dataset "
        "with --intercode-dataset=NAME and its folder with --intercode-data, or write a suite that "
        "says what the columns are: docs/swe-bench.md, 'A manifest of your own'"
    )


def _columns(row: Row) -> str:
    """Return the names of a row's columns, as a message shows them."""
    names = ", ".join(one_line(clipped(name, _SHOWN)) for name in row)
    return clipped(names, _SHOWN_ALL)


def _fits(row: Row, manifest: SwebenchModel, tables: Path) -> bool:
    """Whether a row is of a manifest's form."""
    if manifest.unread_columns(row) or manifest.missing_columns(row) or manifest.unfit_column(row):
        return False
    if manifest.table is None or manifest.shown:
        return True
    return str(row.get(manifest.repo)).lower() in _table(tables / f"{manifest.table}.yaml")


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
        big = manifest.large_columns()
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
        self._check_form()
        for column in manifest.columns():
            self._column(column)
        image = self._image()
        fields: Row = {
            "query": str(row.get(manifest.query) or "").replace("\r\n", "\n").strip(),
            "workdir": self._at,
            "repository": {"at": self._at, "commit": self._commit},
            **(image or {}),
        }
        skips = [self._split(), self._assets(), None if image else "it names no image"]
        if not fields["query"]:
            skips.append(f"it has no problem: {manifest.query} is empty")
            fields["query"] = "(none)"
        fail_to_pass, pass_to_pass = map(
            self._tests_of, (manifest.fail_to_pass, manifest.pass_to_pass)
        )
        if not fail_to_pass:
            skips.append(f"{manifest.fail_to_pass} is empty, so that doing nothing would solve it")
        try:
            fields |= self._gold()
            fields["verification"] = {
                "fail_to_pass": fail_to_pass,
                "pass_to_pass": pass_to_pass,
                "absent": manifest.absent,
                "timeout": manifest.timeout,
                "variables": manifest.variables,
                **self._tests(fail_to_pass),
            }
        except (PatchRefused, UnknownParser) as refused:
            skips.append(str(refused))
            fields["gold"] = fields.get("gold", "(refused)")
            fields["verification"] = {"command": "false", "parser": "status"}
        fields["skip"] = next(filter(None, skips), None)
        return fields

    def _check_form(self) -> None:
        """Check that the row is of the manifest's form.

        Raises:
            SuiteError: it has columns that the manifest should read and does not, or shows
                otherwise that it is of another form.
        """
        if unread := self._manifest.unread_columns(self._row):
            names = ", ".join(map(repr, unread))
            raise SuiteError(
                f"{self._place}: {names}: such columns say how a row is tested, and the manifest "
                "does not read them: these rows are of another form. A suite of your own can say "
                "what they are (docs/swe-bench.md, 'A manifest of your own'); its field 'unread' "
                "names those that need not be read"
            )
        if name := self._manifest.unfit_column(self._row):
            raise SuiteError(
                f"{self._place}: {name}: {self._row.get(name)!r:.60} is not of the form "
                f"{self._manifest.shown[name]!r}, which rows of this dataset have"
            )

    # -- columns

    def _column(self, name: str) -> Any:
        """Return the value of a column; a name with dots leads into objects."""
        value: Any = self._row
        for part in [name] if name in self._row else name.split("."):
            if not isinstance(value, dict) or part not in value:
                raise SuiteError(
                    f"{self._place}: the column {name!r} is missing.{suggestion(name, self._row)} "
                    f"There are: {_columns(self._row)}"
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
        value = text = self._column(name)
        if isinstance(text, str) and text.strip():
            value = _parsed(text)
            if value is None:
                raise SuiteError(
                    f"{self._place}: {name}: neither JSON nor a Python list, or cut short: "
                    f"{text[:60]!r}"
                )
        if not value:
            return []
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise SuiteError(f"{self._place}: {name}: a list of names is needed: {value!r:.60}")
        return value

    def _tests_of(self, column: str) -> list[str]:
        names = self._names(column)
        return list(dict.fromkeys(map(untimed, names))) if self._manifest.times else names

    def _filled(self, field: str, pattern: str) -> str:
        """Return a pattern with the row's columns in it."""
        name = str(self._row.get(self._manifest.repo) or "").rpartition("/")[2]
        try:
            return pattern.format_map({REPOSITORY_NAME: name, **self._row})
        except (KeyError, AttributeError, IndexError, TypeError, ValueError) as error:
            raise SuiteError(
                f"{self._place}: {field}: the pattern {pattern!r} does not fit: "
                f"{type(error).__name__}: {error}. There are: {_columns(self._row)}"
            ) from None

    def _checked(self, field: str, form: re.Pattern[str], what: str) -> str:
        """Return a filled pattern whose text becomes part of a script, or names an image."""
        text = self._filled(field, getattr(self._manifest, field))
        if not form.fullmatch(text):
            raise SuiteError(f"{self._place}: {field}: {text!r:.80} is not a {what}")
        return text

    @cached_property
    def _at(self) -> str:
        return self._checked("at", _FOLDER, "folder")

    @cached_property
    def _commit(self) -> str:
        return self._checked("commit", _COMMIT, "commit")

    # -- parts of a task

    def _split(self) -> str | None:
        split, dataset_split = self._row.get("split"), self._manifest.split
        if split == _DEPRECATED:
            return "its split is 'deprecated'"
        if split is not None and dataset_split is not None and split != dataset_split:
            raise SuiteError(
                f"{self._place}: split: {split!r:.40} is another split than {dataset_split!r}, which this "
                "dataset is"
            )
        return None

    def _assets(self) -> str | None:
        """Return why the tests miss files; rows of version 5 name them, and do not hold them."""
        assets = self._row.get("image_assets")
        if isinstance(assets, str):
            assets = _parsed(assets)
        if not isinstance(assets, dict) or not assets.get("test_patch"):
            return None
        return "its tests need files (image_assets) that rows do not hold"

    def _image(self) -> Row | None:
        """Return the image, or None if the row names none."""
        manifest = self._manifest
        if manifest.dockerfile is not None:
            path = self._filled("dockerfile", manifest.dockerfile)
            if (self._folder / path).is_file():
                return {"dockerfile": path}
        for pattern in manifest.images:
            columns = list(fields_of(pattern))
            if len(manifest.images) == 1:
                columns = [name for name in columns if name in self._row]
            if all(self._row.get(name) not in (None, "") for name in columns):
                break
        else:
            return None
        name, colon, tag = self._filled("image", pattern).partition(":")
        name = name.lower().replace("__", manifest.double)
        if manifest.namespace and "/" not in name:
            name = f"{manifest.namespace}/{name}"
        image = f"{name}{colon}{tag}"
        if not _IMAGE.fullmatch(image):
            raise SuiteError(f"{self._place}: image: {image!r:.80} is not a name of an image")
        return {"image": image}

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
            "setup": [_planted(self._text(self._manifest.bug), self._at)],
        }

    def _tests(self, fail_to_pass: Sequence[str]) -> Row:
        manifest = self._manifest
        if manifest.script is not None:
            tests = self._read_by_row(self._text(manifest.script))
        elif manifest.beside is not None:
            return self._beside(manifest.beside)
        elif manifest.commands is not None:
            tests = self._by_commands(manifest.commands)
        else:
            tests = self._by_table(fail_to_pass)
        if self._row.get(manifest.kind) == "fail_only":
            tests["absent"] = "passed"
        return tests

    def _by_commands(self, column: str) -> Row:
        """Return how to test by commands in the row."""
        manifest = self._manifest
        changes = self._changes(manifest.test_patch) if manifest.test_patch else ()
        commands = self._commands(column)
        if not any(command.strip() for command in commands):
            raise SuiteError(f"{self._place}: {column}: is empty")
        install, exports = self._optional(manifest.install), self._optional(manifest.exports)
        build, results = self._optional(manifest.build), self._optional(manifest.results)
        if manifest.python:
            words = [shlex.quote(path) for path in changed_tests(changes)]
            commands = [*commands[:-1], " ".join([commands[-1], *words])]
            script = self._script(
                python_script,
                changes,
                commands=[*build, *commands, *results],
                install="\n".join(install),
                exports=exports,
            )
            alone = len(commands) == 1 and bool(_PYTEST.match(commands[0]))
            return self._read_by_row(script) | {"sentinels": alone}
        parser = self._text(manifest.parser)
        is_program = manifest.program and _PROGRAM.search(parser) is not None
        script = self._script(
            row_script,
            changes,
            before=[*exports, *install, *build],
            commands=commands,
            results=results,
            stop=manifest.stop,
            parser=parser if is_program else "",
        )
        if is_program:
            files = parser_files(parser)
            return {"command": script, "parser": "json_tests", "sentinels": False, "files": files}
        return self._read_by_row(script)

    def _optional(self, column: str | None) -> list[str]:
        """Return the commands of a column that a row need not have."""
        name, _, inner = (column or "").partition(".")
        value = self._row.get(name)
        if inner:
            value = value.get(inner) if isinstance(value, dict) else None
        return [] if value is None else self._commands(column or "")

    def _read_by_row(self, script: str) -> Row:
        """Return how to test by a script, whose log is read as the row says."""
        manifest = self._manifest
        parser = self._parser(self._text(manifest.parser)) + (UNTIMED if manifest.times else "")
        command = with_exit_status(script) if manifest.status else script
        return {"command": command, "parser": parser, "sentinels": False}

    def _script(self, make: Callable[..., str], changes: Sequence[Change], **parts: Any) -> str:
        """Return a script that brings the patch of the tests, if there is one, and runs them."""
        column = self._manifest.test_patch
        patch = self._text(column) if column else ""
        try:
            return make(
                at=self._at, commit=self._commit, test_patch=patch, changes=changes, **parts
            )
        except PatchError as error:
            raise SuiteError(f"{self._place}: {column}: {error}") from None

    def _commands(self, column: str) -> list[str]:
        value = self._column(column)
        if isinstance(value, str) and not isinstance(_parsed(value), list):
            return [value]
        return self._names(column)

    def _parser(self, name: str) -> str:
        instance = str(self._row.get("instance_id", ""))
        try:
            return parser_of_row(name, instance, str(self._row.get(self._manifest.version, "")))
        except UnknownParser:
            raise
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
            script = image_script(at=self._at, files=files, commands=commands)
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
        fields = {
            "command": with_exit_status(script),
            "parser": self._parser(repository.parser),
            "sentinels": bool(_PYTEST.match(commands[-1]))
            and repository.names == "files"
            and repository.sentinels,
        }
        return fields | ({"absent": repository.absent} if repository.absent else {})

    def _look_up(self) -> tuple[_Repository, _Tests]:
        manifest = self._manifest
        name = manifest.table or ""
        in_suite = name.endswith((".yaml", ".yml"))
        table = _table((self._folder / name).place() if in_suite else self._tables / f"{name}.yaml")
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
        folder = self._filled("beside", pattern)
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
            at=self._at,
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
    git = f"git -C {shlex.quote(at)} -c safe.directory='*'"
    git += " -c user.name=base -c user.email=base@localhost"
    return "\n".join(
        [
            # Files of a layer have other inodes and times than the index has noted.
            f"{git} update-index -q --refresh",
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
