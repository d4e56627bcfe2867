"""The system that a sandbox sees when no other is given: those parts of the host's that are listed.

``/usr`` is the host's own, read-only. What else there is, is ours: empty folders, and of ``/etc``
the files on a list that everybody may read. Users and groups are those that every Debian has.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from pytest_intercode.core.archives import add_entry

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

# What programs look for in /etc, and nothing that holds names, addresses, keys or passwords.
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
    """Return all of the system but ``/usr`` as a tar archive, and name servers for a network."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, mode in _FOLDERS.items():
            add_entry(archive, name, None, mode)
        links = dict(_LINKS)
        for name in _MERGED:
            if Path("/", name).is_symlink():
                links[name] = str(Path("/", name).readlink())
            elif Path("/", name).is_dir():
                add_entry(archive, name, None, 0o755)
        for name, target in links.items():
            add_entry(archive, name, target, 0o777)
        for path in _readable(_ETC):
            _copy(archive, path)
        for name, text, mode, group in _accounts():
            add_entry(archive, f"etc/{name}", text.encode(), mode, owner=(0, group))
        add_entry(archive, "etc/hostname", b"")
        add_entry(archive, "etc/hosts", b"127.0.0.1\tlocalhost\n::1\tlocalhost\n")
        resolver = Path("/etc/resolv.conf")
        servers = resolver.read_bytes() if network and resolver.is_file() else b""
        add_entry(archive, "etc/resolv.conf", servers)
    return buffer.getvalue()


def shared(hidden: Iterable[str]) -> dict[str, list[str]]:
    """Return the folders that are shared with the host, and which hidden folders are in each."""
    names = (name for name in _MERGED if Path("/", name).is_dir())
    folders = ["/usr", *(f"/{name}" for name in names if not Path("/", name).is_symlink())]
    covered: dict[str, list[str]] = {folder: [] for folder in folders}
    for path in sorted({os.path.realpath(folder) for folder in hidden}):
        for folder, inside in covered.items():
            if path.startswith(f"{folder}/") and Path(path).is_dir():
                inside.append(path)
    return covered


def _readable(names: Iterable[str]) -> Iterator[Path]:
    """Yield what of ``/etc`` is on the list and may be read by everybody, folders first."""
    for name in names:
        top = Path("/etc", name)
        if not os.path.lexists(top):
            continue
        yield from (parent for parent in reversed(top.parents) if parent.parent != parent)
        if top.is_symlink() or not top.is_dir():
            yield top
            continue
        for folder, inner, files in os.walk(top):
            inner.sort()
            yield Path(folder)
            links = [entry for entry in inner if Path(folder, entry).is_symlink()]
            yield from (Path(folder, entry) for entry in sorted([*files, *links]))


def _copy(archive: tarfile.TarFile, path: Path) -> None:
    name = str(path).lstrip("/")
    if name in archive.getnames() if path.is_dir() else False:
        return
    status = path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        add_entry(archive, name, str(path.readlink()), mode)
    elif stat.S_ISDIR(status.st_mode):
        add_entry(archive, name, None, mode)
    elif (
        stat.S_ISREG(status.st_mode) and status.st_mode & 0o004 and status.st_size <= _MAX_FILE_SIZE
    ):
        add_entry(archive, name, path.read_bytes(), mode)


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
