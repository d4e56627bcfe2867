"""docs/formats.md: the format of one's own works as it is shown, installed from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import results
from tests.support.page_rows import index_of

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python (\S+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE))
(ENTRY_POINTS,) = re.findall(r"^```toml\n\[project\.(entry-points.*?)^```$", TEXT, re.DOTALL | re.M)
_PARSER = """\
def words(log):
    return dict(line.split() for line in log.splitlines() if line.endswith(("PASSED", "FAILED")))
"""
_WITH_PARSER = """\
env: swe
tasks:
  - id: greet
    query: Write hello to /tmp/greeting.
    gold: echo hello > /tmp/greeting
    verification:
      command: grep -qx hello /tmp/greeting && echo greets PASSED || echo greets FAILED
      parser: words
      fail_to_pass: [greets]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a package as pip installs one: its modules and its entry points."""
    (tmp_path / "site" / "mine-1.0.dist-info").mkdir(parents=True)
    for name, text in {**FILES, "my_parsers.py": _PARSER}.items():
        (tmp_path / "site" / name).write_text(text)
    section = re.sub(r"entry-points\.\"(.*)\"", r"\1", "[" + ENTRY_POINTS)
    section = re.sub(r"\"(.*)\"", r"\1", section)
    parsers = "[pytest_intercode.log_parsers]\nwords = my_parsers:words\n"
    metadata = tmp_path / "site" / "mine-1.0.dist-info"
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"{section}{parsers}")
    (tmp_path / "my.tasks").write_text("Print one. => echo 1\nMake the folder a. => mkdir /tmp/a\n")
    return tmp_path


def _run(project: Path, *words: str, sandbox: str = "") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(project / "site"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=project,
        env={**os.environ, "PYTHONPATH": path, "PYTEST_ADDOPTS": f"-p no:cacheprovider {sandbox}"},
        capture_output=True,
        text=True,
    )


def test_items_page_and_export(project: Path, quick_sandbox: str) -> None:
    run = _run(
        project,
        "pytest",
        "--intercode-dataset=my.tasks",
        "--intercode-agent=oracle",
        "--intercode-results=r.jsonl",
        "--intercode-html=page.html",
        sandbox=quick_sandbox,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert [line["task_id"] for line in results(project / "r.jsonl")] == ["my-1", "my-2"]
    assert "Make the folder a." in str(index_of(project / "page.html"))
    export = _run(project, "pytest_intercode", "export", "--format=jsonl", "r.jsonl")
    assert export.returncode == 0, export.stderr


@pytest.mark.slow
def test_audit(project: Path, quick_sandbox: str) -> None:
    backend = quick_sandbox.partition("=")[2]
    run = _run(project, "pytest_intercode", "audit", "my.tasks", f"--sandbox={backend}")
    assert "my-2" not in run.stderr, run.stderr
    assert run.returncode in (0, 1), run.stdout + run.stderr
    assert "2 tasks" in run.stdout, run.stdout


def test_a_mistake_is_one_line(project: Path) -> None:
    (project / "site" / "my_formats.py").write_text("1 / 0\n")
    run = _run(project, "pytest", "--intercode-dataset=my.tasks", "--intercode-agent=oracle")
    message = "the format 'lines' (my_formats:Lines of mine) cannot be loaded: ZeroDivisionError"
    assert message in run.stdout + run.stderr
    assert "my_formats.py:1)" in run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr


@pytest.mark.parametrize(
    ("load", "message"),
    [
        ("lambda self: []", "('my.tasks'): TypeError: "),
        ("lambda *_: None", "('my.tasks'): TypeError: 'NoneType' object is not iterable"),
        ("lambda *_: [{}]", "load('my.tasks'): task 1: a Task is needed, found {}"),
        ("lambda *_: [task(gold=())]", "task 1 (a): gold: a command is needed, or gold_skip"),
        ("lambda *_: [task(tags='t')]", "tags: Input should be a valid tuple, found 't'"),
        ("lambda *_: [task(files={'a': 'b'})]", "files.a: Input should be an instance of FileSpec"),
        ("lambda *_: [task(max_turns='5')]", "max_turns: Input should be a valid integer"),
        ("lambda *_: [task(env='ctf', gold=('a', 'b'))]", "a ctf task has one flag"),
    ],
)
def test_what_a_format_returns_is_checked(project: Path, load: str, message: str) -> None:
    (project / "site" / "my_formats.py").write_text(
        FILES["my_formats.py"] + "def task(**fields):\n"
        "    values = dict(id='a', query='b', gold=('true',), env='bash', suite='s', dataset='s')\n"
        "    return Task(**values | fields)\n"
        f"Lines.load = {load}\n"
    )
    run = _run(project, "pytest", "--intercode-dataset=my.tasks", "--collect-only")
    output = (run.stdout + run.stderr).replace(f"{project}{os.sep}", "")
    assert message in output
    assert len(output.splitlines()) < 10, output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Print one.\n", "load('my.tasks'): ValueError: not enough values to unpack"),
        ("", "my.tasks: contains no tasks"),
    ],
)
def test_what_a_format_does_not_load_is_one_line(project: Path, content: str, message: str) -> None:
    (project / "my.tasks").write_text(content)
    for words in (
        ("pytest", "--intercode-dataset=my.tasks", "--intercode-agent=oracle"),
        ("pytest_intercode", "audit", "my.tasks"),
    ):
        run = _run(project, *words)
        output = (run.stdout + run.stderr).replace(f"{project}{os.sep}", "")
        assert message in output
        assert "Traceback" not in output
        assert "INTERNALERROR" not in output


def test_a_format_that_cannot_be_loaded_stops_no_other_suite(project: Path) -> None:
    (project / "site" / "my_formats.py").write_text("import sys; sys.exit(3)\n")
    (project / "suite.yaml").write_text("env: bash\ntasks: [{id: a, query: b, gold: 'true'}]\n")
    run = _run(project, "pytest", "suite.yaml", "--collect-only")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "UserWarning: the format 'lines' (my_formats:Lines of mine) cannot be" in run.stdout


@pytest.mark.slow
def test_a_parser_of_logs(project: Path, quick_sandbox: str) -> None:
    (project / "suite.yaml").write_text(_WITH_PARSER)
    run = _run(project, "pytest", "suite.yaml", "--intercode-agent=oracle", sandbox=quick_sandbox)
    assert run.returncode == 0, run.stdout + run.stderr
