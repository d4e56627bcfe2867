"""The audit in real sandboxes: suites with one fault each, and our own, which have none."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pytest_intercode.cli import audit as command
from pytest_intercode.cli import main
from pytest_intercode.environments.registry import BUILTIN_ENVIRONMENTS
from pytest_intercode.environments.swe.kit import kit_with
from pytest_intercode.errors import MissingProgram
from pytest_intercode.suites.catalogue import named_tasks
from tests.support.thinning import every

pytestmark = pytest.mark.usefixtures("bubblewrap")

EVERY = str(every(36))

Audit = Callable[..., "tuple[int, list[dict[str, Any]]]"]


def run_audit(folder: Path, suite: str | Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Run the command; return its exit status, and the rows of its findings."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    output = folder / "audit.json"
    arguments = [str(suite), "--sandbox", "bubblewrap", "--output", str(output), *words]
    status = command.run(parser.parse_args(arguments))
    (report,) = json.loads(output.read_text())["suites"]
    assert not report["left_out"]
    return status, report["findings"]


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    """Return the command, which writes into a folder of the test's own."""
    return functools.partial(run_audit, tmp_path)


def write(folder: Path, text: str) -> Path:
    path = folder / "suite.yaml"
    path.write_text(dedent(text))
    return path


SHOP = """\
CREATE TABLE part (id INTEGER PRIMARY KEY, name TEXT, colour TEXT);
INSERT INTO part VALUES (1, 'nut', 'red'), (2, 'bolt', 'blue'), (3, 'cog', 'red');
"""

# One fault each: the environment, the fields of the task, the check that finds it.
FAULTS = {
    "gold fails": ("bash", "gold: cat missing.txt", "gold-runs"),
    "gold leaves its own files": (
        "bash",
        "gold: ls / >/tmp/now; wc -l </tmp/now\nreward: {scratch: [/tmp]}",
        "scratch-clean",
    ),
    "gold does not end": ("bash", "gold: sleep 30\naction_timeout: 1", "gold-runs"),
    "gold is refused": ("sql", "gold: SELECT nothing FROM part", "gold-runs"),
    "gold is wrong": (
        "python",
        'gold: "def f(n): return n"\ntests: ["assert f(1) == 2", "assert f(5) == 9"]',
        "gold-scores-1",
    ),
    "gold needs more turns than there are": (
        "bash",
        'gold: ["echo a > a", "echo b > b", "echo c > c"]\nmax_turns: 2',
        "gold-scores-1",
    ),
    "nothing is to be done": ("bash", 'gold: "true"', "noop-scores-0"),
    "SELECT 1 is right": ("sql", "gold: SELECT id FROM part WHERE name = 'nut'", "noop-scores-0"),
    "gold prints a random number": ("bash", "gold: echo $RANDOM $RANDOM", "gold-deterministic"),
    "gold writes the time": ("bash", 'gold: date "+%F %T" > now.txt', "gold-deterministic"),
    "gold selects at random": (
        "sql",
        "gold: SELECT name, random() FROM part",
        "gold-deterministic",
    ),
    "gold gives no rows": (
        "sql",
        "gold: SELECT name FROM part WHERE name = 'bolts'",
        "empty-answer-fails",
    ),
    "all tests expect the same": (
        "python",
        "gold: |-\n  def f(text):\n      return text.isupper()\n"
        "tests: [\"assert f('AB')\", \"assert f('C') is True\"]",
        "wrong-answer-fails",
    ),
    "no test is near the limit": (
        "python",
        'gold: |-\n  def f(n):\n      return n > 10\ntests: ["assert f(50)", "assert not f(-50)"]',
        "weak-check",
    ),
    "the data do not need the condition": (
        "sql",
        "gold: SELECT name FROM part WHERE name < 'z'",
        "weak-check",
    ),
    "a file is not needed": (
        "bash",
        'gold: wc -l < a.txt\nfiles: {a.txt: "1\\n2\\n", old.log: "x\\n"}',
        "files-used",
    ),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, list[dict[str, Any]]]]:
    """Return what the audit finds in each of these suites, a few of them at a time."""

    folders = {name: tmp_path_factory.mktemp("fault") for name in FAULTS}

    def one(name: str) -> tuple[int, list[dict[str, Any]]]:
        env, fields, _ = FAULTS[name]
        folder = folders[name]
        (folder / "shop.sql").write_text(SHOP)
        defaults = {"bash": "{workdir: /work}", "python": "{}"}.get(
            env, "{database: {name: shop, script: shop.sql}}"
        )
        task = "".join(f"    {line}\n" for line in fields.splitlines())
        path = folder / "suite.yaml"
        path.write_text(
            f"env: {env}\ndefaults: {defaults}\ntasks:\n  - id: one\n    query: Do it.\n{task}"
        )
        return run_audit(folder, path)

    with ThreadPoolExecutor(4) as threads:
        return dict(zip(FAULTS, threads.map(one, FAULTS), strict=True))


@pytest.mark.parametrize("name", FAULTS)
def test_a_suite_with_one_fault(
    name: str, found: dict[str, tuple[int, list[dict[str, Any]]]]
) -> None:
    status, findings = found[name]
    assert [(each["check"], each["fault"]) for each in findings] == [(FAULTS[name][2], True)]
    assert status == 1


def test_a_suite_without_fault(tmp_path: Path, audit: Audit) -> None:
    path = write(
        tmp_path,
        """\
        env: bash
        defaults: {workdir: /work}
        tasks:
          - id: listed
            query: Print the names of all text files.
            gold: ls *.txt
            files: {a.txt: "1\\n", b.txt: "", notes/c.md: ""}
            decoys: [notes/*]
          - id: read
            query: Print the first word.
            gold: cut -d ' ' -f 1 data
            files: {data: "one two\\n"}
          - id: moved
            query: Let every part be done.
            gold: mv *.part done
            files: {done/: {}, x.part: "1\\n", y.part: "2\\n"}
          - id: set-up
            query: Print the last word.
            gold: tail -n 1 all
            setup: ["sort * > all"]
            files: {words: "b\\nc\\na\\n", more: "d\\n"}
        """,
    )
    assert audit(path) == (0, [])


def test_two_tasks_that_are_the_same(tmp_path: Path, audit: Audit) -> None:
    path = write(
        tmp_path,
        """\
        env: python
        defaults: {tests: ["assert f(1) == 2", "assert f(4) == 5"]}
        tasks:
          - {id: one, query: "Write f, which adds 1.", gold: "def f(n): return n + 1"}
          - {id: two, query: "Let f add 1 to n.", gold: "def f(n):\\n    return n+1"}
        """,
    )
    status, findings = audit(path, "--check", "no-duplicates")
    assert [(found["task"], found["check"]) for found in findings] == [("two", "no-duplicates")]
    assert status == 1


def test_a_file_of_all_tasks_that_none_needs(tmp_path: Path, audit: Audit) -> None:
    path = write(
        tmp_path,
        """\
        env: bash
        defaults: {workdir: /work, files: {used: "1\\n", unused: "2\\n"}}
        tasks:
          - {id: one, query: Print it., gold: cat used}
          - {id: two, query: Make it., gold: touch here}
        """,
    )
    _, findings = audit(path, "--check", "files-used")
    assert [found["said"] for found in findings] == [
        "no gold of 2 tasks needs unused, and no query names it"
    ]


def test_what_is_acknowledged_is_shown_and_is_no_fault(
    tmp_path: Path, audit: Audit, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path,
        """\
        env: bash
        tasks:
          - id: one
            query: Print the time.
            gold: date +%N
            audit: {gold-deterministic: it is the time, noop-scores-0: it was once}
        """,
    )
    status, findings = audit(path)
    assert status == 0
    assert [(found["check"], found["acknowledged"], found["note"]) for found in findings] == [
        ("gold-deterministic", "it is the time", False),
        ("noop-scores-0", "", True),
    ]
    assert findings[1]["said"].startswith("it is acknowledged, and nothing is found any more")
    printed = capsys.readouterr().out
    assert "(acknowledged: it is the time) two runs of gold differ" in printed
    assert "suite.yaml: 1 task audited, 0 faults, 1 acknowledged, 1 note" in printed


def test_a_task_that_cannot_be_audited_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path,
        """\
        env: bash
        tasks:
          - {id: one, query: q, gold: no-such-program}
          - {id: two, query: q, gold: ls, skip: needs a printer}
        """,
    )
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = [str(path), "--sandbox", "bubblewrap", "--check", "gold-scores-1"]
    assert command.run(parser.parse_args(words)) == 0
    printed = capsys.readouterr()
    assert "0 tasks audited, 0 faults, 2 left out" in printed.out
    assert "left out: one: " in printed.err
    assert "this machine lacks a program that gold uses" in printed.err
    assert "left out: two: needs a printer" in printed.err


def test_tests_that_pass_before_anything_is_done(tmp_path: Path, audit: Audit) -> None:
    """An agent would end in a task error; the audit says which fault it is."""
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/a.txt").write_text("one\n")
    suite = write(
        tmp_path,
        """\
        env: swe
        tasks:
          - id: done
            query: Write two into a.txt.
            workdir: /repo
            repository: {source: repo}
            gold: echo two > a.txt
            verification:
              command: "echo PASSED one; echo PASSED two"
              parser: pytest
              fail_to_pass: [two]
              pass_to_pass: [one]
        """,
    )
    _, findings = audit(suite, "--check", "noop-scores-0", "--check", "wrong-answer-fails")
    (finding,) = findings
    assert (finding["check"], finding["fault"]) == ("noop-scores-0", True)


@pytest.mark.parametrize("option", ["--output", "--markdown"])
def test_an_output_that_cannot_be_written_is_named_before_anything_is_played(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = write(tmp_path, "env: bash\ntasks: [{id: t, query: q, gold: cat missing.txt}]")
    assert main(["audit", str(suite), "--sandbox=bubblewrap", f"{option}=/dev/null/x"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"pytest-intercode: {option}=/dev/null/x: cannot be written: ")
    assert err.count("\n") == 1


# -- our own suites


@pytest.mark.parametrize("env", BUILTIN_ENVIRONMENTS)
def test_our_own_suites_have_no_duplicates(env: str, audit: Audit) -> None:
    assert audit(env, "--check", "no-duplicates") == (0, [])


def test_our_own_files_are_needed(audit: Audit) -> None:
    assert audit("bash", "--check", "files-used", "--concurrency", "4") == (0, [])


@pytest.mark.parametrize(
    "env", ["bash", "sql", "python", "ctf", pytest.param("swe", marks=pytest.mark.slow)]
)
def test_our_own_suites_are_clean(env: str, audit: Audit) -> None:
    """Every check; of all tasks with ``scripts/test --all``, else of a few."""
    status, findings = audit(env, "--every", EVERY, "--concurrency", "6")
    assert [finding for finding in findings if finding["fault"]] == []
    assert status == 0


@pytest.mark.slow
@pytest.mark.usefixtures("needs_docker")
def test_our_own_folders_are_clean(audit: Audit) -> None:
    """In one of them gold ends with status 1, which the tests that find it right leave out."""
    folder = Path(__file__).parents[3] / "examples" / "harbor"
    for task in named_tasks("harbor", None, "", folder=folder.parent, env=None):
        if task.verification is not None and task.verification.kit is not None:
            try:
                kit_with(task.verification.kit, task.id)
            except MissingProgram as error:
                pytest.skip(str(error))
    assert audit(folder, "--sandbox", "docker", "--concurrency", "4") == (0, [])
