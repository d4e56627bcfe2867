"""Runs of bundled suites on one backend or the other, and what this machine lacks for them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from typing import Any

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.results.files import read_results
from tests.support.thinning import ALL

# What golds and setups use, and not every machine has.
_PROGRAMS = ("git", "iconv", "jq", "make", "patch", "python3", "rsync", "sqlite3", "unzip", "zip")


# Docker plays all of the suites in test_same_rewards; the oracle does so there on demand.
BACKENDS = ("docker", "bubblewrap") if ALL else ("bubblewrap",)


def lacking(tasks: Iterable[Task], backend: str) -> set[str]:
    """Return the tasks whose programs a sandbox lacks: with bubblewrap, it has this machine's."""
    missing = [name for name in _PROGRAMS if backend != "docker" and not shutil.which(name)]
    return {
        task.id
        for task in tasks
        for name in missing
        if re.search(rf"\b{name}\b", "\n".join((*task.gold, *task.setup)))
    }


def play(
    pytester: pytest.Pytester, env: str, agent: str, backend: str, *options: str
) -> tuple[dict[str, Any], pytest.RunResult]:
    """Play a bundled suite; return the rows of its episodes by task, and the run."""
    result = pytester.runpytest_subprocess(
        *(f"--intercode-env={env}", f"--intercode-agent={agent}", f"--intercode-sandbox={backend}"),
        *("--intercode-results=r.jsonl", "--intercode-concurrency=4", *options),
    )
    rows = {row["task_id"]: row for row in read_results(pytester.path / "r.jsonl")}
    failed = {name for name, row in rows.items() if row["outcome"] == "infrastructure-error"}
    return {name: row for name, row in rows.items() if name not in failed}, result
