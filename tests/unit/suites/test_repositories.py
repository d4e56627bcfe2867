"""Repositories at their base commit: every kind of source, and nothing later than the commit."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from pytest_intercode.core.task import Repository
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.repositories import repository_layer


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def git(folder: Path, *words: str) -> str:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    own |= {
        f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a repository of three commits, each with a tag, and one more that nothing names."""
    folder = tmp_path / "source"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for number in (1, 2, 3, 4):
        (folder / "f").write_text(f"{number}\n")
        (folder / "run").write_text("#!/bin/sh\n")
        (folder / "run").chmod(0o755)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", f"commit {number}", f"--date=2024-01-0{number}T00:00:00Z")
        git(folder, "tag", *(["-a", "-m", "x"] if number == 2 else []), f"v{number}")
    git(folder, "tag", "-d", "v4")
    git(folder, "reset", "-q", "--hard", "v3")
    git(folder, "remote", "add", "origin", "https://example.org/x")
    return folder


def of(source: Path, kind: str) -> Path:
    """Return the same repository as another kind of source."""
    other = source.with_name(kind)
    if kind == "bundle":
        git(source, "bundle", "create", "-q", str(other), "--all", "HEAD")
    elif kind == "stream":
        other.write_bytes(git(source, "fast-export", "--all").encode() + b"\n")
    elif kind == "archive":
        with tarfile.open(other, "w:gz") as archive:
            archive.add(source, "source")
    else:
        return source
    return other


def unpacked(layer: Path, folder: Path) -> Path:
    with tarfile.open(layer) as archive:
        assert {(member.uid, member.gid, member.uname) for member in archive} == {(0, 0, "root")}
        archive.extractall(folder)
    return folder / "repo"


@pytest.mark.parametrize("kind", ["folder", "bundle", "stream", "archive"])
@pytest.mark.parametrize("commit", ["v2", "HEAD"])
def test_every_kind_comes_to_the_same(source: Path, tmp_path: Path, kind: str, commit: str) -> None:
    layer = repository_layer(Repository(source=of(source, kind), commit=commit))
    repository = unpacked(layer, tmp_path / "out")
    last = 2 if commit == "v2" else 3
    base = git(source, "rev-parse", f"v{last}^{{commit}}")
    assert git(repository, "rev-list", "--all").split()[0] == base
    assert git(repository, "for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/main",
        *(f"refs/tags/v{number}" for number in range(1, last + 1)),
    ]
    known = git(repository, "cat-file", "--batch-all-objects", "--batch-check").splitlines()
    assert sum(" commit " in line for line in known) == last
    assert (repository / "f").read_text() == f"{last}\n"
    assert (repository / "run").stat().st_mode & 0o777 == 0o755
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "remote") == ""
    assert git(repository, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert not list(repository.rglob("*logs*"))
    assert not (repository / ".git/hooks").exists()


def test_a_plain_folder_becomes_one_commit(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "a").write_text("a\n")
    repository = unpacked(repository_layer(Repository(source=folder)), tmp_path / "out")
    assert git(repository, "log", "--format=%an %s") == "Base Initial commit"
    assert git(repository, "ls-files") == "a"


def test_it_is_made_once_and_again_when_the_source_changed(source: Path) -> None:
    first = repository_layer(Repository(source=source))
    inode = first.stat().st_ino
    assert repository_layer(Repository(source=source)).stat().st_ino == inode
    assert repository_layer(Repository(source=source, at="/app")) != first
    (source / "f").write_text("new\n")
    assert repository_layer(Repository(source=source)) != first


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text", b"hello\n", "neither a git bundle"),
        ("empty.bundle", b"# v2 git bundle\n\n", "empty.bundle: it has no commit 'HEAD'"),
        ("cut.export", b"commit refs/heads/main\n", "cut.export, commit HEAD: "),
    ],
)
def test_what_is_no_repository_is_said_in_one_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SuiteError, match=message) as caught:
        repository_layer(Repository(source=tmp_path / name))
    assert "\n" not in str(caught.value)


def test_a_commit_that_is_not_there_is_named(source: Path) -> None:
    with pytest.raises(SuiteError, match="it has no commit 'v9'"):
        repository_layer(Repository(source=source, commit="v9"))
