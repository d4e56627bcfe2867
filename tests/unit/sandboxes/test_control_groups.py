"""Where control groups are made, by both versions of them; on folders that only look like them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_intercode.core.task import Limits
from pytest_intercode.sandboxes.bubblewrap.cgroups import ControlGroups

LIMITS = Limits(memory=1000, cpus=0.5, pids=7)


def second(tmp_path: Path, controllers: str, own: str) -> ControlGroups:
    for folder in (tmp_path, tmp_path / "user", tmp_path / "user/run"):
        folder.mkdir(exist_ok=True)
        for name in ("cgroup.procs", "cgroup.subtree_control"):
            (folder / name).write_text(controllers)
    return ControlGroups(f"30 23 0:26 / {tmp_path} rw shared:4 - cgroup2 cgroup2 rw", own)


def test_second_version_beside_our_own(tmp_path: Path) -> None:
    groups = second(tmp_path, "cpu memory pids", "0::/user/run\n")
    assert groups.usable
    group = groups.make(os.getpid())
    [folder] = group.folders.values()
    assert folder.parent == tmp_path / "user"
    group.limit(LIMITS, 5000)
    files = {path.name: path.read_text() for path in folder.iterdir()}
    assert files == {
        "memory.max": "5000",
        "memory.swap.max": "0",
        "pids.max": "7",
        "cpu.max": "50000 100000",
    }
    [pattern] = groups.patterns(os.getpid())
    assert list(Path("/").glob(pattern.lstrip("/"))) == [folder]


def test_second_version_without_delegation(tmp_path: Path) -> None:
    assert not second(tmp_path, "cpu", "0::/user/run\n").usable
    groups = second(tmp_path, "memory pids", "0::/user/run\n")
    assert groups.usable


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_second_version_of_somebody_else(tmp_path: Path) -> None:
    second(tmp_path, "memory pids", "0::/user/run\n")
    (tmp_path / "user").chmod(0o555)
    assert not second(tmp_path, "memory pids", "0::/user/run\n").usable


def test_first_version(tmp_path: Path) -> None:
    lines = []
    for name in ("memory", "pids", "cpu,cpuacct"):
        (tmp_path / name / "mine").mkdir(parents=True)
        lines.append(f"30 23 0:26 / {tmp_path / name} rw - cgroup cgroup rw,{name}")
    groups = ControlGroups("\n".join(lines), "4:memory:/mine\n8:pids:/\n1:cpu,cpuacct:/mine\n")
    assert groups.usable
    group = groups.make(os.getpid())
    assert {kind: path.parent for kind, path in group.folders.items()} == {
        "memory": tmp_path / "memory/mine",
        "pids": tmp_path / "pids",
        "cpu": tmp_path / "cpu,cpuacct/mine",
    }
    assert group.remove()
    assert group.remove()


def test_groups_of_the_dead_are_swept(tmp_path: Path) -> None:
    groups = second(tmp_path, "memory pids", "0::/user/run\n")
    mine = groups.make(os.getpid())
    [folder] = mine.folders.values()
    space = folder.name.split(".")[1]
    above = tmp_path / "user"
    dead = above / f"pytest-intercode.{space}.99999999.1.aa.1"
    again = above / f"pytest-intercode.{space}.{os.getpid()}.1.aa.1"  # an earlier process
    elsewhere = above / "pytest-intercode.1.99999999.1.aa.1"  # what is not gone, but not seen here
    for each in (dead, again, elsewhere):
        each.mkdir()
    assert groups.sweep() == 2
    assert not dead.exists()
    assert not again.exists()
    assert elsewhere.exists()
    assert folder.exists()


def test_none(tmp_path: Path) -> None:
    groups = ControlGroups("30 23 0:26 / /proc rw - proc proc rw", "0::/\n")
    assert not groups.usable
    assert groups.sweep() == 0
