"""Files: caches, atomic writing of files that a user names, and reading with a limit."""

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
"""The beginning of each line of our results files."""

Existing: TypeAlias = Literal["protect", "keep", "replace"]
"""What happens to an existing file: ``protect`` refuses to replace the results of a run, and
replaces any other file; ``keep`` keeps it next to the new one, under a numbered name."""

_CHUNK = 16 * 1024**2  # bytes read at a time


@cache
def bundled_folder(name: str) -> Path:
    """Return the path of ``tasks`` or ``dockerfiles``, in an installed or an editable package.

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

    The caches are in ``XDG_CACHE_HOME``, or in ``~/.cache``.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not caches.is_absolute():  # the specification requires to ignore a relative path
        try:
            caches = Path.home() / ".cache"
        except RuntimeError:  # a user without a name, and HOME is not set
            caches = Path("/nonexistent")
    return caches / "pytest-intercode"


def write_file(
    path: Path, content: str | bytes, *, option: str = "", existing: Existing = "protect"
) -> list[str]:
    """Write a file at a path that the user named; missing parent folders are created.

    A regular file is written next to its destination and then moved there, so that a reader finds
    either the old or the new content. Anything else (a device, a pipe) is written to directly.

    Args:
        path: the file; packed with gzip if its name ends with ``.gz``, as when it is read.
        content: the content; text is written as UTF-8.
        option: the option that named the file, for messages.
        existing: what happens to an existing file.

    Returns:
        A line for people, if an existing file was kept under another name.

    Raises:
        ConfigurationError: the file cannot be written, a run is writing its results to it, or it
            holds the results of a run that must not be replaced.
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
    """Open a file to write it in parts; errors are those of :func:`write_file`.

    The file is moved to its destination when the context ends, but not if it ends by an exception.
    Code in the context that reads other files must handle their errors itself: any OSError is
    reported as one of this file.

    Args:
        path: as for :func:`write_file`.
        option: as for :func:`write_file`.
        existing: as for :func:`write_file`.
        notes: a line for people is added, if an existing file was kept under another name.
        packed: whether the content is already packed.
    """
    packs = is_packed(path) and not packed
    target = f"{option}={path}" if option else f"{path}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            with path.open("wb") as device, _packing(device, packs) as content:  # folders fail
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
    """Ends :func:`writing` before the file is moved to its destination."""


def check_writable(path: Path, *, option: str = "", existing: Existing = "protect") -> None:
    """Check that :func:`write_file` can write a file later; an existing file is not changed.

    Args:
        path: the file; missing parent folders are created.
        option: the option that named the file, for messages.
        existing: as for :func:`write_file`.

    Raises:
        ConfigurationError: see :func:`write_file`.
    """
    if path.is_file() or path.is_dir() or not path.exists():  # opening a pipe waits for readers
        with (
            contextlib.suppress(_NothingToWrite),
            writing(path, option=option, existing=existing),
        ):
            raise _NothingToWrite


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file; False if one of them does not exist."""
    return one.exists() and other.exists() and one.samefile(other)


class Readable(Protocol):
    """The interface of a path that can be read."""

    @property
    def suffix(self) -> str:
        """The suffix of its name."""

    def open(self, mode: Literal["rb"]) -> IO[bytes]:
        """Open the file."""


def read_bounded(path: Readable, max_bytes: int) -> bytes | None:
    """Return the bytes of a file, unpacked if its name ends with ``.gz``.

    Args:
        path: the file.
        max_bytes: the maximum number of bytes.

    Returns:
        The bytes; None if there are more, as a small gzip file may expand to gigabytes.

    Raises:
        OSError: the file cannot be read, or is not gzip.
        EOFError: the gzip data is truncated.
        zlib.error: the gzip data is damaged.
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
    """Lock an open file; return False if another opener has locked it.

    The system releases the lock when the file is closed, also when the process is killed. If the
    file system does not support locks, return True without a lock.
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
    """Whether a file begins like our results files."""
    with contextlib.suppress(OSError, EOFError, zlib.error):
        if path.is_file():  # reading from a pipe would consume its content
            with open_unpacked(path) as file:
                return file.read(len(RESULTS_BEGINNING)) == RESULTS_BEGINNING
    return False  # there is no such file, or it may not be read


def is_results(name: str, content: bytes) -> bool:
    """Whether a file holds the results of one of our runs; False for an empty file.

    Args:
        name: its name; the content is packed with gzip if the name ends with ``.gz``.
        content: its content.
    """
    beginning = RESULTS_BEGINNING + b'"ic_'  # with the prefix of our environments' names
    if not name.lower().endswith(".gz"):
        return content.startswith(beginning)
    with contextlib.suppress(OSError, EOFError, zlib.error):
        return gzip.GzipFile(fileobj=io.BytesIO(content)).read(len(beginning)) == beginning
    return False  # the content is not valid gzip


def statistics_path(results: Path) -> Path:
    """Return the path of the statistics of a results file, which is next to it."""
    return results.with_name(f"{results.name.removesuffix('.jsonl')}.summary.json")


def replace_and_keep(new: Path, path: Path) -> list[str]:
    """Move a file to its destination; an existing file is kept as ``NAME.1`` or the next number.

    At any time, even if the process is killed or an operation fails, the existing file has one of
    the two names. The number comes last so that a pattern like ``*.jsonl`` does not match it.

    Args:
        new: the file, in the folder of its destination.
        path: the destination, which is not a link.

    Returns:
        A line for people, if an existing file was kept.

    Raises:
        OSError: the file cannot be moved; the existing file has its old name.
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
    """Give a file a second name, or rename it if the file system does not support links."""
    numbers = itertools.count(1)
    while True:
        backup = path.with_name(f"{path.name}.{next(numbers)}")
        with contextlib.suppress(FileExistsError):
            try:
                backup.hardlink_to(path)
            except FileExistsError:
                raise
            except OSError:
                backup.touch(exist_ok=False)  # reserve the name
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
