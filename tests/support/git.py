"""Git with nobody's settings, for tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__all__ = ["git"]

_VARIABLES = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{
        f"GIT_{role}_{field}": "a@b"
        for role in ("AUTHOR", "COMMITTER")
        for field in ("NAME", "EMAIL")
    },
}


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; return what it printed."""
    command = ["git", "-C", str(folder), *words]
    process = subprocess.run(
        command, env={**os.environ, **_VARIABLES}, capture_output=True, check=True
    )
    return process.stdout.decode().strip()
