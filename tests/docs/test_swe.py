"""What docs/swe.md shows works as it is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ADDOPTS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "swe.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_example(tmp_path: Path, quick_sandbox: str) -> None:
    files = {name: body for _, name, body in BLOCKS if name}
    assert sorted(files) == ["calc.py", "suite.yaml", "test_calc.py"]
    for name, body in files.items():
        (tmp_path / name).write_text(body)
    [command] = [body for language, _, body in BLOCKS if language == "sh"]
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTEST_ADDOPTS": f"{ADDOPTS} {quick_sandbox}",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
