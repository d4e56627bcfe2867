"""Files that a user named: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_intercode.core.files import write_file
from pytest_intercode.errors import ConfigurationError


def test_folders_are_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    write_file(path, "ünï")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert [each.name for each in path.parent.iterdir()] == ["b.txt"]


def test_mode_and_link_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_file(link, "new")
    assert link.is_symlink()
    assert (real.read_text(), real.stat().st_mode & 0o777) == ("new", 0o640)


def test_the_mask_of_the_process_counts(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "new", "")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_a_device_is_written_to() -> None:
    write_file(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "x"
    with pytest.raises(ConfigurationError) as caught:
        write_file(path, "", option="--output")
    assert str(caught.value).startswith(f"--output={path}: cannot be written: ")
    with pytest.raises(ConfigurationError, match=f"^{tmp_path}: cannot be written: Is a directory"):
        write_file(tmp_path, "")
