"""The oldest pytest that is supported: a run of the plugin, and its options in files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix.cells import oldest_pytest
from tests.supply.locks import ROOT

OLDEST = ROOT / "build" / "oldest-pytest"

pytestmark = pytest.mark.skipif(
    not OLDEST.exists(), reason="the oldest pytest is not installed: scripts/test does it"
)


def run_pytest(folder: Path, *words: str) -> str:
    """Run the oldest pytest with the other packages of this environment; return what it prints."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(OLDEST)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"pytest-{oldest_pytest()}.0" in result.stdout
    return result.stdout


def test_a_run(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nintercode_limit = 3\nintercode_env = "sql"\n'
    )
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def of_the_root(request):\n"
        "    print('seen by', request.node.nodeid)\n"
    )
    words = ("--intercode-agent=oracle", "--intercode-concurrency=2", "-s", "-v")
    output = run_pytest(tmp_path, *words)
    assert "3 passed" in output
    assert output.count("seen by intercode/sql::test_solves[") == 3


@pytest.mark.slow
def test_the_options() -> None:
    files = (f"tests/unit/plugin/test_{name}.py" for name in ("ini", "options"))
    output = run_pytest(ROOT, *files, "-p", "no:cacheprovider")
    assert " passed" in output
