"""The example repositories that test what they ship: replayed, without a model or a key."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ADDOPTS
from tests.support.example_recordings import EXAMPLES, SCRIPTS


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name != "cli" else ()) for name in SCRIPTS],
)
def test_its_tests_pass_offline(name: str, quick_sandbox: str) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    keys = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    variables = {key: value for key, value in os.environ.items() if key not in keys}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", quick_sandbox]
    process = subprocess.run(
        [*command, "--intercode-record=none"],
        cwd=EXAMPLES / name,
        env={**variables, "PYTEST_ADDOPTS": ADDOPTS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "1 passed" in process.stdout


def test_each_example_is_listed() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders == set(SCRIPTS)
    assert all(f"]({name})" in page for name in folders)
