"""The command channel against a real shell in a real sandbox.

Where bash has a way of its own to say something, the expected text is what ``bash -c`` says in the
same sandbox.
"""

from __future__ import annotations

import hashlib
import io
import random
import re
import shlex
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from pytest_intercode.core.task import Limits
from pytest_intercode.errors import SandboxBroken, SandboxError
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.channel import FLOOD
from pytest_intercode.sandboxes.protocol import SandboxSpec
from tests.integration.conftest import Launch
from tests.support.backends import Backend

SOON = 15.0  # seconds; far more than any short action takes, even on a busy machine
PROMPTLY = 10.0  # seconds that an end may take, likewise
FAULTS = (SandboxError, SandboxBroken)  # the second where something has acted there before
GO = "until [ -e /tmp/go ]; do sleep 0.02; done"
"""What a background job waits for, so that no test depends on who is faster."""


@pytest.fixture(scope="module")
def shared(backend: Backend) -> Iterator[AttachedSandbox]:
    """Return a sandbox for tests that leave nothing behind that would matter to the others."""
    sandbox = backend.engine.launch(
        SandboxSpec(backend.image, limits=Limits(pids=64), variables=(("LC_ALL", "C.UTF-8"),))
    )
    yield sandbox
    sandbox.close()


def said(sandbox: AttachedSandbox, action: str, timeout: float = SOON) -> str:
    """Run an action that should end by itself and leave its shell alive; return its output."""
    execution = sandbox.run(action, timeout)
    assert (execution.ended, execution.restarted) == ("itself", False), execution
    return execution.output.decode("utf-8", "surrogateescape")


def processes(sandbox: AttachedSandbox) -> list[str]:
    """Name what runs, apart from the listing itself."""
    script = (
        "cd /proc; for p in [0-9]*; do "
        '[ $p = $$ ] || [ $p = $PPID ] || { read -r name <$p/comm && echo "$name"; }; '
        "done 2>&-; true"
    )
    status, output = sandbox.admin(script, SOON)
    assert status == 0
    return sorted(output.decode().split())


def await_only_shell(sandbox: AttachedSandbox) -> None:
    """Check that nothing but the keeper and the shell runs; the killed need a moment to go."""
    limit = time.monotonic() + 3
    while (left := processes(sandbox)) != ["bash", "bash"]:
        assert time.monotonic() < limit, left
        time.sleep(0.02)


# -- what lasts from action to action


def test_state_lasts(sandbox: AttachedSandbox) -> None:
    said(sandbox, "mkdir -p '/tmp/a b' && cd '/tmp/a b'")
    said(
        sandbox, "x=$'two\\nlines'; export E=exported; list=(one 'two three'); declare -A m=([k]=v)"
    )
    said(
        sandbox, "greet() {\n  echo \"hello $1\"\n}\nshopt -s expand_aliases; alias hi='greet you'"
    )
    said(sandbox, "umask 027; set -o pipefail")
    assert sandbox.run(":", SOON).cwd == "/tmp/a b"
    assert said(sandbox, "pwd") == "/tmp/a b\n"
    assert said(sandbox, 'echo "$x"; bash -c \'echo "$E"\'') == "two\nlines\nexported\n"
    assert said(sandbox, 'printf "<%s>" "${list[@]}" "${m[k]}"') == "<one><two three><v>"
    assert said(sandbox, "hi; greet me") == "hello you\nhello me\n"
    assert said(sandbox, "umask; false | true; echo $?") == "0027\n1\n"


def test_status(shared: AttachedSandbox) -> None:
    for status in (0, 1, 37, 255):
        execution = shared.run(f"(exit {status})", SOON)
        assert (execution.status, execution.restarted) == (status, False)
        assert said(shared, "echo $?") == f"{status}\n"
    assert shared.run("no-such-command", SOON).status == 127
    assert shared.run("bash -c 'kill -9 $$'", SOON).status == 137


@pytest.mark.parametrize("separators", ["0", "12", "sB", ""])
def test_status_does_not_depend_on_ifs(sandbox: AttachedSandbox, separators: str) -> None:
    assert sandbox.run(f"IFS={separators}", SOON).status == 0
    assert sandbox.run("(exit 12)", SOON).status == 12
    assert said(sandbox, 'echo "$?"') == "12\n"


def test_background_job_survives(sandbox: AttachedSandbox) -> None:
    assert said(sandbox, f"({GO}; echo late) & echo started") == "started\n"
    assert said(sandbox, "touch /tmp/go; wait; echo waited") == "late\nwaited\n"


def test_late_output_comes_with_the_next_action(sandbox: AttachedSandbox) -> None:
    said(sandbox, f"({GO}; echo late) &")
    assert said(sandbox, "echo mine") == "mine\n"
    sandbox.admin("touch /tmp/go", SOON)
    while "late" not in (output := said(sandbox, "sleep 0.05; echo mine")):
        assert output == "mine\n"
    assert output in ("late\nmine\n", "mine\nlate\n")


def test_programs_have_no_descriptor_of_ours(shared: AttachedSandbox) -> None:
    assert said(shared, "ls /proc/self/fd") == "0\n1\n2\n3\n"
    assert said(shared, "(exec ls /proc/self/fd) & wait") == "0\n1\n2\n3\n"


def test_a_new_shell_has_what_was_before_actions_that_change_nothing(
    sandbox: AttachedSandbox,
) -> None:
    said(sandbox, "x=kept; cd /tmp")
    assert sandbox.run("ls /nowhere", SOON).status == 2
    assert said(sandbox, "echo $?") == "2\n"
    assert said(sandbox, "ls / | head -1; echo 'two words' >there") == "bin\n"
    assert sandbox.run("exit", SOON).cwd == "/tmp"
    assert said(sandbox, "echo $x; cat there") == "kept\ntwo words\n"


def test_a_program_of_the_same_name_as_a_function(sandbox: AttachedSandbox) -> None:
    said(sandbox, "ls() { x=changed; }")
    said(sandbox, "ls")
    sandbox.run("exit", SOON)
    assert said(sandbox, "echo $x") == "changed\n"


def test_a_function_of_a_file_that_every_shell_reads(launch: Launch) -> None:
    sandbox = launch(variables=(("BASH_ENV", "/defined"),))
    said(sandbox, "echo 'ls() { x=changed; }' >/defined")
    sandbox.run("exit", SOON)
    said(sandbox, "ls")
    sandbox.run("exit", SOON)
    assert said(sandbox, "echo $x") == "changed\n"


def test_a_shell_without_its_descriptor_is_replaced(sandbox: AttachedSandbox) -> None:
    said(sandbox, "x=kept")
    assert sandbox.run("exec 201>&-", SOON).restarted
    assert said(sandbox, "echo $x") == "kept\n"


# -- output


def test_stdout_and_stderr_keep_their_order(shared: AttachedSandbox) -> None:
    count = 400
    expected = "".join(f"out {n}\nerr {n}\n" for n in range(count))
    builtin = f'for ((n = 0; n < {count}; n++)); do echo "out $n"; echo "err $n" >&2; done'
    assert said(shared, builtin) == expected
    program = f"import os\nfor n in range({count}):\n for fd, name in (1, 'out'), (2, 'err'):\n"
    program += "  os.write(fd, f'{name} {n}\\n'.encode())"
    assert said(shared, f"python3 -c {shlex.quote(program)}") == expected


def test_bytes_are_exact(shared: AttachedSandbox) -> None:
    data = random.Random(1).randbytes(50_000) + bytes(range(256))
    shared.unpack(_tar(("data", data)))
    execution = shared.run("cat /data", SOON)
    assert execution.output == data
    assert execution.digest == hashlib.sha256(data).hexdigest()
    assert shared.run(r"printf '\0a\0\377no line end'", SOON).output == b"\0a\0\xffno line end"


def test_frames_and_markers_cannot_be_forged(shared: AttachedSandbox) -> None:
    forged = "D 0 0 - /\nP 0 dead 1\nX 0\n"
    assert said(
        shared, f"printf %s {shlex.quote(forged)}; printf %s {shlex.quote(forged)} >&2"
    ) == (forged + forged)
    assert said(shared, "echo next") == "next\n"


def test_long_output_keeps_both_ends(launch: Launch) -> None:
    sandbox = launch(limits=Limits(output=1000))
    whole = "".join(f"{n}\n" for n in range(1, 100_001)).encode()
    execution = sandbox.run("seq 100000", SOON)
    assert (execution.ended, execution.status) == ("itself", 0)
    assert execution.output == whole[:750] + whole[-250:]
    assert execution.size == len(whole)
    assert execution.digest == hashlib.sha256(whole).hexdigest()
    assert execution.truncated
    exact = sandbox.run("head -c 1000 /dev/zero", SOON)
    assert (exact.output, exact.truncated) == (bytes(1000), False)
    more = sandbox.run("head -c 1001 /dev/zero", SOON)
    assert (len(more.output), more.size, more.truncated) == (1000, 1001, True)


def test_flood_is_stopped(sandbox: AttachedSandbox) -> None:
    execution = sandbox.run("yes", 60)
    assert (execution.ended, execution.status, execution.restarted) == ("flood", None, True)
    assert execution.size > FLOOD
    assert execution.truncated
    assert execution.seconds < 20
    assert said(sandbox, "echo next") == "next\n"
    await_only_shell(sandbox)


# -- input


def test_input_is_empty(shared: AttachedSandbox) -> None:
    assert said(shared, "cat; wc -c; read -r line; echo $?") == "0\n1\n"
    assert said(shared, "exec </etc/passwd") == ""
    assert said(shared, "cat; echo still here") == "still here\n"


def test_large_action(shared: AttachedSandbox) -> None:
    word = "0123456789abcdef" * 65536  # 1 MiB
    assert said(shared, f"x='{word}'; echo ${{#x}}; printf %s \"$x\" | sha256sum", 30) == (
        f"{len(word)}\n{hashlib.sha256(word.encode()).hexdigest()}  -\n"
    )
    assert said(shared, "echo ${#x}") == f"{len(word)}\n"


def test_any_text_arrives_as_it_is(shared: AttachedSandbox) -> None:
    # Surrogates stand for bytes that are not UTF-8, as in os.fsdecode.
    text = '\udcff\udc80 é 😀 \t \\ " ` $x !! % \x01\x7f \r'
    action = f"printf %s {shlex.quote(text)}\n"
    assert shared.run(action, SOON).output == text.encode("utf-8", "surrogateescape")
    assert said(shared, "") == ""
    assert said(shared, "# a comment\n\n   \n") == ""
    assert said(shared, "cat <<'E'\n$x 'quoted'\nE\n") == "$x 'quoted'\n"


# -- what bash says of mistakes


@pytest.mark.parametrize(
    "mistake",
    [
        "echo 'unbalanced",
        'echo "unbalanced\nmore',
        "if true",
        "f() {",
        "cat <<END\nno end",
        "echo )",
        "for x in; do",
        "no-such-command",
        "echo one\n\nno-such-command\nno-such-command-either",
        "cd /nowhere",
        "echo ${bad substitution}",
        "break",
        "source /no/such/file",
        "((1/0))",
        "true\nf() {\n  no-such-command\n}\nf",
    ],
)
def test_mistakes_read_as_in_bash_c(shared: AttachedSandbox, mistake: str) -> None:
    said(shared, "x=kept")
    _, expected = shared.admin(f"bash -c {shlex.quote(mistake)}", SOON)
    for _ in range(2):
        assert said(shared, mistake) == expected.decode()
        assert said(shared, "echo $x") == "kept\n"


def test_line_numbers_count_from_each_action(shared: AttachedSandbox) -> None:
    action = "true\nno-such-command\n\nno-such-command"
    expected = "".join(f"bash: line {n}: no-such-command: command not found\n" for n in (2, 4))
    for turn in range(5):
        assert said(shared, action) == expected, f"action {turn + 1}"
        assert said(shared, "no-such-command") == expected.splitlines()[0].replace(
            "line 2", "line 1"
        ) + ("\n")
    shared.run("exit", SOON)
    assert said(shared, action) == expected, "in a new shell"


def test_complaints_of_earlier_actions(sandbox: AttachedSandbox) -> None:
    said(sandbox, f"true\nf() {{ no-such-command; }}\n({GO}; cd /nowhere) &")
    assert said(sandbox, "true") == ""
    assert said(sandbox, "f") == "environment: line 2: no-such-command: command not found\n"
    sandbox.admin("touch /tmp/go", SOON)
    late = b"bash: line 3: cd: /nowhere: No such file or directory\n"
    assert sandbox.settle(SOON) == late
    assert said(sandbox, "no-such-command").encode() == (
        late + b"bash: line 1: no-such-command: command not found\n"
    )


# -- the shell's death


@pytest.mark.parametrize(
    ("action", "status"),
    [
        ("exit 3", 3),
        ("exit", 0),
        ("exec false", 1),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("set -u; echo $missing", 1),
        ("set -e; false; echo not reached", 1),
        ("bash -c 'kill -9 -1'", 137),
        ("trap 'echo bye' EXIT; exit 4", 4),
    ],
)
def test_lost_shell_is_replaced(shared: AttachedSandbox, action: str, status: int) -> None:
    said(
        shared,
        "cd /tmp; x=kept; list=(a 'b c'); f() { echo \"f $x\"; }; umask 077; set -o noclobber",
    )
    execution = shared.run(f"x=lost; echo before\n{action}", SOON)
    assert (execution.ended, execution.status, execution.restarted) == ("itself", status, True)
    assert execution.output.startswith(b"before\n")
    assert b"not reached" not in execution.output
    assert execution.output.endswith(b"bye\n") == ("bye" in action)
    assert execution.seconds < PROMPTLY
    assert execution.cwd == "/tmp"
    state = 'pwd; f; echo "${list[1]}"; umask; [ -o noclobber ] && echo noclobber; echo $-'
    directory, function, item, mask, option, flags = said(shared, state).splitlines()
    assert (directory, function, item, mask) == ("/tmp", "f kept", "b c", "0077")
    assert option == "noclobber"
    assert not {"e", "u"} & set(flags)


def test_state_is_kept_when_it_is_older_than_noclobber(sandbox: AttachedSandbox) -> None:
    said(sandbox, "set -o noclobber")
    said(sandbox, "x=newer; cd /tmp")
    sandbox.run("exit", SOON)
    assert said(sandbox, "echo $x; pwd") == "newer\n/tmp\n"


def test_a_new_shell_has_the_options(sandbox: AttachedSandbox) -> None:
    options = "set -uo pipefail +o hashall -o noglob; shopt -s extglob dotglob; shopt -u sourcepath"
    said(sandbox, options)
    said(sandbox, "f() { case $1 in +([0-9])) echo number;; esac; }; IFS=o")
    shown = "set +o; shopt -p; f 12"
    before = said(sandbox, shown)
    assert sandbox.run("exit", SOON).restarted
    assert said(sandbox, shown) == before
    assert "set +o hashall\n" in before
    assert before.endswith("number\n")


def test_kill_everything(sandbox: AttachedSandbox) -> None:
    # The kernel spares the caller and the first process.
    said(sandbox, "sleep 1000 & disown; kill -9 -1")
    await_only_shell(sandbox)
    assert said(sandbox, "echo alive") == "alive\n"


# -- options, traps and redirections that would disturb the shell's own lines


def test_tracing_shows_the_action_alone(shared: AttachedSandbox) -> None:
    assert said(shared, "set -x") == ""
    # The second plus is the price of a shell that survives unbalanced quotes.
    assert said(shared, "echo hi") == "++ echo hi\nhi\n"
    assert said(shared, "set +x") == "++ set +x\n"
    assert said(shared, "echo hi") == "hi\n"


def test_verbose_shows_the_action_alone(shared: AttachedSandbox) -> None:
    assert said(shared, "set -v") == ""
    assert said(shared, "echo hi") == "hi\n"
    assert said(shared, "echo one\necho two") == "one\necho two\ntwo\n"
    assert said(shared, "set +v") == ""


def test_redirected_for_good(sandbox: AttachedSandbox) -> None:
    assert said(sandbox, "exec 9>&1 >/dev/null") == ""
    assert said(sandbox, "echo silent; (exit 5)") == ""
    assert said(sandbox, "echo $? >&9; exec >&9 9>&-") == "5\n"
    assert said(sandbox, "exec 2>&-; echo on") == "on\n"
    assert sandbox.run("exec >&-; (exit 6)", SOON).status == 6


def test_errexit_lasts_and_spares_our_lines(sandbox: AttachedSandbox) -> None:
    said(sandbox, "x=kept; set -e")
    assert said(sandbox, "false || echo handled") == "handled\n"
    assert said(sandbox, "case $- in *e*) echo on;; esac") == "on\n"
    execution = sandbox.run("false\necho not reached", SOON)
    assert (execution.output, execution.status, execution.restarted) == (b"", 1, True)


def test_error_trap_fires_for_the_action_alone(sandbox: AttachedSandbox) -> None:
    said(sandbox, "trap 'echo failed' ERR")
    assert sandbox.run("false", SOON).output.count(b"failed") >= 1
    assert said(sandbox, "echo $?") == "1\n"
    assert said(sandbox, "true") == ""


def test_functions_named_like_builtins(sandbox: AttachedSandbox) -> None:
    overridden = ("cd", "printf", "declare", "set", "trap", "alias", "shopt", "umask", "return")
    said(sandbox, "x=kept; " + " ".join(f"{name}() {{ echo {name}; }};" for name in overridden))
    assert said(sandbox, "echo $x") == "kept\n"
    assert said(sandbox, "cd") == "cd\n"
    execution = sandbox.run("exit 5", SOON)
    assert (execution.status, execution.output) == (5, b"")
    assert said(sandbox, "echo $x; cd; builtin cd /tmp; pwd") == "kept\ncd\n/tmp\n"


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
        "f() { f & f & wait; }; f",
        "b() { b | b & b; }; b",
    ],
)
def test_timeout_kills(shared: AttachedSandbox, action: str) -> None:
    sandbox = shared
    said(sandbox, "cd /tmp; x=kept; f() { echo function; }")
    timeout = 0.4
    execution = sandbox.run(f"x=lost; echo begun\n{action}\necho NOT", timeout)
    assert (execution.ended, execution.status, execution.restarted) == ("timeout", None, True)
    assert execution.output.startswith(b"begun\n")
    assert b"NOT" not in execution.output
    assert timeout <= execution.seconds < timeout + PROMPTLY
    assert execution.cwd == "/tmp"
    assert said(sandbox, "echo $x; f; ls /tmp/NOT 2>/dev/null; sleep 0.01; pwd") == (
        "kept\nfunction\n/tmp\n"
    )
    await_only_shell(sandbox)


def test_timeout_spares_earlier_jobs(sandbox: AttachedSandbox) -> None:
    said(sandbox, f"({GO}; echo survived) &")
    assert sandbox.run("sleep 1000", 0.2).ended == "timeout"
    sandbox.admin("touch /tmp/go", SOON)
    assert sandbox.settle(SOON) == b"survived\n"


def test_timeout_spares_what_earlier_jobs_start_meanwhile(sandbox: AttachedSandbox) -> None:
    said(sandbox, f"({GO}; sleep 1000) &")
    started = "until grep -qs '100[0]' /proc/[0-9]*/cmdline; do sleep 0.02; done"
    assert sandbox.run(f"touch /tmp/go; {started}; sleep 999", 2.0).ended == "timeout"
    # The job's, and not the action's, which was killed and has no words any more.
    sleeping = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done | grep '^sleep '"
    assert sandbox.admin(sleeping, SOON) == (0, b"sleep 1000 \n")


def test_bomb_of_an_earlier_action(launch: Launch) -> None:
    sandbox = launch(limits=Limits(pids=128))
    said(sandbox, "x=kept")
    # A busy machine takes its time to fill; an unfinished bomb is no bomb yet.
    sandbox.run("b() { b | b & }; b; while set -- /proc/[0-9]*; [ $# -lt 120 ]; do :; done", 30)
    sandbox.run("sleep 1000", 0.3)
    assert sandbox.run("echo $x; sleep 0.01 && echo forked", 20).output.endswith(b"forked\n")
    await_only_shell(sandbox)


def test_interrupt_from_another_thread(sandbox: AttachedSandbox) -> None:
    said(sandbox, "x=kept")
    timer = threading.Timer(0.3, sandbox.interrupt)
    timer.start()
    execution = sandbox.run("echo begun; sleep 1000", 60)
    timer.join()
    assert (execution.ended, execution.status) == ("cancelled", None)
    assert execution.output == b"begun\n"
    assert 0.2 < execution.seconds < 0.3 + PROMPTLY
    again = sandbox.run("sleep 1000", 60)
    assert again.ended == "cancelled"
    assert again.seconds < PROMPTLY


def test_close_from_another_thread(sandbox: AttachedSandbox) -> None:
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


# -- beside the shell


def test_settle_returns_late_output(sandbox: AttachedSandbox) -> None:
    assert sandbox.settle(SOON) == b""
    said(sandbox, f"({GO}; echo late; echo later >&2) &")
    sandbox.admin("touch /tmp/go", SOON)
    assert sandbox.settle(SOON) == b"late\nlater\n"
    assert said(sandbox, "echo next") == "late\nlater\nnext\n"
    assert said(sandbox, "echo next") == "next\n"


def test_settle_gives_up(sandbox: AttachedSandbox) -> None:
    said(sandbox, f"({GO}; echo late; sleep 1000) &")
    sandbox.admin("touch /tmp/go", SOON)
    began = time.monotonic()
    assert sandbox.settle(0.5) == b"late\n"
    assert 0.5 <= time.monotonic() - began < 0.5 + PROMPTLY


def test_admin(shared: AttachedSandbox) -> None:
    said(shared, "cd /tmp; x=mine; (exit 9)")
    assert shared.admin("echo out; echo err >&2; pwd; echo [$x]; exit 7", SOON) == (
        7,
        b"out\nerr\n/\n[]\n",
    )
    assert shared.admin(r"printf '\0\377X 0 0\n'; cat", SOON) == (0, b"\0\xffX 0 0\n")
    assert shared.admin("seq 300000", SOON)[1] == b"".join(b"%d\n" % n for n in range(1, 300_001))
    assert shared.admin("kill -9 $$", SOON) == (137, b"")
    assert shared.admin("echo 'unbalanced", SOON)[0] == 2
    assert said(shared, "echo $?; pwd; echo $x") == "9\n/tmp\nmine\n"


def test_admin_gives_up(shared: AttachedSandbox) -> None:
    with pytest.raises(FAULTS, match=r"did not finish within 0\.2 s: sleep 2"):
        shared.admin("sleep 2", 0.2)
    assert shared.admin("echo next", SOON) == (0, b"next\n")
    assert said(shared, "echo mine") == "mine\n"


def _tar(*files: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def test_unpack(shared: AttachedSandbox) -> None:
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
    assert said(shared, facts).splitlines() == [
        "regular file|600|1000|1001|2|6|1000000000|'/t/.dot'",
        "regular file|4755|0|0|1|19|1000000000|'/t/tool'",
        "symbolic link|777|0|0|1|8|1000000000|'/t/soft' -> '/nowhere'",
        "regular file|600|1000|1001|2|6|1000000000|'/t/hard'",
        "fifo|640|0|0|1|0|1000000000|'/t/pipe'",
        "regular file|644|0|0|1|3000000|1000000000|'/t/large'",
    ]
    assert said(shared, "stat -c '%F|%a|%u|%g|%h|%Y' /t") == "directory|1777|0|0|2|1000000000\n"
    assert said(shared, "/t/tool; cat /made/on/the/way; ls -A /t | wc -l") == "ran\nx8\n"
    assert said(shared, "printf %s /t/odd*") == "/t/odd \n\udcff"


def test_broken_archive_is_an_error_with_its_reason(shared: AttachedSandbox) -> None:
    with pytest.raises(FAULTS, match=r"files could not be unpacked: .*tar"):
        shared.unpack(b"this is no archive" * 100)
    shared.unpack(_tar(("fine", b"fine")))
    assert said(shared, "cat /fine") == "fine"


@pytest.mark.parametrize("workdir", ["/work/made here", "/it's"])
def test_workdir_is_made(launch: Launch, workdir: str) -> None:
    sandbox = launch(workdir=workdir, hostname="machine", variables=(("NAME", "a value"),))
    assert said(sandbox, 'pwd; hostname; echo "$NAME"') == f"{workdir}\nmachine\na value\n"
    assert PurePosixPath(sandbox.run("cd ..", SOON).cwd) == PurePosixPath(workdir).parent
    assert re.fullmatch(r"[0-9a-f]{12}|bwrap-[0-9a-f]{8}", sandbox.name)
