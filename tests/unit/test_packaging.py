"""The wheel, and a project that has nothing but the installed plugin."""

from __future__ import annotations

import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import pytest_intercode
from pytest_intercode.sandboxes import lister
from pytest_intercode.system.archives import unpack_own
from pytest_intercode.system.files import bundled_folder
from tests.support.wheel import build, clean_environment, install, run

_ROOT = Path(pytest_intercode.__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not (_ROOT / "pyproject.toml").is_file(), reason="not run from a checkout"
)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(_ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment that has our wheel."""
    return install(wheel, tmp_path_factory.mktemp("installed"))


def _collected(python: Path | str, folder: Path) -> list[str]:
    output = run(
        *(python, "-m", "pytest", "--intercode-env=bash", "--co", "-q", "-p", "no:cacheprovider"),
        cwd=folder,
        env=clean_environment(),
    )
    return [line for line in output.splitlines() if "::" in line]


def _files(*patterns: str) -> set[str]:
    found = {str(p.relative_to(_ROOT)) for pattern in patterns for p in _ROOT.glob(pattern)}
    assert found
    return found


def test_wheel_holds_the_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    data = _files("tasks/**/*.yaml", "dockerfiles/*.Dockerfile")
    assert {"tasks/bash.yaml", "tasks/datasets/nl2bash.yaml"} <= data
    assert {"dockerfiles/bash.Dockerfile", "dockerfiles/nl2bash.Dockerfile"} <= data
    assert {f"pytest_intercode/_data/{name}" for name in data} <= names
    ours = ("pytest_intercode/**/*.py", "pytest_intercode/**/*.sh", "pytest_intercode/**/*.txt")
    assert _files(*ours) <= names
    assert {"pytest_intercode/py.typed", "pytest_intercode/sandboxes/keeper.sh"} <= names
    listers = {f"pytest_intercode/sandboxes/lister/lister-{name}" for name in lister.MACHINES}
    assert listers <= names
    assert "pytest_intercode/suites/upstream.txt" in names
    assert [name.partition("/")[2] for name in names if name.endswith(".cdx.json")] == [
        "sboms/sbom.cdx.json"
    ]


def test_wheel_holds_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        entry_points = next(name for name in names if name.endswith("/entry_points.txt"))
        assert "Name: pytest-intercode" in archive.read(metadata).decode()
        assert "intercode = pytest_intercode.plugin" in archive.read(entry_points).decode()
        assert "pytest-intercode = pytest_intercode.cli:main" in archive.read(entry_points).decode()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"pytest_intercode", metadata.split("/")[0]}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


@pytest.mark.slow
def test_installed_plugin_finds_its_suite(installed: Path, tmp_path: Path) -> None:
    where = run(
        *(installed, "-c", "import pytest_intercode as p; print(p.__file__)"),
        cwd=tmp_path,
        env=clean_environment(),
    )
    assert Path(where.strip()).is_relative_to(installed.parents[1])
    ids = _collected(installed, tmp_path)
    assert len(ids) >= 40
    assert all(line.startswith("intercode/bash::test_solves[") for line in ids)
    # the checkout, from which these tests run, finds the same
    assert ids == _collected(sys.executable, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_installed_plugin_finds_its_folders(installed: Path, tmp_path: Path) -> None:
    code = (
        "from pytest_intercode.system.files import bundled_folder\n"
        "for name in ('tasks', 'dockerfiles'): print(bundled_folder(name))"
    )
    found = run(installed, "-c", code, cwd=tmp_path, env=clean_environment()).split()
    for name, folder in zip(("tasks", "dockerfiles"), map(Path, found), strict=True):
        assert folder.parts[-3:] == ("pytest_intercode", "_data", name)
        ours = bundled_folder(name)
        files = {p.relative_to(ours) for p in ours.rglob("*") if p.is_file()}
        assert {p.relative_to(folder) for p in folder.rglob("*") if p.is_file()} == files
        assert all((folder / p).read_bytes() == (ours / p).read_bytes() for p in files)


# -- the same bytes, whoever builds them


def _sources() -> set[str]:
    """Return the files that a clone has."""
    if not (_ROOT / ".git").exists():
        pytest.skip("not a clone")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=_ROOT)
    return set(listed.split("\0"))


def test_sdist(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = {member.name.partition("/")[2]: member for member in archive}
    assert {
        "requirements/sbom.cdx.json",
        "requirements/all.txt",
        "scripts/_setup",
    } <= members.keys()
    assert members.keys() - {"PKG-INFO"} <= _sources(), "it holds what no clone has"
    assert {(each.uid, each.gid, each.uname, each.gname) for each in members.values()} == {
        (0, 0, "", "")
    }
    assert len({each.mtime for each in members.values()}) == 1


def test_built_twice(dist: Path, tmp_path: Path) -> None:
    """The sdist, in a folder of another name, with other times and modes, builds the same bytes."""
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        unpack_own(archive, tmp_path / "of another name")
    (copy,) = (tmp_path / "of another name").iterdir()
    files = sorted(each for each in copy.rglob("*") if each.is_file())
    for number, each in enumerate(files):
        each.chmod(0o700 if each.stat().st_mode & 0o100 else 0o600)
        os.utime(each, (number, number * 86400))
    again = build(copy, tmp_path / "again")
    for each in dist.iterdir():
        assert (again / each.name).read_bytes() == each.read_bytes(), each.name
