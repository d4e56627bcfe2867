"""A task's files as one tar archive."""

from __future__ import annotations

import io
import lzma
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from pytest_intercode.core.task import Archive, FileSpec, Task
from pytest_intercode.errors import SuiteError
from pytest_intercode.system.archives import build_archive
from pytest_intercode.system.beneath import Root

_NOW = 1_700_000_000.0
_OLD = 1_600_000_000


def _task(
    files: dict[str, FileSpec] | None = None, archive: Archive | None = None, workdir: str = "/work"
) -> Task:
    return Task(
        "a", "q", ("g",), "bash", "s", "s", files=files or {}, archive=archive, workdir=workdir
    )


def _members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive}


def _content(data: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read()


def _entry(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    made.mtime = _OLD
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def _write(
    path: Path, entries: Iterable[tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]]
) -> Archive:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as out:
        for entry in entries:
            if isinstance(entry, tuple):
                entry[0].size = len(entry[1])
                out.addfile(entry[0], io.BytesIO(entry[1]))
            else:
                out.addfile(entry)
    return Archive(path)


def test_no_files_are_no_bytes() -> None:
    assert build_archive(_task(), _NOW) == b""


def test_inline_files() -> None:
    data = build_archive(
        _task(
            {
                "a.txt": FileSpec("file", b"hello"),
                "bin/run": FileSpec("file", b"#!", mode=0o755),
                "setuid": FileSpec("file", mode=0o4755),
                "link": FileSpec("link", target="../nowhere"),
                "empty/": FileSpec("directory"),
                "closed/": FileSpec("directory", mode=0o700),
                "/etc/motd": FileSpec("file", b"hi"),
                ".hidden": FileSpec("file"),
                "./dot/.placeholder": FileSpec("file"),
                "../beside": FileSpec("file"),
                "a  b/ünï 日本.txt": FileSpec("file"),
                "x" * 300: FileSpec("file"),
            }
        ),
        _NOW,
    )
    found = _members(data)
    assert list(found) == [
        "work/a.txt",
        "work/bin/run",
        "work/setuid",
        "work/link",
        "work/empty",
        "work/closed",
        "etc/motd",
        "work/.hidden",
        "work/dot/.placeholder",
        "beside",
        "work/a  b/ünï 日本.txt",
        f"work/{'x' * 300}",
    ]
    assert _content(data, "work/a.txt") == b"hello"
    assert found["work/a.txt"].mode == 0o644
    assert found["work/bin/run"].mode == 0o755
    assert found["work/setuid"].mode == 0o4755
    assert found["work/link"].issym()
    assert found["work/link"].linkname == "../nowhere"
    assert found["work/empty"].isdir()
    assert found["work/empty"].mode == 0o755
    assert found["work/closed"].mode == 0o700
    assert {(m.uid, m.gid, m.mtime) for m in found.values()} == {(0, 0, _NOW)}


@pytest.mark.parametrize("workdir", ["/", "/work", "/work/"])
def test_workdir(workdir: str) -> None:
    found = _members(build_archive(_task({"a": FileSpec("file")}, workdir=workdir), _NOW))
    assert list(found) == [f"{workdir.strip('/')}/a".lstrip("/")]


def test_an_archive_is_kept_as_it_is(tmp_path: Path) -> None:
    archive = _write(
        tmp_path / "tree.tar.gz",
        [
            _entry("./", tarfile.DIRTYPE, mode=0o755),
            _entry("./srv", tarfile.DIRTYPE, mode=0o2770, uid=7, gid=8),
            (_entry("./srv/.hidden", mode=0o640, uid=1000, uname="ann"), b"dot"),
            _entry("./srv/.placeholder"),
            _entry("./.top"),
            _entry("./srv/link", tarfile.SYMTYPE, linkname="../.top"),
            _entry("./srv/absolute", tarfile.SYMTYPE, linkname="/etc/passwd"),
            _entry("./srv/hard", tarfile.LNKTYPE, linkname="./srv/.hidden"),
            _entry("./srv/pipe", tarfile.FIFOTYPE),
        ],
    )
    data = build_archive(_task(archive=archive), _NOW)
    found = _members(data)
    assert list(found) == [
        "srv",
        "srv/.hidden",
        "srv/.placeholder",
        ".top",
        "srv/link",
        "srv/absolute",
        "srv/hard",
        "srv/pipe",
    ]
    assert (found["srv"].mode, found["srv"].uid, found["srv"].gid) == (0o2770, 7, 8)
    assert (found["srv/.hidden"].mode, found["srv/.hidden"].uid) == (0o640, 1000)
    assert _content(data, "srv/.hidden") == b"dot"
    assert found["srv/link"].linkname == "../.top"
    assert found["srv/absolute"].linkname == "/etc/passwd"
    assert found["srv/hard"].islnk()
    assert found["srv/hard"].linkname == "srv/.hidden"
    assert found["srv/pipe"].isfifo()
    assert {member.mtime for member in found.values()} == {_OLD}


@pytest.mark.parametrize("name", ["plain", "ünï 日本", "long" * 60, ".hidden"])
@pytest.mark.parametrize("at", ["/srv/data", "/srv/data/"])
def test_archive_at_another_place(tmp_path: Path, name: str, at: str) -> None:
    path = tmp_path / "tree.tar.gz"
    _write(
        path,
        [
            (_entry(f"./{name}"), b"1"),
            _entry(f"./hard {name}", tarfile.LNKTYPE, linkname=f"./{name}"),
            _entry(f"./soft {name}", tarfile.SYMTYPE, linkname=name),
        ],
    )
    data = build_archive(_task(archive=Archive(path, at)), _NOW)
    found = _members(data)
    assert list(found) == [f"srv/data/{kind}{name}" for kind in ("", "hard ", "soft ")]
    assert found[f"srv/data/hard {name}"].linkname == f"srv/data/{name}"
    assert found[f"srv/data/soft {name}"].linkname == name
    assert _content(data, f"srv/data/hard {name}") == b"1"


def test_keep_times_before(tmp_path: Path) -> None:
    path = tmp_path / "tree.tar.gz"
    _write(
        path,
        [
            _entry("old"),
            _entry("fraction", mtime=_OLD + 0.25),
            _entry("edge", mtime=_OLD + 1000),
            _entry("new", mtime=_OLD + 2000.75),
        ],
    )

    def times(keep: float | None) -> list[float]:
        task = _task({"inline": FileSpec("file")}, Archive(path, "/", keep), workdir="/")
        return [member.mtime for member in _members(build_archive(task, _NOW)).values()]

    assert times(None) == [_OLD, _OLD + 0.25, _OLD + 1000, _OLD + 2000.75, _NOW]
    assert times(_OLD + 1000) == [_OLD, _OLD + 0.25, _NOW, _NOW, _NOW]


def test_files_come_after_the_archive_and_so_replace_its_own(tmp_path: Path) -> None:
    archive = _write(tmp_path / "tree.tar.gz", [(_entry("work/a"), b"old")])
    data = build_archive(_task({"a": FileSpec("file", b"new")}, archive), _NOW)
    with tarfile.open(fileobj=io.BytesIO(data)) as opened:
        assert opened.getnames() == ["work/a", "work/a"]
    assert _content(data, "work/a") == b"new"  # the last one counts


def test_same_bytes_for_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "tree.tar.gz"
    archive = _write(path, [(_entry("b", uname="x"), b"1"), _entry("ünï", mtime=_OLD + 0.5)])
    task = _task({"z": FileSpec("file", b"1"), "a": FileSpec("link", target="z")}, archive)
    assert build_archive(task, _NOW + 0.123456) == build_archive(task, _NOW + 0.123456)
    assert build_archive(task, _NOW) != build_archive(task, _NOW + 1)


def _broken_gzip(good: bytes) -> bytes:
    return good[:20] + b"\xff" * 40 + good[60:]


def _broken_xz(_: bytes) -> bytes:
    data = bytearray(lzma.compress(bytes(range(256)) * 4000))
    data[40:80] = b"\0" * 40
    return bytes(data)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda good: b"",
        lambda good: b"no archive at all",
        lambda good: good[: len(good) // 2],
        _broken_gzip,
        _broken_xz,
    ],
)
def test_archives_that_cannot_be_read(tmp_path: Path, spoil: object) -> None:
    path = tmp_path / "tree.tar.gz"
    _write(path, [(_entry("a"), bytes(range(256)) * 400), (_entry("b"), b"x" * 5000)])
    assert callable(spoil)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(SuiteError, match=r"tree\.tar\.gz: not a readable tar archive: "):
        build_archive(_task(archive=Archive(path)), _NOW)
    with pytest.raises(SuiteError):
        build_archive(_task(archive=Archive(tmp_path / "missing.tar")), _NOW)


def _header(name: str, **fields: tuple[int, bytes]) -> bytes:
    """Return a header with some bytes of our own, and their checksum."""
    header = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    for at, content in fields.values():
        header[at : at + len(content)] = content
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _sparse(path: Path, real: int) -> None:
    """Write a file of ``real`` bytes of which five are there, as GNU tar does."""
    holes = b"".join(b"%011o\0" % number for number in (real - 5, 5))
    size = b"%011o\0" % real
    header = _header(
        "hole", size=(124, b"%011o\0" % 5), kind=(156, b"S"), holes=(386, holes), real=(483, size)
    )
    path.write_bytes(header + b"seven".ljust(512, b"\0") + bytes(1024))


def test_sparse_files_are_written_out(tmp_path: Path) -> None:
    _sparse(tmp_path / "tree.tar", 4096)
    data = build_archive(_task(archive=Archive(tmp_path / "tree.tar")), _NOW)
    assert _members(data)["hole"].isreg()
    assert not _members(data)["hole"].issparse()
    assert _content(data, "hole") == bytes(4091) + b"seven"


def _claimed(path: Path) -> None:
    """Write an extended header that says that it has exabytes."""
    size = b"\x80" + (1 << 62).to_bytes(11, "big")
    path.write_bytes(_header("x", size=(124, size), kind=(156, b"x")) + bytes(40_000))


def test_archives_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_intercode.system.archives._MAX_BYTES", 1_000_000)
    monkeypatch.setattr("pytest_intercode.system.archives._MAX_ENTRIES", 100)
    path = tmp_path / "tree.tar.gz"

    def refused(archive: Archive) -> str:
        with pytest.raises(SuiteError) as error:
            build_archive(_task(archive=archive), _NOW)
        assert str(error.value).startswith(f"{archive.path}: ")
        return str(error.value)

    assert "unpacks to more than" in refused(_write(path, [(_entry("a"), bytes(1_000_001))]))
    assert "unpacks to more than" in refused(
        _write(path, [(_entry(f"a{n}"), bytes(100_000)) for n in range(11)])
    )
    assert "more than 100 files" in refused(_write(path, [_entry(f"a{n}") for n in range(101)]))
    long = _entry("a", pax_headers={"comment": "x" * 3_000_000})
    assert "headers that are longer" in refused(_write(path, [long]))
    _sparse(tmp_path / "sparse.tar", 8**11 - 1)
    assert "unpacks to more than" in refused(Archive(tmp_path / "sparse.tar"))
    _claimed(tmp_path / "claimed.tar")
    assert "not a readable tar archive" in refused(Archive(tmp_path / "claimed.tar"))
    monkeypatch.setattr("pytest_intercode.system.archives._MAX_ALL_HEADERS", 40_000)
    many = [_entry(f"a{n}", pax_headers={"comment": "x" * 1000}) for n in range(90)]
    assert "headers that are longer" in refused(_write(path, many))
    (tmp_path / "folder").mkdir()
    with (tmp_path / "folder/file").open("wb") as file:
        file.truncate(1 << 40)
    assert "unpacks to more than" in refused(Archive(tmp_path / "folder"))
    assert _members(
        build_archive(_task(archive=_write(path, [(_entry("a"), bytes(900_000))])), _NOW)
    )


def test_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "assets"
    (folder / "b" / "empty").mkdir(parents=True)
    (folder / "b" / "run").write_bytes(b"#!")
    (folder / "b" / "run").chmod(0o755)
    (folder / "a  b.txt").write_text("hello")
    (folder / "a  b.txt").chmod(0o444)
    (folder / ".hidden").write_text("")
    (folder / "link").symlink_to("b/nowhere")
    (folder / "c").symlink_to("b")
    task = _task({"more": FileSpec("file", b"x")}, Archive(folder, at="/ctf/7/"))
    data = build_archive(task, _NOW)
    found = _members(data)
    names = [".hidden", "a  b.txt", "b", "b/empty", "b/run", "c", "link"]
    assert list(found) == [*(f"ctf/7/{name}" for name in names), "work/more"]
    assert {(m.uid, m.gid, m.uname, m.mtime) for m in found.values()} == {(0, 0, "", _NOW)}
    assert _content(data, "ctf/7/a  b.txt") == b"hello"
    modes = {name: found[f"ctf/7/{name}"].mode for name in ("a  b.txt", "b/run")}
    assert modes == {"a  b.txt": 0o444, "b/run": 0o755}
    assert found["ctf/7/b/empty"].isdir()
    assert (found["ctf/7/c"].issym(), found["ctf/7/c"].linkname) == (True, "b")
    assert found["ctf/7/link"].linkname == "b/nowhere"
    assert build_archive(task, _NOW) == data


def test_times_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "assets"
    folder.mkdir()
    for name, time in (("old", _OLD), ("new", _OLD + 100)):
        (folder / name).write_text(name)
        os.utime(folder / name, (time, time))
    found = _members(
        build_archive(_task(archive=Archive(folder, "/", keep_times_before=_OLD + 1)), 7.0)
    )
    assert {name: member.mtime for name, member in found.items()} == {"old": _OLD, "new": 7.0}


def test_what_a_folder_cannot_hold(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        SuiteError, match="/pipe: a folder given as archive may only contain files, direc"
    ):
        build_archive(_task(archive=Archive(tmp_path)), _NOW)


def test_a_folder_that_vanished_while_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr(Root, "read", lambda *_: Path("/does/not/exist").read_bytes())
    with pytest.raises(SuiteError, match=r"not a readable folder: .*does/not/exist"):
        build_archive(_task(archive=Archive(tmp_path)), _NOW)


def test_a_folder_is_copied_to_the_workdir_and_an_archive_to_the_root(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner/file").write_text("x")
    found = _members(build_archive(_task(archive=Archive(folder), workdir="/work/7"), _NOW))
    assert set(found) == {"work/7/inner", "work/7/inner/file"}
    packed = tmp_path / "packed.tar"
    with tarfile.open(packed, "w") as archive:
        archive.add(folder / "inner", "inner")
    found = _members(build_archive(_task(archive=Archive(packed), workdir="/work/7"), _NOW))
    assert set(found) == {"inner", "inner/file"}
