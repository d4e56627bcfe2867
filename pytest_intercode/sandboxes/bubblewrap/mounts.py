"""Mounts: the kernel's calls, and the trees of the starter that all sandboxes share.

A path in a sandbox's root may be a link that an image, or something that ran in it, has left. It is
resolved in that root (openat2), never in ours.

The text of this module is sent to the starter, so it imports only the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from pathlib import Path

if sys.platform != "linux":
    raise ImportError("bubblewrap runs on Linux only")

__all__ = [
    *("BIND", "NODEV", "NOEXEC", "NOSUID", "PRIVATE", "RDONLY", "RECURSIVE", "Trees"),
    *("detach_needless", "enter_root", "mount", "mount_in", "open_in_root", "seal", "unmount"),
]

RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
BIND, RECURSIVE = 4096, 16384
PRIVATE = RECURSIVE | 1 << 18

_DETACH, _REMOUNT = 2, 32
# The same numbers on all machines.
_OPENAT2, _MOUNT_SETATTR = 437, 442
_NO_MAGIC, _IN_ROOT = 0x02, 0x10
_EMPTY_PATH, _WHOLE_TREE = 0x1000, 0x8000
# File systems that no sandbox needs, wherever they are mounted.
_NEEDLESS = (
    *("autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts"),
    *("efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "pstore", "rpc_pipefs", "securityfs"),
    "tracefs",
)
_SEALED = RDONLY | NOSUID | NODEV
_DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
_LINKS = {
    "core": "/proc/kcore",
    "fd": "/proc/self/fd",
    "ptmx": "pts/ptmx",
    **{
        name: f"/proc/self/fd/{number}" for number, name in enumerate(("stdin", "stdout", "stderr"))
    },
}
# The host's files in /proc that a sandbox's root could read or write, because old code of the
# kernel takes it for the host's root.
_COVERED_FILES = ("kcore", "keys", "latency_stats", "sched_debug", "sysrq-trigger", "timer_list")
_COVERED_FOLDERS = ("acpi", "asound", "scsi")
_READONLY = ("bus", "driver", "fs", "irq", "sys")
_LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Call the kernel's ``mount``; raise OSError if it fails."""
    words = [os.fsencode(word) if word else None for word in (source, target, kind)]
    if _LIBC.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{kind or source} on {target}: {os.strerror(number)}")


def unmount(path: str) -> None:
    """Unmount a mount, if there is one at the path, with all mounts in it."""
    _LIBC.umount2(os.fsencode(path), _DETACH)


def seal(path: str, flags: int, folder: int = -1) -> None:
    """Add flags to a mount, and to all mounts in it; no flag is removed.

    Args:
        path: the path of the mount; empty for the mount of a descriptor.
        flags: some of RDONLY, NOSUID, NODEV and NOEXEC.
        folder: the descriptor.
    """
    attributes = struct.pack("=4Q", flags, 0, 0, 0)  # the flags have the same numbers in this call
    lookup_flags = ctypes.c_long(_WHOLE_TREE | (0 if path else _EMPTY_PATH))
    call, size = ctypes.c_long(_MOUNT_SETATTR), ctypes.c_long(len(attributes))
    if (
        _LIBC.syscall(
            call, ctypes.c_long(folder), os.fsencode(path), lookup_flags, attributes, size
        )
        != 0
    ):
        number = ctypes.get_errno()
        raise OSError(number, f"mount_setattr (of Linux 5.12) on {path}: {os.strerror(number)}")


def open_in_root(root: int, path: str, folder: bool = True) -> int:
    """Return a descriptor (O_PATH) of a path in a sandbox's root; make it if it is missing.

    Args:
        root: a descriptor of the root. No link leads out of it.
        path: the absolute path in that root.
        folder: make a folder, and not a file.

    Raises:
        OSError: it does not exist and cannot be made.
    """
    path = path.rstrip("/") or "/"
    descriptor = _find_in_root(root, path)
    if descriptor is not None:
        return descriptor
    parent_path, _, name = path.rpartition("/")
    parent = open_in_root(root, parent_path)
    try:
        if folder:
            os.mkdir(name, 0o755, dir_fd=parent)
        else:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o644, dir_fd=parent))
    except OSError as error:
        number = error.errno or 0
        raise OSError(number, f"{path} in the sandbox: {os.strerror(number)}") from None
    finally:
        os.close(parent)
    descriptor = _find_in_root(root, path)
    if descriptor is None:
        raise OSError(0, f"{path} in the sandbox cannot be made")
    return descriptor


def _find_in_root(root: int, path: str) -> int | None:
    # Magic links such as /proc/self/root, which lead to a file and not to a path, are refused too.
    open_how = struct.pack("=3Q", os.O_PATH | os.O_CLOEXEC, 0, _IN_ROOT | _NO_MAGIC)
    call, size = ctypes.c_long(_OPENAT2), ctypes.c_long(len(open_how))
    arguments = call, ctypes.c_long(root), os.fsencode(path), open_how, size
    while True:
        descriptor = int(_LIBC.syscall(*arguments))
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number == errno.ENOENT:
            return None
        if number != errno.EAGAIN:  # else something was renamed or mounted, anywhere
            raise OSError(number, f"{path} in the sandbox: {os.strerror(number)}")


def mount_in(root: int, path: str, source: str, kind: str, flags: int, options: str = "") -> None:
    """Mount at a path in a sandbox's root; see :func:`open_in_root` and :func:`mount`."""
    target = open_in_root(root, path, folder=bool(kind) or Path(source).is_dir())
    try:
        mount(source, f"/proc/self/fd/{target}", kind, flags, options)
    except OSError as error:
        number = error.errno or 0
        message = f"{kind or source} on {path} in the sandbox: {os.strerror(number)}"
        raise OSError(number, message) from None
    finally:
        os.close(target)


def enter_root(root: int) -> None:
    """Make a mount the root of this process, and detach all other mounts."""
    os.fchdir(root)
    # The old root is then mounted on top of the new one, so that it needs no folder in there.
    if _LIBC.pivot_root(b".", b".") != 0 or _LIBC.umount2(b".", _DETACH) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the root cannot be changed: {os.strerror(number)}")
    os.chdir("/")


def detach_needless() -> None:
    """Unmount what no sandbox needs, as each sandbox begins with a copy of all mounts."""
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    # The last one first, as it may be mounted on top of another one at the same path.
    for line in reversed(lines):
        words, _, rest = line.partition(b" - ")
        if rest.split()[0].decode() in _NEEDLESS:
            # A space in the path is written as \040; a path that is not found for that reason
            # stays.
            _LIBC.umount2(words.split()[4], _DETACH)


class Trees:
    """The mounts that all sandboxes share, each mounted once below a folder of the starter.

    Attributes:
        shared: the folders of the host that sandboxes see, with the path of each mount.
    """

    def __init__(self, base: str) -> None:
        self._base = Path(base)
        self._count = 0
        self.shared: dict[str, str] = {}
        self._devices = self._new_folder()
        mount("tmpfs", self._devices, "tmpfs", NOSUID | NODEV, "mode=755")
        for name in _DEVICES:
            self._bind_file(f"/dev/{name}", f"{self._devices}/{name}", NOSUID)
        for name in ("pts", "shm"):
            Path(self._devices, name).mkdir()
        for name, target in _LINKS.items():
            Path(self._devices, name).symlink_to(target)
        # Only the flags of this mount, not of those in it: devices have to work as devices.
        mount("none", self._devices, "", _REMOUNT | BIND | _SEALED)
        null, empty = f"{base}/null", self._new_folder()
        self._bind_file("/dev/null", null, _SEALED)
        mount("tmpfs", empty, "tmpfs", _SEALED, "mode=755")
        covers = [(name, null) for name in _COVERED_FILES]
        covers += [(name, empty) for name in _COVERED_FOLDERS]
        covers += [
            (name, self._bind_sealed(f"/proc/{name}")) for name in _READONLY if _is_in_proc(name)
        ]
        self._covers = [(f"/proc/{name}", source) for name, source in covers if _is_in_proc(name)]

    def share(self, path: str, covered: list[str]) -> None:
        """Share a folder of the host, read-only, with some of its folders covered."""
        folder = self._bind_sealed(path)
        for covered_path in covered:
            target = folder + covered_path.removeprefix(path)
            mount("tmpfs", target, "tmpfs", _SEALED, "mode=755")
        self.shared[path] = folder

    def mount_in(self, root: int, shared: bool, shm: int) -> None:
        """Mount what a sandbox sees besides its own files.

        Args:
            root: a descriptor of its root.
            shared: also mount the folders of the host.
            shm: bytes of shared memory.
        """
        for path, source in self.shared.items() if shared else ():
            mount_in(root, path, source, "", BIND | RECURSIVE)
        mount_in(root, "/dev", self._devices, "", BIND | RECURSIVE)
        options = "newinstance,ptmxmode=0666,mode=620"
        mount_in(root, "/dev/pts", "devpts", "devpts", NOSUID | NOEXEC, options)
        options = f"size={shm},mode=1777"
        mount_in(root, "/dev/shm", "tmpfs", "tmpfs", NOSUID | NODEV, options)
        mount_in(root, "/proc", "proc", "proc", NOSUID | NODEV | NOEXEC)
        for path, source in self._covers:
            mount_in(root, path, source, "", BIND | RECURSIVE)

    def _new_folder(self) -> str:
        self._count += 1
        folder = self._base / f"tree{self._count}"
        folder.mkdir()
        return str(folder)

    def _bind_sealed(self, path: str) -> str:
        """Return the path of a mount of a host folder, read-only with all mounts in it."""
        folder = self._new_folder()
        mount(path, folder, "", BIND | RECURSIVE)
        seal(folder, _SEALED)
        return folder

    @staticmethod
    def _bind_file(path: str, target: str, flags: int) -> None:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        mount(path, target, "", BIND)
        seal(target, flags)


def _is_in_proc(name: str) -> bool:
    return Path("/proc", name).exists()
