"""The columns of one row of SWE-bench or a relative, as a manifest names them."""

from __future__ import annotations

import ast
import json
import re
from functools import cached_property
from typing import Any

from pytest_intercode.core.patches import Change, PatchError, read_patch
from pytest_intercode.core.text import clipped, one_line
from pytest_intercode.errors import SuiteError, suggestion
from pytest_intercode.rewards.test_logs.registry import untimed
from pytest_intercode.suites.swebench.manifest import REPOSITORY_NAME, SwebenchModel, fill
from pytest_intercode.system.rows import Row
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["SwebenchRow", "column_names", "parse_literal"]

_MAX_NAME_LENGTH = 40  # characters of a column's name in a message
_MAX_NAMES_LENGTH = 600  # characters of all names
_MAX_LIST_LENGTH = 32 * 1024**2  # characters of a list that is written as text
_FOLDER = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[\w.+@-]+)+", re.ASCII)
_COMMIT = re.compile(r"(?!-)[\w./+@^~-]+", re.ASCII)


class SwebenchRow:
    """A row, its manifest, and the values of its columns.

    Args:
        place: its location, for messages.
        fields: its columns.
        manifest: the meaning of the columns.
        folder: the folder of the files that a manifest names.
    """

    def __init__(self, place: str, fields: Row, manifest: SwebenchModel, folder: SuitePath) -> None:
        self.place = place
        self.fields = fields
        self.manifest = manifest
        self.folder = folder

    def error(self, column: str, problem: str) -> SuiteError:
        """Return an error about a column, or a field of the manifest."""
        return SuiteError(f"{self.place}: {column}: {problem}")

    def value(self, name: str) -> Any:
        """Return the value of a column; a name with dots leads into objects."""
        value: Any = self.fields
        for part in [name] if name in self.fields else name.split("."):
            if not isinstance(value, dict) or part not in value:
                raise SuiteError(
                    f"{self.place}: the column {name!r} is missing.{suggestion(name, self.fields)} "
                    f"Its columns are: {column_names(self.fields)}"
                )
            value = value[part]
        return value

    def text(self, name: str) -> str:
        """Return the text of a column; empty for null."""
        value = self.value(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(name, f"a text is needed, not {value!r:.60}")
        return value

    def names(self, name: str) -> list[str]:
        """Return the list in a column, which may be a text with JSON or a Python literal."""
        value = text = self.value(name)
        if isinstance(text, str) and text.strip():
            value = parse_literal(text)
            if value is None:
                raise self.error(
                    name, f"neither JSON nor a Python list, or cut short: {text[:60]!r}"
                )
        if not value:
            return []
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise self.error(name, f"a list of names is needed: {value!r:.60}")
        return value

    def test_names(self, column: str) -> list[str]:
        """Return the names of tests in a column, without durations if the manifest says so."""
        names = self.names(column)
        return list(dict.fromkeys(map(untimed, names))) if self.manifest.times else names

    def commands(self, column: str) -> list[str]:
        """Return the commands in a column, which is a list or a single text."""
        value = self.value(column)
        if isinstance(value, str) and not isinstance(parse_literal(value), list):
            return [value]
        return self.names(column)

    def optional_commands(self, column: str | None) -> list[str]:
        """Return the commands of an optional column."""
        name, _, inner = (column or "").partition(".")
        value = self.fields.get(name)
        if inner:
            value = value.get(inner) if isinstance(value, dict) else None
        return [] if value is None else self.commands(column or "")

    def fill(self, field: str, pattern: str) -> str:
        """Fill a pattern with the row's columns."""
        name = str(self.fields.get(self.manifest.repo) or "").rpartition("/")[2]
        try:
            return fill(pattern, {REPOSITORY_NAME: name, **self.fields})
        except (KeyError, AttributeError, IndexError, TypeError, ValueError) as error:
            raise self.error(
                field,
                f"the pattern {pattern!r} does not fit: {type(error).__name__}: {error}. Its "
                f"columns are: {column_names(self.fields)}",
            ) from None

    def _fill_checked(self, field: str, form: re.Pattern[str], noun: str) -> str:
        """Fill a pattern, and check the result, which becomes part of a script."""
        text = self.fill(field, getattr(self.manifest, field))
        if not form.fullmatch(text):
            raise self.error(field, f"{text!r:.80} is not a {noun}")
        return text

    @cached_property
    def at(self) -> str:
        """The repository's folder in the image."""
        return self._fill_checked("at", _FOLDER, "folder")

    @cached_property
    def commit(self) -> str:
        """The base commit."""
        return self._fill_checked("commit", _COMMIT, "commit")

    def changes(self, column: str) -> tuple[Change, ...]:
        """Return the changes of the patch in a column."""
        try:
            return read_patch(self.text(column))
        except PatchError as error:
            raise type(error)(f"{self.place}: {column}: {error}") from None


def column_names(row: Row) -> str:
    """Return the names of a row's columns, for messages."""
    names = ", ".join(one_line(clipped(name, _MAX_NAME_LENGTH)) for name in row)
    return clipped(names, _MAX_NAMES_LENGTH)


def parse_literal(text: str) -> Any:
    """Parse JSON or a Python literal, without running code; None for another text."""
    if len(text) > _MAX_LIST_LENGTH:
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return None
