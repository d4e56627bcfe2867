"""Runs a module or a script with what Python has on Windows, as far as that can be on Linux::

    python -m tests.support.portable.windows pytest_intercode view run.jsonl
    python -m tests.support.portable.windows script.py

What is simulated, before anything of ours is imported:

- The names that Windows' Python lacks are gone from the standard library's modules, and so are the
  modules in ``ABSENT``: both by typeshed.
- ``sys.platform`` is ``win32``, and there is ``msvcrt`` with ``locking``.

What is not: the kernel and what Python does with it. ``os.name``, paths, their separators and the
names that Windows does not allow are Linux's, as are encodings and ends of lines; files can be
replaced and removed while they are open, and read where they are locked. The standard library was
imported on Linux, and does what it does there; so were pytest and the libraries in ``LIBRARIES``.
Processes that it starts are Linux's.
"""

from __future__ import annotations

import fcntl
import importlib
import io
import os
import runpy
import shutil
import struct
import sys
import tempfile
from types import ModuleType

from tests.support.portable.removal import Removal
from tests.support.portable.typeshed import missing_names

__all__ = ["ABSENT", "CHANGED", "begin"]

ABSENT = (
    *("_curses", "crypt", "curses", "dbm.gnu", "dbm.ndbm", "fcntl", "grp", "nis", "pty", "pwd"),
    *("readline", "resource", "spwd", "syslog", "termios", "tty"),
)
"""Modules of the standard library that Windows does not have; typeshed says so of most."""

CHANGED = ("errno", "mmap", "os", "select", "selectors", "signal", "socket", "sys", "time")
"""Modules of the standard library of which Windows' Python has less."""

LIBRARIES = (
    *("asyncio", "concurrent.futures", "ctypes", "getpass", "http.client", "importlib.metadata"),
    *("locale", "logging", "multiprocessing", "pathlib", "pdb", "platform", "selectors", "socket"),
    *("sqlite3", "ssl", "subprocess", "tarfile", "tempfile", "threading", "urllib.request", "uuid"),
    *("webbrowser", "zipfile", "jinja2", "pydantic", "pytest", "yaml"),
)
"""What asks for the platform as it is imported, and so is imported before."""

_OPEN_FILE_LOCK = struct.Struct("@hhqqi4x")  # type, whence, start, length, process


def begin() -> None:
    """Make this process one of Windows, as far as that can be."""
    early = [name for name in sys.modules if name.startswith("pytest_intercode")]
    assert not early, f"imported before Windows began: {early}"
    for name in LIBRARIES:
        importlib.import_module(name)
    # rmtree would else go by descriptors of folders, which Windows has not.
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    tempfile._O_TMPFILE_WORKS = False  # type: ignore[attr-defined]
    io._WindowsConsoleIO = type("_WindowsConsoleIO", (), {})  # type: ignore[attr-defined]
    sys.modules["msvcrt"] = _make_msvcrt()
    names = {module: missing_names(module, "win32") for module in CHANGED}
    Removal(names, platform="win32", absent=ABSENT).install()


def _make_msvcrt() -> ModuleType:
    """Return the module, with locks of bytes that belong to an open file."""
    unlock, no_wait = 0, 2
    control, get_flags, read_only = fcntl.fcntl, fcntl.F_GETFL, os.O_RDONLY
    access = os.O_ACCMODE
    kinds = {unlock: fcntl.F_UNLCK, no_wait: fcntl.F_WRLCK}
    set_lock = fcntl.F_OFD_SETLK

    def locking(file: int, mode: int, count: int, /) -> None:
        first = os.lseek(file, 0, os.SEEK_CUR)
        if control(file, get_flags) & access == read_only:
            # Windows locks such a file, and Linux wants one that may be written to.
            reopened = os.open(f"/proc/self/fd/{file}", os.O_RDWR)
            os.dup2(reopened, file, inheritable=False)
            os.close(reopened)
        request = _OPEN_FILE_LOCK.pack(kinds[mode], os.SEEK_SET, first, count, 0)
        try:
            control(file, set_lock, request)
        except BlockingIOError:
            raise PermissionError(13, "Permission denied") from None

    vars(module := ModuleType("msvcrt")).update(locking=locking, LK_UNLCK=unlock, LK_NBLCK=no_wait)
    return module


def main() -> None:
    """Run what the command line names."""
    begin()
    sys.argv = sys.argv[1:]
    if sys.argv[0].endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
