"""The files that tasks and agents name, on their way to nodes: by content, once for each node.

On the driver a :class:`Shelf` knows what is needed, by its SHA-256; a folder travels as a tar
archive. On a node a :class:`Store` keeps it in the user's caches. Where a node sees the driver's
own file at the same path, it reads that.
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
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, TypeVar

from pytest_intercode.core.archives import context_files
from pytest_intercode.core.beneath import Root
from pytest_intercode.core.digest import file_digest
from pytest_intercode.core.files import bundled_folder, cache_folder
from pytest_intercode.errors import ConfigurationError, InfrastructureError

__all__ = ["CHUNK", "Parcel", "Shelf", "Store", "bundled_digest", "with_paths"]

Value = TypeVar("Value")

CHUNK = 4 * 1024 * 1024
"""Bytes that are sent at a time."""

_LARGEST_FOLDER = 256 * 1024 * 1024
_LARGEST_AGENT = 64 * 1024 * 1024
_SKIPPED = frozenset(
    (
        *(".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".nox"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"),
    )
)
_BUNDLED = ("tasks", "dockerfiles")
_KEPT = 30 * 86400.0  # seconds that a node keeps what nobody asks for


class Parcel(NamedTuple):
    """Where a path of the driver's is to be had on a node.

    Attributes:
        digest: the SHA-256 of the file, or of the folder's archive; empty for what the package
            holds there as here.
        kind: what it is. The context of a Dockerfile is a folder, in which it has its own name.
        name: the name in the package, or of a Dockerfile in its context.
    """

    digest: str
    kind: Literal["file", "folder", "bundled", "context"]
    name: str = ""


def with_paths(value: Value, change: Mapping[Path, Path] | None, found: set[Path]) -> Value:
    """Note every path that plain data hold, and put others in their place.

    Args:
        value: dataclasses, tuples and paths, as tasks are made of.
        change: what each path becomes; None to note them only.
        found: where they are noted.
    """
    if isinstance(value, Path):
        found.add(value)
        return value if change is None else change.get(value, value)  # type: ignore[return-value]
    if isinstance(value, tuple):
        made = tuple(with_paths(each, change, found) for each in value)
        same = all(new is old for new, old in zip(made, value, strict=True))
        return value if same else made  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        new = {
            name: with_paths(each, change, found)
            for name, each in held.items()
            if isinstance(each, (Path, tuple)) or is_dataclass(each)
        }
        changed = {name: each for name, each in new.items() if each is not held[name]}
        return replace(value, **changed) if changed else value
    return value


def bundled_digest() -> str:
    """Return the SHA-256 of our own package: its modules, its suites and its Dockerfiles."""
    content = hashlib.sha256()
    package = Path(__file__).parents[2]
    for root, pattern in [(package, "*.py"), *((bundled_folder(n), "*") for n in _BUNDLED)]:
        for path in sorted(root.rglob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                content.update(f"{path.relative_to(root)}\0".encode())
                content.update(hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()


class Shelf:
    """What the driver can send, by content; any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parcels: dict[Path, Parcel | None] = {}
        self._sources: dict[str, Path | bytes] = {}
        self._bundled = [(name, bundled_folder(name).resolve()) for name in _BUNDLED]

    def parcel(self, path: Path) -> Parcel | None:
        """Return where a path is to be had; None for one that is not there.

        Raises:
            ConfigurationError: it cannot be read, or is too large.
        """
        with self._lock:
            if path not in self._parcels:
                self._parcels[path] = self._made(path)
            return self._parcels[path]

    def agent(self, folder: Path, asked: str) -> Parcel:
        """Return where the folder of an agent is to be had.

        Raises:
            ConfigurationError: it is too large, or cannot be read.
        """
        archive = _archived(_listed(folder), _LARGEST_AGENT)
        if archive is None:
            raise ConfigurationError(
                f"{asked}: the folder {folder} is sent to every node, and holds more than "
                f"{_LARGEST_AGENT // 1024**2} MiB; put the agent into a folder of its own"
            )
        return self._keep(archive, "folder")

    def put(self, path: Path, digest: str) -> None:
        """Take a file whose digest is known, and which does not change any more."""
        with self._lock:
            self._parcels[path] = Parcel(digest, "file", path.name)
            self._sources[digest] = path

    def forget(self, path: Path) -> str:
        """Let go of a file; return its digest, or nothing while another path has it too."""
        with self._lock:
            parcel = self._parcels.pop(path, None)
            if parcel is None or any(
                other is not None and other.digest == parcel.digest
                for other in self._parcels.values()
            ):
                return ""
            self._sources.pop(parcel.digest, None)
            return parcel.digest

    def pieces(self, digest: str) -> Iterator[bytes]:
        """Yield the content with a digest, piece by piece; an empty one ends it."""
        source = self._sources.get(digest, b"")
        with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
            while piece := file.read(CHUNK):
                yield piece
        yield b""

    def _made(self, path: Path) -> Parcel | None:
        whole = path.resolve()
        for name, root in self._bundled:
            if whole.is_relative_to(root):
                return Parcel("", "bundled", str(PurePosixPath(name, whole.relative_to(root))))
        try:
            if path.suffix == ".Dockerfile" or path.name == "Dockerfile":
                return self._context(path)
            if path.is_dir():
                with Root(path, links=False) as folder:
                    paths = [(item.path, path / item.path) for item in folder.walk()]
                archive = _archived(paths, _LARGEST_FOLDER)
                if archive is None:
                    raise ConfigurationError(
                        f"{path}: a folder that is sent to nodes may hold "
                        f"{_LARGEST_FOLDER // 1024**2} MiB; pack it as a .tar"
                    )
                return self._keep(archive, "folder")
            if not path.is_file():
                return None
            digest = file_digest(path)
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
        self._sources[digest] = path
        return Parcel(digest, "file", path.name)

    def _context(self, path: Path) -> Parcel | None:
        if not path.is_file():
            return None
        archive = _archived(context_files(path), _LARGEST_FOLDER)
        if archive is None:
            raise ConfigurationError(
                f"{path}: what its build may use is sent to nodes, and holds more than "
                f"{_LARGEST_FOLDER // 1024**2} MiB"
            )
        return self._keep(archive, "context")._replace(name=path.name)

    def _keep(self, archive: bytes, kind: Literal["folder", "context"]) -> Parcel:
        digest = hashlib.sha256(archive).hexdigest()
        self._sources[digest] = archive
        return Parcel(digest, kind)


class Store:
    """What a node was sent; several processes of one machine may share a folder.

    Args:
        folder: where it is kept; by default in the user's caches.

    Attributes:
        folder: the same.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "cluster"
        self._lock = threading.Lock()
        self._coming: dict[str, Any] = {}
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._prune()
        except OSError as error:
            raise InfrastructureError(
                f"{self.folder}: what the driver sends cannot be kept: {error.strerror}"
            ) from None

    def place(self, path: Path, parcel: Parcel) -> Path | None:
        """Return where the content of a path of the driver's is here; None if it has to be sent."""
        if parcel.kind == "bundled":
            name, *rest = PurePosixPath(parcel.name).parts
            if name not in _BUNDLED or ".." in rest:
                raise InfrastructureError(f"{parcel.name}: the package holds no such file")
            return bundled_folder(name).joinpath(*rest)
        kept = self._place(parcel)
        if kept.exists():
            with contextlib.suppress(OSError):
                os.utime(kept.parent if parcel.kind == "file" else kept)
            return kept / parcel.name if parcel.kind == "context" else kept
        if parcel.kind == "file":
            with contextlib.suppress(OSError):  # a file system that both have
                if path.is_file() and file_digest(path) == parcel.digest:
                    return path
        return None

    def _place(self, parcel: Parcel) -> Path:
        if not (len(parcel.digest) == 64 and parcel.digest.isalnum()):
            raise InfrastructureError(f"{parcel.digest!r:.80} is no digest")
        root = self.folder / parcel.digest
        return root / Path(parcel.name).name if parcel.kind == "file" else root

    def remove(self, digest: str) -> None:
        """Remove what is not needed any more."""
        shutil.rmtree(self._place(Parcel(digest, "folder")), ignore_errors=True)

    def receive(self, parcel: Parcel, piece: bytes) -> bool:
        """Take a piece of something; return whether that was the last one.

        Raises:
            InfrastructureError: it cannot be kept, or is not what it should be.
        """
        try:
            return self._receive(parcel, piece)
        except (OSError, tarfile.TarError) as error:
            with self._lock:
                broken = self._coming.pop(parcel.digest, None)
            if broken is not None:
                with contextlib.suppress(OSError):  # what it still holds cannot be written either
                    broken.close()
            raise InfrastructureError(
                f"{self.folder}: what the driver sends cannot be kept: {error}"
            ) from None

    def _receive(self, parcel: Parcel, piece: bytes) -> bool:
        with self._lock:
            file = self._coming.get(parcel.digest)
            if file is None:
                file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 - more is to come
                self._coming[parcel.digest] = file
            if piece:
                file.write(piece)
                return False
            del self._coming[parcel.digest]
        with file:
            file.seek(0)
            if file_digest(file) != parcel.digest:
                raise InfrastructureError("what the driver sent did not arrive as it was")
            file.seek(0)
            made = Path(tempfile.mkdtemp(dir=self.folder, prefix=".new-"))
            try:
                if parcel.kind == "file":
                    with (made / Path(parcel.name).name).open("wb") as kept:
                        shutil.copyfileobj(file, kept)
                else:
                    with tarfile.open(fileobj=file) as archive:
                        archive.extractall(made, filter="tar")
                try:
                    made.rename(self.folder / parcel.digest)
                except OSError:  # another process was quicker, or it is there by another name
                    if parcel.kind == "file":
                        name = Path(parcel.name).name
                        (made / name).rename(self.folder / parcel.digest / name)
            finally:
                shutil.rmtree(made, ignore_errors=True)
        return True

    def _prune(self) -> None:
        """Remove what nobody has asked for in a long time."""
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _KEPT:
                    shutil.rmtree(path)


def _listed(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield what is in the folder of an agent, in order, without what belongs to tools."""
    for each in sorted(folder.iterdir()):
        if each.name in _SKIPPED or each.name.startswith(".venv"):
            continue
        yield from _below(each, each.name)


def _below(path: Path, name: str) -> Iterator[tuple[str, Path]]:
    if path.is_dir() and not path.is_symlink():
        if (path / "pyvenv.cfg").exists():
            return
        for each in sorted(path.iterdir()):
            if each.name not in _SKIPPED:
                yield from _below(each, f"{name}/{each.name}")
    elif path.is_file() or path.is_symlink():
        yield name, path


def _archived(found: Any, most: int) -> bytes | None:
    """Return a tar archive with the times and modes of its files; None where that is too much."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in found:
            entry = archive.gettarinfo(str(path), arcname=name)
            if entry is None:  # a socket
                continue
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            if buffer.tell() + entry.size > most:
                return None
            if entry.isreg():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    return buffer.getvalue()
