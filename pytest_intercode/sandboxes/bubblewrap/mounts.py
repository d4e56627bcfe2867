"""Mounts in the starter's namespace: the kernel's calls, and the trees that all sandboxes share.

bubblewrap takes a tree with all its mounts in one step; made from their parts, each part would
take it several, and a look at the list of all mounts for each.

Its text is sent to the starter, so it imports the standard library alone.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

__all__ = [
    *("NODEV", "NOSUID", "PRIVATE", "Trees"),
    *("detach_needless", "mount", "unmount", "unshare_mounts"),
]

RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
BIND, RECURSIVE = 4096, 16384
PRIVATE = RECURSIVE | 1 << 18

_REMOUNT = 32

_CLONE_NEWNS = 0x20000
_DETACH = 2
# What no sandbox is made of, wherever it is.
_NEEDLESS = (
    *("autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts"),
    *("efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "pstore", "rpc_pipefs", "securityfs"),
    "tracefs",
)
_SEALED = RDONLY | NOSUID | NODEV
_DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
_OWN = ("pts", "shm")
_LINKS = {
    "core": "/proc/kcore",
    "fd": "/proc/self/fd",
    "ptmx": "pts/ptmx",
    **{
        name: f"/proc/self/fd/{number}" for number, name in enumerate(("stdin", "stdout", "stderr"))
    },
}
_LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Do what the call of this name does; raise OSError if it fails."""
    words = [os.fsencode(word) if word else None for word in (source, target, kind)]
    if _LIBC.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{kind or 'mount'} on {target}: {os.strerror(number)}")


def unmount(path: str) -> None:
    """Unmount what is mounted there, if anything, with all that is mounted in it."""
    _LIBC.umount2(os.fsencode(path), _DETACH)


def harden(path: str, flags: int) -> None:
    """Add flags to a mount's own."""
    # What it has may not be taken away, and these have the same numbers in both calls.
    flags |= os.statvfs(path).f_flag & (RDONLY | NOSUID | NODEV | NOEXEC)
    mount("none", path, "", _REMOUNT | BIND | flags)


def unshare_mounts() -> None:
    """Have a mount namespace of our own from here on."""
    if _LIBC.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "no mount namespace can be made")


def detach_needless() -> None:
    """Unmount what no sandbox needs, as bubblewrap often reads the list of all mounts."""
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    for line in reversed(lines):
        words, _, rest = line.partition(b" - ")
        if rest.split()[0].decode() in _NEEDLESS:
            # A space in it is written \040; what cannot be found so stays.
            _LIBC.umount2(words.split()[4], _DETACH)


class Trees:
    """What all sandboxes share, mounted once below a folder of the starter's.

    Attributes:
        words: the place of each, by its word in a sandbox's command: ``{dev}``, the devices;
            ``{null}`` and ``{empty}``, an empty file and folder; and those of :meth:`share`.
    """

    def __init__(self, base: str) -> None:
        self._base = Path(base)
        self._dev = self._place("dev")
        self.words = {"{dev}": self._dev, "{null}": f"{base}/null", "{empty}": self._place("empty")}
        mount("tmpfs", self._dev, "tmpfs", NOSUID | NODEV, "mode=755")
        for name in _DEVICES:
            self._bind(f"/dev/{name}", f"{self._dev}/{name}", NOSUID)
        for name in _OWN:
            Path(self._dev, name).mkdir()
        for name, target in _LINKS.items():
            Path(self._dev, name).symlink_to(target)
        harden(self._dev, _SEALED)
        self._bind("/dev/null", self.words["{null}"], _SEALED)
        mount("tmpfs", self.words["{empty}"], "tmpfs", _SEALED, "mode=755")

    def share(self, path: str, covered: list[str]) -> None:
        """Share a folder of the host's, read-only, with some folders in it covered.

        Its word is its path in braces.
        """
        place = self._place(f"shared{len(self.words)}")
        mount(path, place, "", BIND | RECURSIVE)
        harden(place, _SEALED)
        for each in covered:
            mount("tmpfs", place + each.removeprefix(path), "tmpfs", _SEALED, "mode=755")
        self.words[f"{{{path}}}"] = place

    def mount_own(self, shm: int) -> None:
        """Mount what of ``{dev}`` is each sandbox's own; ``shm`` is bytes of shared memory."""
        options = "newinstance,ptmxmode=0666,mode=620"
        mount("devpts", f"{self._dev}/pts", "devpts", NOSUID | NOEXEC, options)
        # bubblewrap itself can give memory a size since 0.7 only, and Ubuntu 22.04 has 0.6.
        mount("tmpfs", f"{self._dev}/shm", "tmpfs", NOSUID | NODEV, f"size={shm},mode=1777")

    def unmount_own(self) -> None:
        """Take away what :meth:`mount_own` has mounted."""
        for name in _OWN:
            unmount(f"{self._dev}/{name}")

    def _place(self, name: str) -> str:
        place = self._base / name
        place.mkdir()
        return str(place)

    @staticmethod
    def _bind(path: str, place: str, flags: int) -> None:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        mount(path, place, "", BIND)
        harden(place, flags)
