"""Folders that are copied into volumes: what a copy holds, and what makes it another one."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_intercode.sandboxes.docker.volumes import _digest, stream_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "bundle"
    (made / "bin" / "deep").mkdir(parents=True)
    (made / "bin" / "tool").write_bytes(b"#!/bin/sh\n")
    (made / "bin" / "tool").chmod(0o755)
    (made / "bin" / "deep" / ("n" * 200)).write_bytes(os.urandom(1000))
    (made / "bin" / "\udcff").write_bytes(b"not UTF-8")
    (made / "link").symlink_to("bin/tool")
    return made


def test_a_copy_holds_what_the_folder_does(folder: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        data = b"".join(stream_folder(folder))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {member.name: member for member in archive}
        assert {(member.uid, member.gid, member.uname) for member in members.values()} == {
            (0, 0, "")
        }
    assert "s" not in members
    copy = tmp_path / "copy"
    copy.mkdir()
    subprocess.run(["tar", "-xC", copy], input=data, check=True)
    assert members["bin/tool"].mode == 0o755
    assert members["link"].linkname == "bin/tool"
    for path in ("bin/tool", "bin/deep/" + "n" * 200, "bin/\udcff"):
        assert (copy / path).read_bytes() == (folder / path).read_bytes()
    (folder / "s").unlink()
    assert _digest(copy) == _digest(folder)


CHANGES: list[Callable[[Path], object]] = [
    lambda folder: (folder / "bin" / "tool").write_bytes(b"#!/bin/SH\n"),
    lambda folder: (folder / "bin" / "tool").chmod(0o700),
    lambda folder: (folder / "bin" / "tool").rename(folder / "tool"),
    lambda folder: (folder / "new").mkdir(),
    lambda folder: (folder / "bin" / "tool").replace(folder / "link"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_makes_it_another_content(change: Callable[[Path], object], folder: Path) -> None:
    before = _digest(folder)
    os.utime(folder / "bin" / "tool", (1, 1))
    assert _digest(folder) == before
    change(folder)
    assert _digest(folder) != before


def test_a_large_file_is_not_read_into_memory(folder: Path) -> None:
    with (folder / "large").open("wb") as file:
        file.truncate(64 * 1024**2)
    tracemalloc.start()
    try:
        size = sum(map(len, stream_folder(folder)))
        _digest(folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 64 * 1024**2
    assert peak < 8 * 1024**2


def test_a_file_that_becomes_shorter_is_no_half_copy(folder: Path) -> None:
    path = folder / "changing"
    path.write_bytes(bytes(2**20))

    def read() -> None:
        for data in stream_folder(folder):
            if len(data) > 1000:
                os.truncate(path, 10)

    with pytest.raises(OSError, match="it has become shorter"):
        read()
