"""The program that reads a sandbox's files: its binaries, and what it lists on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import platform
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_intercode.errors import UngradableState
from pytest_intercode.sandboxes import lister
from pytest_intercode.sandboxes.listing import ListingProbe
from pytest_intercode.sandboxes.protocol import Entry
from pytest_intercode.sandboxes.reading import (
    SETUP_LIMITS,
    WHOLE,
    GradingLimits,
    Reading,
    digest_of,
)

FOLDER = Path(lister.__file__).parent
ROOT = Path(__file__).parents[3]
SOURCE = hashlib.sha256((FOLDER / "lister.c").read_bytes()).hexdigest()

machines = pytest.mark.parametrize("machine", lister.MACHINES)


def _command(machine: str) -> list[str]:
    """Return the words that run the program for a machine on this one."""
    program = str(FOLDER / f"lister-{machine}")
    if machine == platform.machine():
        return [program]
    emulator = shutil.which(f"qemu-{machine}") or shutil.which(f"qemu-{machine}-static")
    if emulator is None:
        pytest.skip(f"qemu-{machine} is not installed (apt-get install qemu-user)")
    return [emulator, program]


class Program:
    """Answers requests here, without a sandbox; a list of words is a command line's, and short."""

    def __init__(self, machine: str) -> None:
        self._command = _command(machine)

    def __call__(self, request: bytes, timeout: float, most: int) -> tuple[int, bytes]:
        words = [*map(os.fsencode, self._command), b"0", request]
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=timeout + 30, check=False)
        assert len(done.stdout) <= most
        return done.returncode, done.stdout


@pytest.fixture(params=lister.MACHINES)
def probe(request: pytest.FixtureRequest) -> ListingProbe:
    return ListingProbe(Program(request.param))


# -- the binaries


@machines
def test_binary_is_of_the_source(machine: str) -> None:
    assert SOURCE.encode() in lister.program(machine), "run scripts/build-lister"
    done = subprocess.run([*_command(machine), "version"], capture_output=True, check=True)
    assert done.stdout.decode().split()[0] == SOURCE


def test_binaries_are_rebuilt_to_the_same_bytes(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "build-lister"
    for machine in lister.MACHINES:
        compiler = shutil.which(f"{machine}-linux-gnu-gcc")
        if compiler is None or not script.exists():
            pytest.skip(f"{machine}-linux-gnu-gcc and a checkout are needed")
        version = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, check=True)
        made_by = b"gcc " + version.stdout.strip()
        if made_by not in lister.program(machine):
            pytest.skip(f"{made_by.decode()} is another one than the binaries were made by")
    subprocess.run([script, tmp_path], check=True)
    for machine in lister.MACHINES:
        assert (tmp_path / f"lister-{machine}").read_bytes() == lister.program(machine)


@machines
def test_binary_is_small_and_needs_no_library(machine: str) -> None:
    assert len(lister.program(machine)) < 16 * 1024
    assert b".so" not in lister.program(machine)


@machines
def test_bash_writes_the_program_as_it_is(machine: str, tmp_path: Path) -> None:
    for locale in ("C", "C.UTF-8"):
        script = 'IFS= read -rN "$1" text; printf %b "$text" >"$2"'
        words = [
            "bash",
            "-c",
            script,
            "-",
            str(len(lister.escape_program(machine))),
            str(tmp_path / "x"),
        ]
        variables = {**os.environ, "LC_ALL": locale}
        subprocess.run(
            words, input=lister.escape_program(machine) + b"V x\n", env=variables, check=True
        )
        assert (tmp_path / "x").read_bytes() == lister.program(machine)


# -- what it reads


def _digest(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return digest_of(descriptor, path.stat().st_size, Reading())
    finally:
        os.close(descriptor)


def test_digests_are_those_of_the_walk(probe: ListingProbe, tmp_path: Path) -> None:
    sizes = [0, 1, 55, 56, 63, 64, 65, 119, 120, WHOLE - 1, WHOLE, WHOLE + 1, WHOLE + 256 * 1024]
    for size in sizes:
        (tmp_path / f"{size}").write_bytes(bytes(n % 251 for n in range(size)))
    for size in (WHOLE, WHOLE + 1, 50 * WHOLE + 17):
        with (tmp_path / f"hole-{size}").open("wb") as file:
            file.truncate(size)
            file.seek(size // 2)
            file.write(b"x")
        (tmp_path / f"zeros-{size}").write_bytes(bytes(size))
    paths = sorted(tmp_path.iterdir())
    entries = probe.entries(map(str, paths))
    for path in paths:
        entry = entries[str(path)]
        assert entry is not None
        assert entry.content == _digest(path), path


def test_holes_are_not_read(probe: ListingProbe, tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.truncate(1 << 40)
    reading = Reading(GradingLimits(content=2 * WHOLE, seconds=20.0))
    assert probe.entries([str(tmp_path / "f")], reading)[str(tmp_path / "f")]


def test_every_kind_of_entry_and_name(probe: ListingProbe, tmp_path: Path) -> None:
    names = ["a b", "new\nline", "%41", "é", os.fsdecode(b"\xff\x01\x7f"), "n" * 255, "-x", "\\"]
    for name in names:
        (tmp_path / name).write_bytes(os.fsencode(name[:1]))
        (tmp_path / name).chmod(0o640)
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "d").mkdir(0o750)
    top = str(tmp_path)
    below = probe.below([top, "/dev/null", f"{top}/none"], Reading())
    inside = [*names, "link", "fifo", "d"]
    assert sorted(below) == sorted([top, "/dev/null", *(f"{top}/{name}" for name in inside)])
    entries = probe.entries([*below, f"{top}/none", f"{top}/link/x", f"{top}/fifo/x"])
    owner = os.geteuid(), os.getegid()
    for name in names:
        digest = hashlib.sha256(os.fsencode(name[:1])).hexdigest()
        assert entries[f"{top}/{name}"] == Entry("f", 0o640, *owner, digest)
    assert entries[f"{top}/link"] == Entry("l", 0o777, *owner, "/etc/passwd")
    assert entries[f"{top}/fifo"] == Entry("p", 0o600, *owner)
    assert entries[f"{top}/d"] == Entry("d", 0o750, *owner)
    device = entries["/dev/null"]
    assert device is not None
    assert (device.type, device.content) == ("c", "1:3")
    assert [entries[f"{top}/{name}"] for name in ("none", "link/x", "fifo/x")] == [None] * 3


def test_archive_holds_contents_and_times(probe: ListingProbe, tmp_path: Path) -> None:
    content = bytes(n % 253 for n in range(700_001))
    (tmp_path / "f").write_bytes(content)
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("f")
    os.mkfifo(tmp_path / "fifo")
    os.utime(tmp_path / "f", (1, 1_600_000_000))
    os.utime(tmp_path, (1, 1_500_000_000))
    paths = [str(tmp_path / name) for name in ("", "f", "empty", "link", "fifo", "none")]
    packed = probe.archive(paths, Reading())
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = {Path("/", member.name).name: member for member in archive}
        assert members.keys() == {tmp_path.name, "f", "empty", "link"}
        file = archive.extractfile(members["f"])
        assert file is not None
        assert file.read() == content
    assert members["f"].mtime == 1_600_000_000
    assert members[tmp_path.name].isdir()
    assert members[tmp_path.name].mtime == 1_500_000_000
    assert members["link"].linkname == "f"


def test_depth_without_end(probe: ListingProbe, tmp_path: Path) -> None:
    """Deeper than a path may be long, and than a process may have files open."""
    depth = 3000
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        for name in ("a", "deep"):
            os.mkdir(name, dir_fd=folder)
        inner = os.open("deep", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    try:
        below = probe.below([str(tmp_path)], Reading(SETUP_LIMITS))
        assert len(below) == len(set(below)) == 2 * depth + 1
        deepest = f"{tmp_path}{'/deep' * depth}"
        assert deepest in below
        assert f"{tmp_path}{'/deep' * (depth - 1)}/a" in below
        assert probe.entries([deepest])[deepest]
        assert probe.below([deepest], Reading()) == [deepest]
    finally:
        subprocess.run(["rm", "-r", tmp_path], check=True)


def test_paths_longer_than_a_number_of_two_bytes(probe: ListingProbe, tmp_path: Path) -> None:
    names = ["n" * 250] * 300
    folder = os.open(tmp_path, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=folder)
        inner = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("file", os.O_CREAT, dir_fd=folder))
    os.close(folder)
    path = "/".join([str(tmp_path), *names, "file"])
    assert probe.below([str(tmp_path)], Reading())[-1] == path
    assert probe.entries([path])[path]
    subprocess.run(["rm", "-r", tmp_path], check=True)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (GradingLimits(entries=10), "more than 10 files and folders"),
        (GradingLimits(names=100), "more than 100 characters"),
        (GradingLimits(seconds=0.0), "more than 0 s"),
    ],
)
def test_limits(probe: ListingProbe, tmp_path: Path, limits: GradingLimits, said: str) -> None:
    for number in range(2000):
        (tmp_path / f"{number}").touch()
    with pytest.raises(UngradableState, match=said):
        probe.below([str(tmp_path)], Reading(limits))


def test_limit_of_content(probe: ListingProbe, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 5000)
    for read in (probe.entries, probe.archive):
        with pytest.raises(UngradableState, match="more than 4999 bytes"):
            read([str(tmp_path / "f")], Reading(GradingLimits(content=4999)))
        assert read([str(tmp_path / "f")], Reading(GradingLimits(content=5000)))


def test_what_changes_meanwhile(probe: ListingProbe, tmp_path: Path) -> None:
    """Files, folders, links and pipes change places: none is followed, and none waited for."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "one").write_text("secret")
    top = tmp_path / "t"
    (top / "x").mkdir(parents=True)
    (top / "x" / "one").write_text("1")
    (top / "y").symlink_to(secret)
    (top / "z").write_text("1")
    os.mkfifo(top / "p")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for one, other in (("x", "w"), ("y", "x"), ("z", "y"), ("p", "z"), ("w", "p")):
                with contextlib.suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
                    (top / one).rename(top / other)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            paths = [f"{top}/{name}" for name in ("x", "y", "z", "w", "p", "x/one", "y/one")]
            for entry in probe.entries(paths, Reading(GradingLimits(seconds=5.0))).values():
                assert entry is None or entry.content != hashlib.sha256(b"secret").hexdigest()
            assert not any("secret" in path for path in probe.below([str(top)], Reading()))
    finally:
        stop.set()
        thread.join()


# -- answers


def test_an_answer_that_was_changed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    program, path = Program(platform.machine()), str(tmp_path / "f")
    kept: list[bytes] = []

    def read(change: Callable[[bytes], bytes]) -> dict[str, Entry | None]:
        def forged(request: bytes, timeout: float, most: int) -> tuple[int, bytes]:
            status, answer = program(request, timeout, most)
            kept.append(answer)
            return status, change(answer)

        return ListingProbe(forged).entries([path])

    assert read(lambda answer: answer)[path]
    changes: list[Callable[[bytes], bytes]] = [
        lambda answer: answer[:-1],
        lambda answer: answer + b"x",
        lambda answer: b"",
        lambda answer: answer.replace(b"e", b"d", 1),
        lambda answer: b"z" + bytes(9) + answer[-32:],
        lambda answer: kept[0],  # authentic, but of another request
    ]
    for change in changes:
        with pytest.raises(UngradableState, match="disturbed"):
            read(change)


def test_a_path_that_leads_up_is_refused(probe: ListingProbe) -> None:
    with pytest.raises(UngradableState, match="no path"):
        probe.entries(["/tmp/../etc/passwd"])
