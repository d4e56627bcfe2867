"""A long run leaves nothing behind, and costs at its end what it cost at its beginning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest

from tests.conftest import PIDS, pids_of, wait_until_gone
from tests.support.backends import mounts, processes_with

# Counts what the process holds after every fiftieth episode. Memory is what is Python's own and
# the allocator's; a collection first, or garbage would be counted.
METER = (
    PIDS
    + """
import gc, json, threading
from pathlib import Path

episodes = 0


def pytest_intercode_log_episode():
    global episodes
    episodes += 1
    if episodes % 50:
        return
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    held = {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "kilobytes": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
    }
    with open("held.jsonl", "a") as file:
        print(json.dumps(held), file=file)
"""
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

_ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}


def run(folder: Path, backend: str, episodes: int) -> list[dict[str, int]]:
    """Run so many episodes, eight at a time; return what was held after every fifty."""
    (folder / "conftest.py").write_text(METER)
    rows = ({"query": f"Write {n}.", "gold": f"echo {n} > f"} for n in range(episodes))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "suite.yaml").write_text("env: bash\nrows: {path: rows.jsonl}\n")
    (folder / "tmp").mkdir()
    command = [
        *(sys.executable, "-m", "pytest", "suite.yaml", "--intercode-agent=oracle", "-q"),
        *(f"--intercode-sandbox={backend}", "--intercode-concurrency=8", "-p", "no:cacheprovider"),
    ]
    variables = {**os.environ, **_ENVIRONMENT, "TMPDIR": str(folder / "tmp")}
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert f"{episodes} passed" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    return [json.loads(line) for line in (folder / "held.jsonl").read_text().splitlines()]


def check(folder: Path, held: list[dict[str, int]]) -> None:
    """Compare the last fifty with the first ones, and look for what is left."""
    first, last = held[min(1, len(held) - 1)], held[-1]
    # Eight episodes are in the middle of something whenever this is counted.
    assert last["descriptors"] <= first["descriptors"] + 8 * 8, held
    assert last["threads"] <= first["threads"] + 8 * 3, held
    # what a run keeps of an episode for its report, and for the table
    grown = last["kilobytes"] - first["kilobytes"]
    assert grown <= 20 * 50 * len(held) + 8 * 1024, held
    assert not list((folder / "tmp").iterdir())
    [process] = pids_of(folder)
    assert not Path(f"/proc/{process}").exists()


@pytest.mark.usefixtures("bubblewrap")
def test_a_thousand_episodes_leave_nothing_behind(tmp_path: Path) -> None:
    before = mounts()
    held = run(tmp_path, "bubblewrap", 1000)
    assert len(held) == 20
    check(tmp_path, held)
    assert not mounts() - before
    deadline = time.monotonic() + 10
    while (left := processes_with(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    [process] = pids_of(tmp_path)
    groups = [p for p in Path("/sys/fs/cgroup").rglob("*intercode*") if str(process) in p.name]
    assert not groups


def test_containers_of_a_long_run_are_gone(tmp_path: Path, docker_api: docker.APIClient) -> None:
    held = run(tmp_path, "docker", 1000)
    check(tmp_path, held)
    assert wait_until_gone(docker_api, pids_of(tmp_path)) == []
