"""Archives of a task's files: its tree as one tar archive, and the context of its image."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import posixpath
import shutil
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeAlias, cast

from pytest_intercode.core.task import Archive, FileSpec, Task
from pytest_intercode.errors import SuiteError
from pytest_intercode.system.beneath import OutsideError, Root, relative_path

__all__ = [
    *("Budget", "add_entry", "build_archive", "context_files", "filter_archive"),
    *("pack_files", "unpack_archive", "unpack_files", "unpack_own"),
]

_MAX_BYTES = 1024**3  # bytes of an archive or a folder, unpacked
_MAX_ENTRIES = 100_000  # files and folders in it
_MAX_HEADERS = 1024**2  # bytes of one file's headers, including read-ahead
_MAX_ALL_HEADERS = 256 * 1024**2  # bytes of the headers of all files
_UNPACKERS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}


def build_archive(task: Task, mtime: float) -> bytes:
    """Return a tar archive of the task's archive and files, to be unpacked at ``/``.

    Everything is owned by root unless the task's own archive sets another owner. Files that are
    given inline, and those of a folder, have the time ``mtime``; equal tasks give equal bytes.

    Args:
        task: the task.
        mtime: the time that files get, in seconds since the epoch.

    Returns:
        The archive; empty if the task has no files.

    Raises:
        SuiteError: the task's archive cannot be read or is too large, or its folder contains
            special files.
    """
    if not task.files and task.archive is None:
        return b""
    return pack_files(task.files, task.workdir, mtime, task.archive)


def pack_files(
    files: Mapping[str, FileSpec], workdir: str, mtime: float, archive: Archive | None = None
) -> bytes:
    """Return a tar archive of files, to be unpacked at ``/``.

    Args:
        files: the files, by path (absolute, or relative to ``workdir``).
        workdir: the folder where relative paths start.
        mtime: the time that they get, in seconds since the epoch.
        archive: an archive or a folder whose content comes before them.

    Raises:
        SuiteError: see :func:`build_archive`.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        if archive is not None and archive.path.is_dir():
            _copy_folder(archive, archive.at or workdir, tar, mtime)
        elif archive is not None:
            _copy_archive(archive, tar, mtime)
        for path, spec in files.items():
            _add_file(tar, _below_root(path, workdir), spec, mtime)
    return buffer.getvalue()


def unpack_files(archive: bytes) -> dict[str, bytes]:
    """Return the contents of the regular files of a tar archive, by their paths."""
    contents = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        for member in packed:
            file = packed.extractfile(member) if member.isreg() else None
            if file is not None:
                contents[f"/{member.name}"] = file.read()
    return contents


def filter_archive(archive: bytes, is_kept: Callable[[str], bool]) -> bytes:
    """Return a tar archive with only the entries for whose absolute paths ``is_kept`` is true."""
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as packed,
        tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in packed:
            if is_kept(f"/{member.name}"):
                target.addfile(member, packed.extractfile(member) if member.isreg() else None)
    return buffer.getvalue()


def context_files(dockerfile: Path) -> list[tuple[str, Path]]:
    """Return the files that an image's build may use, as pairs of a name there and a path here.

    ``NAME.Dockerfile`` may use the files in ``NAME/`` next to it; a plain ``Dockerfile`` its whole
    folder. A link to a file is replaced by the file, which must be in that folder, as every engine
    requires.

    Raises:
        SuiteError: a link leads out of that folder.
        OSError: a folder cannot be read.
    """
    if dockerfile.suffix != ".Dockerfile":
        return [*_linked_files(dockerfile.parent)]
    folder = dockerfile.with_suffix("")
    inner = _linked_files(folder) if folder.is_dir() else ()
    return [(dockerfile.name, dockerfile), *((f"{folder.name}/{name}", p) for name, p in inner)]


def _linked_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names of the files below a folder, in the order of paths, and their locations."""
    with Root(folder) as root:
        paths = []
        for item in root.walk():
            try:
                if stat.S_ISREG(item.status.st_mode):
                    paths.append((item.path, folder / item.path))
                elif stat.S_ISLNK(item.status.st_mode) and root.is_file(item.path):
                    paths.append((item.path, folder / root.locate(item.path)))
            except OutsideError:
                raise SuiteError(
                    f"{folder / item.path}: is a link that leads out of {folder}, but an image is "
                    "built from that folder alone: replace the link with the file"
                ) from None
    yield from sorted(paths, key=lambda pair: pair[0].split("/"))


class Budget:
    """Limits on the content of an archive or a folder, checked before anything is unpacked.

    Args:
        path: the archive or folder, for messages.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes, self._entries = _MAX_BYTES, _MAX_ENTRIES

    def entry(self, size: int) -> None:
        """Count one file or folder.

        Raises:
            SuiteError: there are too many, or it is too large.
        """
        self._entries -= 1
        if self._entries < 0:
            raise SuiteError(f"{self._path}: holds more than {_MAX_ENTRIES:,} files and folders")
        self.take(size)

    def take(self, size: int) -> None:
        """Count bytes; raise SuiteError if there are too many."""
        self._bytes -= size
        if self._bytes < 0:
            raise SuiteError(
                f"{self._path}: unpacks to more than {_MAX_BYTES // 1024**3} GiB; put large "
                "files into an image"
            )


class _Unpacked:
    """An archive's decompressed bytes, with a limit, as a small archive may expand to gigabytes.

    The archive determines the length of headers and names, and tarfile reads each of them as a
    whole. So no more is read than the known content, plus a little for the headers that follow.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            start = file.read(8)
        openers = [opener for magic, opener in _UNPACKERS.items() if start.startswith(magic)]
        self._file: IO[bytes] = openers[0](path) if openers else path.open("rb")
        self._path = path
        self._position = self._content = 0
        self._limit = _MAX_HEADERS

    def expect(self, member: tarfile.TarInfo) -> None:
        """Allow reading the content of a member, and the headers of the next one."""
        self._content += member.size
        end = member.offset_data + member.size + _MAX_HEADERS
        self._limit = min(end, self._content + _MAX_ALL_HEADERS)

    def read(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            SuiteError: the headers are too long.
        """
        data = self._file.read(size)
        self._position += len(data)
        if self._position > self._limit:
            raise SuiteError(f"{self._path}: has headers that are longer than what is read of them")
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()


_Member: TypeAlias = tuple[tarfile.TarInfo, "IO[bytes] | None"]


@contextlib.contextmanager
def _members(path: Path) -> Iterator[Iterator[_Member]]:
    """Open an archive to read its members, each with its content if it is a regular file.

    Raises:
        SuiteError: the archive cannot be read, or is too large.
    """
    budget = Budget(path)

    def read(unpacked: _Unpacked, source: tarfile.TarFile) -> Iterator[_Member]:
        for member in source:
            budget.entry(member.size)
            unpacked.expect(member)
            yield member, source.extractfile(member) if member.isreg() else None

    try:
        with (
            contextlib.closing(_Unpacked(path)) as unpacked,
            tarfile.open(fileobj=cast("IO[bytes]", unpacked), mode="r|") as source,
        ):
            yield read(unpacked, source)
    except (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
        raise SuiteError(f"{path}: not a readable tar archive: {error}") from None
    except (ValueError, OverflowError, MemoryError) as error:  # numbers and names in its headers
        reason = str(error) or "an impossible size"
        raise SuiteError(f"{path}: not a readable tar archive: {reason}") from None


def _copy_archive(archive: Archive, tar: tarfile.TarFile, mtime: float) -> None:
    prefix = archive.at.strip("/")
    keep = archive.keep_times_before
    with _members(archive.path) as members:
        for member, content in members:
            name = _plain(member.name)
            if not name:
                continue
            member.name = f"{prefix}/{name}" if prefix else name
            if member.islnk():
                linked = _plain(member.linkname)
                member.linkname = f"{prefix}/{linked}" if prefix else linked
            stale = {"path", "linkpath"}  # extended headers would override the member's fields
            if member.issparse():  # its holes were read as zeros
                member.type = tarfile.REGTYPE
                stale.update(key for key in member.pax_headers if key.startswith("GNU.sparse"))
            if keep is not None and member.mtime >= keep:
                member.mtime = mtime
                stale.add("mtime")
            member.pax_headers = {k: v for k, v in member.pax_headers.items() if k not in stale}
            tar.addfile(member, content)


def unpack_archive(path: Path, folder: Path) -> None:
    """Unpack a tar archive into an empty folder that only this process uses.

    Links are created last, so that nothing is written through them. Their targets are not changed,
    because nothing here follows them.

    Raises:
        SuiteError: the archive cannot be read or is too large; a name in it is absolute, contains
            ``..`` or occurs twice; or a member is not a file, folder or link.
    """
    links = []
    with _members(path) as members:
        try:
            for member, content in members:
                name = relative_path(member.name)
                place = folder / name
                if name:
                    place.parent.mkdir(parents=True, exist_ok=True)
                if member.isdir():
                    place.mkdir(exist_ok=True)
                elif member.issym():
                    links.append((place, member.linkname))
                elif member.islnk():
                    os.link(folder / relative_path(member.linkname), place, follow_symlinks=False)
                elif content is not None:
                    with place.open("xb") as file:
                        shutil.copyfileobj(content, file)
                    place.chmod(0o755 if member.mode & 0o100 else 0o644)
                else:
                    raise SuiteError(f"{path}: {member.name!r:.80} is not a file, folder or link")
            for place, target in links:
                place.symlink_to(target)
        except FileExistsError as error:
            name = Path(str(error.filename2 or error.filename)).name
            raise SuiteError(f"{path}: {name!r:.80} is in it twice") from None


def unpack_own(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack an archive that this package has packed, with its modes.

    Python 3.11.2 (in Debian 12) does not have filters yet; there this additional check is skipped.
    """
    archive.extraction_filter = getattr(tarfile, "tar_filter", lambda member, _: member)
    archive.extractall(folder)


def _copy_folder(archive: Archive, target: str, tar: tarfile.TarFile, mtime: float) -> None:
    """Add the content of a folder, in the order of names; the folder itself becomes ``target``."""
    keep = archive.keep_times_before
    budget = Budget(archive.path)
    try:
        with Root(archive.path, links=False) as root:
            for path, state in root.walk():
                if any(path == name or path.startswith(f"{name}/") for name in archive.exclude):
                    continue
                budget.entry(state.st_size if stat.S_ISREG(state.st_mode) else 0)
                content: bytes | str | None = None
                if stat.S_ISLNK(state.st_mode):
                    content = root.target(path)
                elif stat.S_ISREG(state.st_mode):
                    content = root.read(path, state.st_size)
                elif not stat.S_ISDIR(state.st_mode):
                    raise SuiteError(
                        f"{archive.path / path}: a folder given as archive may only contain "
                        "files, directories and symbolic links"
                    )
                name = posixpath.join(target, path).strip("/")
                own_time = keep is not None and state.st_mtime < keep
                time = state.st_mtime if own_time else mtime
                add_entry(tar, name, content, stat.S_IMODE(state.st_mode), mtime=time)
    except OSError as error:
        raise SuiteError(f"{archive.path}: not a readable folder: {error}") from None


def _plain(name: str) -> str:
    """Return a member's name without ``./`` and slashes around it."""
    return str(PurePosixPath("/", name)).strip("/")


def _below_root(path: str, workdir: str) -> str:
    return posixpath.normpath(posixpath.join("/", workdir, path)).lstrip("/")


def _add_file(tar: tarfile.TarFile, name: str, spec: FileSpec, mtime: float) -> None:
    content: bytes | str | None = spec.content
    mode = 0o644 if spec.mode is None else spec.mode
    if spec.kind == "link":
        content, mode = spec.target, 0o777
    elif spec.kind == "directory":
        content, mode = None, 0o755 if spec.mode is None else spec.mode
    add_entry(tar, name, content, mode, mtime=mtime)


def add_entry(
    tar: tarfile.TarFile,
    name: str,
    content: bytes | str | None,
    mode: int = 0o644,
    *,
    mtime: float = 0,
    owner: tuple[int, int] = (0, 0),
) -> None:
    """Add an entry to an archive.

    Args:
        tar: the archive.
        name: the entry's path in it.
        content: the bytes of a file, the target of a symbolic link, or None for a folder.
        mode: its permission bits.
        mtime: its modification time, in seconds since the epoch.
        owner: the ids of its user and its group.
    """
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = mode, mtime
    entry.uid, entry.gid = owner
    if isinstance(content, bytes):
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
        return
    entry.type = tarfile.DIRTYPE if content is None else tarfile.SYMTYPE
    entry.linkname = content or ""
    tar.addfile(entry)
