"""Minimal task folders in the formats of others, written by the test that plays them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

BASE = "debian:bookworm-slim"
_REWARD = "if [ $? -eq 0 ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n"


def write_harbor(
    folder: Path,
    *,
    tests: str,
    solution: str,
    toml: str = "",
    dockerfile: str = f"FROM {BASE}\nWORKDIR /app\n",
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write a task in Harbor's format.

    Args:
        folder: where.
        tests: what ``test.sh`` does; its last status is the reward.
        solution: what ``solve.sh`` does.
        toml: the text of ``task.toml``.
        dockerfile: the text of the Dockerfile.
        files: further files, by their names in the folder.
    """
    texts = {
        "task.toml": toml,
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": dockerfile,
        "tests/test.sh": f"#!/bin/bash\n{tests}\n{_REWARD}",
        "solution/solve.sh": f"#!/bin/bash\n{solution}\n",
    }
    return write_texts(folder, {**texts, **(files or {})})


def write_terminal_bench(
    folder: Path, *, tests: str, solution: str, files: Mapping[str, str] | None = None
) -> Path:
    """Write a task in Terminal-Bench 1's format; ``tests`` is ``run-tests.sh``."""
    texts = {
        "task.yaml": "instruction: Do it.\ndifficulty: easy\n",
        "Dockerfile": f"FROM {BASE}\nWORKDIR /app\n",
        "run-tests.sh": f"#!/bin/bash\n{tests}\n",
        "solution.sh": f"#!/bin/bash\n{solution}\n",
    }
    return write_texts(folder, {**texts, **(files or {})})


def write_texts(folder: Path, texts: Mapping[str, str]) -> Path:
    """Write files by their paths in a folder, and return the folder."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
    return folder
