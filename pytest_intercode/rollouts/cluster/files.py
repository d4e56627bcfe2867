"""Transport of the files of tasks and agents to nodes: by content, once for each node.

On the driver a :class:`FileIndex` finds the needed files by their SHA-256; a folder is sent as a
tar archive, through Ray's object store. On a node a :class:`FileCache` keeps them in the user's
caches. If a node has the same file at the driver's path, it reads that one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import is_
from pathlib import Path, PurePosixPath
from typing import IO, Literal, NamedTuple, TypeVar

from pytest_intercode.errors import ConfigurationError, InfrastructureError
from pytest_intercode.system.archives import context_files, unpack_own
from pytest_intercode.system.beneath import Root
from pytest_intercode.system.digest import file_digest
from pytest_intercode.system.files import bundled_folder, cache_folder

__all__ = ["FileCache", "FileIndex", "FileRef", "bundled_digest", "with_paths"]

Value = TypeVar("Value")

_CHUNK = 4 * 1024 * 1024  # bytes that are sent at a time

_MAX_FOLDER = 256 * 1024 * 1024
_MAX_AGENT = 64 * 1024 * 1024
_SKIPPED = frozenset(
    (
        *(".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".nox"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"),
    )
)
_BUNDLED = ("tasks", "dockerfiles")
_MAX_AGE = 30 * 86400.0  # seconds that a node keeps a file after its last use


class FileRef(NamedTuple):
    """A reference by which a node finds the content of one of the driver's paths.

    Attributes:
        digest: the SHA-256 of the file, or of the folder's archive; empty for a file of the
            package, which the node also has.
        kind: the kind of content. ``context`` is a Dockerfile's folder, which contains it.
        name: the name of a file, its path in the package, or a Dockerfile's name in its context.
    """

    digest: str
    kind: Literal["file", "folder", "bundled", "context"]
    name: str = ""


def with_paths(value: Value, change: Mapping[Path, Path] | None, paths: set[Path]) -> Value:
    """Collect every path in plain data, and replace paths.

    Args:
        value: dataclasses, tuples and paths, of which tasks consist.
        change: the replacement of each path; None to only collect paths.
        paths: the set to which the paths are added.
    """
    if isinstance(value, Path):
        paths.add(value)
        return value if change is None else change.get(value, value)  # type: ignore[return-value]
    if isinstance(value, tuple):
        items = [with_paths(item, change, paths) for item in value]
        unchanged = all(map(is_, items, value))
        return value if unchanged else tuple(items)  # type: ignore[return-value]
    changed = {}
    cls: type = type(value)
    for name in _field_names(cls):
        item = getattr(value, name)
        new = with_paths(item, change, paths)
        if new is not item:
            changed[name] = new
    return replace(value, **changed) if changed else value  # type: ignore[type-var]


@cache
def _field_names(cls: type) -> tuple[str, ...]:
    """Return the names of a dataclass's fields; empty for another class."""
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else ()


def bundled_digest() -> str:
    """Return the SHA-256 of this package: its modules, its suites and its Dockerfiles."""
    content = hashlib.sha256()
    package = Path(__file__).parents[2]
    for root, pattern in [(package, "*.py"), *((bundled_folder(n), "*") for n in _BUNDLED)]:
        for path in sorted(root.rglob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                content.update(f"{path.relative_to(root)}\0".encode())
                content.update(hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()


class FileIndex:
    """The files that the driver can send, by content; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refs: dict[Path, FileRef | None] = {}
        self._sources: dict[str, Path | bytes] = {}
        self._bundled = [(name, bundled_folder(name).resolve()) for name in _BUNDLED]

    def ref(self, path: Path) -> FileRef | None:
        """Return the reference for a path; None if the path does not exist.

        Raises:
            ConfigurationError: the path cannot be read, or is too large.
        """
        with self._lock:
            if path not in self._refs:
                self._refs[path] = self._make(path)
            return self._refs[path]

    def refs(self, paths: Iterable[Path]) -> dict[str, FileRef]:
        """Return the references for paths that exist; raises like :meth:`ref`."""
        refs = {str(path): self.ref(path) for path in sorted(paths)}
        return {path: ref for path, ref in refs.items() if ref is not None}

    def agent(self, folder: Path, source: str) -> FileRef:
        """Return the reference for the folder of an agent.

        Raises:
            ConfigurationError: it is too large, or cannot be read.
        """
        archive = _archived(_listed(folder), _MAX_AGENT)
        if archive is None:
            raise ConfigurationError(
                f"{source}: the folder {folder} is sent to every node, but has more than "
                f"{_MAX_AGENT // 1024**2} MiB; put the agent into its own folder"
            )
        return self._keep(archive, "folder")

    def put(self, path: Path, digest: str) -> None:
        """Add a file whose digest is known, and which does not change any more."""
        with self._lock:
            self._refs[path] = FileRef(digest, "file", path.name)
            self._sources[digest] = path

    def forget(self, path: Path) -> str:
        """Forget a file; return its digest, or the empty string if another path has it too."""
        with self._lock:
            ref = self._refs.pop(path, None)
            digests = (entry.digest for entry in self._refs.values() if entry is not None)
            if ref is None or ref.digest in digests:
                return ""
            self._sources.pop(ref.digest, None)
            return ref.digest

    def pieces(self, digest: str) -> Iterator[bytes]:
        """Yield the content with a digest, piece by piece; nothing for an unknown digest.

        Raises:
            ConfigurationError: the content has changed since its digest was computed.
        """
        source, content = self._sources.get(digest), hashlib.sha256()
        if source is None:
            return
        with (
            contextlib.suppress(OSError),
            io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file,
        ):
            while piece := file.read(_CHUNK):
                content.update(piece)
                yield piece
        if content.hexdigest() != digest:  # otherwise it would count as a fault of nodes
            raise ConfigurationError(
                f"{source!s:.500}: it was changed or removed before it was sent to a node; do not "
                "change the files of tasks during the run"
            )

    def _make(self, path: Path) -> FileRef | None:
        resolved = path.resolve()
        for name, root in self._bundled:
            if resolved.is_relative_to(root):
                return FileRef("", "bundled", str(PurePosixPath(name, resolved.relative_to(root))))
        try:
            if path.suffix == ".Dockerfile" or path.name == "Dockerfile":
                return self._context(path)
            if path.is_dir():
                with Root(path, links=False) as folder:
                    paths = [(item.path, path / item.path) for item in folder.walk()]
                archive = _archived(paths, _MAX_FOLDER)
                if archive is None:
                    raise ConfigurationError(
                        f"{path}: a folder that is sent to nodes may have at most "
                        f"{_MAX_FOLDER // 1024**2} MiB; pack it as a .tar"
                    )
                return self._keep(archive, "folder")
            if not path.is_file():
                return None
            digest = file_digest(path)
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
        self._sources[digest] = path
        return FileRef(digest, "file", path.name)

    def _context(self, path: Path) -> FileRef | None:
        if not path.is_file():
            return None
        archive = _archived(context_files(path), _MAX_FOLDER)
        if archive is None:
            raise ConfigurationError(
                f"{path}: its build context is sent to nodes, but has more than "
                f"{_MAX_FOLDER // 1024**2} MiB"
            )
        return self._keep(archive, "context")._replace(name=path.name)

    def _keep(self, archive: bytes, kind: Literal["folder", "context"]) -> FileRef:
        digest = hashlib.sha256(archive).hexdigest()
        self._sources[digest] = archive
        return FileRef(digest, kind)


class FileCache:
    """The files that a node was sent; several processes of one machine may share a folder.

    Args:
        folder: the folder that holds them; by default in the user's caches.

    Attributes:
        folder: the same.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "cluster"
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._prune()
        except OSError as error:
            raise InfrastructureError(
                f"{self.folder}: what the driver sends cannot be kept: {error.strerror}"
            ) from None

    def path_of(self, path: Path, ref: FileRef) -> Path | None:
        """Return the local path for one of the driver's paths; None if it has to be sent."""
        if ref.kind == "bundled":
            name, *rest = PurePosixPath(ref.name).parts
            if name not in _BUNDLED or ".." in rest:
                raise InfrastructureError(f"{ref.name}: the package holds no such file")
            return bundled_folder(name).joinpath(*rest)
        cached = self._folder_of(ref)
        if cached.exists():
            with contextlib.suppress(OSError):
                os.utime(cached.parent if ref.kind == "file" else cached)
            return cached / ref.name if ref.kind == "context" else cached
        if ref.kind == "file":
            with contextlib.suppress(OSError):  # the path may be on a shared file system
                if path.is_file() and file_digest(path) == ref.digest:
                    return path
        return None

    def _folder_of(self, ref: FileRef) -> Path:
        if not (len(ref.digest) == 64 and ref.digest.isalnum()):
            raise InfrastructureError(f"{ref.digest!r:.80} is not a digest")
        root = self.folder / ref.digest
        return root / Path(ref.name).name if ref.kind == "file" else root

    def remove(self, digest: str) -> None:
        """Remove content that is not needed any more."""
        shutil.rmtree(self._folder_of(FileRef(digest, "folder")), ignore_errors=True)

    def receive(self, ref: FileRef, pieces: Iterable[bytes]) -> None:
        """Keep the content of a reference.

        Raises:
            InfrastructureError: it cannot be stored, or does not have the digest.
        """
        folder = None
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.writelines(pieces)
                file.seek(0)
                if file_digest(file) != ref.digest:
                    raise InfrastructureError("what the driver sent did not arrive as it was")
                file.seek(0)
                folder = Path(tempfile.mkdtemp(dir=self.folder, prefix=".new-"))
                self._unpack(ref, file, folder)
        except (OSError, tarfile.TarError) as error:
            raise InfrastructureError(
                f"{self.folder}: what the driver sends cannot be kept: {error}"
            ) from None
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def _unpack(self, ref: FileRef, file: IO[bytes], folder: Path) -> None:
        """Write a file, or the content of an archive, and move it to its final place."""
        name = Path(ref.name).name
        if ref.kind == "file":
            with (folder / name).open("wb") as copy:
                shutil.copyfileobj(file, copy)
        else:
            with tarfile.open(fileobj=file) as archive:
                unpack_own(archive, folder)
        try:
            folder.rename(self.folder / ref.digest)
        except OSError:  # another process was faster, or the file is there under another name
            if ref.kind == "file":
                (folder / name).rename(self.folder / ref.digest / name)

    def _prune(self) -> None:
        """Remove content that has not been used for a long time."""
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _MAX_AGE:
                    shutil.rmtree(path)


def _listed(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files in an agent's folder, in order, without the folders of tools."""
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        folders[:] = [
            name
            for name in sorted(set(folders) - set(links))
            if not (
                name in _SKIPPED
                or name.startswith(".venv")
                or Path(parent, name, "pyvenv.cfg").exists()
            )
        ]
        for path in sorted(Path(parent, name) for name in (*links, *names)):
            if path.is_file() or path.is_symlink():
                yield str(path.relative_to(folder)), path


def _archived(files: Iterable[tuple[str, Path]], max_bytes: int) -> bytes | None:
    """Return a tar archive with the times and modes of its files; None if it is too large."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in files:
            entry = archive.gettarinfo(str(path), arcname=name)
            if entry is None:  # a socket
                continue
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            if buffer.tell() + entry.size > max_bytes:
                return None
            if entry.isreg():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    return buffer.getvalue()
