"""Repositories at their base commit: every kind of source, and nothing later than the commit."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import Repository
from pytest_intercode.environments.swe.repositories import repository_layer
from pytest_intercode.errors import SuiteError
from pytest_intercode.system import archives as files


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


# -- sources of somebody else's


def _archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT) as archive:
        for member, content in members:
            archive.addfile(member, io.BytesIO(content))
    return path


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> Any:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, target, size
    return member, bytes(size)


_BYTES, _ENTRIES = 1024**2, 1000


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_BYTES", _BYTES)
    monkeypatch.setattr(files, "_MAX_ENTRIES", _ENTRIES)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for what is temporary; of a short name, as that of a socket has to be."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def _bomb(path: Path) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for number in range(3):
            member, content = _member(f"zeros-{number}", size=_BYTES // 2)
            archive.addfile(member, io.BytesIO(content))
    return path


def _sparse(path: Path) -> Path:
    """An archive of a file that is a hole of 64 GiB."""
    folder = path.with_suffix(".folder")
    folder.mkdir()
    with (folder / "hole").open("wb") as file:
        file.truncate(64 * 1024**3)
    subprocess.run(["tar", "-C", folder, "--sparse", "-czf", path, "hole"], check=True)
    assert path.stat().st_size < 4096
    return path


def _tiny(path: Path) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for number in range(_ENTRIES + 1):
            archive.addfile(tarfile.TarInfo(f"{number}"))
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_bomb, "unpacks to more than"),
        (_sparse, "unpacks to more than"),
        (_tiny, "holds more than 1,000 files and folders"),
    ],
)
@pytest.mark.usefixtures("limits")
def test_an_archive_is_unpacked_within_limits(
    tmp_path: Path, temporary: Path, make: Callable[[Path], Path], message: str
) -> None:
    source = make(tmp_path / "source.tar.gz")
    with pytest.raises(SuiteError, match=message):
        repository_layer(Repository(source=source))
    assert not list(temporary.rglob("*"))


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("kind", ["bundle", "folder", "plain"])
def test_other_sources_have_the_same_limits(tmp_path: Path, temporary: Path, kind: str) -> None:
    folder = tmp_path / "bomb"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "zeros").write_bytes(bytes(_BYTES + 1))
    git(folder, "add", "zeros")
    git(folder, "commit", "-qm", "x")
    if kind == "plain":
        shutil.rmtree(folder / ".git")
    source = of(folder, kind) if kind == "bundle" else folder
    with pytest.raises(SuiteError, match="unpacks to more than"):
        repository_layer(Repository(source=source))
    assert not list(temporary.rglob("*"))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([_member("/etc/x")], "a relative path is needed, found '/etc/x'"),
        ([_member("a/../../x")], "one component of a path, found '..'"),
        ([_member("x", size=1), _member("x", size=1)], "'x' is in it twice"),
        ([_member("x", tarfile.SYMTYPE, "/etc"), _member("x/y", size=1)], "'x' is in it twice"),
        ([_member("x", tarfile.SYMTYPE, "/etc"), _member("x/y", tarfile.SYMTYPE, "z")], "'x' is"),
        ([_member("x", tarfile.LNKTYPE, "/etc/passwd")], "a relative path is needed"),
        ([_member("x", tarfile.LNKTYPE, "../../x")], "one component of a path, found '..'"),
        ([_member("x", tarfile.FIFOTYPE)], "'x' is not a file, folder or link"),
        ([_member("x", tarfile.CHRTYPE)], "'x' is not a file, folder or link"),
        ([_member("x", size=1), _member("x/y", size=1)], "'x' is in it twice"),
    ],
)
def test_names_in_an_archive_lead_nowhere_else(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]], message: str
) -> None:
    source = _archive(tmp_path / "a.tar.gz", _member("0", size=1), *members)
    with pytest.raises(SuiteError, match=message):
        repository_layer(Repository(source=source))


def test_links_in_an_archive_stay_what_they_are(tmp_path: Path) -> None:
    source = _archive(
        tmp_path / "a.tar.gz",
        _member("file", size=3),
        _member("hard", tarfile.LNKTYPE, "file"),
        _member("soft", tarfile.SYMTYPE, "/etc/passwd"),
    )
    repository = unpacked(repository_layer(Repository(source=source)), tmp_path / "out")
    assert git(repository, "ls-files").split() == ["file", "hard", "soft"]
    assert str((repository / "soft").readlink()) == "/etc/passwd"


def _link_objects(folder: Path, other: Path) -> None:
    shutil.rmtree(folder / ".git/objects")
    (folder / ".git/objects").symlink_to(other / ".git/objects")


def _link_head(folder: Path, other: Path) -> None:
    (folder / ".git/HEAD").unlink()
    (folder / ".git/HEAD").symlink_to(other / ".git/HEAD")


def _link_git(folder: Path, other: Path) -> None:
    shutil.rmtree(folder / ".git")
    (folder / ".git").symlink_to(other / ".git")


def _name_git(folder: Path, other: Path) -> None:
    shutil.rmtree(folder / ".git")
    (folder / ".git").write_text(f"gitdir: {other}/.git\n")


@pytest.mark.parametrize("lead", [_link_objects, _link_head, _link_git, _name_git])
def test_a_repository_does_not_lead_to_another(
    source: Path, tmp_path: Path, lead: Callable[[Path, Path], None]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(source, other)
    lead(source, other)
    with pytest.raises(SuiteError, match=r"symbolic link|which leads elsewhere"):
        repository_layer(Repository(source=source))


def test_settings_of_a_repository_lead_nowhere(source: Path, tmp_path: Path) -> None:
    """Objects elsewhere are not taken, though their names are known."""
    other = tmp_path / "other"
    shutil.copytree(source, other)
    (other / "secret").write_text("secret\n")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "secret")
    secret = git(other, "rev-parse", "HEAD")
    info = source / ".git/objects/info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_text(f"{other}/.git/objects\n")
    (source / ".git/refs/heads/main").write_text(f"{secret}\n")
    git(source, "config", "extensions.partialClone", "origin")
    git(source, "config", "remote.origin.url", str(other))
    git(source, "config", "remote.origin.promisor", "true")
    with pytest.raises(SuiteError):
        repository_layer(Repository(source=source))
    cache = Path(os.environ["XDG_CACHE_HOME"])
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_repository_in_a_plain_folder_is_left_out(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/.git").write_text(f"gitdir: {source}/.git\n")
    (folder / "sub/file").write_text("x\n")
    os.mkfifo(folder / "pipe")
    repository = unpacked(repository_layer(Repository(source=folder)), tmp_path / "out")
    assert git(repository, "ls-files") == "sub/file"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_it_when_the_process_is_ended(
    source: Path, tmp_path: Path, temporary: Path, number: signal.Signals
) -> None:
    """Git is a program that waits, and the process ends while it does."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\necho >>begun\nsleep 5\n")
    (programs / "git").chmod(0o755)
    code = (
        "from pathlib import Path\nfrom pytest_intercode.core.task import Repository\n"
        "from pytest_intercode.environments.swe.repositories import repository_layer\n"
        f"repository_layer(Repository(source=Path({str(source)!r})))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={
            **os.environ,
            "TMPDIR": str(temporary),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[3]),
        },
        start_new_session=True,
    )
    _wait_until((tmp_path / "begun").exists)
    assert _copies(temporary)
    os.killpg(process.pid, number)
    process.wait()
    _wait_until(lambda: not _copies(temporary))


def _copies(folder: Path) -> list[str]:
    # Not rglob, which fails where a folder is removed while it looks.
    return [path for path, _, _ in os.walk(folder) if Path(path).name == "copy"]


def _wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)
