"""Which system calls a sandbox may make: one process in it tries them all."""

from __future__ import annotations

import errno
import json
import platform
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.sandboxes import seccomp
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.docker.podman import is_podman
from pytest_intercode.sandboxes.protocol import SandboxSpec
from tests.support import call_prober
from tests.support.backends import Backend, DockerBackend

SOON = 30.0
MACHINE = platform.machine()
REFUSED = {errno.EPERM, errno.ENOSYS}
KILLED = -signal.SIGSYS
PROBER = Path(call_prober.__file__).read_text("utf-8")

pytestmark = pytest.mark.skipif(
    MACHINE not in ("x86_64", "aarch64"), reason="no filter for this machine"
)


def command() -> list[str]:
    known = json.dumps(seccomp.numbers(MACHINE))
    return ["python3", "-I", "-c", PROBER, str(seccomp.NEWEST), known]


@pytest.fixture(scope="module")
def answers(backend: Backend) -> dict[str, Any]:
    """What the kernel answers to a process in a sandbox."""
    sandbox = backend.engine.launch(SandboxSpec(backend.image))
    done = sandbox.run(shlex.join(command()), SOON)
    sandbox.close()
    assert done.status == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def allowed(answers: dict[str, Any]) -> set[int]:
    return {int(number) for number, error in answers["calls"].items() if error not in REFUSED}


# What the kernel itself answers so to arguments without any sense, or never asks a filter about.
SENSELESS = {"setsid", "futex", "setgroups"}
UPROBE = 336
NEW = 451  # engines, and the libraries that they use, may not know calls from here on


def test_every_call_is_as_in_the_table(answers: dict[str, Any]) -> None:
    ours = seccomp.numbers(MACHINE)
    table = {ours[name] for name in seccomp.ALLOWED if name in ours}
    assert allowed(answers) - {UPROBE} <= table
    missing = table & set(map(int, answers["calls"])) - allowed(answers)
    missing -= {ours[name] for name in SENSELESS}
    assert {number for number in missing if number < NEW} == set()
    assert answers["clone3"] == errno.ENOSYS


def test_no_wider_than_dockers_own(backend: Backend, answers: dict[str, Any]) -> None:
    if not isinstance(backend, DockerBackend) or is_podman(backend.api.info()):
        pytest.skip("the engine's own profile is the engine's")
    api = backend.api
    assert isinstance(backend.engine, DockerEngine)
    ours = backend.engine._host_config(SandboxSpec(backend.image))
    config = {"SecurityOpt": ["no-new-privileges"], "Ulimits": ours["Ulimits"]}
    # A first process leads its session, and cannot begin one.
    started = ["bash", "-c", f"{shlex.join(command())}; exit"]
    container = api.create_container(backend.image, started, host_config=config)
    try:
        api.start(container)
        assert api.wait(container)["StatusCode"] == 0
        theirs = json.loads(api.logs(container, stderr=False))
    finally:
        api.remove_container(container, force=True)
    known = seccomp.numbers(MACHINE)
    later = {known[name] for name in known if name.startswith("pkey_")}  # in it since 2023
    here = {number for number in allowed(answers) if number < NEW} - later - {known["setsid"]}
    assert here < allowed(theirs)


def test_sockets_of_no_use_are_refused(answers: dict[str, Any]) -> None:
    """Those of virtual machines pass network namespaces, so no namespace keeps a sandbox's in."""
    made = {words for words, error in answers["sockets"].items() if error == 0}
    assert {int(words.split()[0]) for words in made} == {1, 2, 10, 16}
    assert {words for words in made if words.split()[0] == "2"} == {
        *("2 1 0", "2 1 6", "2 2 0", "2 2 17"),
        *({"2 2 1"} & made),  # as the kernel's setting ping_group_range says
    }
    others = {
        words: error
        for words, error in answers["sockets"].items()
        if int(words.split()[0]) not in (1, 2, 10, 16)
    }
    assert set(others.values()) == {errno.EPERM}
    assert [family for family, error in enumerate(answers["pairs"]) if not error] == [1]
    assert set(answers["pairs"][2:]) == {errno.EPERM}


def test_arguments(answers: dict[str, Any]) -> None:
    assert answers["clones"].pop("0") == 0
    assert set(answers["clones"].values()) == {errno.EPERM}
    assert answers["personalities"] == {
        **{str(value): 0 for value in (0xFFFFFFFF, 0, 8, 0x20000)},
        **{str(value): errno.EPERM for value in (0x40000, 0x100000, 0x400000)},
    }
    for name in ("TIOCSTI", "TIOCLINUX", "TIOCSETD"):
        assert answers[name] == [errno.EPERM, errno.EPERM], name
    assert answers["TCGETS"] == 0


@pytest.mark.skipif(MACHINE != "x86_64", reason="only there are two more ways to call")
def test_other_ways_to_call(answers: dict[str, Any]) -> None:
    """The numbers of i386 and x32 mean other calls, and those of sockets hide their arguments."""
    assert answers["x32"] in (errno.ENOSYS, errno.EPERM, KILLED)
    assert set(answers["i386"].values()) <= {errno.ENOSYS, errno.EPERM, KILLED}


PYTHON = """
import asyncio, multiprocessing, os, socket, sqlite3, threading
multiprocessing.Pool(2).map(abs, [1, 2])
asyncio.run(asyncio.sleep(0))
socket.getaddrinfo("localhost", 80)
socket.socketpair()
socket.if_nameindex()
thread = threading.Thread(target=os.getpid)
thread.start()
thread.join()
sqlite3.connect("e.db").execute("create table t(a)")
os.memfd_create("m")
os.sched_setaffinity(0, os.sched_getaffinity(0))
print("x")
"""
PROGRAMS = {
    "git": "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -qm x "
    "--allow-empty && git log --format=%s",
    "tar": "mkdir t && echo x >t/f && tar -czf t.tgz t && tar -tzf t.tgz | tail -n 1 | grep -o x; "
    "find t -name f -exec cat {} +",
    "mkfifo": "mkfifo p && (echo x >p &) && cat p",
    "useradd": "useradd -m u && su u -c 'echo x'",
    "gcc": "echo '#include <stdio.h>\nint main(void){puts(\"x\");}' >a.c && gcc -pthread a.c && "
    "./a.out",
    "sqlite3": "sqlite3 -batch d.db \"CREATE TABLE t(a); INSERT INTO t VALUES ('x'); "
    'SELECT a FROM t"',
    "node": "node -e \"require('worker_threads'); require('os').networkInterfaces(); "
    "require('child_process').execSync('true'); console.log('x')\"",
    "perl": "perl -e 'fork // die; wait; print \"x\\n\"' | tail -n 1",
    "python3": f"python3 -c {shlex.quote(PYTHON)}",
}


def test_ordinary_programs_work(backend: Backend) -> None:
    sandbox = backend.engine.launch(SandboxSpec(backend.image, workdir="/work"))
    present = sandbox.run(f"command -v {' '.join(PROGRAMS)}", SOON).output.decode().split()
    names = {name for name in PROGRAMS if any(path.endswith(f"/{name}") for path in present)}
    assert {"tar", "mkfifo", "useradd", "perl", "python3"} <= names
    for name in names:
        done = sandbox.run(f"({PROGRAMS[name]}) 2>&1", SOON)
        assert done.status == 0, (name, done.output)
        assert set(done.output.decode().split()) == {"x"}, (name, done.output)
    sandbox.close()
