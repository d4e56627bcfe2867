"""This machine, for ``pytest-intercode doctor``: versions, disk space, and whether locks work."""

from __future__ import annotations

import contextlib
import platform
import shutil
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pytest_intercode.core.facts import Fact
from pytest_intercode.system.files import cache_folder, locked

__all__ = ["describe_disk", "describe_machine", "describe_versions"]

_GB = 10**9  # bytes
_MIN_FREE = 5 * _GB  # enough for the images of the bundled suites and of a few tasks


def describe_versions() -> Fact:
    """Return a fact about the versions of this package, Python, pytest and the system."""
    packages = [f"{name} {_version(name)}" for name in ("pytest-intercode", "pytest")]
    system = f"{platform.system()} {platform.release()} ({platform.machine()})"
    return Fact("versions", f"{', '.join(packages)}, Python {platform.python_version()}, {system}")


def describe_machine() -> Iterator[Fact]:
    """Yield facts about the folders for caches and for temporary files, without leaving files."""
    folder = cache_folder()
    existing_folder = next((path for path in (folder, *folder.parents) if path.is_dir()), folder)
    for subject, path, label in (
        ("cache", existing_folder, folder),
        ("temporary folder", Path(tempfile.gettempdir()), None),
    ):
        try:
            yield describe_disk(subject, path, label)
        except OSError as error:
            yield Fact(subject, f"{label or path} cannot be used: {error.strerror}", "problem")
    yield _describe_locks(Path(tempfile.gettempdir()))


def describe_disk(subject: str, path: Path, label: Path | None = None) -> Fact:
    """Return a fact about the free space on the disk of a folder.

    Args:
        subject: the purpose of the folder.
        path: the folder.
        label: the path to show; by default the folder's.

    Raises:
        OSError: the free space cannot be determined.
    """
    free = shutil.disk_usage(path).free
    text = f"{label or path}: {free / _GB:.1f} GB are free"
    if free < _MIN_FREE:
        return Fact(subject, f"{text}; images take some GB, so make room", "note")
    return Fact(subject, text)


def _describe_locks(folder: Path) -> Fact:
    """Check that a locked file cannot be locked a second time."""
    try:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path = Path(place, "lock")
            path.touch()
            with path.open("rb") as file, path.open("rb") as copy:
                holds = locked(file.fileno()) and not locked(copy.fileno())
    except OSError as error:
        return Fact("file locks", f"no file can be made in {folder}: {error.strerror}", "problem")
    if holds:
        return Fact("file locks", f"hold in {folder}")
    text = f"do not hold in {folder}: set TMPDIR to a folder on a local disk"
    return Fact("file locks", text, "note")


def _version(name: str) -> str:
    with contextlib.suppress(PackageNotFoundError):
        return version(name)
    return "(not installed)"
