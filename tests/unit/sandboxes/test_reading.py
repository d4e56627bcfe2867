"""What stands for a file's content, and the limits of a reading."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from pytest_intercode.errors import SandboxError, UngradableState
from pytest_intercode.sandboxes.reading import WHOLE, GradingLimits, Reading, digest_of

MEBI = 1024**2


def write(path: Path, *parts: tuple[int, bytes], size: int = 0) -> Path:
    """Write parts of a file, each at its place; the remaining bytes are a hole."""
    with path.open("wb") as file:
        for at, data in parts:
            file.seek(at)
            file.write(data)
        if size:
            file.truncate(size)
    return path


def digest(path: Path, reading: Reading | None = None) -> str:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return digest_of(descriptor, os.fstat(descriptor).st_size, reading or Reading())
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("data", [b"", b"text\n", bytes(WHOLE)], ids=["empty", "short", "longest"])
def test_a_short_files_digest_is_of_its_bytes(tmp_path: Path, data: bytes) -> None:
    assert digest(write(tmp_path / "f", (0, data))) == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("at", [0, 5, MEBI - 1, 2 * MEBI, 3 * MEBI - 1], ids=str)
def test_holes_and_zeros_are_equal(tmp_path: Path, at: int) -> None:
    size = 3 * MEBI + 7
    sparse = write(tmp_path / "sparse", (at, b"x"), size=size)
    dense = bytearray(size)
    dense[at] = ord("x")
    assert digest(sparse) == digest(write(tmp_path / "dense", (0, bytes(dense))))


def test_other_contents_have_other_digests(tmp_path: Path) -> None:
    contents = [
        write(tmp_path / "zeros", size=2 * MEBI),
        write(tmp_path / "more zeros", size=2 * MEBI + 1),
        write(tmp_path / "first", (0, b"x"), size=2 * MEBI),
        write(tmp_path / "second", (1, b"x"), size=2 * MEBI),
        write(tmp_path / "next block", (256 * 1024, b"x"), size=2 * MEBI),
        write(tmp_path / "last", (2 * MEBI - 1, b"x")),
        write(tmp_path / "two", (0, b"x"), (MEBI, b"x"), size=2 * MEBI),
    ]
    assert len({digest(path) for path in contents}) == len(contents)


def test_a_hole_is_not_read(tmp_path: Path) -> None:
    vast = write(tmp_path / "vast", (2**40, b"end"))
    assert digest(vast, Reading(GradingLimits(content=MEBI, seconds=5.0)))


def test_limits() -> None:
    limits = GradingLimits(entries=2, names=10, content=100, seconds=30.0)
    reading = Reading(limits)
    reading.entry(3)
    reading.entry(3)
    with pytest.raises(UngradableState, match="more than 2 files and folders"):
        reading.entry(3)
    with pytest.raises(UngradableState, match="more than 10 characters"):
        Reading(limits).entry(11)
    with pytest.raises(UngradableState, match="more than 100 bytes"):
        Reading(limits).content(101)
    with pytest.raises(UngradableState, match="more than 0 s"):
        Reading(GradingLimits(seconds=0.0)).check()
    with pytest.raises(SandboxError, match="was ended"):
        Reading(limits, lambda: True).check()


def test_what_was_there_before_does_not_count() -> None:
    reading = Reading(GradingLimits(entries=1, names=5))
    reading.spare(1, 5)
    reading.entry(5)
    reading.entry(5)
    with pytest.raises(UngradableState):
        reading.entry(1)
