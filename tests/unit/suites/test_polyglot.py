"""Aider's polyglot exercises as tasks: what an agent gets, and what it is tested with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from pytest_intercode.auditing.file_usage import unused_files
from pytest_intercode.core.task import Task
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.environments.swe.strict import SweEnvironment
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.catalogue import DataFolder, dataset_tasks, named_tasks
from pytest_intercode.suites.upstream import DATASETS, files_of
from tests.support.polyglot import write_sample

if TYPE_CHECKING:
    from pytest_intercode.sandboxes.provider import SandboxProvider


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_sample(folder / "polyglot")
    return folder


def tasks(data: Path, name: str = "polyglot") -> dict[str, Task]:
    return {task.id: task for task in dataset_tasks(name, DataFolder(data, "data"), "--dataset")}


def test_each_language_is_a_part(data: Path) -> None:
    every = tasks(data)
    assert list(every) == [
        *("go-trinary", "java-series", "javascript-binary", "python-transpose", "rust-gigasecond")
    ]
    assert list(tasks(data, "polyglot-rust")) == ["rust-gigasecond"]
    assert {SweFields.of(task).submissions for task in every.values()} == {2}
    assert {task.env for task in every.values()} == {"swe"}


def test_a_clone_is_read_by_its_path(data: Path) -> None:
    by_path = named_tasks(str(data / "polyglot"), None, "--dataset", folder=Path(), env=None)
    assert [task.id for task in by_path] == list(tasks(data))


def test_an_agent_gets_neither_tests_nor_examples(data: Path) -> None:
    files = {name: sorted(task.files) for name, task in tasks(data).items()}
    assert files == {
        "go-trinary": ["go.mod", "trinary.go"],
        "java-series": ["src/main/java/Series.java"],
        "javascript-binary": ["babel.config.js", "binary.js", "package.json"],
        "python-transpose": ["transpose.py"],
        "rust-gigasecond": ["Cargo.toml", "src/lib.rs"],
    }


def test_the_audit_takes_build_files_for_used(data: Path) -> None:
    no_sandbox = cast("SandboxProvider", None)
    for task in tasks(data).values():
        advice = task.query.rpartition("\n\n")[2]  # the instructions may name them
        assert unused_files(no_sandbox, replace(task, query=advice), SweEnvironment) == set()


def test_tests_and_settings_are_the_data_s(data: Path) -> None:
    brought = {}
    for name, task in tasks(data).items():
        assert task.verification is not None
        assert task.verification.timeout == 180.0
        brought[name] = sorted(task.verification.files)
    assert brought == {
        "go-trinary": ["go.mod", "trinary_test.go"],
        "java-series": ["src/test/java/SeriesTest.java"],
        "javascript-binary": ["babel.config.js", "binary.spec.js", "package.json"],
        "python-transpose": ["transpose_test.py"],
        "rust-gigasecond": ["tests/gigasecond.rs"],
    }


def test_all_tests_are_enabled(data: Path) -> None:
    every = tasks(data)
    for name, path, disabled in (
        ("javascript-binary", "binary.spec.js", b"xtest("),
        ("java-series", "src/test/java/SeriesTest.java", b"@Disabled("),
    ):
        verification = every[name].verification
        assert verification is not None
        published = json.loads(Path("tests/support/polyglot.json").read_text("utf-8"))
        assert any(disabled.decode() in text for text in published.values())
        assert disabled not in verification.files[path].content
    rust = every["rust-gigasecond"].verification
    assert rust is not None
    assert "cargo test -- --include-ignored" in rust.command


def test_python_s_tests_have_names(data: Path) -> None:
    verification = tasks(data)["python-transpose"].verification
    assert verification is not None
    assert len(verification.fail_to_pass) == 12
    assert "transpose_test.py::TransposeTest::test_empty_string" in verification.fail_to_pass


def test_the_query_has_the_instructions(data: Path) -> None:
    query = tasks(data)["python-transpose"].query
    assert query.startswith("# Instructions\n\nGiven an input text output it transposed.")
    assert "changing transpose.py in the working directory" in query


def test_a_description_that_is_wrong_is_named(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "polyglot")
    config = folder / "python/exercises/practice/transpose/.meta/config.json"
    config.write_text('{"files": {"solution": []}}')
    with pytest.raises(SuiteError, match=r"config.json: files: solution, test and example"):
        tasks(tmp_path)
    config.write_text("{")
    with pytest.raises(SuiteError, match=r"config.json: not JSON"):
        tasks(tmp_path)


def test_what_is_fetched_is_what_is_read(data: Path) -> None:
    known = {file.path: file for file in files_of(*DATASETS["polyglot"].paths)}
    assert len([path for path in known if path.endswith("/.meta/config.json")]) == 225
    top = data / "polyglot"
    for path in top.rglob("*"):
        name = str(path.relative_to(top))
        if path.is_file() and name != "LICENSE":
            assert known[name].size == path.stat().st_size, name
            assert str(known[name].target) == f"polyglot/{name}"
