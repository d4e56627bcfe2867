"""The oracle plays the bundled suites on a simulated Mac, whose engine shares no folder with it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pytest_intercode.environments.registry import BUILTIN_ENVIRONMENTS
from pytest_intercode.suites.catalogue import bundled_tasks
from tests.conftest import results
from tests.support.portable.mac import Mac


def outcomes(path: Path) -> Counter[str]:
    """Count the outcomes of a results file, with the reasons of those that were not solved."""
    return Counter(f"{row['outcome']} {row.get('reason') or ''}".strip() for row in results(path))


def test_a_few_tasks(near_mac: Mac, project: Path) -> None:
    """Every day, on the engine of this machine, by TCP."""
    result = near_mac.pytest(
        *("--intercode-env=bash,sql", "--intercode-agent=oracle", "--intercode-limit=2"),
        *("--intercode-concurrency=2", "--intercode-results=r.jsonl"),
        folder=project,
    )
    assert result.returncode == 0, result.stdout
    assert outcomes(project / "r.jsonl") == {"solved": 4}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("env", BUILTIN_ENVIRONMENTS)
def test_all_tasks(mac: Mac, project: Path, env: str) -> None:
    result = mac.pytest(
        *(f"--intercode-env={env}", "--intercode-agent=oracle", "--intercode-concurrency=4"),
        "--intercode-results=r.jsonl",
        folder=project,
        timeout=800,
    )
    assert outcomes(project / "r.jsonl") == {"solved": len(bundled_tasks(env, ""))}, result.stdout
    assert result.returncode == 0, result.stdout
