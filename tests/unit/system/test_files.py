"""Files that a user named: whole or not at all."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system.files import bundled_folder, read_bounded, replace_and_keep, write_file


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


RESULTS = '{"environment": "ic_bash"}\n'


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_results_of_a_run_are_not_replaced(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    data = gzip.compress(RESULTS.encode()) if name.endswith(".gz") else RESULTS.encode()
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"holds the results of a run.*name another file"):
        write_file(path, "<html>", option="--output")
    assert path.read_bytes() == data
    write_file(path, "<html>", existing="replace")
    assert read_bounded(path, 100) == b"<html>"


def test_what_was_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert write_file(path, "1", existing="keep") == []
    assert write_file(path, "2", existing="keep") == [
        f"{path}: was there already; what it held is in {path}.1 now"
    ]
    write_file(path, "3", existing="keep")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        "report.json": "3",
        "report.json.1": "1",
        "report.json.2": "2",
    }


def test_a_file_that_cannot_be_moved_to_its_place_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(RESULTS)
    with pytest.raises(OSError, match="No such file"):
        replace_and_keep(tmp_path / "absent", path)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"r.jsonl": RESULTS}


def test_folder_that_is_not_there() -> None:
    with pytest.raises(
        ConfigurationError, match=r"the installed package \(version .+\) has no folder 'x'"
    ):
        bundled_folder("x")
