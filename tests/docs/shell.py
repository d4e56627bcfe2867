"""Commands of a page, run as a reader would, with the project's programs on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(
    command: str, folder: Path, options: str, shell: str = "bash", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder; ``options`` are added to each pytest that it starts."""
    return subprocess.run(
        [shell, "-ec", command],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTEST_ADDOPTS": options,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
