"""The files that a task brings: its tree as one tar archive, and the context of its image."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import posixpath
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from pytest_intercode.core.task import Archive, FileSpec, Task
from pytest_intercode.errors import SuiteError

__all__ = ["build_archive", "context_files", "pack_files", "paths_below", "unpacked_files"]

_MOST_BYTES = 1024**3
_MOST_ENTRIES = 100_000
_HEADERS = 1024**2  # bytes of the headers of one file, and what is read ahead
_ALL_HEADERS = 256 * 1024**2  # of those of all files
_UNPACKERS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}


def build_archive(task: Task, now: float) -> bytes:
    """Return a tar archive of the task's archive and files, to be unpacked at ``/``.

    Everything is owned by root unless the task's own archive says otherwise. Files that are given
    inline, and those of a folder, have the time ``now``; equal tasks give equal bytes.

    Args:
        task: the task.
        now: the time that files get, in seconds since the epoch.

    Returns:
        No bytes when the task has no files.

    Raises:
        SuiteError: the task's archive cannot be read or holds more than is read of one, or its
            folder holds what no archive can.
    """
    if not task.files and task.archive is None:
        return b""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
        if task.archive is not None and task.archive.path.is_dir():
            _copy_folder(task.archive, task.archive.at or task.workdir, out, now)
        elif task.archive is not None:
            _copy(task.archive, out, now)
        for path, spec in task.files.items():
            _add(out, _below_root(path, task.workdir), spec, now)
    return buffer.getvalue()


def pack_files(files: Mapping[str, FileSpec], workdir: str, now: float) -> bytes:
    """Return a tar archive of files, to be unpacked at ``/``.

    Args:
        files: the files, by path (absolute, or relative to ``workdir``).
        workdir: where relative paths start.
        now: the time that they get, in seconds since the epoch.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
        for path, spec in files.items():
            _add(out, _below_root(path, workdir), spec, now)
    return buffer.getvalue()


def unpacked_files(archive: bytes) -> dict[str, bytes]:
    """Return the contents of the regular files of a tar archive, by their paths."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        for member in packed:
            file = packed.extractfile(member) if member.isreg() else None
            if file is not None:
                found[f"/{member.name}"] = file.read()
    return found


def context_files(dockerfile: Path) -> list[tuple[str, Path]]:
    """Return what the build of an image may use, as pairs of a name there and a path here.

    ``NAME.Dockerfile`` may use what is in ``NAME/`` beside it; a plain ``Dockerfile`` the whole
    folder that it is in.
    """
    if dockerfile.suffix == ".Dockerfile":
        files = [dockerfile, *sorted(filter(Path.is_file, dockerfile.with_suffix("").rglob("*")))]
    else:
        files = sorted(filter(Path.is_file, dockerfile.parent.rglob("*")))
    return [(str(path.relative_to(dockerfile.parent)), path) for path in files]


class _Budget:
    """What is read of an archive or a folder at most, before any of it is made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes, self._entries = _MOST_BYTES, _MOST_ENTRIES

    def entry(self, size: int) -> None:
        """Count one file or folder.

        Raises:
            SuiteError: it is one too many, or too large.
        """
        self._entries -= 1
        if self._entries < 0:
            raise SuiteError(f"{self._path}: holds more than {_MOST_ENTRIES:,} files and folders")
        self.take(size)

    def take(self, size: int) -> None:
        """Count bytes; raise SuiteError for too many."""
        self._bytes -= size
        if self._bytes < 0:
            raise SuiteError(
                f"{self._path}: unpacks to more than {_MOST_BYTES // 1024**3} GiB; put what is "
                "large into an image"
            )


class _Unpacked:
    """An archive's bytes without their compression, which may make gigabytes of little.

    Headers and names are as long as the archive says, and tarfile reads them at once; so no more is
    read than the content that is known of, and a little for the headers that follow.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            start = file.read(8)
        found = [opener for magic, opener in _UNPACKERS.items() if start.startswith(magic)]
        self._file: IO[bytes] = found[0](path) if found else path.open("rb")
        self._path = path
        self._position = self._content = 0
        self._limit = _HEADERS

    def expect(self, member: tarfile.TarInfo) -> None:
        """Let the content of a member be read, and the headers of the next."""
        self._content += member.size
        end = member.offset_data + member.size + _HEADERS
        self._limit = min(end, self._content + _ALL_HEADERS)

    def read(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            SuiteError: they are of headers that are too long.
        """
        data = self._file.read(size)
        self._position += len(data)
        if self._position > self._limit:
            raise SuiteError(f"{self._path}: has headers that are longer than what is read of them")
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _copy(archive: Archive, out: tarfile.TarFile, now: float) -> None:
    prefix = archive.at.strip("/")
    budget = _Budget(archive.path)
    try:
        with (
            contextlib.closing(_Unpacked(archive.path)) as unpacked,
            tarfile.open(fileobj=cast("IO[bytes]", unpacked), mode="r|") as source,
        ):
            for member in source:
                name = _plain(member.name)
                budget.entry(member.size)
                unpacked.expect(member)
                if not name:
                    continue
                content = source.extractfile(member) if member.isreg() else None
                member.name = f"{prefix}/{name}" if prefix else name
                if member.islnk():
                    linked = _plain(member.linkname)
                    member.linkname = f"{prefix}/{linked}" if prefix else linked
                keep = archive.keep_times_before
                stale = {"path", "linkpath"}  # extended headers go before what the member says
                if member.issparse():  # its holes are read as zeros
                    member.type = tarfile.REGTYPE
                    stale.update(key for key in member.pax_headers if key.startswith("GNU.sparse"))
                if keep is not None and member.mtime >= keep:
                    member.mtime = now
                    stale.add("mtime")
                member.pax_headers = {k: v for k, v in member.pax_headers.items() if k not in stale}
                out.addfile(member, content)
    except (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
        raise SuiteError(f"{archive.path}: not a tar archive that can be read: {error}") from None
    except (ValueError, OverflowError, MemoryError) as error:  # of numbers in its headers
        why = str(error) or "a size that cannot be"
        raise SuiteError(f"{archive.path}: not a tar archive that can be read: {why}") from None


def _copy_folder(archive: Archive, at: str, out: tarfile.TarFile, now: float) -> None:
    """Add what is in a folder, in the order of its names; the folder itself becomes ``at``."""
    keep = archive.keep_times_before
    budget = _Budget(archive.path)
    try:
        for path in paths_below(archive.path):
            state = path.lstat()
            budget.entry(state.st_size if stat.S_ISREG(state.st_mode) else 0)
            name = posixpath.join(at, path.relative_to(archive.path).as_posix())
            entry = tarfile.TarInfo(name.strip("/"))
            entry.mode = stat.S_IMODE(state.st_mode)
            entry.mtime = state.st_mtime if keep is not None and state.st_mtime < keep else now
            if stat.S_ISLNK(state.st_mode):
                entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
                out.addfile(entry)
            elif stat.S_ISDIR(state.st_mode):
                entry.type = tarfile.DIRTYPE
                out.addfile(entry)
            elif stat.S_ISREG(state.st_mode):
                content = path.read_bytes()
                entry.size = len(content)
                out.addfile(entry, io.BytesIO(content))
            else:
                raise SuiteError(
                    f"{path}: a folder given as archive holds files, directories and symbolic "
                    "links, and this is none of them"
                )
    except OSError as error:
        raise SuiteError(f"{archive.path}: not a folder that can be read: {error}") from None


def paths_below(folder: Path) -> Iterator[Path]:
    """Yield every path below a folder, sorted, a directory before what is in it."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from paths_below(path)


def _plain(name: str) -> str:
    """Return a member's name without ``./`` and slashes around it."""
    return str(PurePosixPath("/", name)).strip("/")


def _below_root(path: str, workdir: str) -> str:
    return posixpath.normpath(posixpath.join("/", workdir, path)).lstrip("/")


def _add(out: tarfile.TarFile, name: str, spec: FileSpec, now: float) -> None:
    entry = tarfile.TarInfo(name)
    entry.mtime = now
    if spec.kind == "link":
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, spec.target, 0o777
        out.addfile(entry)
    elif spec.kind == "directory":
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755 if spec.mode is None else spec.mode
        out.addfile(entry)
    else:
        entry.size, entry.mode = len(spec.content), 0o644 if spec.mode is None else spec.mode
        out.addfile(entry, io.BytesIO(spec.content))
