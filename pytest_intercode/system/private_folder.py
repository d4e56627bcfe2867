"""Folders for sockets and files of a run: private to the user, and removed after their process.

A process has one folder below a common one in the temporary directory. It holds a lock on its
folder as long as it lives; the next process removes the folders that are not locked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pytest_intercode.errors import SandboxError
from pytest_intercode.system.forks import MakingProcess
from pytest_intercode.system.platform import lock, lockable, try_lock, user_id

__all__ = ["PrivateFolder", "common_folder", "living_folders"]

_MAX_PATH_BYTES = 70  # a socket's path may have 107, and ours add some


class PrivateFolder:
    """This process's folder.

    Raises:
        SandboxError: there is no place for it.
    """

    def __init__(self) -> None:
        self._common = common = common_folder()
        self._made = 0
        with _locked(common):
            for folder in common.iterdir():
                if (descriptor := _lock(folder)) is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(descriptor)
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
        descriptor = _lock(self._common, wait=True)  # another process may be making its own in it
        if descriptor is not None:
            with contextlib.suppress(OSError):
                self._common.rmdir()
            os.close(descriptor)


def common_folder() -> Path:
    """Return where the folders of this user's processes are; it need not be there."""
    common = Path(tempfile.gettempdir()) / f"pytest-intercode-{user_id()}"
    if len(os.fsencode(common)) > _MAX_PATH_BYTES:
        common = Path("/tmp") / common.name
    return common


def living_folders() -> list[Path]:
    """Return the folders of this user's processes that live; of one that was killed, none.

    Raises:
        SandboxError: others may open the common folder.
    """
    common = common_folder()
    if not common.exists():
        return []
    _check_private(common)
    descriptor = _lock(common, wait=True)  # no process is between making its folder and locking it
    if descriptor is None:  # it was removed
        return []
    try:
        return [folder for folder in sorted(common.iterdir()) if _is_locked(folder)]
    except FileNotFoundError:
        return []
    finally:
        os.close(descriptor)


def _is_locked(folder: Path) -> bool:
    descriptor = _lock(folder)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def _check_private(common: Path) -> None:
    status = common.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user_id() or status.st_mode & 0o77:
        raise SandboxError(
            f"{common} is not a folder that only this user may open; remove it, or set TMPDIR "
            "to a directory of your own"
        )


@contextlib.contextmanager
def _locked(common: Path) -> Iterator[None]:
    """Make the common folder and hold its lock; another process may just be removing it."""
    while True:
        try:
            common.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise SandboxError(f"{common} cannot be made: {error.strerror}") from None
        _check_private(common)
        descriptor = _lock(common, wait=True)
        try:
            if descriptor is not None and _is_still(common, descriptor):
                yield
                return
        finally:
            if descriptor is not None:
                os.close(descriptor)


def _is_still(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(folder: Path, wait: bool = False) -> int | None:
    """Return a descriptor that holds the lock of a folder, or None if another process has it."""
    try:
        descriptor = lockable(folder, links=False)
    except OSError:
        return None
    try:
        if wait:
            lock(descriptor)
        elif not try_lock(descriptor):
            raise BlockingIOError
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
