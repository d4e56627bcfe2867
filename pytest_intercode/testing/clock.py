"""Tests of the clock, interrupts, and commands that run next to the shell."""

from __future__ import annotations

import io
import tarfile
import threading
import time
from pathlib import PurePosixPath

import pytest

from pytest_intercode.core.task import Limits
from pytest_intercode.errors import SandboxBroken, SandboxError
from pytest_intercode.sandboxes.protocol import Sandbox
from pytest_intercode.testing.fixtures import (
    GO,
    PROMPTLY,
    SOON,
    ContractFixtures,
    Launch,
    await_only_shell,
    output_of,
    pack,
)

__all__ = ["ClockTests"]

_FAULTS = (SandboxError, SandboxBroken)  # the second if an action has run in the sandbox before


class ClockTests(ContractFixtures):
    """Tests of the clock, interrupts, and commands that run next to the shell."""

    # -- the clock

    @pytest.mark.parametrize(
        "action",
        [
            "sleep 1000; touch /tmp/NOT",
            "while :; do :; done",
            "f() { while :; do f2; done; }; f2() { x=1; }; f",
            "trap '' TERM INT HUP; while :; do sleep 1; done",
            "setsid bash -c 'trap \"\" TERM; sleep 1000; touch /tmp/NOT' & sleep 1000",
            "kill -STOP $$",
            "mkfifo fifo; echo >/tmp/fifo",
        ],
    )
    def test_timeout_kills(self, shared: Sandbox, action: str) -> None:
        _check_timeout(shared, action)

    @pytest.mark.usefixtures("bounded")
    @pytest.mark.parametrize("action", ["f() { f & f & wait; }; f", "b() { b | b & b; }; b"])
    def test_timeout_kills_a_bomb(self, shared: Sandbox, action: str) -> None:
        _check_timeout(shared, action)

    def test_timeout_spares_earlier_jobs(self, sandbox: Sandbox) -> None:
        output_of(sandbox, f"({GO}; echo survived) &")
        assert sandbox.run("sleep 1000", 0.2).ended == "timeout"
        sandbox.admin("touch /tmp/go", SOON)
        assert sandbox.settle(SOON) == b"survived\n"

    def test_timeout_spares_what_earlier_jobs_start_meanwhile(self, sandbox: Sandbox) -> None:
        output_of(sandbox, f"({GO}; sleep 1000) &")
        started = "until grep -qs '100[0]' /proc/[0-9]*/cmdline; do sleep 0.02; done"
        assert sandbox.run(f"touch /tmp/go; {started}; sleep 999", 2.0).ended == "timeout"
        # The job's sleep, but not the action's, which was killed and has no command line any more.
        # Other processes may end while they are listed.
        words = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null"
        assert sandbox.admin(f"{words} | grep '^sleep '", SOON) == (0, b"sleep 1000 \n")

    @pytest.mark.usefixtures("bounded")
    def test_bomb_of_an_earlier_action(self, launch: Launch) -> None:
        sandbox = launch(limits=Limits(pids=128))
        output_of(sandbox, "x=kept")
        # A busy machine fills slowly, so wait until the bomb has reached its full size.
        sandbox.run("b() { b | b & }; b; while set -- /proc/[0-9]*; [ $# -lt 120 ]; do :; done", 30)
        sandbox.run("sleep 1000", 0.3)
        assert sandbox.run("echo $x; sleep 0.01 && echo forked", 20).output.endswith(b"forked\n")
        await_only_shell(sandbox)

    def test_interrupt_from_another_thread(self, sandbox: Sandbox) -> None:
        output_of(sandbox, "x=kept")
        timer = threading.Timer(0.3, sandbox.interrupt)
        timer.start()
        execution = sandbox.run("echo begun; sleep 1000", 60)
        timer.join()
        assert (execution.ended, execution.status) == ("cancelled", None)
        assert execution.output == b"begun\n"
        assert 0.2 < execution.seconds < 0.3 + PROMPTLY
        repeated = sandbox.run("sleep 1000", 60)
        assert repeated.ended == "cancelled"
        assert repeated.seconds < PROMPTLY

    def test_close_from_another_thread(self, sandbox: Sandbox) -> None:
        """It ends an action immediately, with an error that names the sandbox."""
        timer = threading.Timer(0.3, sandbox.close)
        timer.start()
        began = time.monotonic()
        with pytest.raises(SandboxError, match=f"sandbox {sandbox.name} ended while in use"):
            sandbox.run("sleep 1000", 60)
        timer.join()
        assert time.monotonic() - began < 0.3 + PROMPTLY
        with pytest.raises(SandboxError):
            sandbox.run("true", 5)
        sandbox.close()

    # -- next to the shell

    def test_settle_returns_late_output(self, sandbox: Sandbox) -> None:
        assert sandbox.settle(SOON) == b""
        output_of(sandbox, f"({GO}; echo late; echo later >&2) &")
        sandbox.admin("touch /tmp/go", SOON)
        assert sandbox.settle(SOON) == b"late\nlater\n"
        assert output_of(sandbox, "echo next") == "late\nlater\nnext\n"
        assert output_of(sandbox, "echo next") == "next\n"

    def test_settle_gives_up(self, sandbox: Sandbox) -> None:
        output_of(sandbox, f"({GO}; echo late; sleep 1000) &")
        sandbox.admin("touch /tmp/go", SOON)
        began = time.monotonic()
        assert sandbox.settle(0.5) == b"late\n"
        assert 0.5 <= time.monotonic() - began < 0.5 + PROMPTLY

    def test_admin(self, shared: Sandbox) -> None:
        """Our own commands run as root next to the shell, and neither see nor change its state.

        Their output is exact, whatever its size.
        """
        output_of(shared, "cd /tmp; x=mine; (exit 9)")
        assert shared.admin("echo out; echo err >&2; pwd; echo [$x]; exit 7", SOON) == (
            7,
            b"out\nerr\n/\n[]\n",
        )
        assert shared.admin(r"printf '\0\377X 0 0\n'; cat", SOON) == (0, b"\0\xffX 0 0\n")
        assert shared.admin("seq 300000", SOON)[1] == b"".join(
            b"%d\n" % n for n in range(1, 300_001)
        )
        assert shared.admin("kill -9 $$", SOON) == (137, b"")
        assert shared.admin("echo 'unbalanced", SOON)[0] == 2
        assert output_of(shared, "echo $?; pwd; echo $x") == "9\n/tmp\nmine\n"

    def test_admin_gives_up(self, shared: Sandbox) -> None:
        with pytest.raises(_FAULTS, match=r"did not finish within 0\.2 s: sleep 2"):
            shared.admin("sleep 2", 0.2)
        assert shared.admin("echo next", SOON) == (0, b"next\n")
        assert output_of(shared, "echo mine") == "mine\n"

    def test_unpack(self, shared: Sandbox) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:

            def add(name: str, data: bytes = b"", **facts: object) -> None:
                member = tarfile.TarInfo(name)
                member.size, member.mtime = len(data), 1_000_000_000
                for fact, value in facts.items():
                    setattr(member, fact, value)
                archive.addfile(member, io.BytesIO(data))

            add("t", type=tarfile.DIRTYPE, mode=0o1777)
            add("t/.dot", b"hidden", mode=0o600, uid=1000, gid=1001)
            add("t/tool", b"#!/bin/sh\necho ran\n", mode=0o4755)
            add("t/odd \n\udcff", b"")
            add("t/soft", type=tarfile.SYMTYPE, linkname="/nowhere", mode=0o777)
            add("t/hard", type=tarfile.LNKTYPE, linkname="t/.dot", mode=0o600, uid=1000, gid=1001)
            add("t/pipe", type=tarfile.FIFOTYPE, mode=0o640)
            add("made/on/the/way", b"x")
            add("t/large", bytes(3_000_000))
        shared.unpack(buffer.getvalue())
        facts = "stat -c '%F|%a|%u|%g|%h|%s|%Y|%N' /t/.dot /t/tool /t/soft /t/hard /t/pipe /t/large"
        assert output_of(shared, facts).splitlines() == [
            "regular file|600|1000|1001|2|6|1000000000|'/t/.dot'",
            "regular file|4755|0|0|1|19|1000000000|'/t/tool'",
            "symbolic link|777|0|0|1|8|1000000000|'/t/soft' -> '/nowhere'",
            "regular file|600|1000|1001|2|6|1000000000|'/t/hard'",
            "fifo|640|0|0|1|0|1000000000|'/t/pipe'",
            "regular file|644|0|0|1|3000000|1000000000|'/t/large'",
        ]
        assert (
            output_of(shared, "stat -c '%F|%a|%u|%g|%h|%Y' /t")
            == "directory|1777|0|0|2|1000000000\n"
        )
        assert output_of(shared, "/t/tool; cat /made/on/the/way; ls -A /t | wc -l") == "ran\nx8\n"
        assert output_of(shared, "printf %s /t/odd*") == "/t/odd \n\udcff"

    def test_broken_archive_is_an_error_with_its_reason(self, shared: Sandbox) -> None:
        with pytest.raises(_FAULTS, match=r"files could not be unpacked: .*tar"):
            shared.unpack(b"this is not an archive" * 100)
        shared.unpack(pack(("fine", b"fine")))
        assert output_of(shared, "cat /fine") == "fine"

    @pytest.mark.parametrize("workdir", ["/work/made here", "/it's"])
    def test_workdir_is_made(self, launch: Launch, workdir: str) -> None:
        """The keeper makes ``workdir``; the backend sets ``hostname`` and ``variables``."""
        sandbox = launch(workdir=workdir, hostname="machine", variables=(("NAME", "a value"),))
        assert output_of(sandbox, 'pwd; hostname; echo "$NAME"') == f"{workdir}\nmachine\na value\n"
        assert PurePosixPath(sandbox.run("cd ..", SOON).cwd) == PurePosixPath(workdir).parent


def _check_timeout(sandbox: Sandbox, action: str) -> None:
    output_of(sandbox, "cd /tmp; x=kept; f() { echo function; }")
    timeout = 0.4
    execution = sandbox.run(f"x=lost; echo begun\n{action}\necho NOT", timeout)
    assert (execution.ended, execution.status, execution.restarted) == ("timeout", None, True)
    assert execution.output.startswith(b"begun\n")
    assert b"NOT" not in execution.output
    assert timeout <= execution.seconds < timeout + PROMPTLY
    assert execution.cwd == "/tmp"
    assert output_of(sandbox, "echo $x; f; ls /tmp/NOT 2>/dev/null; sleep 0.01; pwd") == (
        "kept\nfunction\n/tmp\n"
    )
    await_only_shell(sandbox)
