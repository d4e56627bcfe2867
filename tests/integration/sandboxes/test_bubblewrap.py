"""What is bubblewrap's own: what of the host can be seen, who may use it, and what it leaves."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_intercode.core.task import Limits
from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap, disk_size
from pytest_intercode.sandboxes.bubblewrap.hosttree import _ETC, _Tree
from pytest_intercode.sandboxes.bubblewrap.mounts import open_in_root
from pytest_intercode.sandboxes.bubblewrap.process import _find_id_range
from pytest_intercode.sandboxes.bubblewrap.sandbox import BubblewrapSandbox
from pytest_intercode.sandboxes.protocol import HOST, SandboxSpec
from pytest_intercode.system.files import bundled_folder
from tests.support.backends import mounts

SOON = 30.0
MIB = 1024**2
_OWNER, _PARENT = 0xB701, 0xB702  # ioctl_ns(2): of any namespace, and of one of users
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def box(bubblewrap: Bubblewrap) -> Iterator[BubblewrapSandbox]:
    started = bubblewrap.launch(SandboxSpec(HOST, workdir="/work", limits=Limits(pids=64)))
    yield started
    started.close()


def said(box: BubblewrapSandbox, action: str) -> str:
    execution = box.run(action, SOON)
    assert execution.ended == "itself", execution
    return execution.output.decode()


def python(box: BubblewrapSandbox, text: str) -> str:
    return said(box, f"python3 - <<'EOF'\n{textwrap.dedent(text)}\nEOF")


# -- what of the host can be seen


def test_only_what_is_on_the_list(box: BubblewrapSandbox, tmp_path: Path) -> None:
    Path(tmp_path, "secret").write_text("the host's")
    private = [tmp_path, Path.home() / ".ssh", ROOT, bundled_folder("tasks") / "bash.yaml"]
    private += [Path("/var/run/docker.sock"), Path("/run/user"), Path("/sys/kernel")]
    for path in private:
        assert box.run(f"stat '{path}'", SOON).status == 1, path
    assert said(box, "ls -A /home /root /srv /mnt /media /opt /boot /sys /tmp | grep -v :") == (
        "\n" * 8
    )
    ours = {"passwd", "group", "shadow", "gshadow", "hostname", "hosts", "resolv.conf", "default"}
    etc = set(said(box, "ls -A /etc").split())
    assert etc <= {name.partition("/")[0] for name in _ETC} | ours
    assert said(box, "ls -A /usr/src /usr/local/src | grep -v :") == "\n"
    users = {line.partition(":")[0] for line in Path("/etc/passwd").read_text().splitlines()}
    ordinary = {name for name in users if Path("/home", name).is_dir()}
    assert not ordinary & set(said(box, "cut -d: -f1 /etc/passwd").split())


def test_files_with_a_password_are_left_out(tmp_path: Path) -> None:
    for name, url in {
        "proxy": "http://bob:secret@proxy:3128",
        "plain": "http://proxy:3128",
    }.items():
        (tmp_path / name).write_text(f'Acquire::http::Proxy "{url}";\n')
    tree = _Tree()
    tree.copy(str(tmp_path).lstrip("/"))
    assert {name.rpartition("/")[2] for name, *_ in tree.entries} >= {"plain"}
    assert b"secret" not in b"".join(tree.contents)
    assert not [name for name, *_ in tree.entries if name.endswith("proxy")]


def test_variables_are_not_inherited(box: BubblewrapSandbox) -> None:
    names = {line.partition("=")[0] for line in said(box, "env").splitlines()}
    assert names <= {"PATH", "HOME", "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_"}


def test_hidden_folders_are_empty() -> None:
    """Also one in another one, as a project in /usr/src is."""
    inner = next(path for path in Path("/usr/share/doc").iterdir() if path.is_dir())
    engine = Bubblewrap(hidden=["/usr/share/doc", str(inner)])
    try:
        box = engine.launch(SandboxSpec(HOST))
        assert said(box, "ls -A /usr/share/doc") == ""
        assert box.run("touch /usr/share/doc/x", SOON).status == 1
    finally:
        engine.close()


def test_no_way_out(box: BubblewrapSandbox) -> None:
    """Processes, sockets, descriptors and mounts of the host."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0pytest-intercode-test")
        listener.listen()
        shown = python(
            box,
            f"""
            import os, socket
            try:
                socket.socket(socket.AF_UNIX).connect("\\0pytest-intercode-test")
            except OSError as error:
                print(error.strerror)
            try:
                os.kill({os.getpid()}, 0)
            except ProcessLookupError:
                print("no such process")
            print(sorted(os.listdir("/proc/self/fd")), os.readlink("/proc/self/ns/net") != "")
            """,
        )
    assert shown == "Connection refused\nno such process\n['0', '1', '2', '3'] True\n"
    numbers = [int(pid) for pid in said(box, "cd /proc; echo [0-9]*; cd /work").split()]
    assert max(numbers) < 1000
    mounts = said(box, "cat /proc/self/mountinfo")
    assert str(ROOT) not in mounts
    for name in ("uts", "ipc", "pid", "mnt", "user", "net", "cgroup"):
        assert said(box, f"readlink /proc/self/ns/{name}").strip() != str(
            Path(f"/proc/self/ns/{name}").readlink()
        )


@pytest.mark.parametrize(
    "call",
    [
        "libc.ptrace(16, 1, 0, 0)",
        "libc.unshare(0x10000000)",
        "libc.setns(os.open('/proc/self/ns/mnt', 0), 0)",
        "libc.mount(b'x', b'/mnt', b'tmpfs', 0, None)",
        "libc.umount2(b'/proc/sys', 2)",
        "libc.pivot_root(b'/', b'/mnt')",
        "libc.syscall(442, -1, b'/', 0, 0, 0)",
        "libc.syscall(425, 8, 0)",
        "libc.clone(0, 0, 0x10000000, 0)",
        "libc.ioctl(os.openpty()[1], 0x5412, b'x')",
        "libc.sethostname(b'x', 1)",
        "libc.setrlimit(7, (ctypes.c_ulong * 2)(1 << 40, 1 << 40))",
    ],
)
def test_refused_calls(box: BubblewrapSandbox, call: str) -> None:
    shown = python(
        box,
        f"""
        import ctypes, errno, os
        libc = ctypes.CDLL(None, use_errno=True)
        print({call}, errno.errorcode.get(ctypes.get_errno()))
        """,
    )
    assert shown in ("-1 EPERM\n", *(["-1 EINVAL\n"] if "clone" in call else []))


def test_system_is_read_only(box: BubblewrapSandbox) -> None:
    for path in ("/usr/x", "/usr/bin/x", "/proc/sys/kernel/x", "/dev/x"):
        assert box.run(f": >{path}", SOON).status == 1, path
    assert box.run("echo 1 >/proc/sys/kernel/panic", SOON).status == 1
    assert said(box, "echo x >/etc/x && cat /etc/x; rm /etc/x") == "x\n"


@pytest.mark.parametrize("guarded", [True, False])
def test_rights_of_the_first_process(bubblewrap: Bubblewrap, guarded: bool) -> None:
    box = bubblewrap.launch(SandboxSpec(HOST, guarded=guarded))
    rows = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{box.pid}/status").read_text().splitlines()
        if ":\t" in line
    )
    keeps = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7))
    keeps |= 1 << 8 if guarded and not bubblewrap.all_ids else 0  # SETPCAP, which shells lack
    sets = {name: int(rows[f"Cap{name}"], 16) for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
    assert sets == {"Inh": 0, "Prm": keeps, "Eff": keeps, "Bnd": keeps, "Amb": 0}
    assert (rows["NoNewPrivs"], rows["Seccomp"], rows["Seccomp_filters"]) == ("1", "2", "1")
    assert rows["NSpid"].split()[-1] == "1"
    hidden = said(box, "head -c 1 /proc/1/environ 2>&1 || true").endswith("Permission denied\n")
    assert hidden == guarded
    box.close()


@pytest.mark.parametrize("root", [None, False])
def test_namespaces_are_not_the_sandboxs_own(bubblewrap: Bubblewrap, root: bool | None) -> None:
    """Its root has no rights over them: the user namespace was made last, and owns nothing."""
    if root is False and os.geteuid() != 0:
        pytest.skip("only root can become nobody")
    engine = bubblewrap if root is None else Bubblewrap(root=root)
    try:
        box = engine.launch(SandboxSpec(HOST))
        with contextlib.ExitStack() as at_end:

            def opened(path: str, call: int = 0) -> int:
                descriptor = os.open(path, os.O_RDONLY)
                at_end.callback(os.close, descriptor)
                if call:
                    descriptor = fcntl.ioctl(descriptor, call)
                    at_end.callback(os.close, descriptor)
                return os.fstat(descriptor).st_ino

            above = opened(f"/proc/{box.pid}/ns/user", _PARENT)
            assert above != opened(f"/proc/{box.pid}/ns/user")
            for name in ("mnt", "pid", "net", "ipc", "uts", "cgroup"):
                assert opened(f"/proc/{box.pid}/ns/{name}", _OWNER) == above, name
        box.close()
    finally:
        if engine is not bubblewrap:
            engine.close()


def test_links_of_an_image_stay_inside(bubblewrap: Bubblewrap, tmp_path: Path) -> None:
    """Places to mount at are resolved in the sandbox's root, whatever the image has there."""
    host = Path(tmp_path, "host")
    host.mkdir()
    (tmp_path / "shared").mkdir()
    links = {"inner": "/srv", "up": "../../../../../srv", "outer": str(host)}
    links |= {"srv/loop": "/srv/loop", "srv/self": "/proc/self/root"}
    image = f"host+{tmp_path.name}"
    with tempfile.TemporaryFile() as archive:
        with tarfile.open(fileobj=archive, mode="w") as layer:
            for name, target in links.items():
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
                layer.addfile(entry)
        archive.seek(0)
        bubblewrap.add_layer(image, archive, HOST)
    shared = str(tmp_path / "shared")
    spec = SandboxSpec(
        image,
        workdir="/up/work",
        scratch=("/inner/scratch",),
        mounts=((shared, "/inner/rw"),),
        readonly=((shared, "/up/ro"),),
    )
    box = bubblewrap.launch(spec)
    assert said(box, "pwd -P; ls /srv; touch /srv/rw/x; stat -f -c %T /srv/scratch") == (
        "/srv/work\nloop\nro\nrw\nscratch\nself\nwork\ntmpfs\n"
    )
    assert box.run("touch /srv/ro/y", SOON).status == 1
    assert [each.name for each in (tmp_path / "shared").iterdir()] == ["x"]
    box.close()
    for path in ("/outer/scratch", "/srv/loop/scratch", "/srv/self/scratch"):
        with pytest.raises(SandboxError, match=r" as a sandbox: .* in the sandbox: ") as raised:
            bubblewrap.launch(SandboxSpec(image, scratch=(path,)))
        assert "\n" not in str(raised.value)
    assert not list(host.iterdir())


@pytest.mark.parametrize("root", [None, False])
def test_the_network_may_change_from_launch_to_launch(root: bool | None) -> None:
    """Whatever the process that waits for the next launch has prepared."""
    if root is False and os.geteuid() != 0:
        pytest.skip("only root can become nobody")
    engine = Bubblewrap(root=root)
    ours = Path("/proc/self/ns/net").readlink()
    try:
        for network in (False, True, True, False):  # one is prepared two launches before
            box = engine.launch(SandboxSpec(HOST, limits=Limits(network=network)))
            has = said(box, "readlink /proc/self/ns/net").strip()
            assert (has == str(ours)) == network
            box.close()
    finally:
        engine.close()


def test_modes_do_not_follow_the_clients_mask() -> None:
    before = os.umask(0o077)
    try:
        engine = Bubblewrap()
    finally:
        os.umask(before)
    try:
        box = engine.launch(SandboxSpec(HOST, workdir="/work"))
        assert said(box, "umask; stat -c %a / /work /etc") == "0022\n755\n755\n755\n"
    finally:
        engine.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user needs it")
def test_root_needs_no_program(bubblewrap: Bubblewrap, monkeypatch: pytest.MonkeyPatch) -> None:
    if not bubblewrap.grouped:
        pytest.skip("no control groups here")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    engine = Bubblewrap()
    try:
        assert said(engine.launch(SandboxSpec(HOST)), "echo x") == "x\n"
    finally:
        engine.close()


def test_what_keeps_a_sandbox_from_starting_is_one_line(
    bubblewrap: Bubblewrap, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    for spec, why in (
        (SandboxSpec(HOST, hostname="x" * 65), "the host name x+: Invalid argument$"),
        (SandboxSpec(str(tmp_path)), "bash is not in the sandbox$"),
        (SandboxSpec(HOST, mounts=(("/missing", "/x"),)), "/missing on /x in the sandbox: No such"),
    ):
        with pytest.raises(SandboxError, match=f"does not start as a sandbox: {why}"):
            bubblewrap.launch(spec)
    assert [each.name for each in tmp_path.iterdir()] == ["bin"]


def test_a_link_is_found_while_others_rename_files(tmp_path: Path) -> None:
    """The kernel asks to look again wherever anything was moved meanwhile."""
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    storm = "import os\nopen('a', 'w')\nwhile True: os.rename('a', 'b'); os.rename('b', 'a')"
    renaming = subprocess.Popen([sys.executable, "-c", storm], cwd=tmp_path)
    root = os.open(tmp_path, os.O_PATH)
    try:
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            os.close(open_in_root(root, "/var/run"))
    finally:
        renaming.kill()
        renaming.wait()
        os.close(root)


# -- limits


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make control groups for sure")
def test_control_groups(bubblewrap: Bubblewrap) -> None:
    if not bubblewrap.grouped:
        pytest.skip("no control groups here")
    limits = Limits(memory=100 * MIB, pids=40, cpus=0.5)
    box = bubblewrap.launch(SandboxSpec(HOST, limits=limits))
    folders = box.group.folders if box.group else {}
    values = {
        path.name: path.read_text().strip()
        for folder in folders.values()
        for name in ("memory.limit_in_bytes", "memory.max", "pids.max", "cpu.cfs_quota_us")
        if (path := folder / name).exists()
    }
    memory = str(limits.memory + disk_size(limits))
    assert values.pop("memory.limit_in_bytes", memory) == memory
    assert values.pop("memory.max", memory) == memory
    assert values.pop("pids.max") == "40"
    assert values.pop("cpu.cfs_quota_us", "50000") == "50000"
    box.close()
    bubblewrap.launch(SandboxSpec(HOST)).close()  # removes what has ended meanwhile


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
@pytest.mark.usefixtures("bubblewrap")
def test_root_without_control_groups_becomes_nobody() -> None:
    """Nothing else would limit how many processes root starts."""
    engine = Bubblewrap(root=False)
    try:
        box = engine.launch(SandboxSpec(HOST, limits=Limits(pids=32)))
        assert not engine.grouped
        assert Path(f"/proc/{box.pid}").stat().st_uid == engine.owner == 65534
        bomb = box.run("for n in {1..60}; do sleep 100 & done 2>&1; sleep 100", 2)
        assert b"fork: retry: Resource temporarily unavailable" in bomb.output
        assert said(box, "touch /etc/x; stat -c %U /etc/x") == "root\n"
    finally:
        engine.close()


def test_disk_is_limited(bubblewrap: Bubblewrap) -> None:
    box = bubblewrap.launch(SandboxSpec(HOST, limits=Limits(file_size=10 * MIB)))
    fill = "for n in {1..10}; do head -c 9000000 /dev/zero >/tmp/$n || break; done 2>&1"
    assert "No space left on device" in said(box, fill)
    assert said(box, "rm /tmp/*; echo x >/tmp/x; cat /tmp/x") == "x\n"
    box.close()


def test_nothing_is_left(bubblewrap: Bubblewrap) -> None:
    before = mounts()
    engine = Bubblewrap()
    started = engine._starter._process.pid
    groups = engine._groups.patterns(os.getpid())
    boxes = [engine.launch(SandboxSpec(HOST)) for _ in range(3)]
    boxes[0].close()
    engine.close()
    assert not mounts() - before
    assert not any(Path(f"/proc/{pid}").exists() for pid in (started, *(b.pid for b in boxes)))
    for pattern in groups:
        assert not list(Path("/").glob(pattern.lstrip("/")))


# -- the starter's end


def spares(engine: Bubblewrap) -> list[psutil.Process]:
    """Return the starter's processes that wait for a command."""
    children = psutil.Process(engine._starter._process.pid).children()
    return [each for each in children if "python" in each.name()]


def test_a_killed_starter_is_begun_again() -> None:
    engine = Bubblewrap()
    try:
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w") as layer:
                layer.addfile(tarfile.TarInfo("layered"))
            archive.seek(0)
            engine.add_layer("host+layer", archive, HOST)
        for image, file in ((HOST, "/etc/passwd"), ("host+layer", "/layered")):
            box = engine.launch(SandboxSpec(image, guarded=False))
            assert box.run(f"cat {file}", SOON).status == 0
            starter = engine._starter._process.pid
            waiting = spares(engine)
            assert waiting
            os.kill(starter, signal.SIGKILL)
            assert not psutil.wait_procs(waiting, timeout=SOON)[1]
            # Proven to be no agent's doing, although one has acted there.
            with pytest.raises(SandboxError, match="bubblewrap's starter was ended"):
                box.run("sleep 10", SOON)
            box.close()
        box = engine.launch(SandboxSpec("host+layer"))
        assert box.run("cat /layered", SOON).status == 0
        assert engine._starter._process.pid != starter
        for spare in spares(engine):
            spare.kill()
        assert engine.launch(SandboxSpec(HOST)).run("true", SOON).status == 0
        assert box.run("true", SOON).status == 0  # the others go on
    finally:
        engine.close()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_starter_killed_in_the_middle_of_a_launch(
    sent: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Bubblewrap()
    starter = engine._starter._process
    killed: list[int] = []

    def attach(name: str, pid: int, *args: Any, **options: Any) -> BubblewrapSandbox:
        if not killed:  # it has begun, and its keeper has not answered
            starter.kill()
            os.kill(pid, sent)  # it ends with its starter, or waits for it for ever
            killed.append(pid)
        return BubblewrapSandbox(name, pid, *args, **options)

    monkeypatch.setattr("pytest_intercode.sandboxes.bubblewrap.engine.BubblewrapSandbox", attach)
    try:
        box = engine.launch(SandboxSpec(HOST))
        assert box.run("true", SOON).status == 0
        assert box.pid not in killed
        assert engine._starter._process is not starter
    finally:
        engine.close()


def test_a_large_layer_has_more_time() -> None:
    engine = Bubblewrap()
    try:
        starter = engine._starter
        starter._channel.settimeout(0.2)
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w") as layer:
                for number in range(5000):
                    file = tarfile.TarInfo(f"folder/{number}")
                    file.size = 500
                    layer.addfile(file, io.BytesIO(bytes(500)))
            engine.add_layer("host+layer", archive, HOST)
        assert engine._starter is starter
        assert starter._channel.gettimeout() == 0.2
    finally:
        engine.close()


def test_a_layer_that_cannot_be_unpacked_costs_nothing_else() -> None:
    engine = Bubblewrap()
    try:
        box = engine.launch(SandboxSpec(HOST))
        with tempfile.TemporaryFile() as long, tempfile.TemporaryFile() as odd:
            with tarfile.open(fileobj=long, mode="w") as layer:
                layer.addfile(tarfile.TarInfo("x" * 300))
            odd.write(b"no archive")
            for archive in (long, odd, long):
                with pytest.raises(SandboxError, match=r"too long|ReadError"):
                    engine.add_layer("host+layer", archive, HOST)
            long.seek(0)
            long.truncate()
            with tarfile.open(fileobj=long, mode="w") as layer:
                layer.addfile(tarfile.TarInfo("layered"))
            engine.add_layer("host+layer", long, HOST)
        second_sandbox = engine.launch(SandboxSpec("host+layer", limits=Limits(network=True)))
        assert second_sandbox.run("cat /layered", SOON).status == 0
        assert box.run("true", SOON).status == 0
    finally:
        engine.close()


def test_too_much_to_start_with_is_one_line(bubblewrap: Bubblewrap, box: BubblewrapSandbox) -> None:
    variables = (("A", "x" * 100_000), ("B", "y" * 120_000))
    with pytest.raises(SandboxError, match="its variables"):
        bubblewrap.launch(SandboxSpec(HOST, variables=variables))
    assert box.run("true", SOON).status == 0
    assert bubblewrap.launch(SandboxSpec(HOST, variables=variables[:1])).run("true", SOON)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make control groups for sure")
def test_a_process_that_cannot_be_forked_moves_no_limits() -> None:
    """Each sandbox has the limits of its own control group, whatever failed before."""
    engine = Bubblewrap()
    if not engine.grouped:
        engine.close()
        pytest.skip("no control groups here")
    full = engine._groups.make(os.getpid())
    try:
        boxes = [engine.launch(SandboxSpec(HOST))]
        full.limit(Limits(pids=1), 1024 * MIB)  # no room for a child of the starter's
        for descriptor in full.open_procs():
            os.write(descriptor, str(engine._starter._process.pid).encode())
            os.close(descriptor)
        boxes.append(engine.launch(SandboxSpec(HOST)))
        full.limit(Limits(pids=1000), 1024 * MIB)
        boxes += [engine.launch(SandboxSpec(HOST)) for _ in range(3)]
        for box in boxes:
            assert box.group is not None
            processes = (box.group.folders.get("pids") or box.group.folders[""]) / "cgroup.procs"
            assert str(box.pid) in processes.read_text().split()
    finally:
        engine.close()
        assert full.remove()


def test_a_stopped_starter_is_begun_again() -> None:
    engine = Bubblewrap()
    try:
        stopped = engine._starter._process
        engine._starter._channel.settimeout(0.5)
        os.kill(stopped.pid, signal.SIGSTOP)
        assert engine.launch(SandboxSpec(HOST)).run("true", SOON).status == 0
        assert stopped.poll() is not None
        os.kill(engine._starter._process.pid, signal.SIGSTOP)
    finally:
        engine.close()
    assert engine._starter.ended()


FULL = """
    import os, resource
    from pytest_intercode.errors import SandboxError
    from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
    from pytest_intercode.sandboxes.protocol import SandboxSpec
    engine = Bubblewrap()
    box = engine.launch(SandboxSpec("host"))
    box.mark()
    box.run("echo >/tmp/new", 20)
    taken = [os.open("/dev/null", os.O_RDONLY)]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for free in (0, 4, 8, 9, 10, 11, 12, 99):
        for descriptor in taken[:free]:
            os.close(descriptor)
        try:
            engine.launch(SandboxSpec("host")).close()
        except SandboxError as error:
            print(error)
        try:
            print(sorted(box.changes().entries))
        except SandboxError as error:
            print(error)
        taken = taken[free:]
    engine.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads files from outside")
@pytest.mark.usefixtures("bubblewrap")
def test_too_many_open_files_are_nobodys_doing() -> None:
    """An agent that has acted is not to blame, and nothing is lost for good."""
    program = textwrap.dedent(FULL)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    first, second, *_, last = result.stdout.splitlines()
    assert result.stderr == ""
    assert "Too many open files" in first
    assert "cannot be read: [Errno 24] Too many open files" in second
    assert last == "['/tmp/new']"


# -- ordinary users

USER = """
    import sys
    from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
    from pytest_intercode.sandboxes.protocol import SandboxSpec
    from pytest_intercode.core.task import Limits
    engine = Bubblewrap()
    box = engine.launch(SandboxSpec("host", workdir="/work", limits=Limits(pids=32)))
    for action in (
        "id -u; touch x; ulimit -f; stat -c %U x",
        "for n in {1..60}; do sleep 100 & done 2>&1 | grep -c Resource",
        "exec 5</proc/1/fd/0",
        "unshare -r true",
        "touch /usr/x",
    ):
        execution = box.run(action, 2)
        print(execution.status, execution.ended, execution.output.decode().split())
    box.close()
    box = engine.launch(SandboxSpec("host", workdir="/work"))
    box.mark()
    box.run("echo new >new; mkdir -p d/e; rm /etc/issue; head -c 999000000 /dev/zero >/tmp/x", 20)
    print(sorted(box.changes().entries))
    print(box.run("python3 -c 'bytes(900 << 20)' 2>&1 | tail -n 1", 20).output.decode().strip())
    engine.close()
"""


def printed_by_nobody(program: str) -> list[str]:
    """Return the lines that a program of an ordinary user's prints."""
    nobody = 65534
    path = f"{ROOT}:{sysconfig.get_path('purelib')}"
    result = subprocess.run(
        [python_of(nobody), "-c", textwrap.dedent(program)],
        user=nobody,
        group=nobody,
        extra_groups=[],
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "bubblewrap cannot make sandboxes here" in result.stderr:
        pytest.skip(result.stderr.splitlines()[-1])
    if "Permission denied" in result.stderr and str(ROOT) in result.stderr:
        pytest.skip("the project lies where only root can read")
    assert result.stderr == ""
    return result.stdout.splitlines()


def python_of(user: int) -> str:
    """Return a Python that another user may run."""
    for program in (sys.executable, "/usr/bin/python3"):
        try:
            done = subprocess.run(
                [program, "-c", "import sys; sys.exit(sys.version_info < (3, 10))"],
                user=user,
                group=user,
                extra_groups=[],
                cwd="/",
                check=False,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return program
    pytest.skip("no Python here that another user may run")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.usefixtures("bubblewrap")
def test_an_ordinary_user() -> None:
    lines = printed_by_nobody(USER)
    assert lines[0] == "0 itself ['0', '262144', 'root']"
    assert lines[1].startswith("0 itself") or "timeout" in lines[1]
    assert all(line.startswith("1 itself") for line in lines[2:5]), lines
    assert lines[5] == "['/etc/issue', '/tmp/x', '/work/d', '/work/d/e', '/work/new']"
    assert lines[6] == "MemoryError"


@pytest.mark.parametrize("odd", ["", "# a comment", "alice:1", "alice:a:b", "alice:1:65536:2"])
def test_lent_ids_next_to_lines_that_are_none(odd: str, tmp_path: Path) -> None:
    lines = tmp_path / "subuid"
    lines.write_text(f"{odd}\n{os.getuid()}:100000:65536\n")
    assert _find_id_range(str(lines)) == 100_000


LENT = """
    import shutil
    from pytest_intercode.errors import EngineUnavailable
    from pytest_intercode.sandboxes.bubblewrap import process
    from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
    from pytest_intercode.sandboxes.protocol import SandboxSpec
    Bubblewrap().close()
    which = shutil.which
    process.shutil.which = lambda name, **more: which(
        "false" if name.startswith("new") else name, **more
    )
    process._find_id_range = lambda path: 100_000
    try:
        engine = Bubblewrap()
    except EngineUnavailable as error:
        raise SystemExit(print(error))
    print(engine.all_ids, engine.launch(SandboxSpec("host")).run("id -u", 20).output)
    engine.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.usefixtures("bubblewrap")
def test_lent_ids_that_cannot_be_had() -> None:
    """As in a container that does not have them itself."""
    assert printed_by_nobody(LENT) == ["False b'0\\n'"]
