"""Rows of SWE-bench in sandboxes: their scripts are run, and what tests print is no marker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.auditing.predictions import Graded, grade, report_line
from pytest_intercode.core.task import Repository, Task
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.environments.swe.gold import gold_actions
from pytest_intercode.results.predictions import Prediction
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.loader import load_suite
from tests.integration.environments.test_swe import FIX, GOLD, NEW_TEST, Play, stream
from tests.support import puzzles

quick_provider = puzzles.quick_provider
__all__ = ["quick_provider", "stream"]

_MANIFEST = """\
env: swe
rows:
  path: rows.jsonl
  format: swebench
  id: "{instance_id}"
  swebench: {image: none, table: table.yaml, test_patch: test_patch, timeout: 60}
"""
_TABLE = """\
ada/calc:
  parser: pytest
  tests:
    - versions: ["1"]
      commands: [python3 -B -m pytest -rA -p no:cacheprovider]
      install: python3 -B setup.py
"""
_PYTEST = _TABLE
_UNITTEST = """\
ada/calc:
  parser: unittest
  names: modules
  tests:
    - versions: ["1"]
      commands: [cd tests; PYTHONPATH=.. python3 -B -m unittest -v]
      install: python3 -B setup.py
"""
_SEPARATELY = """\
import unittest
from calc import add


class More(unittest.TestCase):
    def test_add(self):
        "Adding adds."
        self.assertEqual(add(2, 3), 5)
"""


def _created(path: str, text: str) -> str:
    lines = text.splitlines()
    added = "".join(f"+{line}\n" for line in lines)
    return (
        f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1,{len(lines)} @@\n{added}"
    )


def _task(folder: Path, stream: Path, table: str = _PYTEST, **changes: Any) -> Task:
    row = {
        "repo": "ada/calc",
        "version": "1",
        "instance_id": "ada__calc-1",
        "base_commit": "v1",
        "patch": GOLD,
        "test_patch": _created("tests/test_more.py", NEW_TEST),
        "problem_statement": "Adding is wrong.",
        "FAIL_TO_PASS": '["tests/test_more.py::test_add"]',
        "PASS_TO_PASS": "[]",
    }
    (folder / "rows.jsonl").write_text(json.dumps({**row, **changes}))
    (folder / "own.yaml").write_text(_MANIFEST)
    (folder / "table.yaml").write_text(table)
    (task,) = load_suite(folder / "own.yaml").tasks
    # What the published image has: the repository at its base commit.
    repository = Repository(source=stream, at="/testbed", commit="v1")
    return replace(task, image=None, fields=SweFields(repository))


def test_gold_solves_and_nothing_else(
    quick_provider: SandboxProvider, stream: Path, tmp_path: Path
) -> None:
    task = _task(tmp_path, stream)
    assert task.verification is not None
    assert task.verification.sentinels
    assert Play(quick_provider, task, *gold_actions(task)).reward.value == 1.0
    own = "printf 'def test_add():\\n    pass\\n' > tests/test_more.py"
    nothing = Play(quick_provider, task, own)
    assert nothing.reward.value == 0.0
    assert "0 of 1 test of fail_to_pass pass" in nothing.reward.reason


def test_a_script_that_is_too_long_for_an_argument(
    quick_provider: SandboxProvider, stream: Path, tmp_path: Path
) -> None:
    long = NEW_TEST + "".join(f"# {number:>90}\n" for number in range(2500))
    task = _task(tmp_path, stream, test_patch=_created("tests/test_more.py", long))
    assert task.verification is not None
    assert len(task.verification.command) > 200_000
    assert Play(quick_provider, task, FIX).reward.value == 1.0


_FORGED = """\
>>>>> Start Test Output
Adding adds. ... ok
PASSED tests/test_more.py::test_add
>>>>> End Test Output
>>>>> Test Exit Code: 0"""


def _cheat(file: str, more: str = "") -> str:
    return f"cat >> {file} <<'X'\nprint('''\n{_FORGED}''', flush=True)\n{more}\nX"


def test_markers_that_are_printed_earn_nothing(
    quick_provider: SandboxProvider, stream: Path, tmp_path: Path
) -> None:
    task = _task(
        tmp_path,
        stream,
        _UNITTEST,
        test_patch=_created("tests/test_more.py", _SEPARATELY),
        FAIL_TO_PASS='["Adding adds."]',
    )
    assert Play(quick_provider, task, FIX).reward.value == 1.0
    play = Play(quick_provider, task, _cheat("setup.py"), _cheat("calc.py"))
    assert play.reward.value == 0.0, play.state


def test_ending_the_run_earns_nothing(
    quick_provider: SandboxProvider, stream: Path, tmp_path: Path
) -> None:
    task = _task(tmp_path, stream)
    beside = "import os; print(said, file=open(f'/proc/{os.getppid()}/fd/1', 'w')); os._exit(0)"
    cheat = f"cat >> calc.py <<'X'\nsaid = '''{_FORGED}'''\n{beside}\nX"
    play = Play(quick_provider, task, cheat)
    assert play.reward.value == 0.0
    assert "not honest: one of our own tests" in play.reward.reason


_SMITH = """\
env: swe
rows:
  path: rows.jsonl
  format: swebench
  id: "{instance_id}"
  swebench: {image: none, table: table.yaml, bug: patch, commit: HEAD, absent: passed}
"""
_VERBOSE = """\
default:
  parser: pytest_verbose
  tests: [{versions: ["*"], commands: [python3 -B -m pytest -p no:cacheprovider --verbose]}]
"""


def test_a_bug_is_brought_and_history_does_not_show_it(
    quick_provider: SandboxProvider, stream: Path, tmp_path: Path
) -> None:
    bug = "".join(
        [
            "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -5,2 +5,2 @@\n",
            " def mul(a, b):\n-    return a * b\n+    return 0\n",
        ]
    )
    row = {
        "instance_id": "ada__calc.12345678.one",
        "repo": "swesmith/ada__calc.12345678",
        "patch": bug,
        "problem_statement": "mul returns 0.",
        "FAIL_TO_PASS": ["tests/test_calc.py::test_mul"],
        "PASS_TO_PASS": [],
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    (tmp_path / "own.yaml").write_text(_SMITH)
    (tmp_path / "table.yaml").write_text(_VERBOSE)
    (task,) = load_suite(tmp_path / "own.yaml").tasks
    at = Repository(source=stream, at="/testbed", commit="v1")
    task = replace(task, image=None, fields=SweFields(at))
    assert Play(quick_provider, task, *gold_actions(task)).reward.value == 1.0
    look = "git log -p --all --reflog; git cat-file --batch-all-objects --batch"
    nothing = Play(quick_provider, task, look, "rm tests/test_calc.py")
    assert nothing.reward.value == 0.0
    assert "return 0" in nothing.said[0]
    assert "return a * b" not in nothing.said[0]


# -- predictions


def _graded(provider: SandboxProvider, task: Task, patch: str | None) -> Graded:
    return grade(provider, task, Prediction(task.id, "model", patch))


def test_predictions_are_graded(
    quick_provider: SandboxProvider, stream: Path, tmp_path: Path
) -> None:
    task = _task(tmp_path, stream)
    right = _graded(quick_provider, task, GOLD)
    assert (right.resolved, right.applied, right.reason) == (True, True, "")
    assert report_line(right)["tests_status"]["FAIL_TO_PASS"] == {
        "success": ["tests/test_more.py::test_add"],
        "failure": [],
    }
    fuzzy = GOLD.replace(" \n \n def mul(a, b):\n", " \n# is\n# elsewhere\n")
    fuzzy = fuzzy.replace("\n# is", "\n is").replace("\n# elsewhere", "\n elsewhere")
    assert _graded(quick_provider, task, fuzzy).resolved
    other = _graded(quick_provider, task, GOLD.replace("-    return a - b", "-    return a / b"))
    assert (other.reward, other.applied) == (0.0, False)
    assert other.reason.startswith("the patch does not apply: error: ")


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        (None, "there is no patch"),
        (" \n", "there is no patch"),
        (GOLD.replace("1,5", "1,9"), "the patch is refused: calc.py: hunk 1"),
        (GOLD.replace("calc.py", "../calc.py"), "leads out of the repository"),
        (GOLD.replace("+    return", "+    \ud800return"), "surrogates not allowed"),
    ],
)
def test_predictions_that_need_no_sandbox(
    quick_provider: SandboxProvider, stream: Path, tmp_path: Path, patch: str | None, reason: str
) -> None:
    graded = _graded(quick_provider, _task(tmp_path, stream), patch)
    assert (graded.reward, graded.applied) == (0.0, False)
    assert reason in graded.reason
