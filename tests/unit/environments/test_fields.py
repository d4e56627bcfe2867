"""Fields that an environment of somebody else's gives its tasks: suites, JSON, digests."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from pytest_intercode.core.task import Task, TaskFields, in_suite
from pytest_intercode.environments import registry
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.fields import (
    CodeTest,
    InterpreterFields,
    check_fields,
    leaves_of,
)
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.environments.registry import (
    builtin_kinds,
    kind_of,
    register_environment,
)
from pytest_intercode.environments.task_json import task_from_json, task_to_json
from pytest_intercode.errors import ConfigurationError, SuiteError
from pytest_intercode.suites.loader import load_rows, load_suite
from pytest_intercode.system.digest import digest

_METHODS = ("sandboxes", "start", "execute", "grade", "stop", "interrupt")


@dataclass(frozen=True)
class Grammar:
    """What a parser is made of."""

    source: Path
    start: str = "top"


@dataclass(frozen=True)
class PerlFields(InterpreterFields):
    """What tasks of the environment perl have."""

    modules: tuple[Annotated[str, Field(pattern=r"^[A-Z]\w*(::\w+)*$")], ...] = ()
    level: Literal["plain", "strict"] = "plain"
    library: Path | None = None
    grammars: tuple[Grammar, ...] = ()
    book: Path | None = field(default=None, metadata=in_suite(Annotated[Path, Field()]))
    settings: dict[str, int] = field(default_factory=dict)
    note: str = field(default="", metadata=in_suite(is_graded=False))


@pytest.fixture(autouse=True)
def _perl_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_added", {})
    monkeypatch.setattr(registry, "_watching", [])
    register_environment(_environment(fields=PerlFields))


def _environment(**attributes: Any) -> type[Environment]:
    methods: dict[str, Any] = dict.fromkeys(_METHODS, lambda *_: None)
    methods["sandboxes"] = classmethod(methods["sandboxes"])
    return type("Perl", (Environment,), {"name": "perl", **methods, **attributes})


Load = Callable[[str], list[Task]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Read a suite of the environment perl."""
    (tmp_path / "lib.pm").write_text("1;")
    (tmp_path / "a.g").write_text("top: 'a'")

    def load_text(text: str) -> list[Task]:
        (tmp_path / "s.yaml").write_text(f"env: perl\n{text}")
        return list(load_suite(tmp_path / "s.yaml").tasks)

    return load_text


_FULL = """\
defaults: {level: strict, modules: [POSIX]}
tasks:
  - id: a
    query: q
    gold: print 1
    tests: [print 1]
    modules: ['JSON::PP']
    library: lib.pm
    grammars: [{source: a.g}]
    book: lib.pm
    settings: {depth: 3}
    note: Nobody is graded by this.
  - {id: b, query: q, gold: print 1}
overrides:
  b: {level: plain}
"""


def test_a_suite_says_them(load: Load, tmp_path: Path) -> None:
    first, second = load(_FULL)
    assert first.fields == PerlFields(
        (CodeTest("print 1"),),
        ("JSON::PP",),
        "strict",
        tmp_path / "lib.pm",
        (Grammar(tmp_path / "a.g"),),
        tmp_path / "lib.pm",
        {"depth": 3},
        "Nobody is graded by this.",
    )
    assert PerlFields.of(first).modules == ("JSON::PP",)
    assert second.fields == PerlFields(modules=("POSIX",))


def test_rows_have_them(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        '{"query": "q", "gold": "1", "modules": ["POSIX"], "topic": "x"}\n'
    )
    (task,) = load_rows(tmp_path / "rows.jsonl", "perl").tasks
    assert PerlFields.of(task).modules == ("POSIX",)
    assert task.metadata == {"topic": "x"}
    # What is installed here changes nothing of the rows of another environment.
    (task,) = load_rows(tmp_path / "rows.jsonl", "bash").tasks
    assert task.metadata == {"topic": "x", "modules": ["POSIX"]}


@pytest.mark.parametrize(
    ("env", "column", "reason"),
    [
        ("bash", "tests", "they are for the env python, not bash"),
        ("bash", "repository", "is for the env swe, not bash"),
        ("ctf", "verification", "is for the env"),
        ("perl", "database", "is for the env sql, not perl"),
        ("swe", "alternatives", "are for the env bash"),
    ],
)
def test_rows_of_another_environment_are_refused(
    tmp_path: Path, env: str, column: str, reason: str
) -> None:
    row = {"query": "q", "gold": "1", column: "x"}
    rows = tmp_path / "rows.jsonl"
    rows.write_text(f"{json.dumps(row)}\n")
    advice = re.escape(f"add ignore: [{column}]")
    with pytest.raises(SuiteError, match=f"rows.jsonl:1: {column}: {reason}.*{advice}"):
        load_rows(rows, env)
    suite = tmp_path / "suite.yaml"
    suite.write_text(f"env: {env}\nrows: {{path: rows.jsonl, ignore: [{column}]}}\n")
    if env != "swe":  # whose tasks need more than a query
        (task,) = load_suite(suite).tasks
        assert task.metadata[column] == "x"


def test_they_come_to_a_node(load: Load) -> None:
    for task in load(_FULL):
        for copy in (task_from_json(task_to_json(task)), pickle.loads(pickle.dumps(task))):
            assert copy == task
            assert digest(copy) == digest(task)


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({"modules": ("B",)}, True),
        ({"level": "strict"}, True),
        ({"settings": {"a": 1}}, True),
        ({"note": "so"}, False),
        ({"library": None}, True),
    ],
)
def test_what_is_graded_is_in_the_digest(load: Load, change: Any, counts: bool) -> None:
    (task,) = load("tasks: [{id: a, query: q, gold: g, library: lib.pm}]\n")
    changed = replace(task, fields=replace(task.fields, **change))
    assert (digest(changed) != digest(task)) == counts


def test_the_content_of_their_files_is_in_the_digest(load: Load, tmp_path: Path) -> None:
    first = digest(load(_FULL)[0])
    (tmp_path / "a.g").write_text("top: 'b' more")
    assert digest(load(_FULL)[0]) != first


def test_a_task_without_them_keeps_its_digest(load: Load) -> None:
    (task,) = load("tasks: [{id: a, query: q, gold: g}]\n")
    assert digest(task) == digest(replace(task, fields=TaskFields()))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("modules: JSON", "modules: a list is needed, found 'JSON' (str)"),
        ("modules: [7]", "modules.0: a string is needed, found 7 (int)"),
        (
            "modules: [json]",
            r"modules.0: string should match pattern '^[A-Z]\w*(::\w+)*$' (found 'json')",
        ),
        ("level: strct", "level: 'strct' is not one of plain, strict. Did you mean 'strict'?"),
        ("settings: {a: b}", "settings.a: a whole number is needed, found 'b' (str)"),
        (
            "grammars: [{sorce: a.g}]",
            "grammars.0.sorce: there is no such field. Did you mean 'source'? Allowed: source, "
            "start",
        ),
        ("database: {name: x}", "database: is for the env sql, not perl; give files, an archive "),
        ("modlues: [A]", "modlues: there is no such field. Did you mean 'modules'? Allowed: "),
    ],
)
def test_a_mistake_is_one_line(load: Load, tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(f"tasks:\n  - id: a\n    query: q\n    gold: g\n    {line}\n")
    assert str(caught.value).startswith(f"{tmp_path}/s.yaml:6: task 'a': {message}")


@pytest.mark.parametrize(
    ("path", "message"),
    [("../x", "leads out of"), ("/etc/passwd", "leads out of"), ("lob.pm", "'lib.pm'")],
)
def test_a_file_is_one_of_the_suites_folder(load: Load, path: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        load(f"tasks: [{{id: a, query: q, gold: g, library: {path}}}]\n")


@pytest.mark.parametrize("text", ["book: /etc/passwd", "grammars: [{source: ../x}]"])
def test_no_path_leads_out_of_the_folder(load: Load, text: str) -> None:
    with pytest.raises(SuiteError, match="leads out of"):
        load(f"tasks: [{{id: a, query: q, gold: g, {text}}}]\n")


def test_another_environments_suite_says_whose_they_are(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "env: bash\ntasks:\n  - {id: a, query: q, gold: g, modules: [A]}\n"
    )
    with pytest.raises(SuiteError, match=r"s\.yaml:3: task 'a': modules: is for the env perl"):
        load_suite(tmp_path / "s.yaml")


def test_a_task_made_by_hand_has_the_defaults() -> None:
    task = Task("a", "q", ("g",), "perl", "s", "s")
    assert PerlFields.of(task) == PerlFields()
    with pytest.raises(SuiteError, match="task 'a': fields: PythonFields are needed, found PerlFi"):
        PythonFields.of(replace(task, fields=PerlFields()))


@pytest.mark.parametrize("kind", builtin_kinds(), ids=lambda kind: kind.name)
def test_ours_are_as_we_ask_of_others(kind: Any) -> None:
    check_fields(kind.fields_class)
    assert kind_of(kind.name).fields_class() == kind.fields_class()


@dataclass(frozen=True)
class _Required(TaskFields):
    modules: tuple[str, ...]


class _Undecorated(TaskFields):
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Taken(TaskFields):
    query: str = ""


@dataclass(frozen=True)
class _Shadowing(TaskFields):
    view: str = ""  # type: ignore[assignment]


@dataclass(frozen=True)
class _Set(TaskFields):
    sources: tuple[frozenset[Path], ...] = ()


@dataclass(frozen=True)
class _Keys(TaskFields):
    tables: dict[Path, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Bytes(TaskFields):
    key: bytes = b""


@dataclass(frozen=True)
class _Untyped(TaskFields):
    modules: Callable[[], Unknown] | None = None  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (_Required, r"_Required: modules: a default is needed; let the kind's check\(\) refuse"),
        (_Undecorated, r"_Undecorated: put @dataclass\(frozen=True\) above it"),
        (_Taken, "_Taken: query: this name is taken; choose another one"),
        (_Shadowing, "_Shadowing: view: this name is taken; choose another one"),
        (_Set, "_Set: sources: frozenset.* is not plain data; use str, int"),
        (_Keys, r"_Keys: tables: dict\[.*Path, str\] is not plain data; .*mappings of str"),
        (_Bytes, "_Bytes: key: bytes is not plain data; use str, int"),
        (_Untyped, "_Untyped: its types cannot be read: name 'Unknown' is not defined"),
        (dict, "dict: fields: a subclass of TaskFields is needed"),
    ],
)
def test_a_class_that_suites_could_not_be_read_by(cls: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        register_environment(_environment(name="other", fields=cls))


def test_no_name_of_a_suite_is_left_to_them() -> None:
    from pytest_intercode.environments.fields import _TAKEN
    from pytest_intercode.suites.schema import TaskModel

    assert set(TaskModel.model_fields) <= _TAKEN
    assert {item.name for item in fields(Task)} <= _TAKEN


def test_the_parts_of_plain_data() -> None:
    data = PerlFields(modules=("A",), grammars=(Grammar(Path("x")),), settings={"a": 1})
    leaves = ["A", "plain", None, Path("x"), "top", None, "a", 1, ""]
    assert [*leaves_of(data)] == leaves


@dataclass(frozen=True)
class _Strict(TaskFields):
    mods: str = field(default="", metadata=in_suite(refusal="give {mods: [A]} to {env}"))

    def view(self) -> dict[str, str]:
        return {"engine": "x", "secret": "y"}


def test_a_refusal_may_have_braces(tmp_path: Path) -> None:
    register_environment(_environment(name="perl", fields=_Strict))
    (tmp_path / "s.yaml").write_text("env: bash\ntasks: [{id: a, query: q, gold: g, mods: x}]\n")
    with pytest.raises(SuiteError, match=re.escape("mods: give {mods: [A]} to bash")):
        load_suite(tmp_path / "s.yaml")


def test_a_view_shows_what_a_view_has() -> None:
    task = Task("a", "q", ("g",), "perl", "s", "s", fields=_Strict())
    message = r"_Strict\.view\(\) returns secret; allowed are database, engine"
    with pytest.raises(ConfigurationError, match=message):
        task.view()
