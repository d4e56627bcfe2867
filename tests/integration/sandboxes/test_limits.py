"""What a sandbox may not do, whatever runs in it as root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode.core.task import Limits
from pytest_intercode.sandboxes.attached import CAPABILITIES, AttachedSandbox
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.protocol import SandboxSpec
from tests.integration.conftest import Launch
from tests.support.backends import Backend

SOON = 30.0
DEVICES = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort"
MIB = 1024**2
# The bits of the kernel's capability sets (capabilities(7)).
BITS = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
}


@pytest.fixture(scope="module")
def small(backend: Backend) -> Iterator[AttachedSandbox]:
    """Return a sandbox with limits that are quickly reached."""
    limits = Limits(memory=64 * MIB, pids=32, file_size=MIB, cpus=1.0)
    if backend.runtime == "runsc":  # its kernel is a process that counts, too
        limits = Limits(memory=512 * MIB, file_size=MIB, cpus=1.0)
    sandbox = backend.engine.launch(SandboxSpec(backend.image, limits=limits))
    yield sandbox
    sandbox.close()


def said(sandbox: AttachedSandbox, action: str) -> str:
    execution = sandbox.run(action, SOON)
    assert (execution.ended, execution.restarted) == ("itself", False), execution
    return execution.output.decode()


def test_network_when_asked_for(backend: Backend, launch: Launch) -> None:
    sandbox = launch(limits=Limits(network=True))
    found = said(sandbox, DEVICES).split()
    if backend.name == "docker":
        assert found == ["eth0", "lo"]
    else:  # the host's own
        assert {"lo"} < set(found) <= {path.name for path in Path("/sys/class/net").iterdir()}


def test_the_agents_processes_end_before_the_keeper(small: AttachedSandbox) -> None:
    """When memory is short, by what the kernel goes by."""
    assert said(small, "cat /proc/self/oom_score_adj; (cat /proc/self/oom_score_adj)") == (
        "1000\n1000\n"
    )
    assert small.admin("cat /proc/self/oom_score_adj", SOON)[1].strip() != b"1000"


def test_files_in_memory_do_not_end_the_sandbox(backend: Backend, sandbox: AttachedSandbox) -> None:
    # On bubblewrap everything that can be written to is in memory.
    more = "/tmp" if backend.name == "bubblewrap" else ""
    fill = (
        f"for place in {more} $(awk '$3 == \"tmpfs\" {{print $2}}' /proc/mounts); do "
        "for n in {1..8}; do head -c 100000000 /dev/zero >$place/full$n || break; done; done 2>&1"
    )
    execution = sandbox.run(fill, SOON)
    assert execution.ended == "itself"
    assert execution.output.count(b"No space left on device") >= 2
    assert said(sandbox, "echo alive") == "alive\n"


def test_more_processors_than_there_are(launch: Launch) -> None:
    assert said(launch(limits=Limits(cpus=64)), "echo started") == "started\n"


def test_default_limits(docker_engine: DockerEngine, bash_image: str) -> None:
    sandbox = docker_engine.launch(SandboxSpec(bash_image))
    host = docker_engine.api.inspect_container(sandbox.name)["HostConfig"]
    sandbox.close()
    limits = Limits()
    assert host["Memory"] == host["MemorySwap"] == limits.memory
    assert host["CpuQuota"] == limits.cpus * host["CpuPeriod"]
    assert host["PidsLimit"] == limits.pids
    assert host["NetworkMode"] == "none"
    assert host["AutoRemove"]
    assert host["LogConfig"]["Type"] == "none"


def test_capabilities(small: AttachedSandbox) -> None:
    assert set(CAPABILITIES) == set(BITS)
    exact = f"{sum(1 << bit for bit in BITS.values()):016x}"
    # A program in the shell, the shell itself, and a command of ours.
    own = "grep -hE '^(Cap|NoNewPrivs)' /proc/self/status"
    for facts in (
        said(small, own),
        said(small, own.replace("self", "$$")),
        small.admin(own, SOON)[1].decode(),
    ):
        assert dict(line.split(":\t") for line in facts.splitlines()) == {
            "CapInh": f"{0:016x}",
            "CapPrm": exact,
            "CapEff": exact,
            "CapBnd": exact,
            "CapAmb": f"{0:016x}",
            "NoNewPrivs": "1",
        }


def test_keeper_can_be_seen_when_unguarded(launch: Launch) -> None:
    """So the refusals above are the guard's doing, and not for want of the program."""
    sandbox = launch(guarded=False)
    assert said(sandbox, "readlink /proc/1/exe") == "/usr/bin/bash\n"
    assert sandbox.run("find /proc/1 -maxdepth 2 >/dev/null", SOON).output == b""
