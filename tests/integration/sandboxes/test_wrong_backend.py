"""A backend of a package with a mistake in it: one line says what, where, and what is needed."""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import results

ROOT = Path(__file__).parents[3]
PACKAGE = """\
from pytest_intercode.sandboxes.bubblewrap.backend import BubblewrapBackend


class Mine(BubblewrapBackend):
    name = "mine"
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder with a package as pip installs one; ``mine.py`` is yet to be written."""
    metadata = tmp_path / "site" / "its_package-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: its-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pytest_intercode.sandboxes]\nmine = mine:Mine\n")
    return metadata.parent


def _run(folder: Path, site: Path, *words: str) -> tuple[int, str]:
    process = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=50,  # some of them hung
        check=False,
    )
    return process.returncode, process.stdout + process.stderr


def _check_line(output: str, message: str) -> None:
    assert fnmatch.fnmatchcase(output, f"*{message}*"), output
    assert "Traceback" not in output
    assert "INTERNALERROR" not in output
    assert f"{os.sep}pytest_intercode{os.sep}" not in output
    assert len(output.splitlines()) < 30, output


@pytest.mark.usefixtures("small_suite")
@pytest.mark.parametrize(
    ("content", "message", "records"),
    [
        ("import sys; sys.exit(3)", "cannot be loaded: SystemExit: 3 (*mine.py:6)", 0),
        ("Mine.problem = lambda self: 'the moon is wrong'", "mine: the moon is wrong", 1),
        ("Mine.starters = 0", "starters: a whole number from 1 on is needed, found 0", 1),
        ("Mine.launch = lambda self, spec: None", "launch(): a Sandbox is needed, found None", 3),
        ("Mine.launch = lambda self: None", "launch() raised TypeError: * (*mine.py:6)", 3),
        ("Mine.close = lambda self: 1 / 0", "close() raised ZeroDivisionError: *mine.py:6)", 3),
    ],
)
def test_a_run_says_so_in_a_line(
    pytester: pytest.Pytester, site: Path, content: str, message: str, records: int
) -> None:
    (site / "mine.py").write_text(f"{PACKAGE}{content}\n")
    options = ("--intercode-sandbox=mine", "--intercode-agent=oracle", "-n0", "-pno:cacheprovider")
    status, output = _run(
        pytester.path, site, "pytest", "suite.yaml", *options, "--intercode-results=r.jsonl"
    )
    file = pytester.path / "r.jsonl"
    assert (status != 0, len(results(file)) if file.exists() else 0) == (True, records), output
    _check_line(output, message)


@pytest.mark.usefixtures("small_suite")
def test_what_fails_at_the_end_of_a_worker_is_shown(pytester: pytest.Pytester, site: Path) -> None:
    (site / "mine.py").write_text(f"{PACKAGE}Mine.close = lambda self: 1 / 0\n")
    options = ("--intercode-sandbox=mine", "--intercode-agent=oracle", "-pno:cacheprovider")
    status, output = _run(pytester.path, site, "pytest", "suite.yaml", *options, "-n2")
    assert "3 passed" in output
    assert status == pytest.ExitCode.USAGE_ERROR
    for worker in ("gw0", "gw1"):
        line = f"*close() raised ZeroDivisionError: *mine.py:6) ({worker})*"
        assert fnmatch.fnmatchcase(output, line), output
    # A worker that still ends when it is stopped may show an interrupt of its own, by a traceback.
    assert 'mine.py", line' not in output


SLOW_LAUNCH = """\
import time
from pathlib import Path

from pytest_intercode.sandboxes import added

added._LAUNCH_TIMEOUT = 1.0


class Late:
    run = admin = unpack = None

    def close(self):
        Path("closed").touch()


def launch(self, spec):
    time.sleep({seconds})
    return Late()


def close(self):  # the run may be over before a launch returns: it waits for those that do
    deadline = time.monotonic() + 60
    while {seconds} < 60 and not Path("closed").exists() and time.monotonic() < deadline:
        time.sleep(0.05)


Mine.launch, Mine.close = launch, close
"""


@pytest.mark.usefixtures("small_suite")
@pytest.mark.parametrize(("seconds", "is_closed"), [(1000.0, False), (1.5, True)])
def test_a_launch_that_does_not_return_ends_its_episode(
    pytester: pytest.Pytester, site: Path, seconds: float, is_closed: bool
) -> None:
    """What it returns when nobody waits any more is closed; the episode is tried twice."""
    (site / "mine.py").write_text(PACKAGE + SLOW_LAUNCH.format(seconds=seconds))
    options = ("--intercode-sandbox=mine", "--intercode-agent=oracle", "-pno:cacheprovider")
    status, output = _run(
        *(pytester.path, site, "pytest", "suite.yaml", *options, "--intercode-results=r.jsonl"),
        *("-k", "prints"),
    )
    assert status == pytest.ExitCode.TESTS_FAILED, output
    (row,) = results(pytester.path / "r.jsonl")
    message = "'mine' (mine:Mine of its-package): launch() did not return within 1 s"
    assert row["outcome"] == "infrastructure-error"
    _check_line(output, message)
    assert (pytester.path / "closed").exists() == is_closed


@pytest.mark.usefixtures("small_suite")
@pytest.mark.parametrize("backend", ["mine", "docker"])
def test_a_setting_that_it_does_not_take(
    pytester: pytest.Pytester, site: Path, backend: str
) -> None:
    (site / "mine.py").write_text(f"{PACKAGE}Mine.takes = frozenset()\n")
    options = (f"--intercode-sandbox={backend}", "--intercode-agent=oracle", "--intercode-rootfs=/")
    status, output = _run(pytester.path, site, "pytest", "suite.yaml", *options)
    assert status == pytest.ExitCode.USAGE_ERROR
    _check_line(output, f"--intercode-rootfs=/: {backend} has no root file system, only bubblewrap")


@pytest.mark.usefixtures("small_suite")
def test_a_name_of_ours_is_refused_where_it_is_asked_for(
    pytester: pytest.Pytester, site: Path
) -> None:
    """`auto` takes none of a package's, so that it means ours."""
    (site / "mine.py").write_text(PACKAGE)
    points = site / "its_package-1.0.dist-info" / "entry_points.txt"
    points.write_text("[pytest_intercode.sandboxes]\nbubblewrap = mine:Mine\n")
    message = (
        "the sandbox backend 'bubblewrap' is defined twice (pytest_intercode.sandboxes): it is "
        "built in, and mine:Mine of its-package has the same name; uninstall or rename that one"
    )
    options = ("--intercode-sandbox=bubblewrap", "--intercode-agent=oracle")
    status, output = _run(pytester.path, site, "pytest", "suite.yaml", *options)
    assert status == pytest.ExitCode.USAGE_ERROR
    _check_line(output, message)
    words = ("pytest_intercode", "doctor", "--", "--intercode-sandbox=bubblewrap")
    status, output = _run(pytester.path, site, *words)
    assert status == 1
    assert message in " ".join(output.split())
    assert "Traceback" not in output
    _, output = _run(pytester.path, site, "pytest_intercode", "doctor")
    assert "is defined twice" not in output


def test_doctor_says_so_in_a_line(tmp_path: Path, site: Path) -> None:
    """What is wrong with a backend that nothing asks for is a note."""
    (site / "mine.py").write_text(
        f"{PACKAGE}def describe(*_): yield 1 / 0\nMine.describe = describe\n"
    )
    _, output = _run(tmp_path, site, "pytest_intercode", "doctor")
    (line,) = (line for line in output.splitlines() if "division by zero" in line)
    assert "describe() raised ZeroDivisionError" in line
    assert "Traceback" not in output
