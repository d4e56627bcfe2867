"""What is left out of a test run, and the sentinels among the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import Task, Verification
from pytest_intercode.environments.swe.gold import gold_actions, paths_of_patch
from pytest_intercode.environments.swe.protected import left_out
from pytest_intercode.environments.swe.sentinels import sentinels_for


def task(gold: str = "true", **fields: Any) -> Task:
    verification = Verification("true", **fields)
    return Task("t", "q", (gold,), "swe", "s", "s", verification=verification)


def patch(*paths: str) -> str:
    return "".join(f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n" for path in paths)


@pytest.mark.parametrize(
    ("path", "out"),
    [
        ("src/calc.py", False),
        ("contest.py", False),
        ("latest/notes.md", False),
        ("testing.c", False),
        ("Makefile", False),
        ("tests/helper.py", True),
        ("src/test/java/A.java", True),
        ("pkg/calc_test.go", True),
        ("test_calc.py", True),
        ("web/app.test.tsx", True),
        ("t/basic.t", True),
        ("deep/conftest.py", True),
        ("pytest.ini", True),
        ("pyproject.toml", True),
        ("sitecustomize.py", True),
        ("lib/evil.pth", True),
        ("x.egg-info/entry_points.txt", True),
        (".gitattributes", True),
        ("sub/.bashrc", True),
    ],
)
def test_tests_and_what_configures_them_are_left_out(path: str, out: bool) -> None:
    assert list(left_out(task(), [path])) == ([path] if out else [])


def test_what_gold_changes_is_tested_and_what_the_tests_bring_is_not() -> None:
    made = task(patch("tests/data.py", "tests/new.py"), patch=patch("tests/new.py"))
    assert list(left_out(made, ["tests/data.py", "tests/new.py"])) == ["tests/new.py"]


def test_a_file_that_a_listed_test_is_in_is_left_out() -> None:
    made = task(pass_to_pass=("checks.py::test_a",))
    assert list(left_out(made, ["checks.py", "other.py"])) == ["checks.py"]


def test_paths_of_a_patch() -> None:
    text = patch("a b/c") + 'diff --git "a/\\303\\244" "b/\\303\\244"\n'
    assert paths_of_patch(text) == {"a b/c", "\\303\\244"}


def test_gold_that_holds_the_end_of_a_document_is_applied_whole() -> None:
    text = patch("a") + "+PATCH\n"
    [action] = gold_actions(task(text))
    assert action.endswith("+PATCH\nPATCH_")
    assert gold_actions(task("make it")) == ["make it"]


def test_sentinels_are_other_ones_each_time() -> None:
    made = [sentinels_for(Verification("pytest", "pytest")) for _ in range(2)]
    assert made[0] is not None
    assert made[1] is not None
    assert made[0].path != made[1].path
    assert {made[0].passes, made[0].fails}.isdisjoint({made[1].passes, made[1].fails})


@pytest.mark.parametrize(
    "verification",
    [
        Verification("make check", "tap"),
        Verification("pytest", "pytest", sentinels=False),
        Verification("python3 -m pytest -k name tests", "pytest"),
        Verification("gradle test", "junit", report="r.xml"),
        Verification("true {sentinels}", "unittest", sentinels=False),
    ],
)
def test_some_have_none(verification: Verification) -> None:
    assert sentinels_for(verification) is None


@pytest.mark.parametrize(
    ("command", "parser"),
    [
        ("python3 -B -m pytest -rA -p no:cacheprovider", "pytest"),
        ("python3 -B -m unittest -v {sentinels}", "unittest"),
        ("sh {sentinels:t}", "tap"),
    ],
)
def test_one_passes_and_one_fails(tmp_path: Path, command: str, parser: str) -> None:
    sentinels = sentinels_for(Verification(command, parser))
    assert sentinels is not None
    (tmp_path / sentinels.path).write_text(sentinels.text)
    variables = {"PATH": "/usr/bin:/bin", **sentinels.variables}
    done = subprocess.run(
        ["bash", "-c", sentinels.command],
        cwd=tmp_path,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = {
        name: [line for line in done.stdout.splitlines() if f"test_{name}" in line]
        for name in (sentinels.passes, sentinels.fails)
    }
    assert any(
        line.lstrip().startswith(("PASSED", "ok")) or line.endswith("... ok")
        for line in said[sentinels.passes]
    )
    assert any("FAIL" in line or line.startswith("not ok") for line in said[sentinels.fails])
