"""Whose fault it is that a sandbox fails, and what an agent can do to the next shell."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import time
from pathlib import Path

import pytest

from pytest_intercode.errors import CommandFailed, SandboxBroken, SandboxError
from pytest_intercode.sandboxes.attached import AttachedSandbox, find_killer
from pytest_intercode.sandboxes.bubblewrap.sandbox import BubblewrapSandbox
from pytest_intercode.sandboxes.docker.container import Container
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.overlay import OverlayProbe
from pytest_intercode.sandboxes.pipes import PipeStreams
from pytest_intercode.sandboxes.protocol import Changes, SandboxSpec
from pytest_intercode.sandboxes.reading import Reading
from tests.integration.conftest import Launch

SOON = 15.0
PROMPTLY = 10.0

# Writes into the file in which the shell keeps its state, by a job that the action leaves behind.
POISON = (
    "(sleep 0.1; for f in /proc/[0-9]*/fd/*; do case $(readlink $f) in "
    "/dev/shm/*) echo {0} >$f;; esac; done; touch /tmp/poisoned) 2>/dev/null & echo a"
)
KILLED = "until [ -e /tmp/poisoned ]; do sleep 0.02; done; kill -9 $$"
FORGED = (
    "trap 'set -- $BASH_COMMAND; "
    '[ "$1" != __intercode_end ] || printf "D %s %s - /\\n" "$2" {0} >&201\' DEBUG'
)


@pytest.mark.parametrize("poison", ["exec sleep 1000", "exit"])
def test_poisoned_state_does_not_stop_the_next_shell(
    sandbox: AttachedSandbox, monkeypatch: pytest.MonkeyPatch, poison: str
) -> None:
    monkeypatch.setattr("pytest_intercode.sandboxes.channel._STATE_TIMEOUT", 0.5)
    assert sandbox.run("x=1", SOON).status == 0
    assert sandbox.run(POISON.format(shlex.quote(poison)), SOON).output == b"a\n"
    killed = sandbox.run(KILLED, SOON)
    assert (killed.status, killed.restarted, killed.state_lost) == (137, True, True)
    assert killed.seconds < PROMPTLY
    after = sandbox.run("echo [$x]; y=2", SOON)
    assert (after.output, after.state_lost) == (b"[]\n", False)
    assert not sandbox.run("exit", SOON).state_lost
    assert sandbox.run("echo $y", SOON).output == b"2\n"


def test_state_has_no_name(sandbox: AttachedSandbox) -> None:
    assert sandbox.run("sleep 0.05; ls -A /dev/shm", SOON).output == b""
    full = sandbox.run("x=kept; yes >/dev/shm/full", SOON)
    assert full.status == 1
    assert sandbox.run("exit", SOON).seconds < PROMPTLY
    assert sandbox.run("echo alive", SOON).output == b"alive\n"


@pytest.mark.parametrize("status", ["777", "9" * 5000, "abc", "''", "-1", "1e0"])
def test_forged_status_is_a_failed_action(sandbox: AttachedSandbox, status: str) -> None:
    forged = sandbox.run(FORGED.format(status), SOON)
    assert (forged.ended, forged.status, forged.restarted) == ("itself", None, True)
    assert sandbox.run("echo alive", SOON).output == b"alive\n"


@pytest.mark.parametrize("noise", ["yes ''", "cat /dev/zero"])
def test_noise_among_the_answers_is_a_flood(sandbox: AttachedSandbox, noise: str) -> None:
    flood = sandbox.run(f"for n in {{10..19}} 201; do {noise} 2>/dev/null >&$n & done; wait", 60)
    assert (flood.ended, flood.restarted) == ("flood", True)
    assert flood.seconds < 20
    assert sandbox.run("echo alive", SOON).output == b"alive\n"


@pytest.mark.parametrize(
    "action",
    [
        'for n in {0..255}; do eval "exec $n>&-"; done',
        "ulimit -n 0; ulimit -u 0; ulimit -f 0; exit",
        "for n in {1..64}; do kill -$n 1; done; exit",
        "rm -f /usr/bin/setpriv; kill -9 $$",
    ],
)
def test_what_a_shell_does_to_itself(sandbox: AttachedSandbox, action: str) -> None:
    assert sandbox.run(action, SOON).ended == "itself"
    assert sandbox.run("echo alive", SOON).output == b"alive\n"


def test_replaced_programs_run_without_more_rights(
    docker_engine: DockerEngine, bash_image: str
) -> None:
    sandbox = docker_engine.launch(SandboxSpec(bash_image))
    try:
        own = sandbox.run("grep Cap /proc/self/status", SOON).output
        trojan = (
            "#!/usr/bin/real\necho $0 $(grep Cap /proc/$$/status) >>/tmp/seen\n"
            "(exec 9</proc/1/fd/0 && echo looked >>/tmp/seen) 2>/dev/null\n"
            'exec -a bash /usr/bin/real "$@"\n'
        )
        sandbox.run(
            f"cp /bin/bash /usr/bin/real; rm -f /usr/bin/setpriv; printf %s {shlex.quote(trojan)} "
            ">/usr/bin/setpriv; chmod 755 /usr/bin/setpriv; cp -f --remove-destination "
            "/usr/bin/setpriv /usr/bin/bash; kill -9 $$",
            SOON,
        )
        assert sandbox.run("echo alive", SOON).output == b"alive\n"
        assert sandbox.admin("true", SOON)[0] == 0
        lines = sandbox.run("cat /tmp/seen", SOON).output.decode().splitlines()
        caps = " ".join(own.decode().split())
        assert len(lines) == 2  # the shell and the command of ours
        assert set(lines) == {f"/usr/bin/bash {caps}"}
    finally:
        sandbox.close()


@pytest.mark.parametrize(
    "action",
    [
        "rm -rf /lib* 2>/dev/null; kill -9 $$",
        pytest.param("rm -rf --no-preserve-root / 2>/dev/null; exit", marks=pytest.mark.slow),
    ],
)
def test_a_shell_that_cannot_start_is_no_excuse(sandbox: AttachedSandbox, action: str) -> None:
    sandbox.mark()
    began = time.monotonic()
    with pytest.raises(SandboxBroken, match="starts no shell"):
        sandbox.run(action, SOON)
    assert time.monotonic() - began < SOON + PROMPTLY
    again = time.monotonic()
    for call in (
        lambda: sandbox.run("true", SOON),
        sandbox.changes,
        lambda: sandbox.settle(SOON),
        lambda: sandbox.admin("true", SOON),
    ):
        with pytest.raises(SandboxBroken, match="starts no shell"):
            call()
    assert time.monotonic() - again < PROMPTLY


def test_a_fault_before_the_first_action_is_no_agents(sandbox: AttachedSandbox) -> None:
    for acted in (False, True):
        with pytest.raises(CommandFailed, match="did not finish within") as failed:
            sandbox.admin("sleep 1", 0.1)
        assert failed.value.acted == acted
        sandbox.run("true", SOON)
    assert sandbox.run("echo alive", SOON).output == b"alive\n"


# -- what the engine says


def test_a_paused_container_is_somebody_elses_doing(
    docker_engine: DockerEngine, bash_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = docker_engine.launch(SandboxSpec(bash_image))
    sandbox.run("true", SOON)
    monkeypatch.setattr("pytest_intercode.sandboxes.keeper._ANSWER_TIMEOUT", 0.2)
    docker_engine.api.pause(sandbox.name)
    try:
        with pytest.raises(SandboxError, match="somebody has paused it"):
            sandbox.run("true", 0.2)
    finally:
        docker_engine.api.unpause(sandbox.name)
        sandbox.close()


def test_a_connection_that_is_lost_is_no_agents_doing(
    docker_engine: DockerEngine, bash_image: str
) -> None:
    sandbox = docker_engine.launch(SandboxSpec(bash_image))
    sandbox.run("true", SOON)
    sandbox._streams._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(SandboxError, match="the connection to it was lost"):
        sandbox.run("sleep 10", SOON)
    sandbox.close()


def test_root_has_pipes_to_a_container_of_this_machine(
    docker_engine: DockerEngine, bash_image: str
) -> None:
    sandbox = docker_engine.launch(SandboxSpec(bash_image))
    ours = docker_engine.is_local and os.geteuid() == 0
    assert isinstance(sandbox._channel._keeper.transport, PipeStreams) == ours
    # The three streams and the folder: nothing of how they came about.
    assert sandbox.run("ls /proc/self/fd", SOON).output == b"0\n1\n2\n3\n"
    sandbox.close()


KEPT_LOG = pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="nobody knows who kills")


def first_process(sandbox: AttachedSandbox) -> int:
    """Return the number that a sandbox's first process has here."""
    if isinstance(sandbox, BubblewrapSandbox):
        return sandbox.pid
    assert isinstance(sandbox, Container)
    return sandbox._pid or pytest.skip("the engine is on another machine")


@KEPT_LOG
def test_a_keeper_that_is_killed_from_outside(sandbox: AttachedSandbox) -> None:
    sandbox.run("true", SOON)
    os.kill(first_process(sandbox), signal.SIGKILL)
    for _ in range(2):  # who goes on all the same is not blamed for it
        with pytest.raises(SandboxError, match=r"ended while in use: .*killed it from outside"):
            sandbox.run("sleep 10", SOON)


@KEPT_LOG
def test_what_is_read_of_a_sandbox_that_ends_meanwhile(
    sandbox: AttachedSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(sandbox.probe, OverlayProbe):
        pytest.skip("the lister that reads it ends with it")
    read = sandbox.probe.changes

    def read_and_kill(reading: Reading) -> Changes:
        changes = read(reading)
        os.kill(first_process(sandbox), signal.SIGKILL)
        return changes

    sandbox.mark()
    sandbox.run("echo x >/tmp/x", SOON)
    assert list(sandbox.changes().entries) == ["/tmp/x"]
    monkeypatch.setattr(sandbox.probe, "changes", read_and_kill)
    with pytest.raises(SandboxError, match=r"ended while in use: .*killed it from outside"):
        sandbox.changes()


@pytest.mark.parametrize("guarded", [True, False])
def test_an_end_that_nobody_reports_is_the_agents(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    sandbox = launch(guarded=guarded)
    sandbox.run("true", SOON)
    if guarded:  # as where the kernel has killed it for its memory, or nothing is known
        for module in ("docker.container", "bubblewrap.sandbox"):
            monkeypatch.setattr(f"pytest_intercode.sandboxes.{module}.find_killer", lambda *_: "")
        number = first_process(sandbox)
    elif isinstance(sandbox, BubblewrapSandbox):
        number = sandbox.pid
    else:
        assert isinstance(sandbox, Container)
        number = sandbox._api.inspect_container(sandbox.name)["State"]["Pid"]
    os.kill(number, signal.SIGKILL)
    with pytest.raises(SandboxBroken, match="ended while in use"):
        sandbox.run("sleep 10", SOON)
    with pytest.raises(SandboxBroken, match="ended while in use"):
        sandbox.settle(SOON)


def test_limits_of_others_cannot_be_changed(sandbox: AttachedSandbox) -> None:
    """Which would be a way to have the kernel kill the keeper."""
    assert sandbox.run("prlimit --pid 1 --cpu=1:1", SOON).status not in (0, None)
    assert sandbox.run("ulimit -S -n 100; prlimit --nofile=50:50 true", SOON).status == 0


def test_who_killed_a_process_is_read_from_the_kernels_log(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def said(entry: str, process: int = 42, since: float = 100) -> str:
        log.write_text(entry)
        return find_killer(process, since, str(log))

    if Path("/proc/self/ns/pid").stat().st_ino != 0xEFFFFFFC:
        pytest.skip("the kernel logs other numbers of processes")
    outside = "somebody has killed it from outside"
    whole = "3,1,200000000,-;Out of memory: Killed process 42 (bash) total-vm:1kB"
    assert said(whole) == "this machine lacked memory"
    assert said(whole, process=4) == outside
    assert said(whole, since=300) == outside  # an earlier process of the number
    assert said(whole.replace("3,1", "12,1")) == outside  # not of the kernel's
    assert said("") == outside
    own = "3,1,200000000,-;Memory cgroup out of memory: Killed process 42 (bash) total-vm:1kB"
    assert said(own) == ""
    assert find_killer(42, 100, str(tmp_path / "none")) == ""


def test_actions_of_another_user(launch: Launch) -> None:
    sandbox = launch(user="nobody", workdir="/tmp")
    said = sandbox.run("id -un; echo $HOME $USER; x=5; touch mine /etc/mine", SOON).output
    assert (
        said == b"nobody\n/nonexistent nobody\ntouch: cannot touch '/etc/mine': Permission denied\n"
    )
    assert sandbox.run("echo seen >/dev/stdout", SOON).output == b"seen\n"
    killed = sandbox.run("kill -9 $$", SOON)
    assert (killed.status, killed.restarted, killed.state_lost) == (137, True, False)
    assert sandbox.run("echo $x $(stat -c %U mine)", SOON).output == b"5 nobody\n"
    assert sandbox.run("sleep 60", 0.2).ended == "timeout"
    assert sandbox.admin("id -un", SOON) == (0, b"root\n")


def test_a_user_may_be_a_number_without_a_name(launch: Launch) -> None:
    assert launch(user="54321", workdir="/tmp").run("id -u; id -g", SOON).output == b"54321\n0\n"


def test_an_unknown_user_is_named(launch: Launch) -> None:
    with pytest.raises(SandboxError, match="starts no shell as stranger; is it a user of the im"):
        launch(user="stranger")


def test_processes_look_alike_in_all_sandboxes(launch: Launch) -> None:
    """Gold's output is compared with the agent's, and some gold lists processes."""
    look = "for p in 1 $PPID $$; do cat /proc/$p/cmdline /proc/$p/comm; done; env | sort"
    first, second = (launch(hostname="same").run(look, 30.0).output for _ in range(2))
    assert first == second
    assert b"bash" in first
