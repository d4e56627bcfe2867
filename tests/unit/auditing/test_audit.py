"""The audit without sandboxes: wrong answers, duplicates, what a suite acknowledges, the page."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, cast

import pytest

from pytest_intercode.auditing.duplicates import find_duplicates
from pytest_intercode.auditing.file_usage import unused_files
from pytest_intercode.auditing.findings import MEANINGS, AuditedTask, Finding, acknowledge
from pytest_intercode.auditing.mutations import MAX_ANSWERS, wrong_answers
from pytest_intercode.auditing.report import Report, as_json, as_markdown, as_table
from pytest_intercode.cli import audit as command
from pytest_intercode.core.task import Database, FileSpec, Task, Verification
from pytest_intercode.environments.fields import CodeTest
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.environments.python.mutations import constants
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.environments.sql.fields import SqlFields
from pytest_intercode.environments.swe.strict import SweEnvironment
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.suites.schema import AUDIT_CHECKS
from pytest_intercode.system.files import bundled_folder

if TYPE_CHECKING:
    from pytest_intercode.sandboxes.provider import SandboxProvider

BASH = Task(id="a", query="q", gold=("wc -l < a.txt",), env="bash", suite="s", dataset="s")
PYTHON = replace(
    BASH,
    env="python",
    gold=("def f(n):\n    return n + 1 if n < 3 else 0",),
    fields=PythonFields(
        (CodeTest("assert f(1) == 2"), CodeTest("assert f(9) == 0"), CodeTest("assert not f(3)"))
    ),
)
SQL = replace(BASH, env="sql", fields=SqlFields(Database("sqlite", "d")))


def changed(task: Task) -> dict[str, str]:
    """Return the changed golds of a task by what they are; the last action of each."""
    answers = kind_of(task.env).wrong_answers(task)
    return {answer.description: answer.actions[-1] for answer in answers if not answer.certain}


def test_files_that_tests_have_too_are_used() -> None:
    file = FileSpec("file")
    task = replace(
        BASH,
        env="swe",
        workdir="/w",
        files=dict.fromkeys(("go.mod", "/w/suite.h", "unused"), file),
        verification=Verification("go test", files={"/w/go.mod": file, "suite.h": file}),
    )
    no_sandbox = cast("SandboxProvider", None)  # a file that nothing names needs none
    assert unused_files(no_sandbox, task, SweEnvironment) == {"unused"}


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ("head -n 3 a.txt", {"gold with another number": "head -n 4 a.txt"}),
        ("ls -1 | sort", {"gold without its last filter": "ls -1"}),
        ("find . -type f -exec rm {} +", {"gold without an option": "find .  -exec rm {} +"}),
        ("grep -c x 2>&1", {"gold without an option": "grep  x 2>&1"}),
        ("while read -r a; do :; done", {}),
        ("sort a.txt", {"gold of another file": "sort b.txt"}),
    ],
)
def test_changed_golds_of_bash(gold: str, expected: dict[str, str]) -> None:
    files = {"a.txt": FileSpec("file"), "b.txt": FileSpec("file"), "c.csv": FileSpec("file")}
    found = changed(replace(BASH, gold=(gold,), files=files))
    assert expected.items() <= found.items()
    assert len(found) == len(expected) or "a.txt" in gold


@pytest.mark.parametrize(
    ("gold", "what", "expected"),
    [
        ("SELECT a FROM t WHERE b = 2 ORDER BY a", "WHERE", "SELECT a FROM t ORDER BY a"),
        ("SELECT a FROM t ORDER BY a LIMIT 3", "LIMIT", "SELECT a FROM t ORDER BY a"),
        ("SELECT DISTINCT a FROM t", "DISTINCT", "SELECT  a FROM t"),
        (
            "SELECT a FROM t WHERE b IN (SELECT c FROM u WHERE d = 'WHERE') GROUP BY a",
            "WHERE",
            "SELECT a FROM t GROUP BY a",
        ),
    ],
)
def test_golds_without_a_clause(gold: str, what: str, expected: str) -> None:
    found = changed(replace(SQL, gold=(gold,)))
    assert " ".join(found[f"gold without {what}"].split()) == " ".join(expected.split())


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ("SELECT a FROM t ORDER BY a", "SELECT a FROM t ORDER BY a DESC "),
        ("SELECT a FROM t ORDER BY a DESC, b", "SELECT a FROM t ORDER BY a ASC, b"),
        (
            "SELECT a FROM t ORDER BY f(a) LIMIT 2",
            "SELECT a FROM t ORDER BY f(a) DESC LIMIT 2",
        ),
    ],
)
def test_golds_in_reverse(gold: str, expected: str) -> None:
    found = changed(replace(SQL, gold=(gold,)))
    assert found["gold in reverse"].split() == expected.split()


def test_a_gold_that_counts_in_exists_is_not_changed_there() -> None:
    found = changed(replace(SQL, gold=("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u)",)))
    assert "gold with another number" not in found


def test_changed_golds_of_python() -> None:
    assert changed(PYTHON) == {
        "gold with another comparison": "def f(n):\n    return n + 1 if n <= 3 else 0",
        "gold with a number off by one": "def f(n):\n    return n + 1 if n < 3 else 1",
        "gold with another operator": "def f(n):\n    return n - 1 if n < 3 else 0",
    }


def test_constants_are_what_tests_expect() -> None:
    bodies = [answer.actions[0] for answer in constants(PYTHON)]
    assert bodies == [
        "def f(*args, **kwargs):\n    return 2",
        "def f(*args, **kwargs):\n    return 0",
    ]
    assert all(answer.certain for answer in constants(PYTHON))


def test_wrong_flags_have_the_form_of_the_flag() -> None:
    task = replace(BASH, env="ctf", gold=("flag{Az_9}",))
    flags = [answer.submitted for answer in wrong_answers(task, [task])]
    assert flags == ["flag{Az_0}", "flag{Ba_9}", "flag{Ba_0}"]


def test_golds_of_neighbours_are_wrong_answers() -> None:
    tasks = [replace(SQL, id=f"t{n}", gold=(f"SELECT {chr(97 + n)} FROM t",)) for n in range(4)]
    other = replace(
        SQL, id="far", gold=("SELECT z FROM t",), fields=SqlFields(Database("sqlite", "e"))
    )
    answers = wrong_answers(tasks[2], [*tasks, other])
    assert [answer.description for answer in answers] == ["the gold of t3", "the gold of t0"]
    assert not any(answer.certain for answer in answers)


def test_no_task_gets_more_wrong_answers_than_it_may() -> None:
    for env in ("bash", "sql", "python", "ctf"):
        tasks = load_suite(bundled_folder("tasks") / f"{env}.yaml").tasks
        counts = [len(wrong_answers(task, tasks)) for task in tasks]
        assert max(counts) <= MAX_ANSWERS
        assert sum(count > 0 for count in counts) >= 0.9 * len(tasks)


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (
            [
                replace(BASH, query="Do it."),
                replace(BASH, id="b", query="do  it", gold=("x",)),
            ],
            "the query is that of a, on the same data; the golds differ",
        ),
        (
            [replace(BASH, query="one"), replace(BASH, id="b", query="two")],
            "the gold is that of a, on the same data",
        ),
        (
            [SQL, replace(SQL, id="b", gold=("WC  -L < A.TXT; ",))],
            "the query and the gold are those of a",
        ),
        ([PYTHON, replace(PYTHON, id="b", query="z")], "the gold is that of a, on the same data"),
    ],
)
def test_duplicates(tasks: list[Task], said: str) -> None:
    assert [(finding.task, finding.said) for finding in find_duplicates(tasks)] == [("b", said)]


def test_the_same_words_on_other_data_are_no_duplicate() -> None:
    files = {"a.txt": FileSpec("file", b"1")}
    assert not list(find_duplicates([BASH, replace(BASH, id="b", files=files)]))
    assert not list(
        find_duplicates([SQL, replace(SQL, id="b", fields=SqlFields(Database("sqlite", "e")))])
    )


def test_tasks_without_gold_do_not_have_the_same_gold() -> None:
    task = Task(id="a", query="q", gold=(), env="swe", suite="s", dataset="s")
    second_task = replace(task, id="b", query="r")
    assert not list(find_duplicates([task, second_task]))
    answers = wrong_answers(replace(BASH, id="c"), [replace(BASH, id="c"), replace(BASH, gold=())])
    assert all(answer.actions for answer in answers)


# -- what a suite says


def suite(folder: Path, task: str) -> Path:
    path = folder / "suite.yaml"
    path.write_text(f"env: bash\ntasks:\n  - {{id: a, query: q, gold: g, {task}}}\n")
    return path


def test_suites_acknowledge_findings(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(
        dedent("""\
        env: bash
        defaults: {audit: {no-duplicates: on purpose}}
        tasks:
          - {id: a, query: q, gold: g, audit: {weak-check: equal}, decoys: ["*.md"]}
          - {id: b, query: r, gold: h, xfail: it rains}
        """)
    )
    first, second = load_suite(path).tasks
    assert first.audit == {"no-duplicates": "on purpose", "weak-check": "equal"}
    assert first.decoys == ("*.md",)
    assert second.audit == {"no-duplicates": "on purpose"}
    assert acknowledge(Finding("a", "weak-check", "x"), first).acknowledged == "equal"
    assert acknowledge(Finding("a", "gold-deterministic", "x"), first).fault
    assert acknowledge(Finding("b", "gold-deterministic", "x"), second).acknowledged == "it rains"
    assert acknowledge(Finding("b", "noop-scores-0", "x"), second).fault


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (
            "audit: {weak-chek: x}",
            "audit: the audit has no check 'weak-chek'. Did you mean 'weak-check'?",
        ),
        ("audit: {weak-check: ' '}", "weak-check: say why this is not a fault of the task"),
        ("audit: [weak-check]", "audit: a mapping is needed"),
        ("decoys: notes.txt", "decoys: a list is needed"),
    ],
)
def test_mistakes_in_what_a_suite_says(tmp_path: Path, task: str, said: str) -> None:
    with pytest.raises(SuiteError, match=re.escape(said)) as caught:
        load_suite(suite(tmp_path, task))
    assert str(caught.value).startswith(f"{tmp_path}/suite.yaml:3: task 'a': ")


def test_every_check_has_a_meaning() -> None:
    assert tuple(MEANINGS) == AUDIT_CHECKS


# -- what is written


def report() -> Report:
    findings = (
        Finding("a", "weak-check", "a *changed* gold solves it", "ls\nsubmit"),
        Finding("a", "noop-scores-0", ": gets 0.50", ":", note=True),
        Finding(
            "a", "gold-deterministic", "two runs differ", "1, then 2", acknowledged="it is\x1b[31m"
        ),
    )
    done = [AuditedTask(BASH, findings), AuditedTask(replace(BASH, id="b"), left_out="no printer")]
    whole = "pytest-intercode audit s"
    words = f"{whole} --every 2"
    return Report("s", "bash", 3, done, findings, AUDIT_CHECKS, words, whole, "docker")


def test_the_table_and_the_summary() -> None:
    lines = as_table(report().findings)
    assert lines[0].split() == ["task", "check", "what", "evidence"]
    assert re.match(r"a +weak-check +a \*changed\* gold solves it +ls submit$", lines[1])
    assert "(note) : gets 0.50" in lines[2]
    assert "\x1b" not in "".join(lines)
    assert report().summary == "s: 1 task of 3 audited, 1 fault, 1 acknowledged, 1 note, 1 left out"
    assert as_table([]) == []


def test_json_holds_everything() -> None:
    (found,) = json.loads(as_json([report()]))["suites"]
    assert found["audited"] == ["a"]
    assert found["left_out"] == {"b": "no printer"}
    assert [finding["fault"] for finding in found["findings"]] == [True, False, False]
    assert found["findings"][0]["evidence"] == "ls\nsubmit"


def test_markdown_says_how_it_was_made_and_counts() -> None:
    page = as_markdown(report(), "9.9")
    assert "Made by pytest-intercode 9.9 on docker, of 1 of its 3 tasks" in page
    assert "\n    pytest-intercode audit s --every 2\n" in page
    assert "All tasks:\n\n    pytest-intercode audit s\n" in page
    assert f"| `weak-check` | {MEANINGS['weak-check']} | 1 | 0 | 0 |" in page
    assert f"| `noop-scores-0` | {MEANINGS['noop-scores-0']} | 0 | 0 | 1 |" in page
    assert f"| `gold-deterministic` | {MEANINGS['gold-deterministic']} | 0 | 1 | 0 |" in page
    assert "- `b`: no printer" in page
    assert r"- a \*changed\* gold solves it (1): `a`" in page
    assert "- : gets 0.50 *(a note, no fault)* (1): `a`" in page
    assert "submit" not in page  # the data set's own text stays where it is
    assert "\x1b" not in page


# -- the command's own mistakes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bash", "--check", "weak-chek"], "Did you mean"),
        (["bsh"], "Did you mean 'bash'?"),
        (
            ["bash", "--task", "count-note"],
            "--task=count-note: no task that is audited has this",
        ),
        (
            ["bash", "sql", "--markdown", "x.md"],
            "--markdown: a page shows one suite; name only one",
        ),
        (["spider", "--data", "/nonexistent"], "--data=/nonexistent: there is no such folder"),
        (["missing.yaml"], "missing.yaml: cannot be read"),
    ],
)
def test_wrong_usage(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.run(parser.parse_args(words)) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1


def test_the_documentation_names_every_check() -> None:
    page = (Path(__file__).parents[3] / "docs/auditing.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z0-9-]+)` \| ", page, re.MULTILINE)[: len(AUDIT_CHECKS)] == [
        *AUDIT_CHECKS
    ]
