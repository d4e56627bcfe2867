"""The manifest of rows of SWE-bench and its relatives: the meaning of their columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["REPOSITORY_NAME", "SwebenchModel", "fields_of", "fill", "grading_columns"]

REPOSITORY_NAME = "repo_name"
"""The name in patterns, in addition to columns, for the repository without its owner."""

_OTHER_FORM = re.compile(r"\d{4}|\{")  # forbidden format specs, as a large width may use all memory
_IMAGES = ("container_image", "docker_image", "dockerfile", "dockerhub_tag", "image", "image_name")
_GRADING = frozenset(
    (
        *_IMAGES,
        # how tests are run
        *(
            "before_repo_set_cmd",
            "build_cmd",
            "build_cmds",
            "env_vars",
            "eval_cmd",
            "eval_commands",
        ),
        *("eval_script", "install_config", "print_cmds", "rebuild_cmds", "run_script", "run_tests"),
        *("selected_test_files_to_run", "test_cmd", "test_cmds", "test_command", "test_commands"),
        *("test_patch", "test_script"),
        # how their results are read
        *("expected_output_json", "log_parser", "log_parsers", "parser"),
        # the gold
        *("bug_patch", "fix_patch"),
    )
)


def grading_columns(row: Mapping[str, Any]) -> set[str]:
    """Return the columns that define how a row is tested; names inside an object have a dot.

    Rows of another form than a manifest's have further such columns, or lack some. Columns that are
    null or empty do not count.
    """
    columns = {name for name in _GRADING.intersection(row) if _has_content(row[name])}
    config = row.get("install_config")
    if isinstance(config, Mapping):
        inner = _GRADING.intersection(config)
        columns |= {f"install_config.{name}" for name in inner if _has_content(config[name])}
    return columns


def _has_content(value: Any) -> bool:
    return value is not None and value != "" and value != [] and value != {}


class SwebenchModel(BaseModel):
    """``swebench``: the meaning of a row's columns. A pattern has the row's columns in braces.

    Attributes:
        at: a pattern for the repository's folder in the image.
        commit: a pattern for the base commit.
        image: a pattern for the image's name, which is converted to lower case; of several, the
            first whose columns are not empty.
        namespace: the prefix for an image's name without a slash.
        double: the replacement for two underscores in an image's name.
        dockerfile: a pattern for a Dockerfile to build instead, if it exists.
        query: the column with the problem; a task without it is skipped.
        gold: the column with the patch that solves it.
        bug: instead of ``gold``: the column with the patch that introduces the bug.
        test_patch: the column with the patch that adds the tests.
        fail_to_pass: the column of tests that must pass now.
        pass_to_pass: the column of tests that must still pass.
        absent: the result of a test that is missing from the log; a table may override it.
        table: how to test by repository and version: a bundled table by its name, or a YAML file.
        repo: the column with the repository, for a table.
        version: the column with its version, for a table.
        script: the column with a whole script.
        commands: the column with the commands of the tests, one or a list.
        install: an optional column with commands that run before these.
        exports: an optional column with commands that run before ``install``.
        build: an optional column with commands that run before the tests.
        results: an optional column with commands whose output is read instead of the tests'.
        python: whether the commands are for the conda environment of SWE-bench's images, and get
            the test files that the patch changes as arguments.
        stop: whether to stop at the first command that fails.
        status: whether tests that end with an error and are missing from the log count as not run.
        times: whether names of tests may end with the duration of the test.
        beside: a pattern for a folder with ``run_script.sh`` and ``parser.py``.
        selected: the column with the tests' files, for ``beside``.
        before: the column with commands whose last line adds the tests, for ``beside``.
        parser: the column with the parser's name.
        program: whether the parser's column may hold a Python program that defines ``parser``; it
            runs where the tests ran.
        kind: the column with ``fail_only`` if a test passes unless it is reported to fail.
        split: the split of these rows, if they have a column ``split``.
        timeout: seconds for the tests.
        variables: environment variables of the tests.
        shown: further features of this form, in addition to the columns' names: regular expressions
            for the whole text of columns.
        unread: columns that define how other rows are tested, and can be ignored for these rows.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    at: Annotated[str, Field(pattern="^/")] = "/testbed"
    commit: str = "{base_commit}"
    image: str | list[str]
    namespace: str = ""
    double: str = "__"
    dockerfile: str | None = None
    query: str = "problem_statement"
    gold: str = "patch"
    bug: str | None = None
    test_patch: str | None = None
    fail_to_pass: str = "FAIL_TO_PASS"
    pass_to_pass: str = "PASS_TO_PASS"
    absent: Literal["failed", "passed"] = "failed"
    table: str | None = None
    repo: str = "repo"
    version: str = "version"
    script: str | None = None
    commands: str | None = None
    install: str | None = None
    exports: str | None = None
    build: str | None = None
    results: str | None = None
    python: bool = False
    stop: bool = False
    status: bool = True
    times: bool = False
    beside: str | None = None
    selected: str = "selected_test_files_to_run"
    before: str = "before_repo_set_cmd"
    parser: str = "log_parser"
    program: bool = False
    kind: str = "eval_type"
    split: str | None = None
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1800.0
    variables: dict[str, str] = {}
    shown: dict[str, str] = {}
    unread: list[str] = []

    @property
    def images(self) -> list[str]:
        """The patterns for the image's name."""
        return [self.image] if isinstance(self.image, str) else self.image

    def columns(self) -> list[str]:
        """Return the columns that a row must have."""
        names = [self.bug or self.gold, self.fail_to_pass, self.pass_to_pass]
        if self.test_patch is not None and self.script is None:
            names.append(self.test_patch)
        if self.table is not None or REPOSITORY_NAME in fields_of(self.at):
            names.append(self.repo)
        names += [self.script, self.parser] if self.script else []
        names += [self.commands, self.parser] if self.commands else []
        names += [self.selected, self.before] if self.beside else []
        return names

    def unread_columns(self, row: Mapping[str, Any]) -> list[str]:
        """Return the columns that define how a row is tested but are not read.

        A column of ``unread`` that names an image must name the same one.
        """
        patterns = [self.at, self.commit, *self.images, self.dockerfile or "", self.beside or ""]
        known_columns = {*self.columns(), *(n for p in patterns for n in fields_of(p))}
        images = [row.get(name) for pattern in self.images for name in fields_of(pattern)]
        known_columns |= {n for n in self.unread if n not in _IMAGES or row.get(n) in images}
        scripts = (
            self.test_patch,
            self.script,
            self.install,
            self.exports,
            self.build,
            self.results,
        )
        known_columns |= set(filter(None, scripts))
        known_columns |= {name.partition(".")[0] for name in known_columns}
        return sorted(grading_columns(row) - known_columns)

    def missing_columns(self, row: Mapping[str, Any]) -> list[str]:
        """Return the columns that this form needs and that a row lacks.

        Columns that define how a row is tested must not be empty.
        """
        images = [*fields_of(self.images[0])] if len(self.images) == 1 else []
        grading = grading_columns(row)
        return [
            name
            for name in [*self.columns(), *images]
            if (
                name not in grading
                if name.rpartition(".")[2] in _GRADING
                else name not in row and name != REPOSITORY_NAME
            )
        ]

    def unfit_column(self, row: Mapping[str, Any]) -> str:
        """Return the column whose text shows that a row is of another form; empty if none does."""
        for name, pattern in self.shown.items():
            if not re.fullmatch(pattern, str(row.get(name, ""))):
                return name
        return ""

    def large_columns(self) -> set[str]:
        """Return the columns that are left out of a task's metadata, as its fields hold them."""
        names = {self.query, self.gold, self.fail_to_pass, self.pass_to_pass}
        return names | {c for c in (self.bug, self.test_patch, self.script) if c}


def fill(pattern: str, values: Mapping[str, Any]) -> str:
    """Fill a pattern of ``str.format`` with values.

    Raises:
        KeyError: a value is missing.
        ValueError: it is not a pattern, or its width is not limited; further errors are those of
            ``str.format_map``.
    """
    for _, _, form, _ in Formatter().parse(pattern):
        if form and _OTHER_FORM.search(form):
            raise ValueError(f"a width has at most three digits, found {form!r:.40}")
    return pattern.format_map(values)


def fields_of(pattern: str) -> Iterator[str]:
    """Yield the columns that a pattern names; none for a text that is not a pattern."""
    try:
        for _, name, *_ in Formatter().parse(pattern):
            if name:
                yield name
    except ValueError:
        return
