"""Folders of this machine for sandboxes of an engine that cannot see them: volumes with a copy.

There is one volume for each content, and all runs share it: an agent's bundle is copied once, and
not for each run. Labels describe the content of a volume. As labels never change and a volume
exists before it is filled, a second, empty volume is made when it is filled: a volume without that
marker is not used, for example if the run that filled it was killed.

A run has a container, which is never started, for each of its volumes. So the engine does not
remove a volume in use, whoever requests it. A volume that is older than 30 days is removed at the
start of the next run; what still needs it is copied again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
import tarfile
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.build import one_builder
from pytest_intercode.sandboxes.docker.errors import client_errors
from pytest_intercode.sandboxes.docker.reaper import remove_container
from pytest_intercode.system.digest import file_digest

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["CONTENT_LABEL", "Volumes", "read_folder", "remove_old_volumes", "stream_folder"]

CONTENT_LABEL = "pytest-intercode.content"
"""The label of our volumes with the digest of their content."""

_WHOLE_LABEL = "pytest-intercode.whole"  # on the marker volume: the name of the filled one
_MAX_AGE = timedelta(days=30)
_MAX_FILLING_TIME = timedelta(days=1)  # after that, an unfilled volume will never be filled
_MAX_TRIES = 3  # for a volume that is removed just before it is used
_PATH = "/content"  # where our containers, which never run, mount a volume
_BLOCK_SIZE = 2**18  # bytes that are read and sent in one piece
_LENGTH = 20  # hexadecimal digits of SHA-256


class Volumes:
    """The volumes that a run uses on one engine.

    Args:
        api: the engine's client.
        labels: the labels of the run's containers. Removing these releases the volumes.
    """

    def __init__(self, api: APIClient, labels: Mapping[str, str]) -> None:
        self._api = api
        self._labels = dict(labels)
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()  # held while a volume is filled, as every caller needs it

    def name(self, folder: str, image: str) -> str:
        """Return the volume with a folder's content; copy it if the engine does not have it yet.

        Args:
            folder: the folder. This run does not see later changes in it.
            image: an image that the engine has.

        Raises:
            SandboxError: the folder cannot be read.
            docker.errors.APIError: the engine refuses.
            requests.exceptions.RequestException: the engine does not answer.
        """
        with self._lock:
            if folder not in self._names:
                try:
                    digest = _digest(Path(folder))
                    self._names[folder] = self._provide(Path(folder), digest, image)
                except OSError as error:
                    if isinstance(error, client_errors()):  # some client errors are OSErrors, too
                        raise
                    raise SandboxError(f"{folder} cannot be read: {error.strerror}") from None
            return self._names[folder]

    def forget(self) -> None:
        """Look up volumes again, as the engine may have lost them."""
        with self._lock:
            self._names.clear()

    def _provide(self, folder: Path, digest: str, image: str) -> str:
        for _ in range(_MAX_TRIES):
            names = self._find(digest)
            if not names:
                # Processes of this machine wait for the first of them; other machines copy again.
                with one_builder(f"pytest-intercode/content:{digest}"):
                    names = self._find(digest)
                    if not names:
                        return self._fill(folder, digest, image)
            holder = self._create_container(names[0], image)
            # From here on, it stays. If it was removed before this, the engine made an empty one.
            labels = self._api.inspect_volume(names[0]).get("Labels") or {}
            if labels.get(CONTENT_LABEL) == digest:
                return names[0]
            remove_container(self._api, holder)
            self._api.remove_volume(names[0])
        raise SandboxError(f"the volume with {folder} keeps being removed")

    def _find(self, digest: str) -> list[str]:
        """Return the volumes that have a content completely."""
        rows = _list_volumes(self._api, f"{CONTENT_LABEL}={digest}")
        whole = {row["Labels"].get(_WHOLE_LABEL) for row in rows}
        return sorted(row["Name"] for row in rows if row["Name"] in whole)

    def _fill(self, folder: Path, digest: str, image: str) -> str:
        """Make a volume, copy a folder into it, and mark it as filled."""
        name = f"pytest-intercode-{digest[:12]}-{secrets.token_hex(4)}"
        labels = {CONTENT_LABEL: digest}
        self._api.create_volume(name, labels=labels)
        holder = ""
        try:
            holder = self._create_container(name, image)
            self._api.put_archive(holder, _PATH, stream_folder(folder))
            self._api.create_volume(f"{name}-whole", labels={**labels, _WHOLE_LABEL: name})
        except BaseException:
            with contextlib.suppress(*client_errors()):
                if holder:
                    remove_container(self._api, holder)
                self._api.remove_volume(name)
            raise
        return name

    def _create_container(self, volume: str, image: str) -> str:
        container = self._api.create_container(
            image,
            ["true"],
            host_config=self._api.create_host_config(binds=[f"{volume}:{_PATH}"]),
            labels=self._labels,
            network_disabled=True,
        )
        return str(container["Id"])


def remove_old_volumes(api: APIClient) -> None:
    """Remove old volumes, and those that were never filled, unless a container has them."""
    rows = _list_volumes(api, CONTENT_LABEL)
    markers = {row["Labels"][_WHOLE_LABEL]: row for row in rows if _WHOLE_LABEL in row["Labels"]}
    names = {row["Name"] for row in rows}
    for row in rows:
        name = row["Name"]
        if _WHOLE_LABEL in row["Labels"]:
            is_old = row["Labels"][_WHOLE_LABEL] not in names
        else:
            is_old = _age(row) > (_MAX_AGE if name in markers else _MAX_FILLING_TIME)
        if is_old:
            with contextlib.suppress(*client_errors()):  # it is in use, or gone already
                api.remove_volume(name)
                if name in markers:
                    api.remove_volume(markers[name]["Name"])


def _list_volumes(api: APIClient, label: str) -> list[dict[str, Any]]:
    return [
        {**row, "Labels": row.get("Labels") or {}}
        for row in api.volumes(filters={"label": label}).get("Volumes") or []
    ]


def _age(row: Mapping[str, Any]) -> timedelta:
    """Return the age of a volume; zero if its engine does not report when it was made."""
    # Before 3.11, Python does not read a Z, nor a fraction unless it has three or six digits.
    created = re.sub(r"\.\d+", "", str(row.get("CreatedAt") or "")).replace("Z", "+00:00")
    try:
        return datetime.now(timezone.utc) - datetime.fromisoformat(created)
    except (ValueError, TypeError):
        return timedelta()


# -- folders


def read_folder(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the name and status of each folder, file and link in a folder, and of the folder.

    Sockets and other files that cannot be copied are left out, and so are files that disappear.

    Raises:
        OSError: a folder cannot be read.
    """
    yield ".", folder.stat()
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        for entry in sorted(os.scandir(folder / prefix), key=lambda entry: entry.name):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            path = f"{prefix}{entry.name}"
            if stat.S_ISDIR(status.st_mode):
                waiting.append(f"{path}/")
            elif not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                continue
            yield path, status


def _digest(folder: Path) -> str:
    """Return the digest of names, modes, contents and link targets; not of owners and times."""
    content = hashlib.sha256()
    for path, status in read_folder(folder):
        detail = ""
        if stat.S_ISREG(status.st_mode):
            detail = file_digest(folder / path)
        elif stat.S_ISLNK(status.st_mode):
            detail = str((folder / path).readlink())
        line = f"{path}\0{status.st_mode:o}\0{detail}\0"
        content.update(line.encode("utf-8", "surrogateescape"))
    return content.hexdigest()[:_LENGTH]


def stream_folder(folder: Path) -> Iterator[bytes]:
    """Yield a tar archive of a folder, piece by piece; everything in it belongs to root.

    Raises:
        OSError: a file cannot be read, or has become shorter.
    """
    for path, status in read_folder(folder):
        entry = tarfile.TarInfo(path)
        entry.mode, entry.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
        if stat.S_ISDIR(status.st_mode):
            entry.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(status.st_mode):
            entry.type, entry.linkname = tarfile.SYMTYPE, str((folder / path).readlink())
        else:
            entry.size = status.st_size
        yield entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if entry.isreg():
            yield from _read_blocks(folder / path, entry.size)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _read_blocks(path: Path, size: int) -> Iterator[bytes]:
    """Yield so many bytes of a file, and the padding of the archive's last block."""
    remaining = size
    with path.open("rb") as file:
        while remaining:
            data = file.read(min(_BLOCK_SIZE, remaining))
            if not data:
                raise OSError(0, "it has become shorter", os.fspath(path))
            remaining -= len(data)
            yield data
    yield bytes(-size % tarfile.BLOCKSIZE)
