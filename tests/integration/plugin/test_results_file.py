"""Runs whose results file is taken, fills its disk, or is removed: no row is lost silently."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_intercode.results.files import ResultsFile
from tests.conftest import PRETEND, results

RUN = ("suite.yaml", "--intercode-agent=agents.py:Solver", "--intercode-results=r.jsonl")

# After the first item no file of the process that writes may become larger than the results are.
# No bytecode of a module is written: Python would keep what is cut, and fail in each later process.
FULL = """
import os, resource, sys

sys.dont_write_bytecode = True

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
            f"ERROR: --intercode-results={path}: another run is writing to this file; name "
            "another one, or wait until that run is over",
            "",
        ]
        assert path.read_text() == before
    first.close()
    again = pytester.runpytest(*RUN, "--intercode-concurrency=2")
    again.assert_outcomes(passed=3)
    assert len(results(path)) == 3


@pytest.mark.parametrize("options", [(), pytest.param(("-n1",), marks=pytest.mark.slow)])
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
            "a report of this run could not be written: *No space left on device*",
            "*fix this, and run the missing ones with --intercode-resume",
            f"{len(rows)} episode* in *r.jsonl",
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


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (".", "cannot be written: Is a directory"),
        ("agents.py/page.html", "cannot be written: *"),
        ("r.jsonl", "a run writes to this file; name another one"),
        ("older.jsonl", "this file holds the results of a run, which would be lost; *"),
    ],
)
def test_a_page_that_cannot_be_written_is_known_before_the_run(
    pytester: pytest.Pytester, pretend: Path, target: str, message: str
) -> None:
    pytester.runpytest(*RUN[:2], "--intercode-results=older.jsonl")
    result = pytester.runpytest(*RUN, f"--intercode-html={target}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --intercode-html=*: {message}"])
    assert len(results(pytester.path / "older.jsonl")) == 3
    assert not [*pytester.path.glob(".intercode-*")]


# -- what an earlier run has earned

NO_TURNS: dict[str, list[str]] = {"actions": []}
EARLIER = "".join(
    json.dumps({"environment": "ic_bash", "task_id": f"earlier-{n}", "turn_history": NO_TURNS})
    + "\n"
    for n in range(298)
)

# Interrupts the collection, as Ctrl-C in the first seconds does.
INTERRUPTED = """
import os, signal

def pytest_collection_modifyitems():
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.fixture
def earlier(pytester: pytest.Pytester, pretend: Path) -> Path:
    """The results of an earlier run, under the name that runs write to."""
    path = pytester.path / "r.jsonl"
    path.write_text(EARLIER)
    return path


def _contents(path: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in path.parent.glob("r.*")}


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (("-k", "typo"), pytest.ExitCode.NO_TESTS_COLLECTED),
        pytest.param(
            *(("--intercode-resume", "-k", "typo"), pytest.ExitCode.NO_TESTS_COLLECTED),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(("-k", "typo", "--intercode-concurrency=2"), pytest.ExitCode.NO_TESTS_COLLECTED),
            marks=pytest.mark.slow,
        ),
        (("-k", "typo", "-n1"), pytest.ExitCode.NO_TESTS_COLLECTED),
        (("--co",), pytest.ExitCode.OK),
        (("absent.yaml",), pytest.ExitCode.USAGE_ERROR),
    ],
    ids=["none", "resume", "concurrent", "xdist", "collect-only", "wrong"],
)
def test_a_run_without_an_episode_leaves_earlier_results(
    pytester: pytest.Pytester, earlier: Path, options: tuple[str, ...], status: int
) -> None:
    result = pytester.runpytest_subprocess(*RUN, *options)
    assert result.ret == status
    assert _contents(earlier) == {"r.jsonl": EARLIER}
    if options[0] == "-k":
        result.stdout.fnmatch_lines([f"{earlier}: left unchanged, as no episode has ended"])


def test_an_interrupted_collection_leaves_earlier_results(
    pytester: pytest.Pytester, earlier: Path
) -> None:
    (pytester.path / "conftest.py").write_text(f"{PRETEND}{INTERRUPTED}")
    result = pytester.runpytest_subprocess(*RUN)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert _contents(earlier) == {"r.jsonl": EARLIER}


@pytest.mark.parametrize(
    "options",
    [pytest.param((), marks=pytest.mark.slow), ("-n2",), ("--intercode-concurrency=3",)],
    ids=" ".join,
)
def test_a_run_keeps_earlier_results(
    pytester: pytest.Pytester, earlier: Path, options: tuple[str, ...]
) -> None:
    predictions = pytester.path / "p.jsonl"
    predictions.write_text("earlier\n")
    result = pytester.runpytest_subprocess(*RUN, "--intercode-predictions=p.jsonl", *options)
    result.assert_outcomes(passed=3)
    kept = pytester.path / "r.jsonl.1"
    assert kept.read_text() == EARLIER
    assert len(results(earlier)) == 3
    assert predictions.read_text() == "earlier\n"  # bash has no patches to predict
    result.stdout.fnmatch_lines([f"{earlier}: was there already; what it held is in {kept} now"])


def test_a_full_disk_leaves_earlier_results(pytester: pytest.Pytester, earlier: Path) -> None:
    full = FULL.replace('os.path.exists("full") and os.path.getsize("r.jsonl")', "True").replace(
        'os.path.getsize("r.jsonl") + 40', "40"
    )
    full = full.replace("pytest_runtest_logfinish(nodeid)", "pytest_runtest_logstart()")
    (pytester.path / "conftest.py").write_text(f"{PRETEND}{full}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *RUN, "-p", "no:cacheprovider"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    assert "cannot be written: File too large; 0 rows are safe in it, 1 episode is not" in (
        done.stdout
    )
    assert _contents(earlier) == {"r.jsonl": EARLIER}


def test_a_killed_run_leaves_earlier_results(pytester: pytest.Pytester, earlier: Path) -> None:
    for moment in (0.3, 0.6, 0.9, 1.2, 1.5):
        with subprocess.Popen(
            [sys.executable, "-m", "pytest", *RUN], stdout=subprocess.DEVNULL
        ) as running:
            time.sleep(moment)
            running.send_signal(signal.SIGKILL)
        assert EARLIER in _contents(earlier).values()


def test_a_page_does_not_replace_results(pytester: pytest.Pytester, earlier: Path) -> None:
    with (pytester.path / "conftest.py").open("a") as file:
        file.write(
            "\ndef pytest_runtest_logfinish():\n"
            "    import shutil; shutil.copy('r.jsonl', 'page.html')\n"
        )
    result = pytester.runpytest(*RUN[:2], "--intercode-html=page.html")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "--intercode-html=*page.html: this file holds the results of a run, *",
            "its episodes are kept: pytest-intercode view * -o FILE.html",
        ]
    )
    assert (pytester.path / "page.html").read_text() == EARLIER
    spool = Path(result.stdout.str().partition("pytest-intercode view ")[2].split()[0])
    assert len(results(spool)) == 3
    spool.unlink()
