"""What docs/tasks.md shows works as it is shown, and prints what is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_intercode.environments.ctf.strict import CtfEnvironment
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.loader import load_suite

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
FILES = {name: body for _, name, body in BLOCKS if name}
# Each command, and what is shown to be printed by it.
RUNS = [
    (body.strip(), after[2] if after[:2] == ("", "") else "")
    for (language, _, body), after in zip(BLOCKS, [*BLOCKS[1:], ("end", "", "")], strict=True)
    if language == "sh"
]


def test_there_is_something_to_test() -> None:
    assert len(RUNS) == 9
    assert sum(bool(shown) for _, shown in RUNS) == 5


def test_shows_the_example_as_it_is() -> None:
    example = {path.name: path.read_text() for path in (ROOT / "examples/perl").glob("*.*")}
    assert example.items() <= FILES.items()
    lines = sum(len(text.splitlines()) for text in example.values())
    assert f"an environment of Perl, {lines} lines in all" in TEXT
    assert lines < 100


def test_shows_the_kind_of_an_installed_package() -> None:
    """One that a test of whole runs has, ``tests/integration/plugin/test_installed_package.py``."""
    [kind] = [body for language, _, body in BLOCKS if body.startswith("class PerlKind(")]
    extension = ROOT / "tests" / "support" / "extension" / "intercode_extension"
    assert kind in (extension / "perl.py").read_text()


def masked(text: str) -> list[str]:
    """Return the lines without what is never the same: widths, and the seconds at their end."""
    lines = (" ".join(line.split()).strip("= ") for line in text.splitlines())
    return [re.sub(r"% \d+\.\d\d$", "% SECONDS", line) for line in lines if line]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "shown"), RUNS, ids=[command for command, _ in RUNS])
def test_each_command(command: str, shown: str, tmp_path: Path, quick_sandbox: str) -> None:
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    done = subprocess.run(
        ["sh", "-ec", command],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name != "CI"},  # cuts no lines
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTEST_ADDOPTS": quick_sandbox,
            "COLUMNS": "80",
        },
        capture_output=True,
        text=True,
    )
    said = masked(done.stdout + done.stderr)
    assert "Traceback" not in done.stderr
    for line in masked(shown):
        assert line in said, done.stdout + done.stderr
    assert done.returncode == (1 if "idle" in command else 4 if "=prl" in command else 0)


@pytest.mark.slow
def test_the_image_of_the_suite(tmp_path: Path, needs_docker: None) -> None:
    for name in ("rates.yaml", "rates.csv", "Dockerfile"):
        (tmp_path / name).write_text(FILES[name])
    options = ("--intercode-agent=oracle", "--intercode-sandbox=docker", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "rates.yaml", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "1 passed" in done.stdout, done.stdout


def test_the_task_with_a_further_machine_is_solved(tmp_path: Path) -> None:
    [suite] = [body for language, _, body in BLOCKS if "over-there" in body and language == "yaml"]
    (tmp_path / "far.yaml").write_text(suite)
    [task] = load_suite(tmp_path / "far.yaml").tasks
    provider = SandboxProvider(SandboxSettings("docker"))
    environment = CtfEnvironment(provider)
    try:
        environment.reset(task=task)
        flag = str(environment.step("cat </dev/tcp/web/80")[0]).strip()
        environment.step(f"submit {flag}")
        assert environment.final is not None
        assert environment.final.value == 1.0
    finally:
        environment.close()
        provider.close()
