"""Processes of a real Ray cluster are killed: each try has one row, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import ADDOPTS
from tests.support.backends import is_keeper
from tests.support.ray_apart import ClusterApart
from tests.support.ray_cluster import NODE, PYTHON, RayCluster, Running, needs_ray

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SUITE = """\
env: bash
tasks:
  - {id: prints, query: Print the word hello., gold: echo hello}
"""
AGENT = """\
import time

class Thinker:
    def reset(self, task):
        self.left = ["true", "echo hello", "submit"]

    def act(self, observation):
        time.sleep(0.4)
        return self.left.pop(0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    needs_ray()
    (tmp_path / "suite.yaml").write_text(SUITE)
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    needs_ray()
    made = RayCluster(3)
    yield made
    made.close()


def _start(cluster: RayCluster, folder: Path, tries: int) -> Running:
    return cluster.start(
        folder,
        *("suite.yaml", "--intercode-agent=agent.py:Thinker", f"--intercode-repeat={tries}"),
        *("--intercode-results=run.jsonl", "--intercode-resume", "--intercode-concurrency=12"),
        "--intercode-cluster-wait=60",
    )


def _each_once(run: Running, tries: int) -> None:
    rows = run.rows()
    names = [row["node_id"] for row in rows if row["outcome"] != "infrastructure-error"]
    assert len(names) == len(set(names)), "a try has two rows"
    assert len(names) == tries, run.said


def test_a_killed_process_of_ours_costs_what_ran_in_it(cluster: RayCluster, folder: Path) -> None:
    run = _start(cluster, folder, 60)
    run.until(lambda: len(run.rows()) >= 5)
    cluster.players()[0].kill()
    assert run.wait() == 0, run.said
    _each_once(run, 60)
    again = [row for row in run.rows() if row["attempts"]]
    assert 1 <= len(again) <= 8
    assert all("its process has ended" in row["attempts"][0] for row in again)
    assert not cluster.sandboxes()


def test_a_killed_node_costs_what_ran_on_it(cluster: RayCluster, folder: Path) -> None:
    run = _start(cluster, folder, 60)
    run.until(lambda: len(run.rows()) >= 5)
    before = cluster.sandboxes() + cluster.players()
    assert len(before) > 3
    cluster.raylets()[-1].kill()
    assert run.wait() == 0, run.said
    assert not psutil.wait_procs(before, timeout=15)[1]
    _each_once(run, 60)
    assert any("the node is gone" in str(row["attempts"]) for row in run.rows()), run.said
    assert not cluster.sandboxes()


def test_a_node_that_is_stopped_is_given_up_and_its_late_results_dropped(
    cluster: RayCluster, folder: Path
) -> None:
    run = _start(cluster, folder, 60)
    run.until(lambda: len(run.rows()) >= 5)
    stopped = cluster.players()[0]
    stopped.suspend()
    try:
        run.until(lambda: len(run.rows()) >= 60, seconds=120)
    finally:
        stopped.resume()
    assert run.wait() == 0, run.said
    _each_once(run, 60)
    assert any("has not answered" in str(row["attempts"]) for row in run.rows())


@pytest.fixture
def apart(folder: Path) -> Iterator[ClusterApart]:
    made = ClusterApart(folder)
    yield made
    made.close()


def _ours(apart: ClusterApart) -> list[psutil.Process]:
    """Return our process on the node with a network of its own, and its sandboxes."""
    found = []
    for each in apart.processes_apart():
        with contextlib.suppress(psutil.Error):
            if " ".join(each.cmdline()).startswith(NODE) or is_keeper(each):
                found.append(each)
    return found


def test_a_node_whose_network_is_cut_is_named_and_its_episodes_run_elsewhere(
    apart: ClusterApart, folder: Path
) -> None:
    run = _start(apart, folder, 40)
    run.until(lambda: len({row["host"] for row in run.rows()}) == 2)
    assert len(_ours(apart)) > 1
    apart.cut()
    cut = time.monotonic()
    assert run.wait() == 0, run.said
    _each_once(run, 40)
    assert _lost_by(run)
    # Alone for a minute, our process ends by itself.
    _nothing_is_left(apart, 60 + 15 - (time.monotonic() - cut))


def _nothing_is_left(apart: ClusterApart, seconds: float) -> None:
    """See that our process on the second node ends, and all its sandboxes."""
    end = time.monotonic() + seconds
    while left := _ours(apart):
        assert time.monotonic() < end, left
        time.sleep(0.1)


def test_a_node_whose_disk_is_full_is_named_and_its_episodes_run_elsewhere(
    apart: ClusterApart, folder: Path
) -> None:
    lines = ["env: bash", "tasks:"]
    for number in range(40):  # each brings a file of its own
        (folder / f"data-{number}").mkdir()
        (folder / f"data-{number}/file").write_bytes(os.urandom(100_000))
        lines.append(
            f"  - {{id: t{number}, query: Print the word hello., gold: echo hello, "
            f"archive: {{path: data-{number}, at: /data}}}}"
        )
    (folder / "suite.yaml").write_text("\n".join(lines))
    run = _start(apart, folder, 1)
    run.until(lambda: len({row["host"] for row in run.rows()}) == 2)
    apart.fill()
    assert run.wait() == 0, run.said
    _each_once(run, 40)
    name = _lost_by(run)
    reasons = [reason for row in run.rows() for reason in row["attempts"]]
    assert any("No space left on device" in reason for reason in reasons), reasons
    assert f"node {name} gets no more work: 3 faults in a row" in run.said
    _nothing_is_left(apart, 15)


def _lost_by(run: Running) -> str:
    """Return the only node that lost something, which both the rows and the summary name."""
    [name] = {str(reason).split(":")[0] for row in run.rows() for reason in row["attempts"]}
    assert name.startswith("lost on node ")
    name = name.removeprefix("lost on node ")
    [line] = [line for line in run.said.splitlines() if line.startswith(f"node {name}: ")]
    assert " lost" in line
    return name


def test_nothing_is_left_of_a_driver_that_is_killed(cluster: RayCluster, folder: Path) -> None:
    run = _start(cluster, folder, 60)
    run.until(lambda: len(run.rows()) >= 3 and cluster.sandboxes())
    run.process.kill()
    run.wait()
    killed = time.monotonic()
    while cluster.sandboxes() or cluster.players():
        assert time.monotonic() - killed < 15
        time.sleep(0.1)
    rows = len(run.rows())
    again = _start(cluster, folder, 60)
    assert again.wait() == 0, again.said
    assert f"{rows} episodes reused" in again.said
    _each_once(again, 60)


def test_nothing_is_left_of_a_local_cluster_whose_driver_is_killed(folder: Path) -> None:
    before = set(Path("/tmp").glob("ic-ray-*"))
    process = subprocess.Popen(
        [
            *(PYTHON, "-m", "pytest", "suite.yaml", "--intercode-agent=agent.py:Thinker"),
            *("--intercode-repeat=60", "--intercode-cluster=local:2", *ADDOPTS.split()),
            *("--intercode-results=run.jsonl", "--intercode-sandbox=bubblewrap"),
        ],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    run = Running(process, folder)  # type: ignore[arg-type] # it prints nothing
    run.until(lambda: run.rows())
    below = psutil.Process(process.pid).children(recursive=True)
    assert any(map(is_keeper, below))
    assert any(each.name() == "raylet" for each in below)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(below, timeout=15)
    assert not alive
    assert set(Path("/tmp").glob("ic-ray-*")) == before


def test_a_local_cluster_is_not_what_ray_takes_for_the_machines_own() -> None:
    """It starts where there never was one, and one that there is stays that."""
    needs_ray()
    note = Path("/tmp/ray/ray_current_cluster")
    before = note.read_bytes() if note.exists() else None
    code = (
        "from pytest_intercode.rollouts.cluster.local import LocalCluster\n"
        "cluster = LocalCluster(1); print(cluster.address); cluster.close()"
    )
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (note.read_bytes() if note.exists() else None) == before


def test_without_its_head_a_run_goes_on_or_says_that_it_cannot(
    cluster: RayCluster, folder: Path
) -> None:
    run = cluster.start(
        folder,
        *("suite.yaml", "--intercode-agent=agent.py:Thinker", "--intercode-repeat=200"),
        *("--intercode-results=run.jsonl", "--intercode-concurrency=6"),
        "--intercode-cluster-wait=5",
    )
    run.until(lambda: len(run.rows()) >= 3)
    services, players = cluster.services(), cluster.players()
    assert (len(services), len(players)) == (4, 3)
    helpers = [each for each in cluster.below() if each not in (*services, *players)]
    for each in services:
        each.kill()
    for each in helpers:  # of Ray's own, which are nobody's now
        with contextlib.suppress(psutil.Error):
            each.kill()
    run.wait(240)  # what runs goes on without the head; all of it, or until it is given up
    assert "Traceback" not in run.said
    names = [row["node_id"] for row in run.rows() if row["outcome"] != "infrastructure-error"]
    assert len(names) == len(set(names))
    given_up = "the cluster: no node takes work" in run.said
    assert given_up or (run.process.returncode, len(names)) == (0, 200), run.said
    _, alive = psutil.wait_procs(players, timeout=90)
    assert not alive


def test_random_kills_in_a_run_of_500(folder: Path) -> None:
    """Nodes, processes of ours and the driver itself: 20 kills, and each try is there once."""
    needs_ray()
    chance, tries, kills, before = random.Random(15), 500, 0, 0
    cluster = RayCluster(3)
    try:
        run = _start(cluster, folder, tries)
        end = time.monotonic() + 500
        while True:
            assert time.monotonic() < end, f"{kills} kills; {run.said[-2000:]}"
            time.sleep(chance.uniform(0.2, 0.6))
            if run.process.poll() is not None:
                run.wait()
                names = {r["node_id"] for r in run.rows() if r["outcome"] == "solved"}
                if len(names) == tries:
                    break
                run = _start(cluster, folder, tries)  # resumed: what is inconclusive is run again
                continue
            players, raylets = cluster.players(), cluster.raylets()
            if kills >= 20 or not players or len(run.rows()) < before + 12:
                continue  # kills that come faster than processes start end in a run that gives up
            before = len(run.rows())
            what = chance.random()
            with contextlib.suppress(psutil.Error):
                if what < 0.15:
                    run.process.send_signal(signal.SIGKILL)
                    run.wait()
                elif what < 0.25 and len(raylets) > 2:
                    raylets[-1].kill()
                else:
                    chance.choice(players).kill()
                kills += 1
        assert kills == 20, "it was over before"
        _each_once(run, tries)
        gone = time.monotonic()
        while cluster.sandboxes():
            assert time.monotonic() - gone < 15
            time.sleep(0.1)
    finally:
        cluster.close()


def test_a_local_cluster_that_nobody_waits_for_leaves_nothing() -> None:
    needs_ray()
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # a short path, for sockets
    words = [str(PYTHON), "-m", "pytest_intercode.rollouts.cluster.local", "1", str(folder)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        assert process.wait(120) == 0
    assert not folder.exists()
