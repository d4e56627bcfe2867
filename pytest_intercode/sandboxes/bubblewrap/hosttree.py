"""The system that a sandbox sees by default: some parts of the host's, which are listed here.

``/usr`` is the host's own, read-only. Everything else is made by us: empty folders, and those files
of ``/etc`` that are on a list and that every user may read. Users and groups are Debian's default
ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["shared", "skeleton"]

_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FOLDERS = {
    **dict.fromkeys(("boot", "dev", "etc", "etc/default", "home", "media", "mnt", "opt"), 0o755),
    **dict.fromkeys(("proc", "run", "srv", "sys", "usr", "var", "var/cache", "var/lib"), 0o755),
    **dict.fromkeys(("var/lib/misc", "var/log", "var/spool", "var/opt", "var/backups"), 0o755),
    **dict.fromkeys(("tmp", "var/tmp", "run/lock"), 0o1777),
    "root": 0o700,
    "var/local": 0o2775,
    "var/mail": 0o2775,
}
_LINKS = {"var/run": "/run", "var/lock": "/run/lock"}

# What programs look for in /etc; nothing with names, addresses, keys or passwords.
_ETC = (
    *("alternatives", "apt/apt.conf.d", "apt/preferences.d", "apt/trusted.gpg.d", "adduser.conf"),
    *("bash.bashrc", "bindresvport.blacklist", "ca-certificates", "ca-certificates.conf"),
    *("debconf.conf", "debian_version", "default/useradd", "default/locale", "deluser.conf"),
    *("dpkg", "ethertypes", "fonts", "gai.conf", "groff", "gss", "host.conf", "inputrc", "issue"),
    *("issue.net", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "john", "ld.so.cache"),
    *("ld.so.conf", "ld.so.conf.d", "libaudit.conf", "locale.alias", "locale.conf", "localtime"),
    *("login.defs", "lsb-release", "magic", "magic.mime", "mailcap", "manpath.config"),
    *("mime.types", "mke2fs.conf", "motd", "mysql", "netconfig", "networks", "nsswitch.conf"),
    *("os-release", "pam.conf", "pam.d", "perl", "profile", "protocols", "python3", "python3.10"),
    *("python3.11", "python3.12", "python3.13", "python3.14", "rmt", "rpc", "security"),
    *("selinux", "services", "shells", "skel", "ssl/certs", "ssl/openssl.cnf", "terminfo"),
    *("timezone", "xattr.conf"),
)
_MAX_FILE_SIZE = 4 * 1024**2
_PASSWORD = re.compile(rb"://[^\s/:@]*:[^\s/@]+@")  # in a URL, as in apt's settings for a proxy

_MASTERS = "/usr/share/base-passwd"
_PASSWD = """\
root:*:0:0:root:/root:/bin/bash
daemon:*:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:*:2:2:bin:/bin:/usr/sbin/nologin
sys:*:3:3:sys:/dev:/usr/sbin/nologin
mail:*:8:8:mail:/var/mail:/usr/sbin/nologin
www-data:*:33:33:www-data:/var/www:/usr/sbin/nologin
nobody:*:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
_GROUP = """\
root:*:0:
daemon:*:1:
bin:*:2:
sys:*:3:
adm:*:4:
tty:*:5:
mail:*:8:
www-data:*:33:
shadow:*:42:
utmp:*:43:
staff:*:50:
users:*:100:
nogroup:*:65534:
"""
_SHADOW_GROUP = 42


def skeleton(network: bool = False) -> bytes:
    """Return the whole system except ``/usr``, with name servers if it has a network.

    Returns:
        A line of JSON: a list of ``[path, mode, group, content]``, folders before their entries;
        ``content`` is None for a folder, the target of a link, or the length of a file. Then the
        bytes of the files, one after another. Each run waits for this, and a tar archive of a
        thousand entries, most of them links, takes four times as long to write and to unpack.
    """
    tree = _Tree()
    for name, mode in _FOLDERS.items():
        tree.add(name, None, mode)
    links = dict(_LINKS)
    for name in _MERGED:
        if Path("/", name).is_symlink():
            links[name] = str(Path("/", name).readlink())
        elif Path("/", name).is_dir():
            tree.add(name, None, 0o755)
    for name, target in links.items():
        tree.add(name, target, 0o777)
    for name in _ETC:
        tree.copy(f"etc/{name}")
    for name, text, mode, group in _accounts():
        tree.add(f"etc/{name}", text.encode(), mode, group)
    tree.add("etc/hostname", b"")
    tree.add("etc/hosts", b"127.0.0.1\tlocalhost\n::1\tlocalhost\n")
    resolver = Path("/etc/resolv.conf")
    servers = resolver.read_bytes() if network and resolver.is_file() else b""
    tree.add("etc/resolv.conf", servers)
    return b"".join([json.dumps(tree.entries).encode(), b"\n", *tree.contents])


class _Tree:
    """The entries of a skeleton so far."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int, int, str | int | None]] = []
        self.contents: list[bytes] = []
        self._folders: set[str] = set()

    def add(
        self, name: str, content: bytes | str | None, mode: int = 0o644, group: int = 0
    ) -> None:
        """Add a file with its bytes, a link with its target, or a folder (None)."""
        if content is None:
            self._folders.add(name)
        if isinstance(content, bytes):
            self.contents.append(content)
            self.entries.append((name, mode, group, len(content)))
        else:
            self.entries.append((name, mode, group, content))

    def copy(self, name: str) -> None:
        """Add an entry of the host's, if it exists and every user may read it.

        A folder is added with its entries, and after its parent folder. A file that contains a URL
        with a password is left out.
        """
        with contextlib.suppress(OSError):  # it is missing, is being replaced, or cannot be read
            self._copy(name, f"/{name}")

    def _copy(self, name: str, path: str) -> None:
        status = os.lstat(path)
        parent = os.path.dirname(name)
        if parent not in self._folders:
            self.add(parent, None, stat.S_IMODE(Path("/", parent).stat().st_mode))
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            self.add(name, os.readlink(path), mode)  # noqa: PTH115 -- there are hundreds
        elif stat.S_ISDIR(status.st_mode):
            self.add(name, None, mode)
            for entry in sorted(os.listdir(path)):  # noqa: PTH208 -- names alone
                self.copy(f"{name}/{entry}")
        elif stat.S_ISREG(status.st_mode) and mode & 0o004 and status.st_size <= _MAX_FILE_SIZE:
            content = Path(path).read_bytes()
            if not _PASSWORD.search(content):
                self.add(name, content, mode)


def shared(hidden: Iterable[str]) -> dict[str, list[str]]:
    """Return the folders that are shared with the host, and the hidden folders in each."""
    names = (name for name in _MERGED if Path("/", name).is_dir())
    folders = ["/usr", *(f"/{name}" for name in names if not Path("/", name).is_symlink())]
    covered: dict[str, list[str]] = {folder: [] for folder in folders}
    for path in sorted({os.path.realpath(folder) for folder in hidden}):
        for folder, inside in covered.items():
            # Inside a folder that is covered already, it does not exist any more.
            is_covered = any(path.startswith(f"{outer}/") for outer in inside)
            if path.startswith(f"{folder}/") and not is_covered and Path(path).is_dir():
                inside.append(path)
    return covered


def _accounts() -> Iterator[tuple[str, str, int, int]]:
    passwd, group = (
        path.read_text() if (path := Path(_MASTERS, f"{name}.master")).is_file() else text
        for name, text in (("passwd", _PASSWD), ("group", _GROUP))
    )
    users, groups = ([line.split(":")[0] for line in text.splitlines()] for text in (passwd, group))
    yield "passwd", passwd.replace(":*:", ":x:"), 0o644, 0
    yield "group", group.replace(":*:", ":x:"), 0o644, 0
    yield "shadow", "".join(f"{n}:*:19000:0:99999:7:::\n" for n in users), 0o640, _SHADOW_GROUP
    yield "gshadow", "".join(f"{n}:*::\n" for n in groups), 0o640, _SHADOW_GROUP
