"""Makes a release, all of it but the upload; run by ``scripts/release``.

Everything happens in clones in a folder that is removed: one gets the release's commit and its tag,
two more build from the tag. Only then are commit and tag brought to the repository, and the files
to ``dist/VERSION``. So a release that fails leaves the repository as it was, and a rehearsal is
the same without the last step.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tests.supply.changelog import ReleaseError, add_release, read_fragments, section_of

ROOT = Path(__file__).parents[2]

__all__ = ["main"]

_BRANCH = "main"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:rc([1-9]\d*))?")
# Where a version stands in a file; the bill of materials is made again.
_DECLARATIONS = {
    "pyproject.toml": re.compile(r'(?<=^version = ")[^"]+(?="$)', re.MULTILINE),
    "CITATION.cff": re.compile(r"(?<=^version: ).+$", re.MULTILINE),
}
_PASSED = Path("build", "passed")  # .ci/run writes the commit to it that passed
_BILL = Path("requirements", "sbom.cdx.json")
# What could lead a Python elsewhere, or change what is built.
_DROPPED = ("PYTHON", "PIP_", "HATCH", "GIT_")


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Make a release, and return the exit status: 0 done, 1 it cannot be made, 2 wrong usage.

    Args:
        arguments: the words of the command line; by default those of this process.
        root: the repository.
    """
    options = _parse(arguments)
    try:
        _check(options, root)
        if options.check:
            return 0
        with tempfile.TemporaryDirectory(prefix="release-") as folder:
            _release(options, root, Path(folder))
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"release: {message}; {self.format_usage()}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        prog="scripts/release",
        usage="scripts/release VERSION [--rehearse | --from-tag]",
        description="Makes a release, all of it but the upload.",
    )
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("version", metavar="VERSION", help="such as 1.2.3 or 1.2.3rc1")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--rehearse", action="store_true", help="leave nothing")
    mode.add_argument("--from-tag", action="store_true", help="build from the tag that is there")
    return parser.parse_args(arguments)


def _check(options: argparse.Namespace, root: Path) -> None:
    """Check all that can be known before anything is installed, with any Python."""
    version = options.version
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"{version} is not a version: write it like 1.2.3 or 1.2.3rc1")
    if options.from_tag:
        _check_tag(root, version)
        return
    _check_repository(root, version)
    obstacles = _obstacles(root)
    if obstacles and not options.rehearse:
        raise ReleaseError(obstacles[0])
    if not options.check:
        for obstacle in obstacles:
            print(f"a release would stop here: {obstacle}")


def _release(options: argparse.Namespace, root: Path, folder: Path) -> None:
    version = options.version
    source = root if options.from_tag else _prepare(root, folder / "release", version)
    dist = _build_twice(source, folder, version)
    _write_papers(source, dist, version)
    for path in sorted(dist.iterdir()):
        print(f"{path.stat().st_size:>10,}  {path.name}")
    if options.rehearse:
        print((dist / "notes.md").read_text(encoding="utf-8"))
        print(f"rehearsed {version}: nothing was left here")
        return
    if not options.from_tag:
        _git(root, "fetch", "--quiet", "--no-tags", str(source), "HEAD")
        _git(root, "merge", "--quiet", "--ff-only", "FETCH_HEAD")
        _git(root, "fetch", "--quiet", str(source), f"refs/tags/v{version}:refs/tags/v{version}")
    shutil.copytree(dist, root / "dist" / version)
    print(f"dist/{version} is complete")
    if not options.from_tag:
        print(f"upload it by: git push --atomic origin {_BRANCH} v{version}")


# -- what has to be so


def _check_tag(root: Path, version: str) -> None:
    if f"v{version}" not in _tags(root):
        raise ReleaseError(f"there is no tag v{version}: leave out --from-tag to make it")
    _check_folder(root, version)


def _check_repository(root: Path, version: str) -> None:
    """Check what a rehearsal needs, too."""
    tags = _tags(root)
    if f"v{version}" in tags:
        raise ReleaseError(f"the tag v{version} is there already: name a newer version")
    released = [tag[1:] for tag in tags if _VERSION.fullmatch(tag[1:])]
    newest = max(released, key=_rank, default=version)
    if _rank(version) < _rank(newest):
        raise ReleaseError(f"{version} is older than {newest}, which was released")
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        names = ", ".join(line[3:] for line in changed[:3])
        raise ReleaseError(f"the work tree has changes, commit or remove them: {names}")
    _check_folder(root, version)


def _rank(version: str) -> tuple[float, ...]:
    """Return what versions are ordered by; a candidate comes before its release."""
    match = _VERSION.fullmatch(version)
    assert match is not None
    return tuple(float(number or "inf") for number in match.groups())


def _check_folder(root: Path, version: str) -> None:
    if (root / "dist" / version).exists():
        raise ReleaseError(f"dist/{version} is there already: remove it to build it again")


def _obstacles(root: Path) -> list[str]:
    """Return what only a release needs."""
    obstacles = []
    branch = _git(root, "branch", "--show-current") or "no branch"
    if branch != _BRANCH:
        obstacles.append(f"a release is made on {_BRANCH}, and this is {branch}")
    head = _git(root, "rev-parse", "HEAD")
    passed = root / _PASSED
    if not passed.is_file() or passed.read_text(encoding="utf-8").strip() != head:
        obstacles.append(f"the checks were not seen to pass for {head[:12]}: run .ci/run")
    if "\n[project.urls]\n" not in (root / "pyproject.toml").read_text(encoding="utf-8"):
        obstacles.append("pyproject.toml has no [project.urls], which PyPI shows: add Source")
    return obstacles


def _tags(root: Path) -> list[str]:
    return _git(root, "tag", "--list", "v*").splitlines()


# -- the commit


def _prepare(root: Path, clone: Path, version: str) -> Path:
    """Make a clone that has the release's commit and its tag."""
    _git(root, "clone", "--quiet", "--no-hardlinks", str(root), str(clone))
    for key in ("user.name", "user.email"):
        value = _git(root, "config", "--default", "release", key)
        _git(clone, "config", key, value)
    fragments = read_fragments(clone / "changes")
    changelog = clone / "CHANGELOG.md"
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    text = add_release(changelog.read_text(encoding="utf-8"), fragments, version, today)
    changelog.write_text(text, encoding="utf-8")
    for fragment in fragments:
        fragment.path.unlink()
    for name, pattern in _DECLARATIONS.items():
        path = clone / name
        text, count = pattern.subn(version, path.read_text(encoding="utf-8"))
        if count != 1:
            raise ReleaseError(f"{name} declares {count} versions, and not one")
        path.write_text(text, encoding="utf-8")
    supply = str(ROOT / ".venv" / "bin" / "python")
    _run("the bill of materials", [supply, "-m", "tests.supply.sbom"], clone)
    _git(clone, "add", "--all")
    _git(clone, "commit", "--quiet", "--allow-empty", "--message", f"Release {version}")
    _git(clone, "tag", "--annotate", "--message", f"pytest-intercode {version}", f"v{version}")
    return clone


# -- the files


def _build_twice(source: Path, folder: Path, version: str) -> Path:
    """Return a folder with sdist and wheel of the tag, which two clones build alike."""
    epoch = _git(source, "log", "-1", "--format=%ct", f"v{version}")
    first, second = (
        _build(source, folder / name, version, epoch) for name in ("build", "build it again")
    )
    built = sorted(path.name for path in first.iterdir())
    if built != sorted(path.name for path in second.iterdir()) or len(built) != 2:
        raise ReleaseError(f"a wheel and an sdist are built, and not {', '.join(built)}")
    for name in built:
        if not name.startswith(f"pytest_intercode-{version}"):
            raise ReleaseError(f"{name} is not of version {version}: what does the tag hold?")
        if (first / name).read_bytes() != (second / name).read_bytes():
            raise ReleaseError(f"{name} differs when it is built a second time")
    packages = [str(first / name) for name in built]
    check = ("-m", "twine", "--no-color", "check", "--strict")
    _run("twine check", [_tools(), *check, *packages], folder)
    return first


def _build(source: Path, clone: Path, version: str, epoch: str) -> Path:
    _git(source, "clone", "--quiet", "--branch", f"v{version}", str(source), str(clone))
    words = ("-m", "build", "--no-isolation", "--outdir", f"{clone}-dist")
    _run("build", [_tools(), *words], clone, SOURCE_DATE_EPOCH=epoch)
    return clone.with_name(f"{clone.name}-dist")


def _write_papers(source: Path, dist: Path, version: str) -> None:
    """Write the bill of materials, the notes and the checksums next to the packages."""

    def tagged(name: str | Path) -> str:
        return _git(source, "show", f"v{version}:{name}") + "\n"

    bill = dist / f"pytest_intercode-{version}.cdx.json"
    bill.write_text(tagged(_BILL), encoding="utf-8")
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(dist.iterdir())
    )
    (dist / "SHA256SUMS").write_text(sums, encoding="utf-8")
    notes = section_of(tagged("CHANGELOG.md"), version)
    (dist / "notes.md").write_text(notes, encoding="utf-8")


def _tools() -> str:
    """Return the Python that builds and checks."""
    return str(ROOT / ".venv-release" / "bin" / "python")


def _git(root: Path, *words: str) -> str:
    return _run(f"git {words[0]}", ["git", *words], root)


def _run(name: str, command: Sequence[str], cwd: Path, **variables: str) -> str:
    """Run a command and return its output, without the line end.

    Raises:
        ReleaseError: it failed, or is not there; the last line that it printed says why.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_DROPPED)}
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**kept, **variables},
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise ReleaseError(f"{name} does not run: {error}") from None
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise ReleaseError(f"{name} failed: {lines[-1].strip()}")
    return done.stdout.rstrip("\n")


if __name__ == "__main__":
    sys.exit(main())
