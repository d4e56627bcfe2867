"""Runs whose results file is taken, fills its disk, or is removed: no row is lost silently."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_intercode.results.files import ResultsFile
from tests.conftest import PRETEND, results

RUN = ("suite.yaml", "--intercode-agent=agents.py:Solver", "--intercode-results=r.jsonl")

# After the first item no file of the process that writes may become larger than the results are.
FULL = """
import os, resource

def pytest_runtest_logfinish(nodeid):
    if os.path.exists("full") and os.path.getsize("r.jsonl"):
        most = os.path.getsize("r.jsonl") + 40
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

def pytest_unconfigure():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
"""

# After the first item the results file is gone.
REMOVED = """
import os

def pytest_runtest_logfinish(nodeid):
    if "prints" in nodeid:
        os.unlink("r.jsonl")
"""


def test_two_runs_on_one_file(pytester: pytest.Pytester, pretend: Path) -> None:
    path = pytester.path / "r.jsonl"
    pytester.runpytest(*RUN).assert_outcomes(passed=3)
    before = path.read_text()
    first = ResultsFile(path, resume=True)
    for more in ((), ("--intercode-resume",), ("--intercode-concurrency=2",)):
        second = pytester.runpytest(*RUN, *more)
        assert second.ret == pytest.ExitCode.USAGE_ERROR
        assert second.errlines == [
            f"ERROR: --intercode-results={path}: another run writes to this file; name another "
            "one, or wait until that run is over",
            "",
        ]
        assert path.read_text() == before
    first.close()
    again = pytester.runpytest(*RUN, "--intercode-concurrency=2")
    again.assert_outcomes(passed=3)
    assert len(results(path)) == 3


@pytest.mark.parametrize("options", [(), ("-n1",)])
def test_a_full_disk(pytester: pytest.Pytester, pretend: Path, options: tuple[str, ...]) -> None:
    (pytester.path / "conftest.py").write_text(f"{PRETEND}{FULL}")
    full = pytester.path / "full"
    full.touch()
    reports = ("--junitxml=/dev/full", "--intercode-html=page.html", "-p", "no:cacheprovider")
    done = subprocess.run(  # its output goes to a pipe, which has no end
        [sys.executable, "-m", "pytest", *RUN, *reports, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert "INTERNALERROR" not in done.stdout
    assert "Traceback" not in done.stdout
    assert done.returncode == pytest.ExitCode.INTERNAL_ERROR  # what was asked for is not all there
    rows = results(pytester.path / "r.jsonl")  # each of them is whole
    assert rows[0]["task_id"] == "prints"
    lines = done.stdout.splitlines()
    said = [line for line in lines if line.startswith("--intercode-results=")]
    assert len(said) == 1
    assert f"File too large; {len(rows)} row" in said[0]
    pytest.LineMatcher(lines).fnmatch_lines(
        [
            "a report of this run cannot be written: *No space left on device*",
            "*mend it, and run what is missing with --intercode-resume",
            f"{len(rows)} episodes in *r.jsonl",
            "--intercode-html=*page.html: cannot be written: File too large",
        ]
    )
    assert not (pytester.path / "page.html").exists()
    full.unlink()
    after = pytester.runpytest(*RUN, "--intercode-resume")
    after.assert_outcomes(passed=3)
    assert sorted(row["task_id"] for row in results(pytester.path / "r.jsonl")) == [
        "both",
        "prints",
        "writes",
    ]


def test_a_removed_file(pytester: pytest.Pytester, pretend: Path) -> None:
    (pytester.path / "conftest.py").write_text(f"{PRETEND}{REMOVED}")
    result = pytester.runpytest(*RUN)
    result.assert_outcomes(passed=3)
    assert [row["task_id"] for row in results(pytester.path / "r.jsonl")] == [
        "prints",
        "writes",
        "both",
    ]
    result.stdout.fnmatch_lines(["*r.jsonl: was removed while the run wrote to it; all *"])


def test_a_page_has_nowhere_to_keep_its_episodes(
    pytester: pytest.Pytester, pretend: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    result = pytester.runpytest(*RUN[:2], "--intercode-html=page.html")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines[0].startswith("ERROR: --intercode-html: the episodes cannot be kept in")
