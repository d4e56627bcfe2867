"""Whether an engine is on this machine, by what it says of itself."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.sandboxes.docker import sharing
from pytest_intercode.sandboxes.docker.address import Address
from pytest_intercode.sandboxes.docker.sharing import shares_machine

HERE = Address("", "unix:///var/run/docker.sock")


@pytest.fixture
def facts(tmp_path: Path) -> dict[str, Any]:
    return {
        "KernelVersion": os.uname().release,
        "Name": socket.gethostname(),
        "DockerRootDir": str(tmp_path),
        "OperatingSystem": "Debian GNU/Linux 12 (bookworm)",
    }


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no engine shares another system")


def test_this_machines_own_engine(facts: dict[str, Any]) -> None:
    assert shares_machine(HERE, facts)


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:2375", "ssh://ada@localhost"])
def test_what_is_reached_by_a_network_may_be_anywhere(url: str, facts: dict[str, Any]) -> None:
    assert not shares_machine(Address("", url), facts)


@pytest.mark.parametrize(
    "other",
    [
        {"KernelVersion": "6.10.14-linuxkit", "Name": "docker-desktop"},
        {"Name": "docker-desktop"},  # in WSL 2, where all have one kernel
        {"Name": "colima"},
        {"KernelVersion": "6.8.0-orbstack"},
        {"DockerRootDir": "/nowhere/var/lib/docker"},  # its socket in a container of ours
        {"DockerRootDir": "/etc/passwd/docker"},
        {"DockerRootDir": ""},
        {"DockerRootDir": None},
        {"KernelVersion": None},
    ],
)
def test_an_engine_in_a_virtual_machine(other: dict[str, Any], facts: dict[str, Any]) -> None:
    assert not shares_machine(HERE, {**facts, **other})


def test_a_mac_shares_nothing(facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "IS_LINUX", False)
    assert not shares_machine(HERE, facts)


@pytest.mark.skipif(os.geteuid() != 0, reason="root may look into a folder of root's")
def test_a_folder_that_may_not_be_looked_into_is_here(
    facts: dict[str, Any], tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "docker").mkdir()
    tmp_path.chmod(0o755)
    child = os.fork()
    if not child:
        os.chdir("/")
        os.setuid(65534)
        is_here = shares_machine(HERE, {**facts, "DockerRootDir": str(closed / "docker")})
        os._exit(0 if is_here else 1)
    assert os.waitpid(child, 0)[1] == 0
