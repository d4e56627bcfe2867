"""Gold's patches, the sentinels among the tests, and what of artifacts is left out."""

from __future__ import annotations

import fnmatch
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import Task, Verification
from pytest_intercode.environments.swe.end_state import _excluded, _part_form
from pytest_intercode.environments.swe.gold import gold_actions, paths_of_patch
from pytest_intercode.environments.swe.sentinels import sentinels_for


def task(gold: str = "true", **fields: Any) -> Task:
    verification = Verification("true", **fields)
    return Task("t", "q", (gold,), "swe", "s", "s", verification=verification)


def patch(*paths: str) -> str:
    return "".join(f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n" for path in paths)


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
        Verification("pytest -kname tests", "pytest"),
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


def test_sentinels_keep_the_options_of_the_task() -> None:
    variables = (("PYTEST_ADDOPTS", "-p no:randomly"), ("A", "b"))
    sentinels = sentinels_for(Verification("pytest", "pytest", variables=variables))
    assert sentinels is not None
    assert sentinels.variables == {"PYTEST_ADDOPTS": f"-p no:randomly {sentinels.path}"}
    for options in ("-m 'not slow'", "-q -kfast"):  # which would leave them out
        choosing = (("PYTEST_ADDOPTS", options),)
        assert sentinels_for(Verification("pytest", "pytest", variables=choosing)) is None


@pytest.mark.parametrize(
    ("pattern", "excluded"),
    [
        ("*.log", True),
        ("out", True),
        ("out/a", True),
        ("a/b.log", True),
        ("/srv", True),
        ("/srv/*/b.*", True),
        ("s*t", True),
        ("b.lo", False),
        ("ut", False),
        ("rv/out", False),
        ("[!a-z]*.log", True),  # of a part that begins with a slash
        ("srv/b.log", False),
    ],
)
def test_what_is_left_out_of_artifacts(pattern: str, excluded: bool) -> None:
    path = "/srv/out/a/b.log"
    names = path.split("/")
    parts = ["/".join(names[a:b]) for a in range(5) for b in range(a + 1, 6)]
    assert any(fnmatch.fnmatchcase(part, pattern) for part in parts) is excluded
    assert _excluded(path, ["x", pattern]) is excluded


@pytest.mark.parametrize("end", [r"\Z", r"\z"])  # the second one since Python 3.14
def test_a_pattern_of_either_form(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form = fnmatch.translate("b*")[:-2] + end
    monkeypatch.setattr(fnmatch, "translate", lambda _: form)
    assert _part_form.__wrapped__("b*").search("/a/bc/d")


def test_deep_artifacts_take_no_memory() -> None:
    tracemalloc.start()
    try:
        assert not _excluded("/a" * 500, ["*.log"])
        assert tracemalloc.get_traced_memory()[1] < 1_000_000  # 64 MB for all parts of the path
    finally:
        tracemalloc.stop()
