"""The package's table of InterCode's files against the files themselves."""

from __future__ import annotations

from pathlib import Path

from pytest_intercode.suites.download import is_whole
from pytest_intercode.suites.upstream import files_of


def test_the_table_knows_the_files(data: Path) -> None:
    not_intercode = ("data/tau2/", "data/os_interaction/", "data/dbbench/")
    files = [file for file in files_of("data/") if not file.path.startswith(not_intercode)]
    assert len(files) > 100
    assert [file.path for file in files if not is_whole(data / file.target, file)] == []
    assets = {path for path in (data / "ctf/task_assets").rglob("*") if path.is_file()}
    assert assets == {data / file.target for file in files_of("data/ctf/task_assets/")}


def test_the_table_has_the_known_hashes(reference: Path) -> None:
    lines = (reference / "upstream-sha256.txt").read_text().splitlines()
    known = {path: sha256 for sha256, path in (line.split() for line in lines if line[0] != "#")}
    digests = {file.path: file.digest for file in files_of("")}
    unused = {"docker/bash_scripts/setup_nl2b_fs_4.sh"}  # makes nothing
    assert {path: digests.get(path) for path in known.keys() - unused} == {
        path: sha256 for path, sha256 in known.items() if path not in unused
    }
