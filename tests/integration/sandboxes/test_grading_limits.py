"""What an agent leaves so that reading it takes long, or never ends: limits, and their owner."""

from __future__ import annotations

import io
import shlex
import tarfile
import threading
import time

import pytest

from pytest_intercode.errors import SandboxBroken, SandboxError, UngradableState
from pytest_intercode.sandboxes import lister
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.listing import ListingProbe
from pytest_intercode.sandboxes.protocol import Entry
from pytest_intercode.sandboxes.reading import GradingLimits, Reading
from tests.integration.conftest import Launch
from tests.support.backends import Backend

SOON = 30.0
MANY = "mkdir m && cd m && for i in {1..300}; do : >$i; done"


@pytest.fixture(params=["walk", "listing"])
def marked(request: pytest.FixtureRequest, sandbox: AttachedSandbox) -> AttachedSandbox:
    """Return a marked sandbox, that is read from outside or from within."""
    if request.param == "listing":
        sandbox.probe = ListingProbe(sandbox.list_files)
    sandbox.mark()
    if request.param == "walk" and isinstance(sandbox.probe, ListingProbe):
        pytest.skip("only root may read the layers")
    return sandbox


def test_too_many_files(marked: AttachedSandbox) -> None:
    marked.run(MANY, SOON)
    assert len(marked.changes().entries) == 301
    marked.grading = GradingLimits(entries=200)
    with pytest.raises(UngradableState, match="more than"):
        marked.changes()
    assert marked.run("echo on", SOON).output == b"on\n"


def test_too_much_content(marked: AttachedSandbox) -> None:
    marked.run("head -c 3M /dev/urandom >f", SOON)
    marked.grading = GradingLimits(content=2 * 1024**2)
    with pytest.raises(UngradableState, match="more than 2097152 bytes"):
        marked.changes()


def test_sparse_files_are_read_by_what_they_hold(marked: AttachedSandbox) -> None:
    sandbox = marked
    sandbox.grading = GradingLimits(content=64 * 1024**2, seconds=5.0)
    fill = "for i in {1..200}; do truncate -s 256M s$i; done; printf x | dd of=s1 conv=notrunc"
    assert sandbox.run(f"{fill}; head -c 5M /dev/zero >z", SOON).status == 0
    entries = sandbox.changes().entries
    assert len({entry.content for entry in entries.values() if entry}) == 3
    sandbox.run("rm z; truncate -s 5M z", SOON)
    assert sandbox.changes().entries["/z"] == entries["/z"]


@pytest.fixture
def listed(sandbox: AttachedSandbox) -> AttachedSandbox:
    """Return a marked sandbox that is read from within, with a file that is to be listed."""
    sandbox.probe = ListingProbe(sandbox.list_files)
    sandbox.mark()
    sandbox.run("echo x >/f", SOON)
    return sandbox


_SIGNALS = """
import os, signal, sys
spared = {1, os.getpid(), int(sys.argv[1])}
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in spared:
            try:
                os.kill(int(name), signal.SIGNAL)
            except OSError:
                pass
"""


@pytest.mark.parametrize("number", ["SIGKILL", pytest.param("SIGSTOP", marks=pytest.mark.slow)])
def test_a_listing_is_killed_or_stopped(listed: AttachedSandbox, number: str) -> None:
    listed.grading = GradingLimits(seconds=2.0)
    script = shlex.quote(_SIGNALS.replace("SIGNAL", number))
    began = time.monotonic()
    for _ in range(3):
        listed.run(f"(exec python3 -c {script} $$) >/dev/null 2>&1 &", SOON)
        time.sleep(0.3)
        with pytest.raises(UngradableState, match=r"could not be listed|more than 2 s"):
            listed.changes()
        assert listed.run("true", SOON).ended == "itself"
    assert time.monotonic() - began < 60
    listed.halt()
    assert listed.changes().entries.keys() == {"/f"}


_REACHES = """
import os, sys, time
answers = os.open(f"/proc/{sys.argv[1]}/fd/201", os.O_RDWR)
open("/dev/shm/begun", "w").close()
time.sleep(0.3)  # until the action has ended
while True:
    DO
"""


@pytest.mark.parametrize(
    "do",
    [
        "os.write(answers, b'e' + bytes(99))",
        "os.read(answers, 1)",
        "os.write(answers, os.read(answers, 65536).replace(b'is-true', b'is-fake'))",
    ],
)
def test_answers_are_forged(listed: AttachedSandbox, do: str) -> None:
    """The agent's shell holds the pipe of the answers, so that its children can open it."""
    listed.grading = GradingLimits(seconds=2.0)
    script = shlex.quote(_REACHES.replace("DO", do))
    begun = "until [ -e /dev/shm/begun ]; do sleep 0.02; done"
    listed.run(f"echo x >/is-true; (exec python3 -c {script} $$) & {begun}", SOON)
    time.sleep(0.6)
    failed = 0
    for _ in range(3):
        try:
            assert listed.changes().entries.keys() == {"/f", "/is-true"}
        except (UngradableState, SandboxBroken):  # each of them is the agent's fault
            failed += 1
    assert failed or "replace" in do  # which may come too late each time


_LOOKS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
mine, last, met = {os.getpid(), int(sys.argv[1])}, 0, 0
while not os.path.exists("/stop"):
    # The numbers of processes that come next, too: the moment after a start is the weakest.
    known = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    last = max(known)
    for pid in [*known, *range(last + 1, last + 6)]:
        if pid in mine:
            continue
        met += os.path.exists(f"/proc/{pid}")
        for name in ("mem", "fd/0", "fd/1", "environ", "cwd"):
            try:
                flags = os.O_RDWR if name == "mem" else os.O_RDONLY
                os.close(os.open(f"/proc/{pid}/{name}", flags))
                print("looked into", pid, name)
            except OSError:
                pass
        if libc.ptrace(0x4206, pid, None, None) == 0:
            print("traced", pid)
print("met", met > 100)
"""


@pytest.mark.slow
def test_nobody_looks_into_a_listing(listed: AttachedSandbox) -> None:
    """From its first instruction on: it is a fork of the keeper, and no program is executed."""
    script = shlex.quote(_LOOKS)
    listed.run(f"(exec python3 -c {script} $$ >/seen 2>&1) &", SOON)
    for _ in range(20):
        assert listed.changes().entries["/f"]
    listed.run(": >/stop", SOON)  # by no process that may be looked into
    listed.settle(5.0)
    assert listed.run("cat /seen", SOON).output == b"met True\n"


def test_programs_of_the_sandbox_are_not_asked(listed: AttachedSandbox) -> None:
    lie = r"printf '#!/bin/sh\ntouch /called\nexit 0\n' >/lie; chmod 755 /lie; "
    ours = "/usr/local/bin"  # where the programs lie on what is only read
    programs = "find sha256sum stat tar mountpoint bash sh setpriv env printf rm"
    listed.run(
        f"{lie} echo /lie.so >/etc/ld.so.preload; export LD_PRELOAD=/lie.so BASH_ENV=/lie; "
        f"for p in {programs}; do ln -f /lie $(command -v $p) || ln -f /lie {ours}/$p; done",
        SOON,
    )
    before = {"/etc/ld.so.preload", "/f", "/lie"}
    changed = listed.changes().entries
    assert before <= changed.keys()
    assert "/called" not in changed
    assert listed.entries(["/f"])["/f"] == changed["/f"]
    assert listed.below(["/f", "/nope"]) == ["/f"]
    with tarfile.open(fileobj=io.BytesIO(listed.archive(["/f", "/etc/ld.so.preload"]))) as archive:
        assert archive.getnames() == ["f", "etc/ld.so.preload"]


def test_closing_ends_a_reading(marked: AttachedSandbox) -> None:
    marked.run(MANY, SOON)
    marked.grading = GradingLimits(seconds=60.0)
    ended: list[BaseException] = []

    def read() -> None:
        try:
            while True:
                marked.changes()
        except SandboxError as error:
            ended.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.1)
    marked.close()
    thread.join(5.0)
    assert not thread.is_alive()
    assert len(ended) == 1


def test_a_file_changes_at_the_tick_of_the_mark(sandbox: AttachedSandbox) -> None:
    """With the size, and maybe the times, that it had at the mark."""
    for turn in range(20):
        sandbox.admin(f"printf {turn:05} >/f", SOON)
        sandbox.mark()
        sandbox.run(f"printf x{turn:04} >/f", SOON)
        assert sandbox.changes().entries.keys() == {"/f"}


def test_a_file_is_changed_through_shared_memory(marked: AttachedSandbox) -> None:
    write = "import mmap; data = mmap.mmap((f := open('f', 'r+b')).fileno(), 5); data[0:1] = b'x'"
    marked.admin("printf hello >/f", SOON)
    marked.mark()
    done = marked.run(f'python3 -c "{write}"', SOON)
    assert done.status == 0, done.output
    assert marked.changes().entries.keys() == {"/f"}


def test_odd_things_in_a_files_place(marked: AttachedSandbox) -> None:
    odd = (
        "mkfifo a; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"b\")'; "
        "ln -s c c; ln -s e d; ln -s d e; echo x >f; chmod 0 f; (exec 3<>a; sleep 1000) &"
    )
    marked.run(f"mkdir /o; cd /o; {odd}", SOON)
    entries = marked.changes().entries
    kinds = {path[3:]: entry.type for path, entry in entries.items() if entry}
    assert kinds == {"": "d", "a": "p", "b": "s", "c": "l", "d": "l", "e": "l", "f": "f"}
    assert entries["/o/f"] == Entry("f", 0, 0, 0, entries["/o/f"].content)  # type: ignore[union-attr]


@pytest.mark.parametrize("where", ["file", "folder"])
def test_files_that_change_while_they_are_read(marked: AttachedSandbox, where: str) -> None:
    job = {
        "file": "while :; do head -c 3M /dev/urandom >f; mkfifo p; mv p f; echo x >g; mv g f; done",
        "folder": "while :; do mkdir -p a/b/c; mv a z; mkdir a; rm -r z a; done",
    }[where]
    marked.run(f"mkdir /w; cd /w; ({job}) 2>&- &", SOON)
    probe = marked.probe
    assert probe is not None
    for _ in range(50):
        assert probe.changes(Reading(GradingLimits(seconds=5.0))).entries["/w"]


def test_a_machine_without_a_program(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lister, "MACHINES", ("riscv64",))
    words = r"a sandbox on \w+ cannot be graded: .* is there for riscv64 only"
    with pytest.raises(SandboxError, match=words):
        # Where it is needed it is asked for as soon as the sandbox starts.
        ListingProbe(launch().list_files).mark()


def test_scratch_is_not_graded(launch: Launch) -> None:
    sandbox = launch(scratch=("/tmp", "/srv/scratch"))
    sandbox.probe = ListingProbe(sandbox.list_files, {*sandbox.outside, *sandbox.spec.scratch})
    sandbox.mark()
    sandbox.run("echo x | tee /tmp/x /srv/scratch/x >/srv/x", SOON)
    assert sandbox.changes().entries.keys() == {"/srv/x"}


def test_a_user_of_the_task(backend: Backend, launch: Launch) -> None:
    """Who acts is nobody, whose files are read by root all the same."""
    if isinstance(backend.engine, Bubblewrap) and not backend.engine.all_ids:
        pytest.skip("sandboxes know root alone here")
    sandbox = launch(user="nobody")
    sandbox.probe = ListingProbe(sandbox.list_files)
    sandbox.mark()
    made = sandbox.run("mkdir -m 700 /tmp/d; echo x >/tmp/d/x; chmod 0 /tmp/d/x; id -u", SOON)
    assert made.output == b"65534\n"
    entries = sandbox.changes().entries
    assert entries.keys() == {"/tmp/d", "/tmp/d/x"}
    inside = entries["/tmp/d/x"]
    assert inside is not None
    assert (inside.mode, inside.uid, len(inside.content)) == (0, 65534, 64)
