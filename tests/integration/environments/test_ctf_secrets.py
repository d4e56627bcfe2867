"""What an agent of ctf cannot find: the flag, the text of setup, the memory of a service.

The search reads every file, and what it may read of every process, with the rights that an agent
has. A test of its own shows that it finds what there is to be found.
"""

from __future__ import annotations

import functools

import pytest

from pytest_intercode.core.task import FileSpec
from pytest_intercode.environments.ctf.paper import PaperCtfEnvironment
from pytest_intercode.environments.ctf.strict import CtfEnvironment
from pytest_intercode.errors import TaskError
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.support import puzzles
from tests.support.puzzles import Start

SECRET = "Zq7_the_secret_of_this_puzzle"
FLAG = f"flag{{{SECRET}}}"

# Prints where the secret is. The word is put together here, and this process is left out.
SEARCH = f"""\
python3 - <<'EOF'
import os

secret = "{SECRET[:9]}".encode() + "{SECRET[9:]}".encode()


def look(place, path):
    try:
        with open(path, "rb") as file:
            if secret in file.read():
                print(place, path)
    except OSError:
        pass


for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = [f for f in folders if f not in ("proc", "sys")]
    if os.statvfs(folder).f_flag & os.ST_RDONLY:  # the machine's own programs: nothing is put there
        folders[:] = []
        continue
    if any(secret in name.encode("utf-8", "surrogateescape") for name in folders + files):
        print("name", folder)
    for name in files:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            look("file", path)
for process in filter(str.isdigit, os.listdir("/proc")):
    if int(process) == os.getpid():
        continue
    for name in ("cmdline", "environ", "comm"):
        look(name, f"/proc/{{process}}/{{name}}")
    try:
        for name in os.listdir(f"/proc/{{process}}/fd"):
            path = f"/proc/{{process}}/fd/{{name}}"
            if os.path.isfile(path):
                look("fd", path)
        maps = open(f"/proc/{{process}}/maps").read().splitlines()
        memory = open(f"/proc/{{process}}/mem", "rb")
    except OSError:
        continue
    for line in maps:
        first, last = (int(word, 16) for word in line.split()[0].split("-"))
        try:
            memory.seek(first)
            if secret in memory.read(last - first):
                print("memory", f"/proc/{{process}}")
        except (OSError, OverflowError, ValueError):
            pass
print("searched")
EOF
"""

SERVER = """\
import ctypes, os, socket

{first}
os.unlink("server.py")
listener = socket.create_server(("127.0.0.1", 4000))
while True:
    peer, _ = listener.accept()
    with peer:
        peer.sendall(b"wrong\\n" if peer.recv(100) != b"sesame\\n" else b"FLAG\\n")
""".replace("FLAG", FLAG)

START = """\
python3 server.py >/dev/null 2>&1 &
until (exec 3<>/dev/tcp/127.0.0.1/4000) 2>/dev/null; do sleep 0.02; done
"""

CLOSED = "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody looks in"


def server(first: str) -> dict[str, FileSpec]:
    return {"server.py": FileSpec("file", SERVER.replace("{first}", first).encode())}


provider, new_episode = puzzles.provider, puzzles.start  # fixtures


@pytest.fixture
def start(new_episode: Start) -> Start:
    """Return the factory of episodes, with the flag of these tests."""
    return functools.partial(new_episode, **{"gold": (FLAG,), "action_timeout": 60.0})


def search(env: CtfEnvironment) -> list[str]:
    """Return what an agent finds, without the numbers of processes."""
    *found, end = env.step(SEARCH)[0].splitlines()
    assert end == "searched"
    return sorted({"/proc/N" if "/proc/" in line else line for line in found})


@pytest.mark.slow
def test_the_search_finds_what_is_there(start: Start) -> None:
    env = start(
        files={"a/note": FileSpec("file", f"--{FLAG}--".encode())} | server("pass"),
        setup=(START,),
    )
    assert search(env) == ["/proc/N", "file /ctf/a/note"]


@pytest.mark.parametrize(
    "kind", [CtfEnvironment, pytest.param(PaperCtfEnvironment, marks=pytest.mark.slow)]
)
def test_the_flag_is_not_in_the_sandbox(start: Start, kind: type[CtfEnvironment]) -> None:
    """Nor is the text of setup, though it ran there and left two programs and a file behind."""
    env = start(
        kind,
        files={"note": FileSpec("file", b"nothing\n")},
        setup=(
            f"printf %s '{FLAG}' | sha256sum >digest; sleep 1000 & # {SECRET}",
            f"secret={SECRET}\nexport other=1\n(sleep 0.2; exec sleep 1001) &\necho {SECRET}",
        ),
    )
    assert env.step("cat note; wc -c <digest; pgrep -c sleep")[0] == "nothing\n68\n2\n"
    assert search(env) == []
    hidden = "cat /proc/1/environ /proc/1/mem; ls -l /proc/1/fd/ /proc/1/exe; env; declare -p"
    assert SECRET not in env.step(hidden)[0]
    assert not env.step("ls /var/run/docker.sock /run/docker.sock")[0].startswith("/")


def test_a_service_that_can_only_be_talked_to(start: Start, provider: SandboxProvider) -> None:
    env = start(files=server(CLOSED), setup=(START,), max_turns=99)
    ask = "exec 3<>/dev/tcp/127.0.0.1/4000; echo {} >&3; head -n 1 <&3"
    assert env.step(ask.format("please"))[0] == "wrong\n"
    pid = env.step("pgrep -f server.py")[0].strip()
    assert pid.isdigit()
    assert search(env) == []
    for what in ("mem", "environ", "maps", "auxv"):
        assert "Permission denied" in env.step(f"head -c 1 /proc/{pid}/{what}")[0], what
    for what in ("exe", "cwd", "root", "fd/0"):
        assert env.step(f"readlink /proc/{pid}/{what}")[0] == "", what
    assert "Permission denied" in env.step(f"ls /proc/{pid}/fd /proc/{pid}/map_files")[0]
    for looker in (f"timeout 5 strace -p {pid}", f"gdb -batch -p {pid} 2>&1"):
        said = env.step(looker)[0]
        if "not found" not in said and "No such file" not in said:
            assert "Operation not permitted" in said
        else:  # the machine's own programs
            assert provider.choice.backend == "bubblewrap"
    assert env.step("ls /ctf")[0] == ""


def test_a_service_outlives_what_happens_to_actions(start: Start) -> None:
    env = start(files=server(CLOSED), setup=(START,), action_timeout=0.5, max_turns=99)
    ask = "exec 3<>/dev/tcp/127.0.0.1/4000; echo sesame >&3; head -n 1 <&3"
    for rough in ("sleep 60", "while :; do :; done", "exit 3", "kill -9 $$", "sleep 60 & sleep 60"):
        env.step(rough)
        assert env.step(ask)[0] == f"{FLAG}\n", rough
    assert env.step(f"submit {FLAG}")[1] == 1.0


def test_setup_that_leaves_its_shell_behind_is_a_mistake(start: Start) -> None:
    with pytest.raises(TaskError, match="task 't': setup left a copy of its shell at work"):
        start(setup=(f"secret={SECRET}; (while :; do sleep 1; done) &",))


def test_setup_that_fails_is_told_with_its_output(start: Start) -> None:
    with pytest.raises(TaskError, match=r"'echo no luck; exit 3' ended with status 3: no luck$"):
        start(setup=("true", "echo no luck; exit 3"))
    with pytest.raises(TaskError, match="status 127: setup: line 2: nosuch: command not found"):
        start(setup=("nosuch",))
