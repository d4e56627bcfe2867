"""The copy of a project: what is in it, what is not, and that it is made once."""

from __future__ import annotations

import gzip
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.projects import copying
from pytest_intercode.projects.copying import ProjectCopy, copy_folder, copy_project
from pytest_intercode.system.archives import unpack_own
from tests.support.git import git


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository with a commit, and work that is not committed."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / ".gitignore").write_text("*.log\n/build/\n")
    (folder / "src/app.py").write_text("committed\n")
    (folder / "gone.txt").write_text("x")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "First")
    (folder / "src/app.py").write_text("changed\n")
    (folder / "new.txt").write_text("untracked\n")
    (folder / "debug.log").write_text("ignored\n")
    (folder / "gone.txt").unlink()
    return folder


@pytest.fixture
def unpack(tmp_path: Path) -> Callable[[ProjectCopy], Path]:
    """Return a function that unpacks a copy, and returns where the project is."""

    def unpack_copy(copy: ProjectCopy) -> Path:
        folder = tmp_path / f"unpacked-{copy.digest}"
        with tarfile.open(copy.layer) as packed:
            unpack_own(packed, folder)
        return folder / "project"

    return unpack_copy


Unpack = Callable[[ProjectCopy], Path]


def names_in(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())
    return {str(path.relative_to(folder)) for path in paths if ".git" not in path.parts}


def test_tracked_and_untracked_files_as_they_are_now(project: Path, unpack: Unpack) -> None:
    unpacked = unpack(copy_folder(project))
    assert names_in(unpacked) == {".gitignore", "src/app.py", "new.txt"}
    assert (unpacked / "src/app.py").read_text() == "changed\n"


def test_it_is_a_clean_repository_of_one_commit(project: Path, unpack: Unpack) -> None:
    copy = copy_folder(project)
    unpacked = unpack(copy)
    assert git(unpacked, "status", "--porcelain") == ""
    assert git(unpacked, "diff-index", "HEAD") == ""  # the index knows the files' times
    assert git(unpacked, "rev-list", "--all") == copy.commit
    assert git(unpacked, "remote") == ""
    assert git(unpacked, "fsck", "--strict") == ""


@pytest.mark.parametrize(
    ("attribute", "content"),
    [
        ("text eol=crlf", b"first\r\nsecond\r\n"),
        ("text eol=crlf", b"first\nsecond\n"),
        ("text", b"first\r\nsecond\r\n"),
        ("text=auto", b"first\r\nsecond\n"),
        ("crlf=input", b"first\r\n"),
        ("ident", b"$Id: 0123 $\n"),
        ("filter=upper", b"lower\n"),
        ("working-tree-encoding=UTF-16", "text\n".encode("utf-16")),
        ("working-tree-encoding=UTF-16", b"not in UTF-16\n"),
    ],
)
def test_it_is_clean_where_attributes_convert(
    project: Path, unpack: Unpack, attribute: str, content: bytes
) -> None:
    (project / ".gitattributes").write_text(f"converted {attribute}\n")
    (project / "converted").write_bytes(content)
    unpacked = unpack(copy_folder(project))
    assert (unpacked / "converted").read_bytes() == content
    git(unpacked, "config", "filter.upper.clean", "tr a-z A-Z")  # as an image may have one
    assert git(unpacked, "status", "--porcelain") == ""
    (unpacked / "converted").touch()  # git is to compare the content
    assert git(unpacked, "status", "--porcelain") == ""
    (unpacked / "converted").unlink()
    git(unpacked, "checkout", "converted")
    assert (unpacked / "converted").read_bytes() == content


def test_odd_names_modes_and_links(project: Path, unpack: Unpack) -> None:
    names = ['quote".txt', "back\\slash", "new\nline", "tab\t", " blank ", "ümlaut", "-dash"]
    for name in names:
        (project / name).write_text(name)
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / "link").symlink_to("src/app.py")
    (project / "dangling").symlink_to("/nowhere")
    unpacked = unpack(copy_folder(project))
    assert [(unpacked / name).read_text() for name in names] == names
    assert (unpacked / "run.sh").stat().st_mode & stat.S_IXUSR
    assert (unpacked / "link").readlink() == Path("src/app.py")
    assert (unpacked / "dangling").readlink() == Path("/nowhere")
    assert git(unpacked, "status", "--porcelain") == ""


def test_it_is_made_once_for_each_content(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = copy_folder(project)
    with monkeypatch.context() as patch:
        patch.setattr(copying, "make_layer", None)  # would be called
        assert copy_folder(project) == first
    (project / "new.txt").write_text("another")
    assert copy_folder(project).digest != first.digest
    (project / "new.txt").write_text("untracked\n")
    (project / "new.txt").chmod(0o755)
    assert copy_folder(project).digest != first.digest


def test_tests_of_agents_and_recordings_are_left_out(project: Path, unpack: Unpack) -> None:
    (project / "tests/recordings/test_rules").mkdir(parents=True)
    (project / "tests/recordings/test_rules/a.jsonl.gz").write_text("x")
    (project / "tests/test_rules.py").write_text("def test_it(intercode_project): ...\n")
    (project / "tests/test_app.py").write_text("def test_app(): ...\n")
    (project / "recordings").mkdir()
    (project / "recordings/of-mine.txt").write_text("x")  # next to no such test
    (project / "treatments/skill").mkdir(parents=True)
    (project / "treatments/skill/SKILL.md").write_text("x")
    copy = copy_project(None, project / "tests", project, hidden=[project / "treatments"])
    expected = {
        ".gitignore",
        "src/app.py",
        "new.txt",
        "tests/test_app.py",
        "recordings/of-mine.txt",
    }
    assert names_in(unpack(copy)) == expected


def test_results_of_runs_are_left_out(project: Path, unpack: Unpack) -> None:
    row = b'{"environment": "ic_project", "dataset": ""}\n'
    (project / "ci").mkdir()
    (project / "ci/baseline.jsonl").write_bytes(row)
    (project / "ci/baseline.summary.json").write_text("{}")
    (project / "old.jsonl.1").write_bytes(row)
    (project / "packed.jsonl.gz").write_bytes(gzip.compress(row))
    (project / "mine.json").write_text('{"environment": "production"}')
    (project / "mine.summary.json").write_text("{}")
    (project / "mine.gz").write_text("not packed")
    expected = {".gitignore", "src/app.py", "new.txt", "mine.json", "mine.summary.json", "mine.gz"}
    assert names_in(unpack(copy_folder(project))) == expected


def test_what_a_run_writes_is_left_out(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / ".cache"))  # as HOME may be the project
    results = project / "results.jsonl"
    first = copy_folder(project, hidden=[results])
    results.write_text("x")
    for name in ("src/__pycache__", ".pytest_cache"):
        (project / name).mkdir()
        (project / name / "file").write_text("x")
    assert copy_folder(project, hidden=[results]) == first


def test_a_part_of_a_repository(project: Path, unpack: Unpack) -> None:
    assert names_in(unpack(copy_project("src", project, project))) == {"app.py"}


def test_a_revision(project: Path, unpack: Unpack) -> None:
    unpacked = unpack(copy_project("main", project, project))
    assert names_in(unpacked) == {".gitignore", "src/app.py", "gone.txt"}
    assert (unpacked / "src/app.py").read_text() == "committed\n"
    assert names_in(unpack(copy_project("HEAD", project / "src", project / "src"))) == {"app.py"}


def test_a_revision_has_what_is_checked_out(project: Path, tmp_path: Path) -> None:
    """Attributes of archives leave nothing out and fill nothing in; those of line ends hold."""
    (project / ".gitattributes").write_text(
        "gone.txt export-ignore\n/src/docs export-ignore\n*.id ident\nversion export-subst\n"
        "*.bat text eol=crlf\n*.u16 text working-tree-encoding=UTF-16\n"
    )
    (project / "src/docs").mkdir()
    (project / "src/docs/index.md").write_text("x")
    (project / "src/run.bat").write_text("first\nsecond\n")
    (project / "src/text.u16").write_text("text\n", "utf-16")
    (project / "src/version").write_text("$Format:%H$\n")
    (project / "src/a.id").write_text("$Id$\n")
    (project / "gone.txt").write_text("x")
    (project / "link").symlink_to("src/app.py")
    (project / "new.txt").chmod(0o755)
    git(project, "add", "-A")
    git(project, "commit", "-qm", "Second")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(project), str(clone))
    assert (clone / "src/run.bat").read_bytes() == b"first\r\nsecond\r\n"
    assert copy_project("HEAD", project, project) == copy_project(None, clone, clone)
    part = project / "src"
    assert copy_project("HEAD", part, part) == copy_project("src", clone, clone)


def test_a_revision_leaves_the_repository_as_it_is(
    project: Path, tmp_path: Path, unpack: Unpack
) -> None:
    (project / ".gitattributes").write_text("*.py filter=upper\n")
    git(project, "add", ".gitattributes")
    git(project, "commit", "-qm", "Attributes")
    git(project, "config", "filter.upper.smudge", "tr a-z A-Z")
    git(project, "config", "core.splitIndex", "true")
    (project / ".git/hooks").mkdir(exist_ok=True)
    for hook in ("post-checkout", "post-index-change"):
        (project / ".git/hooks" / hook).write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
        (project / ".git/hooks" / hook).chmod(0o755)
    files = {path: path.stat().st_mtime_ns for path in (project / ".git").rglob("*")}
    unpacked = unpack(copy_project("HEAD", project, project))
    assert (unpacked / "src/app.py").read_text() == "COMMITTED\n"
    assert {path: path.stat().st_mtime_ns for path in (project / ".git").rglob("*")} == files
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_a_revision_has_not(project: Path, tmp_path: Path) -> None:
    """A link in its place leads to nothing of this machine's."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("x")
    (project / "docs").symlink_to(tmp_path / "outside")
    git(project, "add", "docs")
    git(project, "commit", "-qm", "Link")
    (project / "docs").unlink()
    (project / "docs").mkdir()
    for revision in ("HEAD", "HEAD~1"):
        with pytest.raises(ConfigurationError, match=f"{revision}': .*docs as it was then cannot"):
            copy_project(revision, project / "docs", project / "docs")


def test_a_folder_without_a_repository(tmp_path: Path, unpack: Unpack) -> None:
    folder = tmp_path / "example"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner/file").write_text("x")
    (folder / "empty").write_text("")
    assert names_in(unpack(copy_project("example", tmp_path, tmp_path))) == {"inner/file", "empty"}
    with pytest.raises(ConfigurationError, match="example is not in a git repository"):
        copy_project(None, folder, folder)


def test_a_virtual_environment_that_is_not_ignored_is_left_out(
    project: Path, unpack: Unpack
) -> None:
    (project / "env/bin").mkdir(parents=True)
    (project / "env/pyvenv.cfg").write_text("home = /usr/bin\n")
    (project / "env/bin/pip").write_text("x")
    (project / "environment").write_text("x")
    names = names_in(unpack(copy_project(None, project, project)))
    assert names == {".gitignore", "environment", "new.txt", "src/app.py"}


@pytest.fixture
def submodule(project: Path, tmp_path: Path) -> Path:
    """Return a submodule of the project, which is checked out."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "module.py").write_text("x")
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "Inner")
    git(project, "-c", "protocol.file.allow=always", "submodule", "-q", "add", str(source), "sub")
    return project / "sub"


@pytest.mark.usefixtures("submodule")
def test_a_submodule_is_a_part_of_it(project: Path, unpack: Unpack) -> None:
    names = names_in(unpack(copy_folder(project)))
    assert {"sub/module.py", ".gitmodules"} <= names


@pytest.mark.parametrize("rest", ["", ".git", ".git/"])
def test_a_submodule_that_is_not_checked_out(
    project: Path, submodule: Path, unpack: Unpack, rest: str
) -> None:
    """An ordinary clone has an empty folder; a broken one something that is no repository."""
    git(project, "submodule", "-q", "deinit", "-f", "sub")
    if rest.endswith("/"):
        (submodule / rest).mkdir()
    elif rest:
        (submodule / rest).write_text("gitdir: ../nowhere\n")
    copy = copy_folder(project)
    assert names_in(unpack(copy)) == {".gitignore", ".gitmodules", "new.txt", "src/app.py"}
    assert names_in(unpack(copy_folder(submodule))) == set()


def test_a_hook_that_runs_the_tests(
    project: Path, submodule: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git names its repository to a hook, whatever folder the hook goes on to."""
    (submodule / ".gitignore").write_text("*.log\n")
    (submodule / "kept.log").write_text("tracked")
    git(submodule, "add", "-f", "kept.log")
    expected = copy_folder(project)
    monkeypatch.setenv("GIT_DIR", str(project / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(project / ".git/index"))
    assert copy_folder(project) == expected


def test_what_is_neither_a_folder_nor_a_revision(project: Path) -> None:
    (project / "file").write_text("x")
    message = "project='typo': neither a folder next to the test nor a revision of the repository"
    with pytest.raises(ConfigurationError, match=message):
        copy_project("typo", project, project)
    with pytest.raises(ConfigurationError, match="file is not a folder"):
        copy_project("file", project, project)
    with pytest.raises(ConfigurationError, match="neither a folder"):
        copy_project("--output=/tmp/x", project, project)


def test_more_than_is_copied(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_intercode.system.archives._MAX_ENTRIES", 2)
    with pytest.raises(ConfigurationError, match="holds more than 2 files and folders"):
        copy_folder(project)
    with pytest.raises(ConfigurationError, match=r"'main': .* holds more than 2 files and folders"):
        copy_project("main", project, project)


# -- treatments


def test_a_treatment_is_laid_over_it(project: Path, tmp_path: Path, unpack: Unpack) -> None:
    skill = tmp_path / "skill"
    (skill / "src").mkdir(parents=True)
    (skill / "AGENTS.md").write_text("Use uv.")
    (skill / "src/app.py").write_text("treated")
    plain, copy = copy_folder(project), copy_folder(project, [skill])
    unpacked = unpack(copy)
    assert (unpacked / "AGENTS.md").read_text() == "Use uv."
    assert (unpacked / "src/app.py").read_text() == "treated"
    assert git(unpacked, "status", "--porcelain") == ""
    assert copy.digest != plain.digest


@pytest.mark.parametrize(
    ("treated", "message"),
    [
        ("link", "link: the project has a symbolic link at link"),
        ("folder-link/file", "folder-link/file: the project has a symbolic link at folder-link"),
        ("src", "src: src is a folder of the project"),
        ("new.txt/inner", "new.txt/inner: new.txt is a file of the project"),
    ],
)
def test_a_treatment_that_does_not_fit(
    project: Path, tmp_path: Path, treated: str, message: str
) -> None:
    (project / "link").symlink_to("src/app.py")
    (project / "folder-link").symlink_to("src")
    path = tmp_path / "skill" / treated
    path.parent.mkdir(parents=True)
    path.write_text("x")
    with pytest.raises(ConfigurationError, match=message):
        copy_folder(project, [tmp_path / "skill"])
