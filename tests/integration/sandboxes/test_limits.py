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


def test_network_is_loopback_only(small: AttachedSandbox) -> None:
    assert said(small, DEVICES) == "lo\n"
    assert said(small, "tail -n +2 /proc/net/route | wc -l") == "0\n"
    connect = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    assert "Network is unreachable" in said(small, f'python3 -c "{connect}" 2>&1')
    serve = (
        "import socket as s; a = s.create_server(('127.0.0.1', 0)); "
        "s.create_connection(a.getsockname(), 5); print('reached')"
    )
    assert said(small, f'python3 -c "{serve}"') == "reached\n"


def test_network_when_asked_for(backend: Backend, launch: Launch) -> None:
    sandbox = launch(limits=Limits(network=True))
    found = said(sandbox, DEVICES).split()
    if backend.name == "docker":
        assert found == ["eth0", "lo"]
    else:  # the host's own
        assert {"lo"} < set(found) <= {path.name for path in Path("/sys/class/net").iterdir()}


@pytest.mark.parametrize("where", ["the shell's child", "the shell", "a tmpfs"])
def test_memory(small: AttachedSandbox, where: str) -> None:
    said(small, "x=kept")
    hog = {
        "the shell's child": "python3 -c \"b'x' * (200 << 20)\"; echo status $?",
        "the shell": 'y=$(head -c 100000000 /dev/zero | tr "\\0" x); echo "status ${#y}"',
        "a tmpfs": "for n in {1..200}; do head -c 1000000 /dev/zero >/dev/shm/$n || break; done; "
        "echo status $?; rm /dev/shm/*",
    }[where]
    execution = small.run(hog, SOON)
    if where == "the shell's child":
        assert b"status 137\n" in execution.output
    elif where == "the shell":
        assert execution.status == 137
        assert execution.restarted
    else:
        assert b"No space left on device\nstatus 0\n" in execution.output
    assert said(small, "echo $x") == "kept\n"


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


def test_processes(small: AttachedSandbox) -> None:
    start = "for n in $(seq 100); do sleep 1000 & done 2>&1; sleep 1000"
    execution = small.run(start, 1.0)
    assert execution.ended == "timeout"
    assert b"fork: retry: Resource temporarily unavailable" in execution.output
    assert said(small, "ls /proc/self/fd >/dev/null && echo forked") == "forked\n"


def test_file_size(small: AttachedSandbox) -> None:
    said(small, f"head -c {MIB} /dev/zero >/tmp/full && rm /tmp/full")
    execution = small.run(f"head -c {MIB + 1} /dev/zero >/tmp/full", SOON)
    assert execution.status == 128 + 25  # SIGXFSZ
    assert said(small, "stat -c %s /tmp/full; rm /tmp/full; ulimit -f; ulimit -Hf; ulimit -c") == (
        f"{MIB}\n1024\n1024\n0\n"
    )
    assert small.run("ulimit -f unlimited", SOON).status == 1


def test_default_limits(docker_engine: DockerEngine, bash_image: str) -> None:
    sandbox = docker_engine.launch(SandboxSpec(bash_image))
    host = docker_engine.api.inspect_container(sandbox.name)["HostConfig"]
    sandbox.close()
    limits = Limits()
    assert host["Memory"] == host["MemorySwap"] == limits.memory
    assert host["NanoCpus"] == limits.cpus * 1e9
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


@pytest.mark.parametrize(
    "action",
    [
        "exec 5</proc/1/fd/0",
        "ls -l /proc/1/fd/0",
        "cat /proc/1/environ",
        "head -c 1 /proc/1/mem",
        "readlink /proc/1/exe",
        "mount -t tmpfs none /mnt",
        "umount /dev/shm",
        "mknod /tmp/disk b 8 0",
        "mknod /tmp/null c 1 3",
        "date -s 2001-01-01",
        "hostname other",
        "dmesg",
        "chroot / true",
        "unshare -m true",
        "unshare -r true",
        "nice -n -5 true && nice -n -5 nice | grep -x -- -5",
        "echo 1 >/proc/sys/kernel/panic",
        "echo h >/proc/sysrq-trigger",
        "mkdir /sys/fs/cgroup/memory/mine || mkdir /sys/fs/cgroup/mine || : >/sys/fs/cgroup/mine",
        "for path in /sys/fs/cgroup/*/; do mkdir $path/mine && exit 0; done; exit 1",
        "setpriv --inh-caps +sys_admin true",
        "ping -c 1 127.0.0.1",
        "kill -0 1 && kill -STOP 1 && grep -q 'State:.T' /proc/1/status",
    ],
)
def test_refused(small: AttachedSandbox, action: str) -> None:
    execution = small.run(f"(LC_ALL=C; {action})", SOON)
    assert execution.ended == "itself"
    assert execution.status not in (0, None), execution.output
    assert said(small, "echo alive") == "alive\n"


def test_keeper_can_be_seen_when_unguarded(launch: Launch) -> None:
    """So the refusals above are the guard's doing, and not for want of the program."""
    sandbox = launch(guarded=False)
    assert said(sandbox, "readlink /proc/1/exe") == "/usr/bin/bash\n"
    assert sandbox.run("find /proc/1 -maxdepth 2 >/dev/null", SOON).output == b""


def test_work_of_an_administrator_is_allowed(sandbox: AttachedSandbox) -> None:
    work = """
    set -e
    useradd -m someone && su someone -c 'id -un; touch ~/mine; umask'
    touch /tmp/f && chown someone:users /tmp/f && chmod 4755 /tmp/f && stat -c '%U %G %a' /tmp/f
    chmod 000 /tmp/f && cat /tmp/f && su someone -c 'sleep 100 & echo $!' >/tmp/pid
    kill $(cat /tmp/pid)
    git init -q /tmp/repository && tar -C / -cf /tmp/all.tar tmp/f
    tar -C /mnt -xpf /tmp/all.tar && stat -c %U /mnt/tmp/f
    set +e
    """
    assert said(sandbox, work) == "someone\n0022\nsomeone users 4755\nsomeone\n"
