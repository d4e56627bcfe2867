"""Paths that others chose: nothing outside of the root is opened, whatever they try."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_intercode.system import beneath, folders
from pytest_intercode.system.beneath import (
    OutsideError,
    Root,
    check_name,
    kind_of,
    relative_path,
)

_SECRET = b"of the host"
_WAYS = [
    pytest.param(
        folders.FoldersByDescriptor(folders.open_by_kernel),
        id="openat2",
        marks=pytest.mark.skipif(not folders.has_openat2(), reason="this kernel has no openat2"),
    ),
    pytest.param(folders.FoldersByDescriptor(folders.open_by_steps), id="by-steps"),
    pytest.param(folders.FoldersByPath(), id="by-path"),
]


@pytest.fixture(params=_WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> folders.Folders:
    monkeypatch.setattr(beneath, "folders_here", lambda: request.param)
    way: folders.Folders = request.param
    return way


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder ``root`` with a few files, next to one that is none of its."""
    (tmp_path / "host").mkdir()
    (tmp_path / "host/secret").write_bytes(_SECRET)
    (tmp_path / "root/a/b").mkdir(parents=True)
    (tmp_path / "root/a/b/file").write_bytes(b"ours")
    (tmp_path / "root/top").write_bytes(b"ours")
    return tmp_path


# -- text


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\0", "../victim", "a" * 256])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ValueError, match="a name"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "...", "..a", " ", "-", "~", "a\\b", "é", "a" * 255])
def test_a_name(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("path", "plain"),
    [("a", "a"), ("./a//b/", "a/b"), (".", ""), ("", ""), ("a/./b", "a/b"), ("..a/b..", "..a/b..")],
)
def test_a_relative_path_has_one_form(path: str, plain: str) -> None:
    assert relative_path(path) == plain


@pytest.mark.parametrize("path", ["/", "/a", "//a", "..", "a/..", "a/../b", "a\0b", "./../a"])
def test_what_is_no_relative_path(path: str) -> None:
    with pytest.raises(ValueError, match="is needed"):
        relative_path(path)


@given(st.text(alphabet="ab./\0", max_size=12))
def test_a_relative_path_never_leads_up(path: str) -> None:
    try:
        plain = relative_path(path)
    except ValueError:
        assert path.startswith("/") or ".." in path or "\0" in path
    else:
        assert os.path.normpath(path or ".") == (plain or ".")
        assert not plain.startswith("/")
        assert ".." not in plain.split("/")


# -- the root


@pytest.mark.parametrize(
    "path",
    [
        "../host/secret",
        "a/../../host/secret",
        "/etc/passwd",
        "/proc/self/environ",
        "out",
        "out-folder/secret",
        "chain",
        "a/up/host/secret",
        "dangling-out",
        "magic/etc/passwd",
        "..",
        "nul\0",
    ],
)
def test_a_path_that_leads_out(place: Path, path: str) -> None:
    root = place / "root"
    (root / "out").symlink_to(place / "host/secret")
    (root / "out-folder").symlink_to("../host")
    (root / "chain").symlink_to("a/chain")
    (root / "a/chain").symlink_to("b/chain")
    (root / "a/b/chain").symlink_to("../../../host/secret")
    (root / "a/up").symlink_to("../..")
    (root / "dangling-out").symlink_to("/nothing/here")
    (root / "magic").symlink_to("/proc/self/root")
    with Root(root) as ours:
        for use in (ours.stat, ours.open, ours.names, ours.is_file, ours.is_folder, ours.locate):
            with pytest.raises(OutsideError, match="leads out of") as caught:
                use(path)
            assert caught.value.errno == errno.EXDEV
        with pytest.raises(OutsideError):
            next(ours.walk(path))


def test_links_that_stay_are_followed(place: Path) -> None:
    root = place / "root"
    (root / "up").symlink_to("a/b/../b")
    (root / "a/whole").symlink_to(root / "a/b/file")
    with Root(root) as ours:
        for path in ("a/b/file", "up/file", "a/whole", "./a//b/file", "a/../a/b/file"):
            assert ours.read(path, 4) == b"ours"
            assert ours.locate(path) == "a/b/file"
        assert ours.read(str(root / "a/b/file"), 4) == b"ours"
        assert ours.names("up") == ["file"]
        assert ours.target("up") == "a/b/../b"
        assert [item.path for item in ours.walk("up")] == ["a/b/file"]
        assert [(item.path, kind_of(item.status)) for item in ours.walk()] == [
            ("a", "folder"),
            ("a/b", "folder"),
            ("a/b/file", "file"),
            ("a/whole", "symbolic link"),
            ("top", "file"),
            ("up", "symbolic link"),
        ]


def test_without_links_none_is_followed(place: Path) -> None:
    root = place / "root"
    (root / "up").symlink_to("a/b")
    (root / "same").symlink_to("top")
    with Root(root, links=False) as ours:
        assert ours.read("a/b/file", 4) == b"ours"
        for path in ("up/file", "same", "up"):
            with pytest.raises(OSError, match="is a symbolic link, or below one"):
                ours.stat(path)
        for path in ("a/../top", "/etc/passwd"):
            with pytest.raises(OutsideError):
                ours.open(path)
        assert ours.target("same") == "top"


def test_links_on_the_way_to_the_root_are_followed(place: Path) -> None:
    (place / "link").symlink_to("root")
    with Root(place / "link", links=False) as ours:
        assert ours.read("top", 4) == b"ours"


def test_a_loop_ends(place: Path) -> None:
    (place / "root/x").symlink_to("y")
    (place / "root/y").symlink_to("x")
    for number in range(60):  # each names the one before twice
        before = f"link-{number - 1}" if number else "a"
        (place / f"root/link-{number}").symlink_to(f"{before}/../{before}")
    with Root(place / "root") as ours:
        with pytest.raises(OSError, match="symbolic links"):
            ours.open("x")
        assert not ours.is_file("x")
        assert ours.read("link-59/b/file", 4) == b"ours"


def test_special_files_neither_block_nor_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    names = ["pipe", "socket"]
    with socket.socket(socket.AF_UNIX) as end, Root(tmp_path) as ours:
        end.bind(str(tmp_path / "socket"))
        if os.geteuid() == 0:
            os.mknod(tmp_path / "device", 0o20600, os.makedev(1, 5))  # endless zeros
            names.append("device")
        for name in names:
            with pytest.raises(OSError, match="not a file"):
                ours.read(name, 10)
            assert not ours.is_file(name)
        kinds = {item.path: kind_of(item.status) for item in ours.walk()}
    assert {"pipe": "FIFO", "socket": "socket"}.items() <= kinds.items()


def test_sizes_are_bounded(place: Path) -> None:
    with Root(place / "root") as ours:
        assert ours.read("top", 4) == b"ours"
        with pytest.raises(OSError, match="has more than 3 bytes"):
            ours.read("top", 3)
        with pytest.raises(IsADirectoryError, match="is a folder"):
            ours.read("a", 3)
    with Root("/proc/self") as kernel, pytest.raises(OSError, match="has more than 3 bytes"):
        kernel.read("maps", 3)  # of a size that its status does not tell


# -- whatever comes

_NAMES = st.sampled_from(["a", "b", "c"])
_TARGETS = st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=5).map(
    "/".join
)
_LINKED = st.one_of(
    _TARGETS,
    st.sampled_from(["{place}/host", "{place}/host/secret", "{place}/root/a", "/proc/self/cwd"]),
)
_ENTRIES = st.lists(
    st.tuples(
        st.lists(_NAMES, min_size=1, max_size=3).map("/".join),
        st.one_of(st.none(), st.just(""), _LINKED),
    ),
    max_size=8,
)


def _fill(place: Path, entries: list[tuple[str, str | None]]) -> None:
    """Make folders (None), files (no text) and links to a text."""
    (place / "host").mkdir()
    (place / "host/secret").write_bytes(_SECRET)
    (place / "root").mkdir()
    for path, content in entries:
        new = place / "root" / path
        try:
            if not new.resolve().is_relative_to((place / "root").resolve()):
                continue
            new.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                new.mkdir()
            elif content == "":
                new.write_bytes(path.encode())
            else:
                new.symlink_to(content.format(place=place))
        except (OSError, RuntimeError):
            continue  # there is something else already


def _is_loop(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


@settings(deadline=None)
@given(_ENTRIES, st.lists(_TARGETS, min_size=1, max_size=6))
@example([("a", "{place}/host"), ("b", "b")], ["b/../a"])
@example([("a", "a/../c"), ("c", "")], ["a"])
def test_what_is_read_is_what_is_there_and_below(
    entries: list[tuple[str, str | None]], paths: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(os.path.realpath(folder))
        _fill(place, entries)
        root = place / "root"
        with Root(root) as ours, Root(root, links=False) as plain:
            for path in paths:
                if _is_loop(root / path):  # realpath() goes on behind it, by the names alone
                    with pytest.raises(OSError, match=r"Errno"):
                        ours.read(path, 100)
                    continue
                real = Path(os.path.realpath(root / path))
                inside = real == root or root in real.parents
                try:
                    content = ours.read(path, 100)
                except OutsideError:
                    assert not inside
                except OSError:
                    assert not (inside and real.is_file())
                else:
                    assert inside
                    assert content == real.read_bytes() != _SECRET
                if inside and real.is_dir():
                    assert ours.names(path) == sorted(child.name for child in real.iterdir())
                try:
                    content = plain.read(path, 100)
                except OSError:
                    continue
                assert inside
                assert content == real.read_bytes() != _SECRET


@pytest.mark.parametrize("links", [True, False])
def test_a_folder_that_is_swapped_for_a_link_meanwhile(
    place: Path, links: bool, way: folders.Folders
) -> None:
    if isinstance(way, folders.FoldersByPath):
        pytest.skip("for Windows, where nothing runs that could swap it")
    root, host = place / "root", place / "host"
    (host / "b").mkdir()
    (host / "b/file").write_bytes(_SECRET)
    (host / "b/only-here").write_bytes(_SECRET)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            (root / "a").rename(place / "aside")
            (root / "a").symlink_to(host)
            (root / "a").unlink()
            (place / "aside").rename(root / "a")

    thread = threading.Thread(target=swap)
    thread.start()
    contents, names, reads = set(), set(), 0
    try:
        with Root(root, links=links) as ours:
            end = time.monotonic() + 30.0
            while reads < 500 and time.monotonic() < end:
                for read in (_content, _names, _walked):
                    try:
                        content, listed = read(ours)
                    except OSError:
                        continue
                    reads += 1
                    contents.update(content)
                    names.update(listed)
    finally:
        done.set()
        thread.join()
        shutil.rmtree(place / "aside", ignore_errors=True)
    assert reads, "nothing could be read at all"
    assert contents <= {b"ours"}
    assert "only-here" not in names


def _content(ours: Root) -> tuple[list[bytes], list[str]]:
    return [ours.read("a/b/file", 100)], []


def _names(ours: Root) -> tuple[list[bytes], list[str]]:
    return [], ours.names("a/b")


def _walked(ours: Root) -> tuple[list[bytes], list[str]]:
    return [], [item.path.rpartition("/")[2] for item in ours.walk()]


@pytest.mark.parametrize("path", ["..\\host\\secret", "a\\b\\file", "C:file", "top:stream"])
def test_names_that_are_paths_on_windows(place: Path, path: str) -> None:
    (place / "root" / path).write_bytes(_SECRET)  # here it is a file with an odd name
    with (
        pytest.MonkeyPatch.context() as patch,
        Root(place / "root") as by_descriptor,
    ):
        patch.setattr(beneath, "folders_here", folders.FoldersByPath)
        with Root(place / "root") as by_path, pytest.raises(OSError, match="a name on Windows"):
            by_path.read(path, 100)
        if not isinstance(by_descriptor._folders, folders.FoldersByPath):
            assert by_descriptor.read(path, 100) == _SECRET
