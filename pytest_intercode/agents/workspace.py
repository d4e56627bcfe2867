"""A copy of the task's directory on this machine, for an agent whose program edits local files.

Each episode has a folder of its own. What has changed in the sandbox is carried out into it, and
what the program has changed there is carried in: only what changed, as one archive. Both sides are
compared with what they last had in common, so nothing that only one of them has changed is lost;
where both have changed a file, the program's stays.

Neither side is trusted. Links that lead out of the folder, devices and pipes are not copied, and no
link is followed. A program on this machine may run git in the folder, which runs what its settings
name, so settings and hooks of git that the sandbox changes stay in the sandbox.
"""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import re
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from pytest_intercode.agents.agent_environment import AgentEnvironment, folder_access
from pytest_intercode.agents.arguments import find_folder
from pytest_intercode.core.private_folder import PrivateFolder
from pytest_intercode.core.task import TaskView
from pytest_intercode.environments.access import MAX_BYTES, MAX_ENTRIES, remove_links_out
from pytest_intercode.errors import AgentError, BudgetExhausted

__all__ = ["ARGUMENT", "Workspace", "Workspaces"]

ARGUMENT = "workspace"
"""The argument of agents that have one."""

# Some file systems take upper case and lower case for the same.
_GIT = re.compile(
    r"(?:.*/)?\.git/(?:.*/)?(?:config(?:\.worktree)?|commondir|gitdir|hooks(?:/.*)?)", re.IGNORECASE
)
_IN_GIT = re.compile(r"(?:.*/)?\.git/.*", re.IGNORECASE)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_RACY = 0.05  # seconds in which a file may change without another time
_SHOWN = 10  # names in the log

_Kind = Literal["file", "folder", "link"]


@dataclass(frozen=True)
class _Entry:
    """What stands at a name: a file's content by its digest, a link's by its target."""

    kind: _Kind
    mode: int = 0
    content: bytes = b""

    @property
    def local_mode(self) -> int:
        """The mode that it has here, where the program is to read and change it."""
        return self.mode | (0o700 if self.kind == "folder" else 0o600)


class Workspaces:
    """Makes the workspaces of an agent's episodes.

    Args:
        value: of the argument: ``yes``, or a folder in which the workspaces stay; None for none.
        folder: where a relative path starts.

    Raises:
        AgentLoadError: there is no such folder.
    """

    def __init__(self, value: str | None, folder: Path) -> None:
        self.asked = value is not None and value != "no"
        kept = value if self.asked and value != "yes" else None
        self._kept = find_folder(ARGUMENT, kept, folder)
        self._private: PrivateFolder | None = None

    def open(self, task: TaskView, env: AgentEnvironment) -> Workspace | None:
        """Return a copy of the task's directory, where one is asked for.

        Raises:
            AgentError: the task has no directory of its own, or it is too large.
        """
        if not self.asked:
            return None
        if task.workdir == "/":
            raise AgentError(
                f"{ARGUMENT}=...: the task's directory is the whole sandbox (/), which is not "
                "copied: its suite can name a workdir"
            )
        if self._kept is None:
            self._private = self._private or PrivateFolder()
            folder = self._private.make()
            folder.chmod(0o700)
        else:
            name = _UNSAFE.sub("-", task.id)[:60]
            folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._kept))
        made = Workspace(env, folder, keep=self._kept is not None)
        try:
            made.pull()
        except BaseException:
            made.close()
            raise
        return made

    def close(self) -> None:
        """Remove what is not kept."""
        if self._private is not None:
            self._private.close()


class Workspace:
    """The copy of one episode; used on the agent's thread.

    Args:
        env: the episode.
        folder: an empty folder.
        keep: whether it stays at the end.

    Attributes:
        folder: the copy.
    """

    def __init__(self, env: AgentEnvironment, folder: Path, *, keep: bool) -> None:
        self.folder = folder
        self._env = env
        self._access = folder_access(env)
        self._keep = keep
        self._since = ""
        self._base: dict[str, _Entry] = {}  # what both sides had in common last
        self._elsewhere: set[str] = set()  # what only the sandbox can have
        self._inodes: dict[str, bytes] = {}
        self._digests: dict[str, tuple[tuple[int, ...], bytes]] = {}

    @property
    def variables(self) -> dict[str, str]:
        """Variables for the program that runs in it."""
        return {"INTERCODE_WORKSPACE": str(self.folder), "PWD": str(self.folder)}

    def pull(self) -> None:
        """Carry out what has changed in the sandbox.

        Raises:
            AgentError: it is too large, or cannot be read.
            BudgetExhausted: the episode is over.
        """
        if not self._pull(self._since or "0", whole=not self._since):
            # A folder was renamed: what is in it is as old as before.
            self._pull("0", whole=True)

    def _pull(self, since: str, *, whole: bool) -> bool:
        """Carry out what has changed since a time; return whether that was all.

        Args:
            since: a time of the sandbox.
            whole: everything is there that can be, so what is missing cannot.
        """
        first = not self._since
        said = self._access.changed_files(since)
        head, _, rest = said.partition(b"\0")
        with _reading(), tarfile.open(fileobj=io.BytesIO(_archive_in(rest))) as archive:
            found = _read(archive)
            # Without names, the archive holds everything.
            inodes = _inodes_in(rest) if head.startswith(b"some ") else dict.fromkeys(found, b"")
            here = self._look()
            self._remove(self._base.keys() - inodes.keys(), here)
            for name, (entry, member) in sorted(found.items()):  # folders before what is in them
                known = self._base.get(name)
                if entry == known and entry is not None:
                    continue
                guarded = entry is not None and not first and _is_guarded(name, entry)
                if entry is None or (guarded and known is None):
                    self._elsewhere.add(name)
                elif not guarded and self._write(archive, name, entry, member, here):
                    here[name] = self._base[name] = entry
                    self._elsewhere.discard(name)
            # Of those that were here before, too, one may lead out by what has changed.
            links = (name for name, entry in self._base.items() if entry.kind == "link")
            for place in remove_links_out([self.folder / name for name in links], self.folder):
                name = str(place.relative_to(self.folder))
                del self._base[name]
                self._elsewhere.add(name)
        missing = {
            name
            for name, inode in inodes.items()
            if name not in found and inode != self._inodes.get(name)
        }
        self._inodes = inodes
        self._since = _earlier(head)
        self._elsewhere &= inodes.keys()
        if whole:
            self._elsewhere |= missing - self._base.keys()
        return not missing or whole

    def push(self) -> None:
        """Carry in what the program has changed.

        Raises:
            AgentError: it is too large, or the task's user may not write it.
            BudgetExhausted: the episode is over.
        """
        here = self._look()
        changed = sorted(name for name, entry in here.items() if self._base.get(name) != entry)
        gone = [name for name in self._base if name not in here]
        if not changed and not gone:
            return
        replaced = [name for name in changed if self._is_another_kind(name, here[name])]
        removed = _outermost({*gone, *replaced})
        archive, sent = self._pack(changed, here)
        access_names = [os.fsencode(name) for name in removed]
        self._access.apply_changes(archive, access_names, _summary(sorted(sent), sorted(gone)))
        for name in gone:
            del self._base[name]
        self._base |= sent
        self._elsewhere -= {*sent, *replaced}

    def push_last(self) -> None:
        """Carry in what the program has left, where that still counts.

        Raises:
            AgentError: it cannot be carried in, and the episode is not over.
        """
        try:
            self.push()
        except BudgetExhausted:
            pass
        except AgentError:
            if not self._env.over:
                raise

    def close(self) -> None:
        """Remove the folder, if it is not kept."""
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- this side

    def _look(self) -> dict[str, _Entry]:
        """Return what stands in the folder; no link is followed."""
        now, found = time.time_ns(), dict[str, _Entry]()
        digests: dict[str, tuple[tuple[int, ...], bytes]] = {}
        pending = [""]
        while pending:
            folder = pending.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for each in self._entries(folder):
                    name = f"{folder}{each.name}"
                    if len(found) >= MAX_ENTRIES:
                        raise AgentError(
                            f"workspace: it has more than {MAX_ENTRIES:,} files and folders"
                        )
                    with contextlib.suppress(OSError):  # it has just been replaced
                        status = each.stat(follow_symlinks=False)
                        entry = self._entry(name, status, digests, now)
                        if entry is None:
                            continue  # a pipe or the like
                        found[name] = entry
                        if entry.kind == "folder":
                            pending.append(f"{name}/")
        self._digests = digests
        return found

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.folder / folder) as entries:
                return list(entries)
        except PermissionError:
            raise AgentError(f"workspace: the folder {folder!r:.100} cannot be read") from None

    def _entry(
        self,
        name: str,
        status: os.stat_result,
        digests: dict[str, tuple[tuple[int, ...], bytes]],
        now: int,
    ) -> _Entry | None:
        place = self.folder / name
        if stat.S_ISLNK(status.st_mode):
            return _Entry("link", 0, os.fsencode(os.readlink(place)))  # noqa: PTH115
        kind: _Kind
        if stat.S_ISDIR(status.st_mode):
            kind, content = "folder", b""
        elif stat.S_ISREG(status.st_mode):
            kind = "file"
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            known, base = self._digests.get(name), self._base.get(name)
            try:
                content = known[1] if known and known[0] == stamp else _digest(_content(place))
            except PermissionError:
                if base is None:
                    return None
                content = base.content
            if status.st_ctime_ns < now - _RACY * 1e9:
                digests[name] = stamp, content
        else:
            return None
        base, mode = self._base.get(name), stat.S_IMODE(status.st_mode) & 0o777
        if base is not None and base.kind == kind and base.local_mode == mode:
            mode = base.mode
        return _Entry(kind, mode, content)

    def _is_another_kind(self, name: str, entry: _Entry) -> bool:
        base = self._base.get(name)
        return name in self._elsewhere or (base is not None and base.kind != entry.kind)

    def _pack(
        self, names: list[str], here: Mapping[str, _Entry]
    ) -> tuple[bytes, dict[str, _Entry]]:
        """Return an archive of what the program has changed, and what is in it."""
        buffer, sent, room = io.BytesIO(), dict[str, _Entry](), MAX_BYTES
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name in names:
                entry, data = here[name], b""
                member = tarfile.TarInfo(f"./{name}")
                member.mode, member.mtime = entry.mode, int(time.time())
                if entry.kind == "folder":
                    member.type = tarfile.DIRTYPE
                elif entry.kind == "link":
                    member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(entry.content)
                else:
                    try:
                        data = _content(self.folder / name)
                    except OSError:
                        continue  # it has just been replaced, and is looked at again
                    entry = _Entry("file", entry.mode, _digest(data))
                    member.size = len(data)
                room -= len(data)
                if room < 0:
                    raise AgentError(
                        f"workspace: more than {MAX_BYTES // 1024**2} MiB have changed at once"
                    )
                archive.addfile(member, io.BytesIO(data))
                sent[name] = entry
        return buffer.getvalue(), sent

    # -- what comes from the sandbox

    def _remove(self, names: set[str], here: dict[str, _Entry]) -> None:
        """Remove what the sandbox has removed; what the program has changed stays."""
        for name in sorted(names, reverse=True):  # what is in a folder comes before the folder
            unchanged = here.get(name) == self._base.pop(name)
            if unchanged and self._clear(self.folder / name):
                del here[name]

    def _write(
        self,
        archive: tarfile.TarFile,
        name: str,
        entry: _Entry,
        member: tarfile.TarInfo,
        here: Mapping[str, _Entry],
    ) -> bool:
        """Write an entry, unless the program has changed the place; return whether it is there."""
        parent, place = posixpath.dirname(name), self.folder / name
        if parent and (parent not in here or here[parent].kind != "folder"):
            return False
        if here.get(name) == entry:
            return True
        if here.get(name) != self._base.get(name):
            return False
        try:
            if entry.kind == "folder" and name in here and here[name].kind == "folder":
                place.chmod(entry.local_mode)
                return True
            if not self._clear(place):
                return False
            if entry.kind == "folder":
                place.mkdir(0o700)
            elif entry.kind == "link":
                place.symlink_to(os.fsdecode(entry.content))
                return True
            else:
                content = archive.extractfile(member)
                assert content is not None
                with content, place.open("xb") as file:
                    shutil.copyfileobj(content, file)
            place.chmod(entry.local_mode)
        except OSError as error:
            raise AgentError(f"workspace: {name!r:.100}: {error.strerror}") from None
        return True

    def _clear(self, place: Path) -> bool:
        """Remove what stands at a place; a folder only if it is empty."""
        try:
            if place.is_dir() and not place.is_symlink():
                place.rmdir()
            else:
                place.unlink(missing_ok=True)
        except OSError:
            return False
        return True


def _read(archive: tarfile.TarFile) -> dict[str, tuple[_Entry | None, tarfile.TarInfo]]:
    """Return what an archive holds; None for what cannot be here."""
    found: dict[str, tuple[_Entry | None, tarfile.TarInfo]] = {}
    room = MAX_BYTES
    for count, member in enumerate(archive):
        name = posixpath.normpath(member.name)
        if name.startswith(("/", "../")) or name == "..":
            raise AgentError(f"workspace: the name {member.name!r:.80} leads elsewhere")
        room -= max(0, member.size)
        if room < 0 or member.size < 0 or count >= MAX_ENTRIES:
            raise AgentError(
                f"workspace: the task's directory has more than {MAX_BYTES // 1024**2} MiB or "
                f"{MAX_ENTRIES:,} files"
            )
        if name == ".":
            continue
        entry: _Entry | None = None
        mode = member.mode & 0o777
        if member.islnk():  # a further name of a file: a copy here
            first, of = found.get(posixpath.normpath(member.linkname), (None, member))
            if first is not None and first.kind == "file":
                room -= of.size
                entry, member = first, of
        elif member.isdir():
            entry = _Entry("folder", mode)
        elif member.issym():
            entry = _Entry("link", 0, os.fsencode(member.linkname))
        elif member.isreg():
            content = archive.extractfile(member)
            assert content is not None
            with content:
                data = content.read()
            if len(data) != member.size:
                raise tarfile.ReadError("a file has an early end")
            entry = _Entry("file", mode, _digest(data))
        found[name] = entry, member
    return found


def _archive_in(rest: bytes) -> bytes:
    """Return the archive behind the names."""
    end = 0 if rest.startswith(b"\0") else rest.find(b"\0\0") + 1
    return rest[end + 1 :] or b"\0" * 1024  # an empty archive


def _inodes_in(rest: bytes) -> dict[str, bytes]:
    """Return the numbers of the inodes of all names."""
    end = 0 if rest.startswith(b"\0") else rest.find(b"\0\0") + 1
    pairs = (each.partition(b" ") for each in rest[:end].split(b"\0")[:-1])
    return {posixpath.normpath(os.fsdecode(name)): inode for inode, _, name in pairs}


def _is_guarded(name: str, entry: _Entry) -> bool:
    """Whether git may run what this names, so that it is not carried out of the sandbox."""
    last = posixpath.basename(name).lower()
    pointer = last == ".git" and entry.kind != "folder"
    # Any folder with a HEAD may be a bare repository, with settings of its own.
    bare = last == "head" and _IN_GIT.fullmatch(name) is None
    return pointer or bare or _GIT.fullmatch(name) is not None


def _earlier(head: bytes) -> str:
    """Return the time from which changes are asked for next: a little before the last look."""
    try:
        return f"{max(0.0, float(head.partition(b' ')[2]) - _RACY):.6f}"
    except ValueError:
        return "0"


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, ValueError, EOFError, OverflowError) as error:
        raise AgentError(f"workspace: the task's directory cannot be read: {error}") from None


def _content(place: Path) -> bytes:
    """Return the content of a file, which may be replaced by anything at any moment."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(place)
        data = file.read(MAX_BYTES + 1) if status.st_size <= MAX_BYTES else b""
    if status.st_size > MAX_BYTES or len(data) > MAX_BYTES:
        raise AgentError(f"workspace: {place.name!r:.80} has more than {MAX_BYTES // 1024**2} MiB")
    return data


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=20).digest()


def _outermost(names: set[str]) -> list[str]:
    """Return the names that are not in a folder that is among them."""
    found: list[str] = []
    for name in sorted(names):
        parents = (name[:at] for at, each in enumerate(name) if each == "/")
        if not any(parent in names for parent in parents):
            found.append(name)
    return found


def _summary(changed: list[str], gone: list[str]) -> str:
    said = [
        f"{what} {', '.join(names[:_SHOWN])}"
        + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        for what, names in (("changed", changed), ("removed", gone))
        if names
    ]
    return f"workspace: {'; '.join(said)}"
