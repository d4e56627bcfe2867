"""Folders of this machine for sandboxes of an engine that cannot see them: volumes with a copy.

There is one for each content, which all runs share: a bundle of an agent is copied once, and not
for each run. What a volume has is written in its labels. As labels never change and a volume is
there before it is filled, a second, empty one is made once it is: a volume without it is not used,
whatever killed the run that filled it.

A run has a container, never started, with each of its volumes. So the engine removes none that is
in use, whoever asks for it. A volume that is older than 30 days goes with the start of the next run
there; what still needs it is copied again.
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
"""The label of our volumes: the digest of what is in them."""

_WHOLE_LABEL = "pytest-intercode.whole"  # of the second volume: the name of the first, now filled
_MAX_AGE = timedelta(days=30)
_MAX_FILLING_TIME = timedelta(days=1)  # after which one that is not whole never will be
_MAX_TRIES = 3  # at a volume that is removed just as it is to be used
_PATH = "/content"  # where our containers, which never run, have a volume
_BLOCK_SIZE = 2**18  # bytes that are read and sent at once
_LENGTH = 20  # hexadecimal digits of SHA-256


class Volumes:
    """The volumes that a run uses on one engine.

    Args:
        api: the engine's client.
        labels: of the run's containers. Who removes these lets go of the volumes.
    """

    def __init__(self, api: APIClient, labels: Mapping[str, str]) -> None:
        self._api = api
        self._labels = dict(labels)
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()  # held while one is filled, as whoever asks needs it

    def name(self, folder: str, image: str) -> str:
        """Return the volume with the content of a folder; the first time on an engine, copy it.

        Args:
            folder: the folder. What changes in it afterwards is not seen by this run.
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
                    if isinstance(error, client_errors()):  # some of them are such errors, too
                        raise
                    raise SandboxError(f"{folder} cannot be read: {error.strerror}") from None
            return self._names[folder]

    def forget(self) -> None:
        """Look for volumes again, as the engine may have lost them."""
        with self._lock:
            self._names.clear()

    def _provide(self, folder: Path, digest: str, image: str) -> str:
        for _ in range(_MAX_TRIES):
            names = self._find(digest)
            if not names:
                # Processes of this machine wait for the first of them; others copy it once more.
                with one_builder(f"pytest-intercode/content:{digest}"):
                    names = self._find(digest)
                    if not names:
                        return self._fill(folder, digest, image)
            holder = self._create_container(names[0], image)
            # From here on it stays. It may have gone before: the engine then made an empty one.
            labels = self._api.inspect_volume(names[0]).get("Labels") or {}
            if labels.get(CONTENT_LABEL) == digest:
                return names[0]
            remove_container(self._api, holder)
            self._api.remove_volume(names[0])
        raise SandboxError(f"the volume with {folder} is removed again and again")

    def _find(self, digest: str) -> list[str]:
        """Return the volumes that have a content, all of it."""
        rows = _list_volumes(self._api, f"{CONTENT_LABEL}={digest}")
        whole = {row["Labels"].get(_WHOLE_LABEL) for row in rows}
        return sorted(row["Name"] for row in rows if row["Name"] in whole)

    def _fill(self, folder: Path, digest: str, image: str) -> str:
        """Make a volume, copy a folder into it, and say that it is whole."""
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
    """Remove volumes that were filled long ago, or never will be; none that a container has."""
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
            with contextlib.suppress(*client_errors()):  # it is used, or gone by now
                api.remove_volume(name)
                if name in markers:
                    api.remove_volume(markers[name]["Name"])


def _list_volumes(api: APIClient, label: str) -> list[dict[str, Any]]:
    return [
        {**row, "Labels": row.get("Labels") or {}}
        for row in api.volumes(filters={"label": label}).get("Volumes") or []
    ]


def _age(row: Mapping[str, Any]) -> timedelta:
    """Return how long ago a volume was made; nothing where its engine does not say when."""
    # Before 3.11 Python reads no Z, and no fraction of other than three or six digits.
    created = re.sub(r"\.\d+", "", str(row.get("CreatedAt") or "")).replace("Z", "+00:00")
    try:
        return datetime.now(timezone.utc) - datetime.fromisoformat(created)
    except (ValueError, TypeError):
        return timedelta()


# -- folders


def read_folder(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the folders, files and links below a folder, by their names, with what they are.

    Sockets and other files that cannot be copied are left out, as what goes away meanwhile.

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
    """Return the digest of names, modes, contents and targets of links; not of owners and times."""
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
    """Yield a tar archive of a folder, piece by piece; everything in it is root's.

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
    """Yield so many bytes of a file, and what fills up the last block of an archive."""
    remaining = size
    with path.open("rb") as file:
        while remaining:
            data = file.read(min(_BLOCK_SIZE, remaining))
            if not data:
                raise OSError(0, "it has become shorter", os.fspath(path))
            remaining -= len(data)
            yield data
    yield bytes(-size % tarfile.BLOCKSIZE)
