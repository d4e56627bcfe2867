"""The files of InterCode's repository that each of its datasets needs.

Reads one table of the package. Every file is pinned by the commit in its address and by its
SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

__all__ = ["BASE_URL", "COMMIT", "DATASETS", "ELSEWHERE", "Dataset", "RemoteFile", "files_of"]

COMMIT = "c3e46d827cfc9d4c704ec078f7abf9f41e3191d8"

BASE_URL = f"https://raw.githubusercontent.com/princeton-nlp/intercode/{COMMIT}"
"""Where the files are; a mirror has the same paths below another address."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of the repository.

    Attributes:
        path: its path there.
        sha256: the hash of its content, in hexadecimal.
        size: its bytes.
        mode: its permissions.
    """

    path: str
    sha256: str
    size: int
    mode: int = 0o644

    @property
    def target(self) -> Path:
        """Its path below a folder that is laid out as the repository's ``data/``."""
        return Path(self.path.removeprefix("data/"))


@dataclass(frozen=True)
class Dataset:
    """A dataset in the repository.

    Attributes:
        paths: what its files' paths start with.
        filesystems: the file trees of NL2Bash, by the path of the script that makes each, as the
            paths below ``/`` that the script makes.
        note: which files are missing there, and what that means.
    """

    paths: tuple[str, ...]
    filesystems: tuple[tuple[str, tuple[str, ...]], ...] = ()
    note: str = ""


_SCRIPT = "docker/bash_scripts/setup_nl2b_fs_{}.sh"

DATASETS = {
    "nl2bash": Dataset(
        ("data/nl2bash/",),
        filesystems=(
            (_SCRIPT.format(1), ("testbed", "index.html")),
            (_SCRIPT.format(2), ("system", ".placeholder")),
            (_SCRIPT.format(3), ("workspace", "backup")),
        ),
    ),
    "spider": Dataset(("data/sql/spider/",)),
    "bird": Dataset(
        ("data/sql/bird/",),
        note="the repository has none of its databases; without BIRD's own dev_databases in "
        "sql/bird/ there, its tasks are skipped",
    ),
    "mbpp": Dataset(("data/python/mbpp/",)),
    "ic-ctf": Dataset(
        ("data/ctf/",),
        note="the disk images of tasks 65, 66 and 70 are too large for the repository; "
        "put them into ctf/task_assets/ID/ there, or these tasks have none",
    ),
}
"""The datasets that can be fetched, by the name that ``--intercode-dataset`` has for them."""

ELSEWHERE = {
    "apps": "InterCode's repository holds no rows of APPS, only a program that converts them "
    "(data/python/apps/transform.py)",
}
"""Datasets of InterCode that its repository does not hold, and what it has in their place."""


def files_of(*starts: str) -> list[RemoteFile]:
    """Return the files whose paths start with any of ``starts``."""
    return [file for file in _table() if file.path.startswith(starts)]


@cache
def _table() -> tuple[RemoteFile, ...]:
    table = resources.files("pytest_intercode.suites").joinpath("upstream.txt")
    return tuple(_rows(table.read_text("utf-8")))


def _rows(text: str) -> Iterator[RemoteFile]:
    for line in text.splitlines():
        if not line.startswith("#"):
            sha256, size, mode, path = line.split(maxsplit=3)
            yield RemoteFile(path, sha256, int(size), int(mode, 8))
