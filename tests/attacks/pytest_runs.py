"""Plays the cases that are about pytest itself: its output, its results file, its signals.

Each is one process: pytest on the small suite of three tasks, or one of our commands.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from docker.errors import DockerException

from pytest_intercode.errors import EngineUnavailable, IntercodeError
from pytest_intercode.results.files import read_results
from pytest_intercode.sandboxes.docker.engine import connect
from tests.attacks import faults, hostile_files
from tests.attacks.cases import Case, Expected, Place, Run
from tests.attacks.leftovers import GONE, new_mounts
from tests.attacks.runner import Verdict
from tests.conftest import AGENTS, PIDS, SUITE, owned_by, pids_of
from tests.support import mirror
from tests.support.backends import mounts, processes_with

__all__ = ["play_run"]

_PATIENCE = 120.0  # seconds for a run, whatever a case expects of it
_READY = 60.0  # seconds until the agent says that it is ready
_BETWEEN = 0.3  # seconds between two signals

_SOLVER = f"{AGENTS}\nclass Agent(Solver):\n    pass\n"


def play_run(case: Case, place: Place, folder: Path) -> Verdict:
    """Run what a case says in a folder; return what became of it."""
    run = case.run
    assert run is not None
    verdict = Verdict()
    _write(run, folder)
    token = f"attack-{secrets.token_hex(8)}"
    before = mounts()
    began = time.monotonic()
    output, code = _start(run, place, folder, token, verdict)
    seconds = time.monotonic() - began
    _compare(place.expected(case), output, code, seconds, folder, verdict)
    left = _left(folder, token, before)
    until = time.monotonic() + GONE
    while left and time.monotonic() < until:
        time.sleep(0.1)
        left = _left(folder, token, before)
    verdict.must(not left, f"left behind: {'; '.join(left[:5])}")
    verdict.seconds = time.monotonic() - began
    return verdict


def _write(run: Run, folder: Path) -> None:
    (folder / "suite.yaml").write_text(SUITE)
    (folder / "agent.py").write_text(f"{AGENTS}\n{run.agent}" if run.agent else _SOLVER)
    (folder / "conftest.py").write_text(PIDS + run.files.get("conftest.py", ""))
    (folder / "pids").touch()
    (folder / "tmp").mkdir()
    for name, text in run.files.items():
        if name != "conftest.py":
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    for name, maker in run.make.items():
        hostile_files.FILES[maker](folder / name)


def _words(run: Run, place: Place) -> list[str]:
    if run.command:
        return ["-m", "pytest_intercode", *run.command]
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    if not any(word.startswith("--intercode-agent=") for word in run.arguments):
        words.append("--intercode-agent=agent.py:Agent")
    words.append(f"--intercode-profile={place.profile}")
    if place.backend != "none":
        words.append(f"--intercode-sandbox={place.backend}")
    if not any(word.startswith("--intercode-results") for word in run.arguments):
        words.append("--intercode-results=results.jsonl")
    return [*words, *(run.arguments if _names_suite(run) else ["suite.yaml", *run.arguments])]


def _names_suite(run: Run) -> bool:
    return any(
        word.endswith(".yaml") or word.startswith(("test_", "--intercode-dataset="))
        for word in run.arguments
    )


def _start(
    run: Run, place: Place, folder: Path, token: str, verdict: Verdict
) -> tuple[str, int | None]:
    words = [sys.executable, *_words(run, place)]
    at_end = contextlib.ExitStack()
    if run.shell:
        words = ["bash", "-c", run.shell, "run", *words]
    if run.mirror:
        server = at_end.enter_context(mirror.serving({}))
        server.always = getattr(mirror, run.mirror)
        words += ["--url", server.url]
    variables = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    variables |= {"TMPDIR": str(folder / "tmp"), "ATTACK": token, "PYTHONDONTWRITEBYTECODE": "1"}
    with at_end, (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            words, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            if run.signal or run.fault:
                _disturb(run, process, folder, verdict)
            code: int | None = process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
            verdict.problems.append(f"it did not end within {_PATIENCE:.0f} s")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
    return (folder / "output").read_text("utf-8", "backslashreplace"), code


def _disturb(run: Run, process: subprocess.Popen[bytes], folder: Path, verdict: Verdict) -> None:
    until = time.monotonic() + _READY
    while not (folder / run.ready).exists() and process.poll() is None:
        if time.monotonic() > until:
            verdict.problems.append("the agent was never ready")
            return
        time.sleep(0.02)
    if run.fault:
        faults.RUN_FAULTS[run.fault](process, folder)
    for number, name in enumerate(run.signal):
        if number:
            time.sleep(_BETWEEN)
        with contextlib.suppress(ProcessLookupError):
            if name == "INT":  # as a terminal sends it
                os.killpg(process.pid, signal.SIGINT)
            else:
                os.kill(process.pid, signal.Signals[f"SIG{name}"])


def _compare(
    expected: Expected,
    output: str,
    code: int | None,
    seconds: float,
    folder: Path,
    verdict: Verdict,
) -> None:
    end = output[-1500:]
    verdict.seen = f"exit code {code}"
    if expected.exit is not None:
        verdict.must(code == expected.exit, f"the exit code was {code}: {end}")
    verdict.must(seconds <= expected.seconds, f"it took {seconds:.1f} s")
    for pattern in expected.output:
        found = re.search(pattern, output, re.MULTILINE)
        verdict.must(found is not None, f"the output lacks {pattern}: {end}")
    for pattern in expected.lacks:
        found = re.search(pattern, output, re.MULTILINE)
        verdict.must(found is None, f"the output has {found and found[0][:200]!r}")
    if expected.results is not None:
        try:
            rows = read_results(folder / "results.jsonl")
        except (IntercodeError, OSError) as error:
            verdict.problems.append(f"the results file: {error}")
            return
        outcomes = {str(row["task_id"]): str(row["outcome"]) for row in rows}
        verdict.must(outcomes == expected.results, f"the results are {outcomes}")
        verdict.seen += f", {len(outcomes)} results"


def _left(folder: Path, token: str, before: set[str]) -> list[str]:
    found = [f"the process {pid}" for pid in processes_with(token) if pid != os.getpid()]
    found += [f"the mount {line}" for line in new_mounts(before, folder)]
    # The folder that pytest itself keeps for tests' files stays, as it does without us.
    found += [f"the file {f}" for f in (folder / "tmp").glob("*") if "pytest-of-" not in f.name]
    with contextlib.suppress(EngineUnavailable, DockerException):
        link = connect()
        found += [f"the container {each[:12]}" for each in owned_by(link.api, pids_of(folder))]
        link.close()
    return found
