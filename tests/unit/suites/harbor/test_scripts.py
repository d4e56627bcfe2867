"""What is read from Dockerfiles and from test scripts, as text alone."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.suites.harbor.bootstrap import requirements_of
from pytest_intercode.suites.harbor.config import HealthcheckConfig
from pytest_intercode.suites.harbor.dockerfile import machine, rebased
from pytest_intercode.suites.harbor.parts import (
    healthcheck_setup,
    labels,
    task_id,
    without_canary,
)


@pytest.mark.parametrize(
    ("text", "workdir", "user", "entrypoint"),
    [
        ("FROM a", "/", "", ()),
        ("FROM a\nWORKDIR /x\nWORKDIR y", "/x/y", "", ()),
        ("from a\nworkdir '/x'\nuser me:us", "/x", "me", ()),
        ("FROM a\nUSER 0", "/", "", ()),
        ('FROM a\nENV P=/p Q="/q"\nWORKDIR ${P}$Q', "/p/q", "", ()),
        ("FROM a\nENV P /p\nWORKDIR ${N:-/d}/e", "/d/e", "", ()),
        ("FROM a AS b\nWORKDIR /b\nUSER u\nFROM c\nFROM b", "/b", "u", ()),
        ("FROM a AS b\nWORKDIR /b\nFROM c", "/", "", ()),
        ('FROM a\nENTRYPOINT ["/e", "x"]', "/", "", ("/e", "x")),
        ("FROM a\nENTRYPOINT exec /e", "/", "", ("/bin/sh", "-c", "exec /e")),
        ("FROM a\nENTRYPOINT []", "/", "", ()),
        ("FROM a\nRUN x \\\n  # no\n WORKDIR /no\nWORKDIR /yes", "/yes", "", ()),
        ("FROM a\nRUN <<EOT\nWORKDIR /no\nEOT\nWORKDIR /yes", "/yes", "", ()),
        ("FROM ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624", "/app", "", ()),
        ("ARG V=1\nFROM --platform=linux/amd64 a:$V\nWORKDIR /a", "/a", "", ()),
    ],
)
def test_the_machine_of_a_dockerfile(
    text: str, workdir: str, user: str, entrypoint: tuple[str, ...]
) -> None:
    found = machine(text)
    assert (found.workdir, found.user, found.entrypoint) == (workdir, user, entrypoint)


def test_known_bases_are_replaced_wherever_they_are() -> None:
    text = (
        "FROM ghcr.io/laude-institute/t-bench/python-3-13:2025 AS a\n"
        "FROM t-bench/ubuntu-24-04@sha256:12\nRUN x"
    )
    assert rebased(text) == (
        "FROM python:3.13-slim-bookworm AS a\nWORKDIR /app\nFROM ubuntu:24.04\nWORKDIR /app\nRUN x"
    )
    assert rebased("FROM debian\nRUN x") == "FROM debian\nRUN x"


@given(st.text())
def test_any_text_is_a_dockerfile(text: str) -> None:
    machine(text)
    rebased(f"FROM a\n{text}")


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("bash checks.sh", None),
        ("# curl is not used\necho curling", None),
        ("curl -LsSf https://astral.sh/uv/install.sh | sh", ()),
        ("apt-get install -y curl expect", ()),
        (
            "uvx -p 3.13 \\\n  -w pytest==8.4.1 -w numpy==2.3.1 pytest /t",
            ("pytest==8.4.1", "numpy==2.3.1"),
        ),
        ("uvx --with a==1,b --with=c pytest", ("a==1", "b", "c")),
        ("uv run --with requests pytest", ("requests",)),
        ("uv pip install pytest==8.4.1  'pyyaml>=6' && x", ("pytest==8.4.1", "pyyaml>=6")),
        ("uv add pytest", ("pytest",)),
        ("pip install -q pytest==8.4.1 --break-system-packages", ("pytest==8.4.1",)),
        ("pip3 install -r needed.txt a[x]==1", ("a[x]==1",)),
        (
            "/opt/venv/bin/python -m pip install --no-cache-dir torch==2.5.1+cpu",
            ("torch==2.5.1+cpu",),
        ),
        ("(pip install a); pip install $MORE b # c", ("a", "b")),
        ("pip install 'unclosed", ("unclosed",)),
    ],
)
def test_what_a_script_installs(script: str, found: tuple[str, ...] | None) -> None:
    if "unclosed" in script:
        assert requirements_of(script) is not None
    else:
        assert requirements_of(script) == found


@given(st.text())
def test_any_text_is_a_script(text: str) -> None:
    requirements_of(text)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Do it.", "Do it."),
        ("<!-- A Canary string -->\n\n\nDo it.\n", "Do it.\n"),
        ("# canary GUID 1\n  # CANARY 2 \n\nDo it.", "Do it."),
        ("# A heading\n# canary", "# A heading\n# canary"),
        ("\nDo it.", "Do it."),
    ],
)
def test_canary_lines_are_dropped(text: str, left: str) -> None:
    assert without_canary(text) == left


def test_names_of_marks_and_of_tasks() -> None:
    assert labels(["Data Science", "c++", "3d", "", "a", "a"]) == ("data-science", "c", "_3d", "a")
    assert (task_id("021. tasks of x"), task_id("__"), task_id("a/b")) == (
        "021.-tasks-of-x",
        "task",
        "a-b",
    )


def test_a_health_check_counts_failures_after_its_start() -> None:
    def run(command: str, **times: float) -> subprocess.CompletedProcess[str]:
        defaults = {"interval_sec": 0.01, "timeout_sec": 5.0, "start_interval_sec": 0.01}
        check = HealthcheckConfig(command=command, **{**defaults, **times}, retries=3)
        script = healthcheck_setup(check)
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True)

    assert run("true").returncode == 0
    failed = run("echo x >&2; false")
    assert (failed.returncode, failed.stdout) == (
        1,
        "the health check failed 3 times: echo x >&2; false\n",
    )
    assert run("[ $((RANDOM % 2)) = 1 ]", start_period_sec=5.0).returncode == 0
    assert run("sleep 9", timeout_sec=0.05).returncode == 1
