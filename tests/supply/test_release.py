"""``scripts/release``: what stops it is one line; what it makes is whole, and again the same."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from tests.supply.locks import ROOT, project
from tests.supply.release import main

PROJECT = """\
[project]
name = "pytest-intercode"
version = "1.0.0"

[project.urls]
Source = "https://example.org/"
"""
CHANGELOG = "# Changelog\n\n<!-- releases: here -->\n\n## 1.0.0 - unreleased\n\nAll of it.\n"


def git(root: Path, *words: str) -> str:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    identity = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
    done = subprocess.run(
        ["git", *identity, *words], cwd=root, env=kept, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(root: Path, *, passed: bool = True) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "Change")
    if passed:
        (root / "build").mkdir(exist_ok=True)
        (root / "build" / "passed").write_text(git(root, "rev-parse", "HEAD") + "\n")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of which a release could be made, up to the bill of materials."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch", "main")
    (root / ".gitignore").write_text("/build/\n/dist/\n")
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "CITATION.cff").write_text("version: 1.0.0\n")
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    commit(root)
    return root


def refused(capsys: pytest.CaptureFixture[str], root: Path, *words: str, status: int = 1) -> str:
    """Return the one line that says why there is no release."""
    before = git(root, "rev-parse", "HEAD"), git(root, "tag"), git(root, "status", "--porcelain")
    try:
        returned = main(words, root)
    except SystemExit as end:
        returned = int(end.code or 0)
    assert returned == status
    assert before == (
        *(git(root, "rev-parse", "HEAD"), git(root, "tag")),
        git(root, "status", "--porcelain"),
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("release: ")
    return line.removeprefix("release: ")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ((), 2, "the following arguments are required: VERSION; usage: scripts/release VERSION"),
        (("1.0.0", "--rehearse", "--from-tag"), 2, "not allowed with argument --rehearse"),
        (("1.0.0", "--upload"), 2, "unrecognized arguments: --upload"),
        (("v1.0.0",), 1, "v1.0.0 is not a version: write it like 1.2.3 or 1.2.3rc1"),
        (("1.0",), 1, "1.0 is not a version"),
        (("1.0.0", "--from-tag"), 1, "there is no tag v1.0.0"),
        (("1.1.0",), 1, "CHANGELOG.md has an unreleased section 1.0.0: release that first"),
    ],
)
def test_wrong_use(
    repository: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    status: int,
    message: str,
) -> None:
    assert message in refused(capsys, repository, *words, status=status)


def test_tags_that_are_there(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "tag", "v1.1.0")
    line = refused(capsys, repository, "1.1.0")
    assert line == "the tag v1.1.0 is there already: name a newer version"
    assert refused(capsys, repository, "1.0.9") == "1.0.9 is older than 1.1.0, which was released"
    git(repository, "tag", "v1.10.0rc2")
    line = refused(capsys, repository, "1.10.0rc1")
    assert line == "1.10.0rc1 is older than 1.10.0rc2, which was released"
    assert main(["1.10.0", "--check"], repository) == 0


@pytest.mark.parametrize("mode", [(), ("--rehearse",)])
def test_changes_and_an_earlier_build(
    repository: Path, capsys: pytest.CaptureFixture[str], mode: tuple[str, ...]
) -> None:
    (repository / "dist" / "1.0.0").mkdir(parents=True)
    line = refused(capsys, repository, "1.0.0", *mode)
    assert line == "dist/1.0.0 is there already: remove it to build it again"
    (repository / "new.py").touch()
    line = refused(capsys, repository, "1.0.0", *mode)
    assert line == "the work tree has changes, commit or remove them: new.py"


def test_what_only_a_release_needs(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "pyproject.toml").write_text(PROJECT.partition("\n[project.urls]")[0])
    commit(repository)
    line = refused(capsys, repository, "1.0.0")
    assert line == "pyproject.toml has no [project.urls], which PyPI shows: add Source"
    commit(repository, passed=False)
    head = git(repository, "rev-parse", "HEAD")[:12]
    line = refused(capsys, repository, "1.0.0")
    assert line == f"the checks were not seen to pass for {head}: run .ci/run"
    git(repository, "switch", "--quiet", "--create", "fix")
    line = refused(capsys, repository, "1.0.0")
    assert line == "a release is made on main, and this is fix"
    # A rehearsal says all of it and goes on, here to what this repository lacks.
    (repository / "CITATION.cff").write_text("")
    commit(repository, passed=False)
    assert main(["1.0.0", "--rehearse"], repository) == 1
    output = capsys.readouterr()
    assert output.out.count("a release would stop here: ") == 3
    assert output.err == "release: CITATION.cff declares 0 versions, and not one\n"


def test_the_version_is_declared_once() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == project()["version"]


def test_ci_leaves_what_a_release_asks_for() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r'^  mkdir -p build && echo "\$commit" >build/passed$', text, re.MULTILINE)


# -- all of it, with our own sources


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A repository of our sources as they are now, on main, with an address."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    if not (ROOT / ".venv-release").is_dir():
        pytest.skip("scripts/test --all makes .venv-release")
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    root = tmp_path / "ours"
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    with (root / "pyproject.toml").open("a") as file:
        file.write('\n[project.urls]\nSource = "https://example.org/"\n')
    (root / "changes" / "7.fixed.md").write_text("It ends.\n")
    git(root, "init", "--quiet", "--initial-branch", "main")
    commit(root)
    return root


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_release(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    version = project()["version"]
    head = git(ours, "rev-parse", "HEAD")
    assert main([version, "--rehearse"], ours) == 0, capsys.readouterr().err
    assert f"rehearsed {version}" in capsys.readouterr().out
    assert git(ours, "rev-parse", "HEAD") == head
    assert git(ours, "status", "--porcelain", "--ignored") == "!! build/"
    assert git(ours, "tag") == ""

    assert main([version], ours) == 0, capsys.readouterr().err
    assert f"git push --atomic origin main v{version}" in capsys.readouterr().out
    assert git(ours, "rev-parse", "HEAD~1") == head
    assert git(ours, "rev-parse", "HEAD") == git(ours, "rev-parse", f"v{version}^{{commit}}")
    assert git(ours, "status", "--porcelain") == ""
    assert not (ours / "changes" / "7.fixed.md").exists()
    dist = ours / "dist" / version
    stem = f"pytest_intercode-{version}"
    wheel = f"{stem}-py3-none-any.whl"
    assert {path.name for path in dist.iterdir()} == {
        *(wheel, f"{stem}.tar.gz", f"{stem}.cdx.json"),
        *("SHA256SUMS", "notes.md"),
    }
    notes = (dist / "notes.md").read_text()
    assert notes.endswith("### Fixed\n\n- It ends. (#7)\n")
    assert notes.strip() in (ours / "CHANGELOG.md").read_text()
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        checksum, name = line.split("  ")
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == checksum
    with zipfile.ZipFile(dist / wheel) as archive:
        metadata = archive.read(f"{stem}.dist-info/METADATA").decode()
    assert f"\nVersion: {version}\n" in metadata
    assert "\nProject-URL: Source, https://example.org/\n" in metadata

    kept = dist.rename(ours.parent / "kept")
    assert main([version, "--from-tag"], ours) == 0, capsys.readouterr().err
    for path in kept.iterdir():
        assert (dist / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["nonsense"], 1, "release: nonsense is not a version: write it like 1.2.3 or 1.2.3rc1"),
        (["1.0.0"], 1, "release: the work tree has changes, commit or remove them: new.py"),
        ([], 2, "release: the following arguments are required: VERSION; usage: scripts/release *"),
    ],
)
def test_the_script_checks_before_it_installs(
    repository: Path, words: list[str], status: int, message: str
) -> None:
    for name in ("scripts/release", "scripts/_setup", "tests/supply", "tests/__init__.py"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        (repository / name).parent.mkdir(exist_ok=True)
        copy(ROOT / name, repository / name)
    (repository / ".gitignore").write_text("/build/\n/dist/\n__pycache__/\n")
    commit(repository)
    (repository / "new.py").touch()
    process = subprocess.run(
        [repository / "scripts" / "release", *words], capture_output=True, text=True
    )
    assert process.returncode == status
    (line,) = process.stderr.splitlines()
    assert fnmatch(line, message)
    assert not list(repository.glob(".venv*"))


@pytest.mark.parametrize(("tag", "words"), [("v1.1.0", ""), ("v1.1.0rc1", "--prerelease ")])
def test_a_candidate_is_announced_as_one(tmp_path: Path, tag: str, words: str) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    script = workflow["jobs"]["announce"]["steps"][-1]["run"]
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes.md").touch()
    (tmp_path / "files" / "wheel").touch()
    done = subprocess.run(
        ["bash", "-euc", f'gh() {{ echo "$*"; }}\n{script}'],
        cwd=tmp_path,
        env={**os.environ, "TAG": tag, "REPOSITORY": "a/b"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith(f"release create {tag} {words}--repo a/b "), done.stderr
    assert done.stdout.endswith(" files/wheel\n")
