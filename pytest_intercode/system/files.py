"""Files: where caches are, and what a user named, written whole or not at all, read in bounds."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import secrets
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO, BinaryIO, Literal, Protocol, TypeAlias, cast

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system.platform import try_lock

__all__ = [
    "RESULTS_BEGINNING",
    "Existing",
    "bundled_folder",
    "cache_folder",
    "check_writable",
    "holds_results",
    "is_packed",
    "is_results",
    "locked",
    "open_unpacked",
    "read_bounded",
    "replace_and_keep",
    "same_file",
    "statistics_path",
    "write_file",
    "writing",
]

RESULTS_BEGINNING = b'{"environment": '
"""How each line of our results files begins."""

Existing: TypeAlias = Literal["protect", "keep", "replace"]
"""What happens to a file that is there: ``protect`` refuses to replace the results of a run, and
replaces what else there is; ``keep`` keeps it next to the new one, under a numbered name."""

_CHUNK = 16 * 1024**2  # bytes read at a time


@cache
def bundled_folder(name: str) -> Path:
    """Return where ``tasks`` or ``dockerfiles`` lie, in an installed or an editable package.

    A wheel has them inside the package; a checkout has them next to it.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_data" / name, package.parent / name):
        if folder.is_dir():
            return folder
    from importlib.metadata import PackageNotFoundError, distribution  # slow, and needed only here

    try:
        version = distribution("pytest-intercode").version
    except PackageNotFoundError:
        version = "unknown"
    raise ConfigurationError(f"the installed package (version {version}) has no folder {name!r}")


def cache_folder() -> Path:
    """Return our folder below the user's caches, which need not exist.

    The caches are where ``XDG_CACHE_HOME`` says, or in ``~/.cache``.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not caches.is_absolute():  # the specification says to ignore it
        try:
            caches = Path.home() / ".cache"
        except RuntimeError:  # a user without a name, and HOME is not set
            caches = Path("/nonexistent")
    return caches / "pytest-intercode"


def write_file(
    path: Path, content: str | bytes, *, option: str = "", existing: Existing = "protect"
) -> list[str]:
    """Write a file at a path that the user named; folders on the way to it are made.

    A regular file is written next to its place and then moved there, so that a reader finds the old
    content or the new one. Anything else (a device, a pipe) is written to.

    Args:
        path: the file; packed with gzip if its name ends with ``.gz``, as it is read.
        content: what it is to hold; text is written as UTF-8.
        option: the option that named it, for the message.
        existing: what happens to a file that is there.

    Returns:
        A line for people, if what was there was kept under another name.

    Raises:
        ConfigurationError: it cannot be written, a run writes its results to it, or it holds the
            results of a run that are not to be replaced.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    notes: list[str] = []
    with writing(path, option=option, existing=existing, notes=notes) as file:
        file.write(data)
    return notes


@contextlib.contextmanager
def writing(
    path: Path,
    *,
    option: str = "",
    existing: Existing = "protect",
    notes: list[str] | None = None,
    packed: bool = False,
) -> Iterator[BinaryIO]:
    """Open a file at a path that the user named, as :func:`write_file` does, to write it in parts.

    It has its place when the context ends, and never if that is by an exception. What reads in the
    context has to say itself what is wrong with what it reads: an OSError counts as the file's.

    Args:
        path: as for :func:`write_file`, like what follows, and its errors.
        option: see there.
        existing: see there.
        notes: gets a line for people, if what was there was kept under another name.
        packed: what is written is packed already.
    """
    packs = is_packed(path) and not packed
    target = f"{option}={path}" if option else f"{path}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            with path.open("wb") as device, _packing(device, packs) as content:  # or a folder
                yield content
            return
        if _is_in_use(path):
            raise ConfigurationError(f"{target}: a run writes to this file; name another one")
        if existing == "protect" and holds_results(path):
            raise ConfigurationError(
                f"{target}: this file holds the results of a run, which would be lost; name "
                "another file"
            )
        place = Path(os.path.realpath(path))
        with _replacing(place, existing == "keep", notes) as file, _packing(file, packs) as content:
            yield content
    except OSError as error:
        raise ConfigurationError(f"{target}: cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _packing(file: BinaryIO, packs: bool) -> Iterator[BinaryIO]:
    if not packs:
        yield file
        return
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        yield cast("BinaryIO", packed)


class _NothingToWrite(Exception):
    """Ends :func:`writing` before the file has its place."""


def check_writable(path: Path, *, option: str = "", existing: Existing = "protect") -> None:
    """See that :func:`write_file` can write a file later; what is there stays as it is.

    Args:
        path: the file; folders on the way to it are made.
        option: the option that named it, for the message.
        existing: as for :func:`write_file`.

    Raises:
        ConfigurationError: as of :func:`write_file`.
    """
    if path.is_file() or path.is_dir() or not path.exists():  # else opening it may wait for readers
        with (
            contextlib.suppress(_NothingToWrite),
            writing(path, option=option, existing=existing),
        ):
            raise _NothingToWrite


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths are of one file; not where one of them is not there."""
    return one.exists() and other.exists() and one.samefile(other)


class Readable(Protocol):
    """What a path has that can be read."""

    @property
    def suffix(self) -> str:
        """The suffix of its name."""

    def open(self, mode: Literal["rb"]) -> IO[bytes]:
        """Open the file."""


def read_bounded(path: Readable, max_bytes: int) -> bytes | None:
    """Return the bytes of a file, unpacked if its name ends with ``.gz``.

    Args:
        path: the file.
        max_bytes: how many bytes are read.

    Returns:
        None if there are more; a little gzip may be gigabytes.

    Raises:
        OSError: it cannot be read, or is not gzip.
        EOFError: it is truncated gzip.
        zlib.error: it is damaged gzip.
    """
    with path.open("rb") as packed:
        if os.fstat(packed.fileno()).st_size > max_bytes:
            return None
        file = gzip.GzipFile(fileobj=packed) if is_packed(path) else packed
        chunks = []
        size = 0
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            if size > max_bytes:
                return None
            chunks.append(chunk)
    return b"".join(chunks)


def open_unpacked(path: Path) -> BinaryIO:
    """Open a file to read its bytes, unpacked if its name ends with ``.gz``."""
    return cast("BinaryIO", gzip.open(path)) if is_packed(path) else path.open("rb")


def is_packed(path: Readable) -> bool:
    """Whether a file is packed with gzip, by its name."""
    return path.suffix.lower() == ".gz"


def locked(file: int) -> bool:
    """Lock an open file for who opened it; return False if somebody else has it locked.

    The system releases the lock when the file is closed, also when the process is killed. Where a
    file system knows no locks, nothing is locked.
    """
    try:
        return try_lock(file)
    except OSError:
        return True


def _is_in_use(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return not locked(file.fileno())
    return False  # there is no such file, or it may not be read


def holds_results(path: Path) -> bool:
    """Whether a path is of a file that begins as our results files do."""
    with contextlib.suppress(OSError, EOFError, zlib.error):
        if path.is_file():  # what is read from a pipe is gone
            with open_unpacked(path) as file:
                return file.read(len(RESULTS_BEGINNING)) == RESULTS_BEGINNING
    return False  # there is no such file, or it may not be read


def is_results(name: str, content: bytes) -> bool:
    """Whether a file holds the results of a run of ours; of an empty one nobody can say.

    Args:
        name: its name; what it holds is packed with gzip if that ends with ``.gz``.
        content: what it holds.
    """
    beginning = RESULTS_BEGINNING + b'"ic_'  # with the name of an environment of ours
    if not name.lower().endswith(".gz"):
        return content.startswith(beginning)
    with contextlib.suppress(OSError, EOFError, zlib.error):
        return gzip.GzipFile(fileobj=io.BytesIO(content)).read(len(beginning)) == beginning
    return False  # it is packed otherwise


def statistics_path(results: Path) -> Path:
    """Return where the statistics of a results file are: next to it."""
    return results.with_name(f"{results.name.removesuffix('.jsonl')}.summary.json")


def replace_and_keep(new: Path, path: Path) -> list[str]:
    """Move a file to its place; what is there stays next to it, as ``NAME.1`` or the next number.

    Whenever the process ends, and whatever fails, what was there is in one of the two places. The
    number comes last so that a pattern like ``*.jsonl`` does not match what was kept.

    Args:
        new: the file, in the folder of its place.
        path: its place, which is not a link.

    Returns:
        A line for people, if something was kept.

    Raises:
        OSError: it cannot be moved; what was there is in its place.
    """
    backup = _keep(path) if path.exists() and path.stat().st_size else None
    try:
        new.replace(path)
    except OSError:
        if backup is not None:
            backup.unlink() if path.exists() else backup.replace(path)
        raise
    return [f"{path}: was there already; what it held is in {backup} now"] if backup else []


def _keep(path: Path) -> Path:
    """Give a file a second name, or only a new one where the file system has no links."""
    numbers = itertools.count(1)
    while True:
        backup = path.with_name(f"{path.name}.{next(numbers)}")
        with contextlib.suppress(FileExistsError):
            try:
                backup.hardlink_to(path)
            except FileExistsError:
                raise
            except OSError:
                backup.touch(exist_ok=False)  # nobody else's from now on
                path.replace(backup)
            return backup


@contextlib.contextmanager
def _replacing(path: Path, keep: bool, notes: list[str] | None) -> Iterator[BinaryIO]:
    part = path.with_name(f".intercode-{secrets.token_hex(8)}")
    try:
        with part.open("xb") as file:
            if path.exists():
                part.chmod(path.stat().st_mode & 0o7777)
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep:
            note = replace_and_keep(part, path)
            (notes if notes is not None else []).extend(note)
        else:
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
