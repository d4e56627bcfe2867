"""What changed on disk, by both ways of finding out: the host's walk and a program in its keeper.

Their answers have one normal form: a folder that is gone is one entry, whatever was in it.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_intercode.errors import UngradableState
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.listing import ListingProbe
from pytest_intercode.sandboxes.overlay import OverlayProbe, Unreadable
from pytest_intercode.sandboxes.protocol import Changes, Entry, Execution, SandboxSpec
from tests.support.backends import Backend

SOON = 30.0


def walk(backend: Backend, sandbox: AttachedSandbox) -> ListingProbe | OverlayProbe:
    """Return the probe that walks the sandbox's layers on the host."""
    try:
        return sandbox.layers()
    except Unreadable as why:
        pytest.skip(str(why))


def listing(backend: Backend, sandbox: AttachedSandbox) -> ListingProbe | OverlayProbe:
    """Return the probe that asks the program in the sandbox's keeper."""
    return ListingProbe(sandbox.list_files)


Make = Callable[[Backend, AttachedSandbox], ListingProbe | OverlayProbe]
both = pytest.mark.parametrize("make", [walk, listing])


def content(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def file(text: str | bytes = "", mode: int = 0o644, uid: int = 0, gid: int = 0) -> Entry:
    return Entry("f", mode, uid, gid, content(text))


def folder(mode: int = 0o755) -> Entry:
    return Entry("d", mode, 0, 0)


def link(target: str) -> Entry:
    return Entry("l", 0o777, 0, 0, target)


def fixture(top: str = "t") -> bytes:
    """Return a task's files: a few of every kind below ``/t``, or another folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:

        def add(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, to: str = "") -> None:
            member = tarfile.TarInfo(f"{top}/{name}".rstrip("/"))
            member.type, member.linkname, member.size = kind, to, len(data)
            member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
            member.mtime = 1_700_000_000
            archive.addfile(member, io.BytesIO(data))

        add("", kind=tarfile.DIRTYPE)
        add("a", b"aaa\n")
        add("b", b"bbb\n")
        add("twin", kind=tarfile.LNKTYPE, to=f"{top}/b")
        add("soft", kind=tarfile.SYMTYPE, to="a")
        add("d", kind=tarfile.DIRTYPE)
        add("d/one", b"1")
        add("d/sub", kind=tarfile.DIRTYPE)
        add("d/sub/two", b"2")
        add("empty", kind=tarfile.DIRTYPE)
    return buffer.getvalue()


# A folder of the image with files and folders in it, and a file whose text is known.
IMAGE_FOLDER = "/etc/apt"
NOTHING: dict[str, Entry | None] = {}

CASES: dict[str, tuple[str, dict[str, Entry | None]]] = {
    "nothing": (
        "cat a >/dev/null; ls -lR /etc >/dev/null; cd /; head /etc/* 2>&-",
        NOTHING,
    ),
    "created": ("echo new >new", {"/t/new": file("new\n")}),
    "created in the image's folder": ("echo new >/etc/new", {"/etc/new": file("new\n")}),
    "created folders": (
        "mkdir -p x/y; : >x/y/z",
        {"/t/x": folder(), "/t/x/y": folder(), "/t/x/y/z": file()},
    ),
    "created and deleted": ("echo new >new; mkdir x; rm -r new x", NOTHING),
    "deleted": ("rm a", {"/t/a": None}),
    "deleted from the image": ("rm /etc/debian_version", {"/etc/debian_version": None}),
    "deleted folder": ("rm -r d", {"/t/d": None}),
    "deleted folder of the image": (f"rm -r {IMAGE_FOLDER}", {IMAGE_FOLDER: None}),
    "emptied folder": ("rm -r d/*", {"/t/d/one": None, "/t/d/sub": None}),
    "changed": ("echo more >>a", {"/t/a": file("aaa\nmore\n")}),
    "changed in place": ("printf xxx | dd of=a conv=notrunc", {"/t/a": file("xxx\n")}),
    "changed in place, with its old time": (
        "touch -r a /tmp/.; printf xxx | dd of=a conv=notrunc; touch -r /tmp/. a",
        {"/t/a": file("xxx\n")},
    ),
    "changed in the image": (
        "printf x >/etc/debian_version",
        {"/etc/debian_version": file("x")},
    ),
    "replaced by its like": ("cp a c; mv c a", NOTHING),
    "touched": ("touch -d 2001-01-01 a soft d d/one", NOTHING),
    "changed and back": (
        "cp a /dev/shm/c; echo x >a; chmod 600 a; cp /dev/shm/c a; chmod 644 a",
        NOTHING,
    ),
    "deleted and back": ("mv d /dev/shm/d; mv /dev/shm/d d", NOTHING),
    "renamed file": ("mv a z", {"/t/a": None, "/t/z": file("aaa\n")}),
    "renamed over another": ("mv a b", {"/t/a": None, "/t/b": file("aaa\n")}),
    "swapped": ("mv a c; mv b a; mv c b", {"/t/a": file("bbb\n"), "/t/b": file("aaa\n")}),
    "renamed folder": (
        "mv d e",
        {
            "/t/d": None,
            "/t/e": folder(),
            "/t/e/one": file("1"),
            "/t/e/sub": folder(),
            "/t/e/sub/two": file("2"),
        },
    ),
    "renamed folder of the image": (
        "mkdir /opt/o; echo x >/opt/o/x; mv /opt /opt2",
        {"/opt": None, "/opt2": folder(), "/opt2/o": folder(), "/opt2/o/x": file("x\n")},
    ),
    "mode": (
        "chmod 4711 a; chmod 1777 d",
        {"/t/a": file("aaa\n", 0o4711), "/t/d": folder(0o1777)},
    ),
    "mode of the image's folder": ("chmod 700 /srv", {"/srv": folder(0o700)}),
    "owner": ("chown 12:34 a", {"/t/a": file("aaa\n", uid=12, gid=34)}),
    "owner of a link": ("chown -h 12:34 soft", {"/t/soft": Entry("l", 0o777, 12, 34, "a")}),
    "link": ("ln -s 'no where' s", {"/t/s": link("no where")}),
    "link's target": ("ln -sfn b soft", {"/t/soft": link("b")}),
    "link to a folder": ("ln -s d s; : >s/new", {"/t/s": link("d"), "/t/d/new": file()}),
    "file to folder": ("rm a; mkdir a; : >a/x", {"/t/a": folder(), "/t/a/x": file()}),
    "folder to file": ("rm -r d; echo x >d", {"/t/d": file("x\n")}),
    "folder to link": ("rm -r d; ln -s empty d", {"/t/d": link("empty")}),
    "file to link": ("mv a c; ln -s c a", {"/t/a": link("c"), "/t/c": file("aaa\n")}),
    "the image's folder to file": (
        f"rm -r {IMAGE_FOLDER}; echo x >{IMAGE_FOLDER}",
        {IMAGE_FOLDER: file("x\n")},
    ),
    "the image's file to folder": (
        "rm /etc/debian_version; mkdir /etc/debian_version; : >/etc/debian_version/x",
        {"/etc/debian_version": folder(), "/etc/debian_version/x": file()},
    ),
    "folder made again": (
        "rm -r d; mkdir d; echo 3 >d/three",
        {"/t/d/one": None, "/t/d/sub": None, "/t/d/three": file("3\n")},
    ),
    "folder made again as it was": (
        "rm -r d; mkdir -p d/sub; printf 1 >d/one; printf 2 >d/sub/two",
        NOTHING,
    ),
    "the image's folder made again": (
        "rm -r /etc/alternatives; mkdir /etc/alternatives; echo x >/etc/alternatives/README",
        {"/etc/alternatives/README": file("x\n")},  # and what is gone, see the test
    ),
    "hard link": ("ln a h", {"/t/h": file("aaa\n")}),
    "through a hard link": (
        "echo more >>twin",
        {"/t/b": file("bbb\nmore\n"), "/t/twin": file("bbb\nmore\n")},
    ),
    "FIFO": ("mkfifo -m 600 p", {"/t/p": Entry("p", 0o600, 0, 0)}),
    "socket": (
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
        {"/t/s": Entry("s", 0o755, 0, 0)},
    ),
    "odd names": (
        r"""for n in 'a b' $'new\nline' -dash "it's" '"' '\' '*' $'\377' '$(x)'; do
            echo x >"./$n"; done; mkdir $'\n'; : >$'\n/ '""",
        {
            **{
                f"/t/{name}": file("x\n")
                for name in ("a b", "new\nline", "-dash", "it's", '"', "\\", "*", "\udcff", "$(x)")
            },
            "/t/\n": folder(),
            "/t/\n/ ": file(),
        },
    ),
    "kept out": ("echo x >/dev/shm/x", NOTHING),
    "the engine's own files": (
        "cd /etc; for f in hosts hostname resolv.conf; do echo x >$f; chmod 600 $f; done",
        {f"/etc/{name}": file("x\n", 0o600) for name in ("hosts", "hostname", "resolv.conf")},
    ),
}


# What is beside the task's files; all others can share a sandbox, each in a folder of its own.
IN_THE_SYSTEM = [
    case for case, (action, _) in CASES.items() if "/etc" in action or "/opt" in action
]
IN_THE_SYSTEM += ["mode of the image's folder"]
IN_A_FOLDER = [case for case in CASES if case not in IN_THE_SYSTEM]


def both_probes(backend: Backend, sandbox: AttachedSandbox) -> list[ListingProbe | OverlayProbe]:
    probes = [listing(backend, sandbox)]
    if os.geteuid() == 0:
        probes.append(walk(backend, sandbox))
    return probes


def moved(entries: dict[str, Entry | None], top: str) -> dict[str, Entry | None]:
    """Return entries below ``/t`` as they are below another folder."""
    return {path.replace("/t/", f"/{top}/", 1): entry for path, entry in entries.items()}


class Played(NamedTuple):
    """All cases that share a sandbox, after their actions."""

    executions: dict[str, Execution]
    before: dict[str, Entry | None]  # at the mark, of all paths that are expected to change
    changes: list[tuple[ListingProbe | OverlayProbe, Changes]]


@pytest.fixture(scope="module")
def played(backend: Backend) -> Iterator[Played]:
    """Play the cases in one sandbox, and look at it once."""
    sandbox = backend.engine.launch(SandboxSpec(backend.image, variables=(("LC_ALL", "C.UTF-8"),)))
    for number in range(len(IN_A_FOLDER)):
        sandbox.unpack(fixture(f"t{number}"))
    probes = both_probes(backend, sandbox)
    for probe in probes:
        probe.mark()
        assert probe.changes() == Changes({}, {})
    paths = [
        path
        for number, case in enumerate(IN_A_FOLDER)
        for path in moved(CASES[case][1], f"t{number}")
    ]
    before = probes[0].entries(paths)
    executions = {
        case: sandbox.run(f"cd /t{number}\n{CASES[case][0]}", SOON)
        for number, case in enumerate(IN_A_FOLDER)
    }
    yield Played(executions, before, [(probe, probe.changes()) for probe in probes])
    sandbox.close()


@pytest.mark.parametrize("case", IN_A_FOLDER)
def test_changes_in_a_folder(case: str, played: Played) -> None:
    top = f"t{IN_A_FOLDER.index(case)}"
    expected = moved(CASES[case][1], top)
    execution = played.executions[case]
    assert execution.ended == "itself"
    for probe, changes in played.changes:
        mine = {p: e for p, e in changes.entries.items() if p.startswith(f"/{top}")}
        mine = {p: e for p, e in mine.items() if p.split("/")[1] == top}
        assert mine == expected, (probe, execution.output)
        assert probe.entries(expected) == expected
        assert {p: e for p, e in changes.before.items() if p in expected} == {
            p: played.before[p] for p in expected
        }


def test_changes_are_of_these_folders_alone(played: Played) -> None:
    for _, changes in played.changes:
        assert {path.split("/")[1] for path in changes.entries} <= {
            f"t{number}" for number in range(len(IN_A_FOLDER))
        }
        assert changes.before.keys() == changes.entries.keys()


@pytest.mark.parametrize("case", IN_THE_SYSTEM)
def test_changes(case: str, backend: Backend, sandbox: AttachedSandbox) -> None:
    action, expected = CASES[case]
    if case == "the image's folder made again":
        _, names = sandbox.admin("ls /etc/alternatives", SOON)
        gone = set(names.decode().split()) - {"README"}
        assert gone
        expected = {**expected, **{f"/etc/alternatives/{name}": None for name in gone}}
    sandbox.unpack(fixture())
    probes = both_probes(backend, sandbox)
    for probe in probes:
        probe.mark()
    start = probes[0].entries([*expected, "/t/a"])
    assert start["/t/a"] == file("aaa\n")
    before = {path: start[path] for path in expected}
    execution = sandbox.run(f"cd /t\n{action}", SOON)
    assert execution.ended == "itself"
    for probe in probes:
        changes = probe.changes()
        assert changes.entries == expected, (probe, execution.output)
        assert probe.entries(expected) == expected
        if isinstance(probe, ListingProbe):
            # No digests were taken of what the image holds.
            unknown = {p for p, e in before.items() if e and e.type == "f" and p[:3] != "/t/"}
            assert changes.before.items() >= {p: before[p] for p in {*before} - unknown}.items()
        else:
            assert changes.before == before


@both
def test_second_mark(make: Make, backend: Backend, sandbox: AttachedSandbox) -> None:
    probe = make(backend, sandbox)
    probe.mark()
    sandbox.unpack(fixture())
    sandbox.admin("rm -r /etc/apt /opt; mkdir /opt; : >/opt/x", SOON)
    assert len(probe.changes().entries) > 5
    probe.mark()
    assert probe.changes().entries == {}
    sandbox.admin("rm -r /opt; mkdir -p /etc/apt /opt; rm /t/a", SOON)
    changes = probe.changes()
    assert changes.entries == {"/etc/apt": folder(), "/opt/x": None, "/t/a": None}
    assert changes.before == {"/etc/apt": None, "/opt/x": file(), "/t/a": file("aaa\n")}


def test_both_ways_agree(backend: Backend, sandbox: AttachedSandbox) -> None:
    sandbox.unpack(fixture())
    probes = walk(backend, sandbox), listing(backend, sandbox)
    for probe in probes:
        probe.mark()
    system = """
        rm -r /usr/share/python3; mkdir /usr/share/python3
        chmod -R g+w /usr/share/bash-completion
        """
    said = sandbox.run(
        (system if backend.name == "docker" else "")  # on bubblewrap /usr is the host's
        + r"""
        cd /etc && rm -r apt alternatives && mkdir -m 700 alternatives && ln -s /t alternatives/awk
        mv default default2; rm -r dpkg; : >dpkg
        cp -a /etc/skel /root/skel
        useradd -m someone; echo text >>/etc/profile; mv /etc/motd /etc/issue
        cd /t && git init -q . && git add . && git -c user.name=x -c user.email=x@y commit -qm x
        mv d/sub .; rmdir empty; ln -f a twin; mkdir -p x/y/z; tar -cf x/y/z/all.tar a b sub
        python3 -m zipfile -c z.zip a b; rm -r d; ln -s /nowhere d; mkfifo x/pipe
        """,
        SOON,
    )
    assert (said.ended, said.status) == ("itself", 0), said.output
    one, other = (probe.changes() for probe in probes)
    # This file of the image was opened for writing and left as it was. The listing cannot know
    # that, so it does not say what was there before; what compares states will find no difference.
    spare = other.entries.keys() - one.entries.keys()
    assert spare == {"/etc/.pwd.lock"} - other.before.keys()
    assert one.entries == {path: other.entries[path] for path in other.entries if path not in spare}
    assert len(one.entries) > 100
    assert other.before.items() <= one.before.items()
    assert probes[0].entries(one.entries) == probes[1].entries(one.entries) == one.entries


def test_sandbox_is_walked_by_root(sandbox: AttachedSandbox) -> None:
    sandbox.mark()
    assert isinstance(sandbox.probe, OverlayProbe if os.geteuid() == 0 else ListingProbe)
    sandbox.run("echo x >/tmp/x", SOON)
    assert sandbox.changes() == Changes({"/tmp/x": file("x\n")}, {"/tmp/x": None})
    assert sandbox.entries(["/tmp/x", "/tmp/y"]) == {"/tmp/x": file("x\n"), "/tmp/y": None}


@both
def test_links_lead_nowhere(
    make: Make, backend: Backend, sandbox: AttachedSandbox, tmp_path: Path
) -> None:
    Path(tmp_path, "one").write_text("the host's secret")
    Path(tmp_path, "sub").mkdir()
    Path(tmp_path, "sub", "two").write_text("the host's secret")
    sandbox.unpack(fixture())
    probe = make(backend, sandbox)
    probe.mark()
    up = "../" * 20
    sandbox.run(
        f"mkdir -p {tmp_path}; echo mine >{tmp_path}/one; cd /t; rm -r d; ln -s {tmp_path} d; "
        f"ln -s {up}{tmp_path} e; ln -s /etc f; rm a; ln -s /etc/passwd a",
        SOON,
    )
    entries = probe.changes().entries
    below = {path: entry for path, entry in entries.items() if path.startswith("/t/")}
    assert below == {
        "/t/d": link(str(tmp_path)),
        "/t/e": link(f"{up}{tmp_path}"),
        "/t/f": link("/etc"),
        "/t/a": link("/etc/passwd"),
    }
    paths = ["/t/d/one", "/t/d/sub/two", "/t/e/one", "/t/f/passwd"]
    assert probe.entries(paths) == dict.fromkeys(paths)
    secret = content("the host's secret")
    assert secret not in {entry.content for entry in entries.values() if entry}
    with pytest.raises(UngradableState):
        probe.entries(["/t/f/../etc/passwd"])


@both
def test_walk_among_moving_links(
    make: Make, backend: Backend, sandbox: AttachedSandbox, tmp_path: Path
) -> None:
    """Files, folders and links change places while they are looked at."""
    Path(tmp_path, "one").write_text("the host's secret")
    sandbox.unpack(fixture())
    probe = make(backend, sandbox)
    probe.mark()
    swap = (
        f"cd /t; mkdir x; echo 1 >x/one; ln -s {tmp_path} y; echo 1 >z\n"
        "exec python3 -c 'import os\n"
        'while True:\n for pair in ("xw", "yx", "zy", "wz"): os.rename(*pair)\''
    )
    sandbox.run(f"({swap}) &", SOON)
    secret = content("the host's secret")
    for _ in range(300 if make is walk else 5):
        found = [*probe.changes().entries.values(), *probe.entries(["/t/x/one"]).values()]
        assert secret not in {entry.content for entry in found if entry}


@both
def test_many_files_and_long_names(make: Make, backend: Backend, sandbox: AttachedSandbox) -> None:
    probe = make(backend, sandbox)
    probe.mark()
    sandbox.run(
        'python3 -c \'import os; os.makedirs("/t/"+"q"*200); '
        '[open("/t/"+"q"*200+"/"+"\\x27"*100+str(n), "w").write(str(n)) for n in range(100)]\'',
        SOON,
    )
    changes = probe.changes()
    name = "/t/" + "q" * 200
    expected: dict[str, Entry | None] = {"/t": folder(), name: folder()}
    expected |= {f"{name}/{chr(39) * 100}{n}": file(str(n)) for n in range(100)}
    assert changes.entries == expected
    assert probe.entries(expected) == expected


@both
def test_endless_depth(make: Make, backend: Backend, sandbox: AttachedSandbox) -> None:
    probe = make(backend, sandbox)
    probe.mark()
    dig = "import os; os.chdir('/tmp'); [(os.mkdir('d'), os.chdir('d')) for n in range(2500)]"
    assert sandbox.run(f'python3 -c "{dig}"', SOON).status == 0
    entries = probe.changes().entries
    assert entries == {"/tmp" + "/d" * n: folder() for n in range(1, 2501)}
    assert len(list(Path("/proc/self/fd").iterdir())) < 100


@both
def test_the_root_is_a_folder(make: Make, backend: Backend, sandbox: AttachedSandbox) -> None:
    assert make(backend, sandbox).entries(["/"]) == {"/": folder()}
