"""A long run leaves nothing behind, and costs at its end what it cost at its beginning."""

from __future__ import annotations

import os
import time
from pathlib import Path

import docker
import pytest

from tests.campaigns.endurance import run, slope, stream
from tests.conftest import pids_of, wait_until_gone
from tests.support.backends import mounts, processes_with

pytestmark = pytest.mark.timeout(3600)

LENGTHS = [100, pytest.param(1000, marks=pytest.mark.slow)]


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


@pytest.mark.slow
@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("episodes", LENGTHS)
def test_many_episodes_leave_nothing_behind(episodes: int, tmp_path: Path) -> None:
    samples = run(tmp_path, "bubblewrap", episodes)
    assert len(samples) == episodes // 50
    check(tmp_path, samples)
    assert not [line for line in mounts() if str(tmp_path) in line]
    deadline = time.monotonic() + 10
    while (processes := processes_with(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not processes
    [process] = pids_of(tmp_path)
    names = (name for _, folders, _ in os.walk("/sys/fs/cgroup") for name in folders)
    groups = [name for name in names if "intercode" in name and str(process) in name]
    assert not groups


@pytest.mark.slow
@pytest.mark.usefixtures("bubblewrap")
def test_a_stream_of_rollouts_holds_nothing_of_what_was_taken() -> None:
    """At most half a kilobyte an episode, of which each has an observation of 20 kilobytes."""
    samples = stream("bubblewrap", 1200)
    assert len(samples) == 24
    last, first = samples[-1], samples[1]
    assert last["descriptors"] <= first["descriptors"] + 8 * 8, samples
    assert last["threads"] <= first["threads"] + 8 * 3, samples
    assert slope(samples, "objects").low < 0.5, samples
    assert slope(samples[12:], "kilobytes").low < 0.5, samples


@pytest.mark.slow
def test_containers_of_a_long_run_are_gone(tmp_path: Path, docker_api: docker.APIClient) -> None:
    samples = run(tmp_path, "docker", 1000)
    check(tmp_path, samples)
    assert wait_until_gone(docker_api, pids_of(tmp_path)) == []
