"""What makes Python on Linux look as it does on macOS; runs inside the simulated interpreter.

It runs before anything else of the process (see ``interpreter``), so it imports nothing but
``Removal`` on its own. What is simulated:

- The names that macOS's Python lacks are gone from the standard library's modules: those that
  typeshed has for Linux and not for macOS, and those in ``MORE_NAMES``.
- ``sys.platform``, ``os.uname`` and ``platform`` say that this is a Mac with Apple's processor. So
  ``multiprocessing`` spawns, and ``platformdirs`` and others take their branches for macOS.
- The C library has no function that is Linux's alone, for ``ctypes``; no library is found by name.
- Limits on memory are refused, paths of Unix sockets have 103 bytes at most and begin with no zero.
- psutil is Linux's, with the processes of this machine, but without what it has on Linux only.
  truststore, which asks macOS for certificates, is Linux's as well.

What is not: the kernel. Its error numbers, signals and their order are Linux's, and so are the ends
of pipes and terminals, the file systems (macOS's ignore case, and normalize names), ``/dev/fd`` is
gone without ``/proc``, ``kqueue`` is absent, and programs are GNU's. What macOS has and Linux has
not (``F_FULLFSYNC``, ``LOCAL_PEERCRED``) is absent. The processes run as root, if the tests do.
"""

from __future__ import annotations

import sys

from .removal import Removal

TYPE_CHECKING = False  # that of typing, which imports os
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

__all__ = ["MODULES", "MORE_NAMES", "start"]

MODULES = (
    *("errno", "fcntl", "mmap", "os", "resource", "select", "selectors", "signal", "socket"),
    *("termios", "time"),
)
"""The modules of the standard library that differ between Linux and macOS."""

MORE_NAMES: Mapping[str, Collection[str]] = {
    # Of Python 3.12 and later, by the notes on availability of their documentation.
    "os": ("PIDFD_NONBLOCK", "setns", "timerfd_create", "unshare"),
    # Headers of macOS have them since version 12, without documentation, and Pythons that are built
    # for older versions do not: https://docs.python.org/3/library/fcntl.html names Linux alone.
    "fcntl": ("F_OFD_GETLK", "F_OFD_SETLK", "F_OFD_SETLKW"),
    # https://psutil.readthedocs.io says for each function where it is available.
    "psutil": ("sensors_fans", "sensors_temperatures"),
}

_RELEASE = "24.6.0"  # of macOS 15.6
_VERSION = f"Darwin Kernel Version {_RELEASE}: root:xnu-11417.140.69~1/RELEASE_ARM64_T6000"
_MACHINE = "arm64"
_MACOS = "15.6"

# Of psutil.Process, where available: https://psutil.readthedocs.io/en/latest/#process-class
_PROCESS_METHODS = ("cpu_affinity", "cpu_num", "io_counters", "ionice", "memory_maps", "rlimit")

# Functions of Linux's C library, of those that are called with ctypes; see their manual pages.
_LINUX_FUNCTIONS = frozenset(
    {
        *("capget", "capset", "clone", "close_range", "epoll_create", "epoll_create1", "eventfd"),
        *(
            "fanotify_init",
            "gettid",
            "inotify_init",
            "inotify_init1",
            "memfd_create",
            "pidfd_getfd",
        ),
        *("pidfd_open", "pidfd_send_signal", "pivot_root", "prctl", "prlimit", "process_vm_readv"),
        *("sched_setaffinity", "setns", "setresuid", "signalfd", "splice", "statx"),
        *("timerfd_create", "umount", "umount2", "unshare"),
    }
)

# Packages that are those of Linux: their parts for macOS load what Linux has not.
_OF_LINUX = ("psutil", "truststore", "pip._vendor.truststore")

_MAX_SOCKET_PATH = 103  # bytes; sun_path of <sys/un.h> has 104 with the zero, Linux's 108


def start(names: Mapping[str, Collection[str]], processes: str) -> None:
    """Make this process one of macOS, as far as that can be.

    Args:
        names: module to the names that it does not have.
        processes: the folder where psutil finds the real ``/proc``.
    """

    def change_psutil(psutil: Any) -> None:
        psutil.PROCFS_PATH = processes
        for name in [name for name in dir(psutil) if name.startswith(("RLIM", "IOPRIO_"))]:
            delattr(psutil, name)
        for name in _PROCESS_METHODS:
            if hasattr(psutil.Process, name):
                delattr(psutil.Process, name)

    together = {name: {*names.get(name, ())} for name in (*names, *MORE_NAMES)}
    for module, extra_names in MORE_NAMES.items():
        together[module].update(extra_names)
    sys.implementation._multiarch = "darwin"  # type: ignore[attr-defined]  # as on a Mac
    Removal(
        together,
        platform="darwin",
        changes={
            "posix": _change_posix,
            "resource": _change_resource,
            "ctypes": _change_ctypes,
            "ctypes.util": _change_ctypes_util,
            "socket": _change_socket,
            "platform": _change_platform,
            "psutil": change_psutil,
        },
        exempt=_OF_LINUX,
    ).install()


def _change_posix(posix: Any) -> None:
    node = posix.uname().nodename
    system = posix.uname_result(("Darwin", node, _RELEASE, _VERSION, _MACHINE))
    posix.uname = lambda: system
    if "HAVE_FEXECVE" in posix._have_functions:
        posix._have_functions.remove("HAVE_FEXECVE")  # os.supports_fd is made from it


def _change_resource(resource: Any) -> None:
    set_limit = resource.setrlimit
    refused = {resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK}

    def setrlimit(kind: int, limits: tuple[int, int]) -> None:
        # macOS answers EINVAL, which Python's resource tells of so, whatever the limits are:
        # https://github.com/python/cpython/issues/78783
        if kind in refused:
            raise ValueError("current limit exceeds maximum limit")
        set_limit(kind, limits)

    resource.setrlimit = setrlimit


def _change_ctypes(ctypes: Any) -> None:
    find_function = ctypes.CDLL.__getitem__

    def __getitem__(self: Any, name: Any) -> Any:
        if name in _LINUX_FUNCTIONS and self._name is None:
            raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
        return find_function(self, name)

    ctypes.CDLL.__getitem__ = __getitem__  # which __getattr__ asks


def _change_ctypes_util(util: Any) -> None:
    util.find_library = lambda name: None  # the libraries here are not macOS's


def _change_socket(socket: Any) -> None:
    bind, connect = socket.socket.bind, socket.socket.connect

    def check(sock: Any, address: Any) -> None:
        if sock.family == socket.AF_UNIX:
            path = address.encode() if isinstance(address, str) else bytes(address)
            if len(path) > _MAX_SOCKET_PATH:
                raise OSError("AF_UNIX path too long")
            if path.startswith(b"\0"):  # Linux's abstract addresses are no files
                raise FileNotFoundError(2, "No such file or directory")

    def checked_bind(self: Any, address: Any, /) -> None:
        check(self, address)
        bind(self, address)

    def checked_connect(self: Any, address: Any, /) -> None:
        check(self, address)
        connect(self, address)

    socket.socket.bind, socket.socket.connect = checked_bind, checked_connect


def _change_platform(platform: Any) -> None:
    # As sys.platform, which is the real one for packages that are Linux's.
    platform.system = lambda: "Darwin" if sys.platform == "darwin" else "Linux"
    # What it reads from a file of macOS; pip and others choose files by it.
    platform.mac_ver = lambda *_, **__: (_MACOS, ("", "", ""), _MACHINE)
