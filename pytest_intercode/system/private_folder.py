"""Folders for sockets and files of a run: private to the user, and removed after their process.

A process has one folder below a common one in the temporary directory. It holds a lock on its
folder as long as it lives; the next process removes the folders that are not locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pytest_intercode.errors import SandboxError
from pytest_intercode.system.forks import MakingProcess

__all__ = ["PrivateFolder"]

_MAX_PATH_BYTES = 70  # a socket's path may have 107, and ours add some


class PrivateFolder:
    """This process's folder.

    Raises:
        SandboxError: there is no place for it.
    """

    def __init__(self) -> None:
        common = Path(tempfile.gettempdir()) / f"pytest-intercode-{os.getuid()}"
        if len(os.fsencode(common)) > _MAX_PATH_BYTES:
            common = Path("/tmp") / common.name
        self._common = common
        self._made = 0
        with _locked(common):
            for folder in common.iterdir():
                if (lock := _lock(folder)) is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(lock)
            self._path = Path(tempfile.mkdtemp(dir=common))
            self._lock = _lock(self._path)
        self._process = MakingProcess()

    def make(self) -> Path:
        """Make a folder in it that every account may write to; its parents keep others out."""
        self._made += 1
        path = self._path / str(self._made)
        path.mkdir()
        path.chmod(0o777)
        return path

    def close(self) -> None:
        """Remove it, and the common one if it is the last."""
        if not self._process.is_this or self._lock is None:
            return
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock)
        self._lock = None
        lock = _lock(self._common, wait=True)  # another process may be making its own in it
        if lock is not None:
            with contextlib.suppress(OSError):
                self._common.rmdir()
            os.close(lock)


@contextlib.contextmanager
def _locked(common: Path) -> Iterator[None]:
    """Make the common folder and hold its lock; another process may just be removing it."""
    while True:
        try:
            common.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise SandboxError(f"{common} cannot be made: {error.strerror}") from None
        status = common.lstat()
        if (
            not stat.S_ISDIR(status.st_mode)
            or status.st_uid != os.getuid()
            or status.st_mode & 0o77
        ):
            raise SandboxError(
                f"{common} is not a folder that only this user may open; remove it, or set TMPDIR "
                "to a directory of your own"
            )
        lock = _lock(common, wait=True)
        try:
            if lock is not None and _is_still(common, lock):
                yield
                return
        finally:
            if lock is not None:
                os.close(lock)


def _is_still(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(folder: Path, wait: bool = False) -> int | None:
    """Return a descriptor that holds the lock of a folder, or None if another process has it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
