"""docs/reference/ and docs/llms.txt are what the declarations come to, and leave nothing out."""

from __future__ import annotations

import re
from typing import get_args

import pytest

import pytest_intercode
from pytest_intercode.core.record import OUTCOMES, Outcome
from pytest_intercode.environments.registry import builtin_kinds
from pytest_intercode.plugin.project_cells import MARK_ARGUMENTS, RunOptions
from pytest_intercode.plugin.selection import TASK_ARGUMENTS
from pytest_intercode.suites.schema import SuiteModel, task_model
from tests.support.pages import DOCS, PAGES
from tests.support.reference import TEXTS

ROWS = re.compile(r"^\| `(.*?)` \|", re.MULTILINE)


@pytest.mark.parametrize("name", TEXTS)
def test_it_is_current(name: str) -> None:
    current = (DOCS / name).read_text("utf-8")
    assert TEXTS[name]() == current, "run python -m tests.support.reference"


def test_no_cell_is_empty() -> None:
    for name in TEXTS:
        assert not re.findall(r"^\|.*\|\s*\|$", (DOCS / name).read_text("utf-8"), re.MULTILINE), (
            name
        )


def test_every_name_is_in_it() -> None:
    names = {name: set(ROWS.findall((DOCS / name).read_text("utf-8"))) for name in TEXTS}
    assert {*TASK_ARGUMENTS, *MARK_ARGUMENTS, *RunOptions.__annotations__} <= names[
        "reference/marks.md"
    ]
    assert names["reference/outcomes.md"] == set(get_args(Outcome)) == set(OUTCOMES)
    fields = set(SuiteModel.model_fields)
    for kind in builtin_kinds():
        fields |= set(task_model(kind).model_fields)
    assert fields <= names["reference/suites.md"]
    shown = re.findall(r"^::: .*\.(\w+)$", (DOCS / "reference/api.md").read_text("utf-8"), re.M)
    assert sorted(shown) == sorted(vars(pytest_intercode)["__getattr__"]("__all__"))


def test_language_models_are_told_of_each_page() -> None:
    lines = (DOCS / "llms.txt").read_text("utf-8").splitlines()
    told = {path: text for line in lines for path, text in re.findall(r"\]\((.*?)\): (.*)", line)}
    assert set(told) == {
        page.relative_to(DOCS).as_posix() for page in PAGES if page.is_relative_to(DOCS)
    }
    assert all(len(text) > 20 for text in told.values()), told
