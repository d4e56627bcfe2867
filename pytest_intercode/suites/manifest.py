"""The manifest of rows of SWE-bench and its relatives: which column is what. Reads nothing."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["SwebenchModel"]


class SwebenchModel(BaseModel):
    """``swebench``: what the columns of a row are. A pattern has the row's columns in braces.

    Attributes:
        at: the repository's folder in the image.
        commit: a pattern for the base commit.
        image: a pattern for the image's name, which becomes lower-case.
        namespace: what goes before an image's name without a slash.
        double: what two underscores become in an image's name.
        dockerfile: a pattern for a Dockerfile to build instead, where there is one.
        query: the column with the problem; a task without it is skipped.
        gold: the column with the patch that solves it.
        bug: in place of ``gold``: the column with the patch that makes the bug.
        test_patch: the column with the patch that brings the tests.
        fail_to_pass: the column of tests that have to pass now.
        pass_to_pass: the column of tests that have to pass still.
        absent: what a test counts as that the log does not name; a table may say otherwise.
        table: how to test by repository and version: a name of ours, or a YAML file.
        repo: the column with the repository, for a table.
        version: the column with its version, for a table.
        script: the column with a whole script.
        commands: the column with the commands of the tests, one or a list.
        build: the column with commands before them.
        beside: a pattern for a folder with ``run_script.sh`` and ``parser.py``.
        selected: the column with the tests' files, for ``beside``.
        before: the column with commands whose last line brings the tests, for ``beside``.
        parser: the column with the parser's name, or a parser's name.
        kind: the column that says ``fail_only`` where a test passes unless it is seen to fail.
        split: the split that these rows are of, where they have a column ``split``.
        timeout: seconds for the tests.
        variables: environment variables of the tests.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    at: Annotated[str, Field(pattern="^/")] = "/testbed"
    commit: str = "{base_commit}"
    image: str
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
    build: str | None = None
    beside: str | None = None
    selected: str = "selected_test_files_to_run"
    before: str = "before_repo_set_cmd"
    parser: str = "log_parser"
    kind: str = "eval_type"
    split: str | None = None
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1800.0
    variables: dict[str, str] = {}

    def columns(self) -> list[str]:
        """Return the columns that a row has to have."""
        needed = [self.bug or self.gold, self.fail_to_pass, self.pass_to_pass]
        if self.test_patch is not None and self.script is None:
            needed.append(self.test_patch)
        if self.table is not None:
            needed.append(self.repo)
        needed += [self.script] if self.script else []
        needed += [self.commands, self.parser] if self.commands else []
        needed += [self.selected, self.before] if self.beside else []
        return needed

    def big(self) -> set[str]:
        """Return the columns that are no part of a task's metadata, as the task holds them."""
        found = {self.query, self.gold, self.fail_to_pass, self.pass_to_pass}
        return found | {c for c in (self.bug, self.test_patch, self.script) if c}
