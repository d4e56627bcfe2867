"""Folders for sockets and files of a run: private to the user, and removed after their process.

A process has one folder below a common one in the temporary directory. A watcher, a small process
that outlives it, removes the folder even if the process is killed; there is none on Windows. If
both are killed, for example with their machine or their container, the next process removes the
folder: each process holds a lock on its folder as long as it lives, and removes folders that are
not locked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from pytest_intercode.errors import SandboxError
from pytest_intercode.system.forks import MakingProcess, close_in_children
from pytest_intercode.system.platform import HAS_SANDBOXES, lockable, try_lock, user_id

__all__ = ["PrivateFolder", "common_folder", "living_folders"]

_MAX_PATH_BYTES = 70  # of the 107 that a socket's path may have; the rest is for names below

# Its input ends when our end is closed, by us or by the system. The common folder stays as long as
# another process has a folder in it.
_WATCHER = 'read -r _; rm -rf -- "$1"; rmdir -- "$2" 2>/dev/null'


class PrivateFolder:
    """This process's folder.

    Raises:
        SandboxError: it cannot be created.
    """

    def __init__(self) -> None:
        self._common = common = common_folder()
        self._made = 0
        self._path, descriptor = _make_folder(common)
        self._lock: int | None = descriptor
        self._process = MakingProcess()
        self._watcher = _start_watcher(self._path, common) if HAS_SANDBOXES else None
        close_in_children(self)

    def make(self) -> Path:
        """Create a folder in it that every user may write to; its parents keep other users out."""
        self._made += 1
        path = self._path / str(self._made)
        path.mkdir()
        path.chmod(0o777)
        return path

    def close_copies(self) -> None:
        """Close a forked child's copy of the pipe, which would keep the watcher waiting."""
        if self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.stdin.close()
            self._watcher.returncode = 0  # so that this child does not wait for it

    def close(self) -> None:
        """Remove it, and the common folder if it was the last one there."""
        if not self._process.is_this or self._lock is None:
            return
        shutil.rmtree(self._path, ignore_errors=True)
        # Keep the lock until here, because another process removes folders that are not locked.
        os.close(self._lock)
        self._lock = None
        with contextlib.suppress(OSError):
            self._common.rmdir()
        if self._watcher is not None:
            self._watcher.kill()  # it is not needed any more, and it may be suspended
            self._watcher.communicate()


def _start_watcher(folder: Path, common: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCHER, "sh", folder, common],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that signals to our process group do not reach it
    )


def common_folder() -> Path:
    """Return the folder of this user's processes' folders; it need not exist."""
    common = Path(tempfile.gettempdir()) / f"pytest-intercode-{user_id()}"
    if len(os.fsencode(common)) > _MAX_PATH_BYTES:
        common = Path("/tmp") / common.name
    return common


def living_folders() -> list[Path]:
    """Return the folders of this user's processes that are running.

    Raises:
        SandboxError: others may open the common folder.
    """
    common = common_folder()
    with contextlib.suppress(FileNotFoundError):  # another process has just removed it
        _check(common)
        return [folder for folder in sorted(common.iterdir()) if _is_locked(folder)]
    return []


def _is_locked(folder: Path) -> bool:
    descriptor = _lock(folder)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def _make_folder(common: Path) -> tuple[Path, int]:
    """Create a folder in the common one, and return it with the descriptor that locks it.

    There is no lock during the creation: another process may remove the common folder because it is
    empty, or the new one because it is not locked yet. Then try again.
    """
    while True:
        try:
            with contextlib.suppress(FileExistsError):
                common.mkdir(mode=0o700)
        except OSError as error:
            raise SandboxError(f"{common} cannot be made: {error.strerror}") from None
        with contextlib.suppress(FileNotFoundError):
            _check(common)
            _sweep(common)
            folder = Path(tempfile.mkdtemp(dir=common))
            descriptor = _lock(folder)
            if descriptor is not None:
                if folder.exists():
                    return folder, descriptor
                os.close(descriptor)
            shutil.rmtree(folder, ignore_errors=True)


def _check(common: Path) -> None:
    status = common.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user_id() or status.st_mode & 0o77:
        raise SandboxError(
            f"{common} is not a folder that only this user may open; remove it, or set TMPDIR "
            "to a directory of your own"
        )


def _sweep(common: Path) -> None:
    """Remove the folders whose processes are gone."""
    for folder in common.iterdir():
        if (descriptor := _lock(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """Lock a folder, and return the descriptor; None if another process locked or removed it."""
    try:
        descriptor = lockable(folder, links=False)
    except OSError:
        return None
    try:
        if try_lock(descriptor):
            return descriptor
    except OSError as error:
        os.close(descriptor)
        raise SandboxError(
            f"{folder.parent} is on a file system without locks ({error.strerror}); set TMPDIR to "
            "a directory on another one"
        ) from None
    os.close(descriptor)
    return None
