"""Programs: what they get, what is heard of them, and that nothing of them is left.

All of it with Linux's supervisor and with the portable one.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pytest_intercode.agents.program.process import Program, describe_exit, find_program
from pytest_intercode.errors import AgentError, AgentLoadError
from tests.support.portable_ways import PRELUDE, ROOT, WAYS, use_portable_ways

_PATIENCE = 60.0

Start = Callable[..., Program]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return each way of ending programs, which is in use meanwhile."""
    if request.param == "portable":
        use_portable_ways(monkeypatch)
    return str(request.param)


@pytest.fixture
def start(tmp_path: Path, way: str) -> Iterator[Start]:
    """Starts programs in a folder of their own, and closes them."""
    programs: list[Program] = []

    def start_one(
        *words: str, variables: dict[str, str] | None = None, pipes: bool = True
    ) -> Program:
        programs.append(Program(words, folder=tmp_path, variables=variables, pipes=pipes))
        return programs[-1]

    yield start_one
    for program in programs:
        program.close()


@pytest.fixture
def mark() -> str:
    """A number that no other process has on its command line, for `sleep`."""
    return f"{10**6 + secrets.randbelow(10**9)}"


def alive(mark: str) -> list[str]:
    """Return the command lines, with their numbers, of living processes that hold the mark."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if mark in line and state not in "ZX":
                found.append(f"{folder.name}: {line}")
    return found


def wait_until(what: Callable[[], object]) -> None:
    """Wait until something is true, or fail."""
    deadline = time.monotonic() + _PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- what a program gets, and what is heard of it


def test_it_talks_over_its_pipes(start: Start) -> None:
    program = start("sh", "-c", "read line; echo got $line; echo beside >&2; exit 3")
    program.stdin.write(b"hello\n")
    program.stdin.flush()
    assert program.stdout.read() == b"got hello\n"
    assert program.wait(_PATIENCE) == 3
    assert program.output() == "beside\n"
    assert program.output() == ""


def test_what_it_printed_is_there_before_its_next_line(start: Start) -> None:
    program = start("sh", "-c", "while read line; do echo beside $line >&2; echo got; done")
    for number in range(100):
        program.stdin.write(b"%d\n" % number)
        program.stdin.flush()
        assert program.stdout.readline() == b"got\n"
        assert program.output() == f"beside {number}\n"


def test_without_pipes_it_reads_nothing_and_all_is_collected(start: Start) -> None:
    program = start("sh", "-c", "cat; echo out; echo err >&2", pipes=False)
    assert program.wait(_PATIENCE) == 0
    assert program.output() == "out\nerr\n"


def test_folder_and_variables(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "key")
    program = start("sh", "-c", "pwd; echo $SOME_API_KEY $MORE", variables={"MORE": "more"})
    assert program.stdout.read().decode() == f"{tmp_path}\nkey more\n"


def test_it_has_three_files_and_ignores_no_signal_that_we_do(start: Start) -> None:
    with Path("/proc/self/stat").open() as file:
        os.set_inheritable(file.fileno(), True)
        files = start("ls", "/proc/self/fd").stdout.read()
    assert files.split() == [b"0", b"1", b"2", b"3"]  # the last is the folder that ls reads
    said = start("grep", "-E", "Sig(Ign|Blk)", "/proc/self/status").stdout.read()
    _, blocked, _, ignored = said.split()
    assert int(blocked, 16) == 0
    ours = {each for each in signal.Signals if signal.getsignal(each) is signal.SIG_IGN}
    python = {signal.SIGPIPE, signal.SIGXFSZ}
    theirs = {each for each in signal.Signals if int(ignored, 16) >> each - 1 & 1}
    assert python <= ours
    assert theirs <= ours - python  # what was ignored when we were started, as under nohup, stays


def test_much_on_standard_error_stops_nobody_and_its_middle_is_forgotten(start: Start) -> None:
    program = start(
        "sh",
        "-c",
        "echo begin >&2; head -c 3000000 /dev/zero | tr '\\0' x >&2; echo end >&2; echo ok",
    )
    assert program.stdout.readline() == b"ok\n"
    said = program.output()
    assert said.startswith("begin\nxxx")
    assert said.endswith("xxxend\n")
    head, notice, tail = said.split("\n[... ")[0], said.split("[... ")[1], said.split("...]\n")[1]
    assert len(head) + len(tail) == 32 * 1024
    assert notice.startswith(f"{3_000_010 - 32 * 1024} characters")


def test_what_is_no_utf8_on_standard_error_is_replaced(start: Start) -> None:
    program = start("sh", "-c", r"printf 'a\377b\303' >&2; read line; printf '\251' >&2")
    said = ""
    while "b" not in said:
        said += program.output()
    program.stdin.write(b"\n")
    program.stdin.flush()
    assert program.wait(_PATIENCE) == 0
    assert said + program.output() == "a\N{REPLACEMENT CHARACTER}bé"


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("exit 0", 0, "exited with status 0"),
        ("exit 7", 7, "exited with status 7"),
        ("kill -TERM $$", -15, "was killed by SIGTERM"),
        ("kill -SEGV $$", -11, "was killed by SIGSEGV"),
        ("kill 0; sleep 100", -15, "was killed by SIGTERM"),
    ],
)
def test_how_it_ended(start: Start, command: str, status: int, words: str) -> None:
    program = start("sh", "-c", command)
    assert program.wait(_PATIENCE) == status
    assert describe_exit(status) == words


def test_it_is_waited_for_as_long_as_is_said(start: Start) -> None:
    program = start("cat")
    assert program.wait(0) is None
    program.close()
    assert program.wait(None) is not None


def script_of(text: str, way: str) -> list[str]:
    return [sys.executable, "-c", text if way == "linux" else PRELUDE + text]


def test_where_ended_children_are_ignored(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    script = """
import signal
import socket
from pathlib import Path
from pytest_intercode.agents.program.process import Program
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
program = Program(["sh", "-c", "sleep 0; exit 5"], folder=Path("."))
print(program.wait(60))
program.close()
"""
    done = subprocess.run(script_of(script, way), capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("5\n", "")


# -- what cannot be started


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no program is given"),
        ([""], "no program is given"),
        (["no-such-program"], "there is no program 'no-such-program' on the PATH"),
        (["plain"], "there is no program 'plain' on the PATH; did you mean './plain'?"),
        (
            ["A=1", "sh"],
            "there is no program 'A=1' on the PATH; use 'env NAME=VALUE program' to set a variable",
        ),
        (["./nothing"], "the program {folder}/nothing does not exist"),
        (["./plain"], "the program {folder}/plain is not executable; run chmod +x on it"),
        (["../{name}"], "the program {folder}/../{name} is a folder, not a program"),
        (["sh", "a\0b"], "'sh': a word of a command line cannot contain a NUL character"),
    ],
)
def test_there_is_no_such_program(words: Sequence[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("not executable")
    words = [word.format(name=tmp_path.name) for word in words]
    with pytest.raises(AgentLoadError) as caught:
        find_program(words, tmp_path)
    assert str(caught.value) == message.format(folder=tmp_path, name=tmp_path.name)


def test_a_script_that_does_not_say_what_it_is(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    with pytest.raises(AgentError, match=r"^\./script cannot be started: .*#!/usr/bin/env python3"):
        start("./script")
    script.write_text("#!/bin/sh\necho hello\n")
    assert start("./script").stdout.read() == b"hello\n"


@pytest.mark.usefixtures("way")
def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"^sh cannot be started: .*No such file or directory"):
        Program(["sh"], folder=tmp_path / "nowhere")


# -- nothing is left

_DEAF = "trap '' TERM HUP INT; "

# Each prints a line when all that it starts is there.
_TREES = {
    "child": "sleep {mark} & echo there; wait",
    "deaf": _DEAF + "sleep {mark} & echo there; wait; wait",
    "nohup": "nohup sleep {mark} >nohup.out 2>&1 & echo there; wait",
    "session": "setsid sleep {mark} & echo there; wait",
    "daemon": "(setsid sh -c 'sleep {mark} & sleep {mark}; :' >/dev/null 2>&1 &); echo there; cat",
    "deaf daemon": '(setsid sh -c "' + _DEAF + 'sleep {mark}; :" &); echo there; cat',
    "stopped": "sh -c 'kill -STOP $$; sleep {mark}' & echo there; wait",
    "bare": "env -i setsid sleep {mark} & echo there; wait",
    # Without its parent and without the mark; only who has looked before knows whose it is.
    "bare orphan": "(env -i setsid sleep {mark} & sleep 1); echo there; cat",
    "bare in a session": "setsid sh -c 'sleep 1; env -i sleep {mark} &'; echo there; cat",
    "bare child of an orphan": "(setsid sh -c 'sleep 1; env -i setsid sleep {mark}' &); sleep 1; "
    "echo there; cat",
}

_HOPPER = """
import os, sys, time
until = time.monotonic() + 60  # in case the test fails
for _ in range(3):
    if os.fork() == 0:
        break
print("there", flush=True)
while time.monotonic() < until:
    if os.fork():
        os._exit(0)
"""

_BOMB = """
import os, sys, time
print("there", flush=True)
for _ in range(7):
    os.fork()
time.sleep(60)
"""


@pytest.mark.parametrize("tree", _TREES)
def test_closing_leaves_nothing(start: Start, mark: str, tree: str) -> None:
    program = start("sh", "-c", _TREES[tree].format(mark=mark))
    assert program.stdout.readline() == b"there\n"
    wait_until(lambda: alive(mark))
    program.close()
    assert alive(mark) == []
    program.close()


# In the process group of its supervisor, which may not stop itself.
_NEIGHBOUR = (
    """
import os, time
os.setpgid(0, os.getppid())
"""
    + _HOPPER
)


@pytest.mark.parametrize(
    "script", [_HOPPER, _BOMB, _NEIGHBOUR], ids=["hopper", "bomb", "neighbour"]
)
@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1])
def test_closing_stops_what_forks_and_forks(
    start: Start, mark: str, script: str, delay: float
) -> None:
    program = start(sys.executable, "-IS", "-c", script, mark)
    assert program.stdout.readline() == b"there\n"
    time.sleep(delay)
    program.close()
    assert alive(mark) == []


def test_others_are_left_alone(start: Start, mark: str) -> None:
    """A process of ours, one in its own session, and another program."""
    other_mark = f"{int(mark) + 1}"
    ours = [
        subprocess.Popen(["sleep", other_mark], start_new_session=new_session)
        for new_session in (False, True)
    ]
    other = start("sh", "-c", f"(setsid sleep {other_mark} &); echo there; cat")
    assert other.stdout.readline() == b"there\n"
    try:
        for ending in ("exit 0", "sleep 0.5; kill -KILL $PPID; sleep 100"):
            program = start("sh", "-c", f"(setsid sleep {mark} &); {ending}")
            assert program.wait(_PATIENCE) is not None
            assert alive(mark) == []
            assert len(alive(f"sleep {other_mark}")) >= 3
            assert other.wait(0) is None
        other.close()
        assert len(alive(other_mark)) == 2
    finally:
        for process in ours:
            process.kill()
            process.wait()


def test_a_program_that_ends_takes_its_children_along(start: Start, mark: str) -> None:
    program = start("sh", "-c", f"(setsid sleep {mark} &); (sleep {mark} &); exit 4")
    assert program.wait(_PATIENCE) == 4
    assert alive(mark) == []
    assert program.stdout.read() == b""  # nobody holds it any more


@pytest.mark.parametrize("how", ["KILL", "TERM"])
def test_a_program_that_kills_its_supervisor_is_killed(start: Start, mark: str, how: str) -> None:
    program = start(
        "sh", "-c", f"(setsid sleep {mark} &); read line; kill -{how} $PPID; sleep {mark}"
    )
    program.stdin.write(b"\n")
    program.stdin.flush()
    assert program.wait(_PATIENCE) == -signal.SIGKILL
    assert alive(mark) == []
    assert program.stdout.read() == b""


def test_a_program_that_stops_its_supervisor_is_killed(start: Start, mark: str) -> None:
    program = start(
        "sh", "-c", f"(setsid sleep {mark} &); read line; kill -STOP $PPID; sleep {mark}"
    )
    program.stdin.write(b"\n")
    program.stdin.flush()
    stat = Path(f"/proc/{program.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    program.close()
    assert alive(mark) == []
    assert program.wait(0) == -signal.SIGKILL


def test_killing_wakes_whoever_reads(start: Start, mark: str) -> None:
    program = start("sh", "-c", f"(setsid sleep {mark} &); sleep {mark}")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(program.stdout.read()))
    reader.start()
    program.kill()
    program.kill()
    reader.join(_PATIENCE)
    assert read == [b""]
    assert program.wait(_PATIENCE) == -signal.SIGKILL
    assert alive(mark) == []


_OWNER = """
import os, sys, time
from pathlib import Path
from pytest_intercode.agents.program.process import Program
sleep = f"sleep {os.environ['MARK']}"
program = Program(["sh", "-c", f"(setsid {sleep} &); {sleep}; :"], folder=Path("."))
fork = os.fork() if "fork" in sys.argv else 0
if "fork" in sys.argv and fork == 0:
    program.close()  # not its own
    time.sleep(60)
    os._exit(0)
time.sleep(0.2)
print(fork, program.wait(0), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("fork", ["", "fork"])
def test_it_dies_with_who_started_it(mark: str, way: str, fork: str) -> None:
    """Also where a fork of that one holds copies of its files."""
    with subprocess.Popen(
        [*script_of(_OWNER, way), fork],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "MARK": mark, "PYTHONPATH": str(ROOT)},
    ) as owner:
        assert owner.stdout is not None
        forked, status = owner.stdout.readline().split()
        assert status == "None"
        assert len(alive(mark)) > 1
        owner.kill()
        wait_until(lambda: not alive(mark))
        if fork:
            os.kill(int(forked), signal.SIGKILL)


def _held() -> tuple[int, int, int]:
    children = [
        line
        for line in Path("/proc").iterdir()
        if line.name.isdigit() and _parent(line) == os.getpid()
    ]
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), len(children)


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def test_many_leave_no_file_no_thread_and_no_zombie(start: Start) -> None:
    start("true").close()
    before = _held()
    for number in range(20):
        program = start("sh", "-c", "echo hello; (sleep 100 &); read line")
        assert program.stdout.readline() == b"hello\n"
        if number % 2:
            program.stdin.close()
            assert program.wait(_PATIENCE) == 1  # what ``read`` says at the end of its input
        program.close()
    # What other tests have left may end meanwhile.
    assert all(now <= then for now, then in zip(_held(), before, strict=True))


def test_many_at_once(start: Start, mark: str) -> None:
    said: list[bytes] = []

    def one() -> None:
        program = start("sh", "-c", f"echo hello; (sleep {mark} &); cat")
        said.append(program.stdout.readline())
        program.close()

    threads = [threading.Thread(target=one) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE)
    assert said == [b"hello\n"] * 16
    assert alive(mark) == []


def test_a_start_that_is_interrupted_leaves_nothing(
    start: Start, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An episode that is cancelled raises an exception wherever its thread is."""

    class Interruption(BaseException):
        pass

    class Receiver(socket.socket):
        def recv(self, size: int, flags: int = 0) -> bytes:
            if threading.current_thread() is threading.main_thread():
                raise Interruption
            return super().recv(size, flags)

    def make_pair() -> tuple[socket.socket, socket.socket]:
        own, other = real_pair()
        return Receiver(own.family, own.type, own.proto, own.detach()), other

    real_pair = socket.socketpair
    monkeypatch.setattr("pytest_intercode.agents.program.process.socket.socketpair", make_pair)
    with pytest.raises(Interruption):
        start("sleep", mark)
    assert not alive(mark)
