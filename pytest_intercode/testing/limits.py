"""Tests of what a sandbox must prevent, even if its processes run as root.

The limits are those of ``spec.limits``. What root may do is defined in
``pytest_intercode.sandboxes``: by ``CAPABILITIES`` and ``GUARD`` in ``attached``, and by the filter
of system calls in ``seccomp``.
"""

from __future__ import annotations

import pytest

from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.testing.fixtures import (
    SOON,
    BackendUnderTest,
    ContractFixtures,
    once,
    output_of,
)

__all__ = ["LimitTests"]

MIB = 1024**2
_DEVICES = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort"


class LimitTests(ContractFixtures):
    """Tests of what a sandbox must prevent, even if its processes run as root."""

    @pytest.fixture
    def small(self, request: pytest.FixtureRequest, under_test: BackendUnderTest) -> Sandbox:
        """Return a sandbox with limits that are quickly reached."""
        spec = SandboxSpec(under_test.image, limits=under_test.small_limits)
        key = "small", id(under_test.launcher)
        return once(request, key, lambda: under_test.launcher.launch(spec))

    def test_network_is_loopback_only(self, small: Sandbox) -> None:
        """Without ``network``, it has its own network, in which only loopback is up."""
        assert output_of(small, _DEVICES) == "lo\n"
        assert output_of(small, "tail -n +2 /proc/net/route | wc -l") == "0\n"
        connect = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
        assert "Network is unreachable" in output_of(small, f'python3 -c "{connect}" 2>&1')
        serve = (
            "import socket as s; a = s.create_server(('127.0.0.1', 0)); "
            "s.create_connection(a.getsockname(), 5); print('reached')"
        )
        assert output_of(small, f'python3 -c "{serve}"') == "reached\n"

    @pytest.mark.parametrize("where", ["the shell's child", "the shell", "a tmpfs"])
    def test_memory(self, small: Sandbox, where: str) -> None:
        """``memory`` limits all processes and files in memory together, and there is no swap.

        ``/dev/shm`` is a tmpfs with a quarter of it, or with ``SHM_SIZE``.
        """
        output_of(small, "x=kept")
        hog = {
            "the shell's child": "python3 -c \"b'x' * (200 << 20)\"; echo status $?",
            "the shell": 'y=$(head -c 100000000 /dev/zero | tr "\\0" x); echo "status ${#y}"',
            "a tmpfs": "for n in {1..200}; do "
            "head -c 1000000 /dev/zero >/dev/shm/$n || break; done; "
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
        assert output_of(small, "echo $x") == "kept\n"

    def test_processes(self, small: Sandbox) -> None:
        """``pids`` limits the sandbox as a whole, including its keeper."""
        start = "for n in $(seq 100); do sleep 1000 & done 2>&1; sleep 1000"
        execution = small.run(start, 1.0)
        assert execution.ended == "timeout"
        assert b"fork: retry: Resource temporarily unavailable" in execution.output
        assert output_of(small, "ls /proc/self/fd >/dev/null && echo forked") == "forked\n"

    def test_file_size(self, small: Sandbox) -> None:
        """``file_size`` is RLIMIT_FSIZE of every process, soft and hard; RLIMIT_CORE is 0."""
        output_of(small, f"head -c {MIB} /dev/zero >/tmp/full && rm /tmp/full")
        execution = small.run(f"head -c {MIB + 1} /dev/zero >/tmp/full", SOON)
        assert execution.status == 128 + 25  # SIGXFSZ
        assert output_of(
            small, "stat -c %s /tmp/full; rm /tmp/full; ulimit -f; ulimit -Hf; ulimit -c"
        ) == (f"{MIB}\n1024\n1024\n0\n")
        assert small.run("ulimit -f unlimited", SOON).status == 1

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
            "cd /sys/fs/cgroup && { mkdir memory/mine || mkdir mine || : >mine; }",
            "for path in /sys/fs/cgroup/*/; do mkdir $path/mine && exit 0; done; exit 1",
            "setpriv --inh-caps +sys_admin true",
            "ping -c 1 127.0.0.1",
            "kill -0 1 && kill -STOP 1 && grep -q 'State:.T' /proc/1/status",
        ],
    )
    def test_refused(self, small: Sandbox, action: str) -> None:
        """Root has few capabilities and system calls, and cannot inspect the first process."""
        execution = small.run(f"(LC_ALL=C; {action})", SOON)
        assert execution.ended == "itself"
        assert execution.status not in (0, None), f"{action!r} should fail: {execution.output!r}"
        assert output_of(small, "echo alive") == "alive\n"

    def test_work_of_an_administrator_is_allowed(self, sandbox: Sandbox) -> None:
        """The remaining capabilities suffice, even for files of several users."""
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
        assert output_of(sandbox, work) == "someone\n0022\nsomeone users 4755\nsomeone\n"
