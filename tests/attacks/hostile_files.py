"""Writes the files of cases that are too large, or too odd, to be written out in YAML."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["FILES"]

Maker = Callable[[Path], None]
FILES: dict[str, Maker] = {}

LINE = {
    "environment": "bash", "dataset": "d", "task_id": "t", "query": "q", "turn_history": {},
    "outcome": "solved", "reward": 1.0,
}  # fmt: skip


def _file(function: Maker) -> Maker:
    FILES[function.__name__.replace("_", "-")] = function
    return function


def _archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@_file
def climbing_archive(path: Path) -> None:
    """Names that lead out of the sandbox's root, and links that do."""
    _archive(
        path,
        (_member("../../../../../tmp/intercode-escaped"), b"out"),
        (_member("/tmp/intercode-escaped"), b"out"),
        (_member("link", tarfile.SYMTYPE, "/tmp"), b""),
        (_member("link/intercode-escaped"), b"out"),
    )


@_file
def device_archive(path: Path) -> None:
    """A block device of the host."""
    device = _member("disk", tarfile.BLKTYPE)
    device.devmajor, device.devminor = 254, 0
    _archive(path, (device, b""))


@_file
def bomb_archive(path: Path) -> None:
    """2 GB of zeros in 2 MB."""
    member = _member("zeros")
    member.size = 2 * 1024**3

    class Zeros(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            return bytes(min(size, 1024**2) if size >= 0 else 1024**2)

    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.addfile(member, Zeros())


@_file
def aliases_yaml(path: Path) -> None:
    """A billion laughs."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    path.write_text("\n".join([*lines, "env: bash", "tasks: *a9", ""]))


@_file
def recursive_yaml(path: Path) -> None:
    """A list that holds itself."""
    path.write_text("env: bash\ntasks: &tasks [*tasks]\n")


@_file
def deep_yaml(path: Path) -> None:
    """A hundred thousand brackets."""
    path.write_text("env: bash\ntasks: " + "[" * 100_000 + "]" * 100_000 + "\n")


@_file
def huge_integer_yaml(path: Path) -> None:
    """A number of 5,000 digits."""
    path.write_text(
        f"env: bash\ntasks: [{{id: a, query: q, gold: 'true', max_turns: {'9' * 5000}}}]\n"
    )


@_file
def deep_results(path: Path) -> None:
    """A line of brackets."""
    path.write_text("[" * 200_000 + "]" * 200_000 + "\n")


@_file
def huge_integer_results(path: Path) -> None:
    """A reward of 5,000 digits."""
    line = json.dumps(LINE)
    path.write_text(line.replace('"reward": 1.0', '"reward": ' + "9" * 5000) + "\n")


@_file
def odd_results(path: Path) -> None:
    """Types that no line has."""
    path.write_text(json.dumps({**LINE, "reward": "NaN", "turn_history": 3}) + "\n")


@_file
def binary_results(path: Path) -> None:
    """No text at all."""
    path.write_bytes(bytes(range(256)) * 100)
