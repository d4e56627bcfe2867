"""Images that are missing or take long to build, as users of pytest meet them."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.sandboxes.docker.engine import connect

pytestmark = pytest.mark.usefixtures("needs_docker")

_BASE = "debian:bookworm-slim"
_SOON = 90.0  # seconds
_TASK = "  - {{id: t{0}, query: Print a., gold: echo a, dockerfile: d{0}/Dockerfile}}\n"


def write_suite(texts: list[str]) -> None:
    """Write a suite of tasks with a Dockerfile each; of none where the text is empty."""
    lines = "env: bash\ntasks:\n"
    for number, text in enumerate(texts):
        folder = Path(f"d{number}")
        folder.mkdir()
        (folder / "Dockerfile").write_text(text)
        (folder / "own").write_text(f"{number}")
        lines += _TASK.format(number)
    Path("suite.yaml").write_text(lines)


def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + _SOON
    while not condition():
        assert time.monotonic() < end, "it never came to it"
        time.sleep(0.05)


@pytest.mark.parametrize("concurrency", [(), ("--intercode-concurrency=2",)], ids=["inline", "two"])
def test_a_missing_image_is_one_error(
    pytester: pytest.Pytester, concurrency: tuple[str, ...]
) -> None:
    missing = [f"FROM {_BASE}\nCOPY --from=localhost:1/none:1 /x /y\nCOPY own /\n"] * 4
    write_suite([*missing[:1], f"FROM {_BASE}\n", *missing[1:]])
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=oracle", "-rs", "--intercode-results=r.jsonl", *concurrency
    )
    result.assert_outcomes(errors=1, skipped=3, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    output = str(result.stdout)
    assert output.count("pulling localhost:1/none:1 (first use)") == 1
    assert output.count("--intercode-base-image localhost:1/none:1=REPLACEMENT") == 1
    result.stdout.fnmatch_lines(
        [
            "intercode: image localhost:1/none:1 is missing: 4 tasks were not run; *",
            "SKIPPED [[]3[]] *: image localhost:1/none:1 is missing: see t*",
        ]
    )
    rows = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    assert sorted(row["outcome"] for row in rows) == ["infrastructure-error", "solved"]


def test_images_missing_for_one_cause_are_one_error(pytester: pytest.Pytester) -> None:
    write_suite([f"FROM localhost:1/none:{number}\nCOPY own /\n" for number in range(4)])
    result = pytester.runpytest("suite.yaml", "--intercode-agent=oracle", "-rs")
    result.assert_outcomes(errors=1, skipped=3)
    output = str(result.stdout)
    assert output.count("connection refused") == 1
    assert (
        output.count("pulling localhost:1/") == 1
    )  # a registry that does not answer is asked once
    result.stdout.fnmatch_lines(
        [
            "intercode: images localhost:1/none:0, localhost:1/none:1, localhost:1/none:2, ... are "
            "missing: 4 tasks were not run; pytest-intercode images says why",
            "SKIPPED [[]1[]] *: image localhost:1/none:3 is missing, as localhost:1/none:0 is: "
            "see t0",
        ]
    )


def test_what_bubblewrap_has_not_is_one_error(pytester: pytest.Pytester) -> None:
    write_suite([f"FROM localhost:1/none:{number}\nCOPY own /\n" for number in range(3)])
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=oracle", "--intercode-sandbox=bubblewrap"
    )
    result.assert_outcomes(errors=1, skipped=2)
    assert str(result.stdout).count("\ninfrastructure error: ") == 1


def test_missing_images_are_one_error_of_all_workers(pytester: pytest.Pytester) -> None:
    write_suite([f"FROM localhost:1/none:{number // 3}\nCOPY own /\n" for number in range(6)])
    result = pytester.runpytest_subprocess("suite.yaml", "--intercode-agent=oracle", "-n2")
    result.assert_outcomes(errors=1, skipped=5)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "intercode: images localhost:1/none:?, localhost:1/none:? are missing: 6 tasks were "
            "not run; *"
        ]
    )


@pytest.mark.parametrize(("option", "lines"), [("-q", 0), ("", 1), ("-v", 3)])
def test_what_is_printed_of_a_build(pytester: pytest.Pytester, option: str, lines: int) -> None:
    write_suite([f"FROM {_BASE}\nENV N={secrets.token_hex(4)}\n"])
    options = [option] if option else []
    result = pytester.runpytest("suite.yaml", "--intercode-agent=oracle", *options)
    result.assert_outcomes(passed=1)
    printed = [line for line in result.outlines if line.startswith("intercode: ")]
    assert len([line for line in printed if " step " in line or "building" in line]) >= lines
    building = [line for line in printed if "building" in line]
    assert len(building) == min(lines, 1)
    assert all("/dockerfile:" in line and " for t0 (first use)" in line for line in building)
    assert any(" step " in line for line in printed) == (option == "-v")


class Slow:
    """A Dockerfile whose build goes on until it is let go."""

    def __init__(self) -> None:
        self.api = connect().api
        self.mark = secrets.token_hex(8)
        wait = f"RUN : {self.mark}; until [ -e /go ]; do sleep 0.05; done"
        self.text = f"FROM {_BASE}\n{wait}\n"

    def containers(self) -> list[str]:
        """Return the containers in which it is built."""
        rows: list[dict[str, Any]] = self.api.containers()
        return [row["Id"] for row in rows if self.mark in row["Command"]]

    def let_go(self) -> None:
        """Let it end."""
        for container in self.containers():
            command = self.api.exec_create(container, ["touch", "/go"])
            self.api.exec_start(command["Id"])


def start(*options: str) -> subprocess.Popen[str]:
    """Start a run of the suite."""
    usual = ["suite.yaml", "--intercode-agent=oracle", "--intercode-results=r.jsonl"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *usual, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def rows() -> list[dict[str, Any]]:
    """Return the results so far."""
    path = Path("r.jsonl")
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.slow
@pytest.mark.usefixtures("pytester")
def test_other_tasks_go_on_while_an_image_is_built() -> None:
    slow = Slow()
    write_suite([slow.text, *[f"FROM {_BASE}\nENV N={secrets.token_hex(4)}\n"] * 5])
    run = start("--intercode-concurrency=2")
    try:
        until(lambda: len(rows()) == 5)
        assert len(slow.containers()) == 1
        assert "t0" not in {row["task_id"] for row in rows()}
        slow.let_go()
        output, _ = run.communicate(timeout=_SOON)
    finally:
        slow.let_go()
        run.kill()
    assert run.returncode == 0, output
    assert len(rows()) == 6
    assert output.count("intercode: building") == 2, output


@pytest.mark.usefixtures("pytester")
@pytest.mark.parametrize("options", [(), ("--intercode-concurrency=2",)], ids=["inline", "two"])
def test_a_build_ends_with_an_interrupted_run(options: tuple[str, ...]) -> None:
    slow = Slow()
    write_suite([slow.text] * 3)
    run = start(*options)
    try:
        until(slow.containers)
        began = time.monotonic()
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=_SOON)
        assert time.monotonic() - began < 15
        until(lambda: not slow.containers())
    finally:
        slow.let_go()
        run.kill()
    assert run.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "INTERNALERROR" not in output
