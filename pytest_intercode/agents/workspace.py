"""A copy of the task's directory on this machine, for an agent whose program edits local files.

Each episode has its own folder. Changes in the sandbox are copied out into it, and the program's
changes are copied in: only what has changed, as one archive. Both sides are compared with their
last common state, so no change that was made on only one side is lost; if both sides have changed
a file, the program's version stays.

Neither side is trusted. Links that lead out of the folder, devices and pipes are not copied, and
links are not followed. A program on this machine may run git in the folder, and git runs commands
that its settings name, so git settings and hooks that the sandbox changes stay in the sandbox.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_intercode.agents.agent_environment import AgentEnvironment, copy_files
from pytest_intercode.agents.arguments import find_folder
from pytest_intercode.agents.workspace_changes import (
    RACY_SECONDS,
    Entry,
    Kind,
    digest,
    is_guarded,
    open_changes,
)
from pytest_intercode.core.task import TaskView
from pytest_intercode.environments.access import MAX_BYTES, MAX_ENTRIES, remove_links_out
from pytest_intercode.errors import AgentError, BudgetExhausted
from pytest_intercode.system.archives import add_entry
from pytest_intercode.system.private_folder import PrivateFolder

if TYPE_CHECKING:
    from pytest_intercode.environments.shell import ShellEnvironment

__all__ = ["ARGUMENT", "Workspace", "Workspaces"]

Result = TypeVar("Result")

ARGUMENT = "workspace"
"""The argument of agents that can have a workspace."""

_CALLER = f"{ARGUMENT}=..."  # in messages
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_NAMES = 10  # in the log


class Workspaces:
    """Makes the workspaces of an agent's episodes.

    Args:
        value: the argument's value: ``yes``, ``no``, or a folder in which the workspaces are kept;
            None if it is not given.
        folder: where a relative path starts.

    Raises:
        AgentLoadError: there is no such folder.
    """

    def __init__(self, value: str | None, folder: Path) -> None:
        self.enabled = value is not None and value != "no"
        name = value if self.enabled and value != "yes" else None
        self._parent = find_folder(ARGUMENT, name, folder)
        self._private: PrivateFolder | None = None

    def open(self, task: TaskView, env: AgentEnvironment) -> Workspace | None:
        """Return a copy of the task's directory, or None if none is requested.

        Raises:
            AgentError: the task's directory is the whole sandbox, or it is too large.
        """
        if not self.enabled:
            return None
        if task.workdir == "/":
            raise AgentError(
                f"{_CALLER}: the task's directory is the whole sandbox (/), which is not "
                "copied: its suite can name a workdir"
            )
        if self._parent is None:
            self._private = self._private or PrivateFolder()
            folder = self._private.make()
            folder.chmod(0o700)
        else:
            name = _UNSAFE.sub("-", task.id)[:60]
            folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._parent))
        workspace = Workspace(env, folder, keep=self._parent is not None)
        try:
            workspace.pull()
        except BaseException:
            workspace.close()
            raise
        return workspace

    def close(self) -> None:
        """Remove the workspaces that are not kept."""
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
        self._keep = keep
        self._since = ""
        self._base: dict[str, Entry] = {}  # the last common state of both sides
        self._sandbox_only: set[str] = set()  # names that only the sandbox can have
        self._inodes: dict[str, bytes] = {}
        self._digests: dict[str, tuple[tuple[int, ...], bytes]] = {}

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables for the program that runs in the workspace."""
        return {"INTERCODE_WORKSPACE": str(self.folder), "PWD": str(self.folder)}

    def pull(self) -> None:
        """Copy out what has changed in the sandbox.

        Raises:
            AgentError: the changes are too large, or cannot be read.
            BudgetExhausted: the episode is over.
        """
        if not self._pull(self._since or "0", whole=not self._since):
            # A folder was renamed: the files in it have new names, but their old times.
            self._pull("0", whole=True)

    def _pull(self, since: str, *, whole: bool) -> bool:
        """Copy out what has changed since a time; return whether nothing was missing.

        Args:
            since: a time on the sandbox's clock.
            whole: whether the sandbox sends everything, so that what is missing cannot be copied.
        """
        first = not self._since
        reply = self._act(lambda shell: shell.changed_files(since))
        with open_changes(reply) as changes:
            local_entries = self._scan()
            self._remove(self._base.keys() - changes.inodes.keys(), local_entries)
            # Folders are sorted before their content.
            for name, (entry, member) in sorted(changes.entries.items()):
                base = self._base.get(name)
                if entry == base and entry is not None:
                    continue
                guarded = entry is not None and not first and is_guarded(name, entry)
                if entry is None or (guarded and base is None):
                    self._sandbox_only.add(name)
                elif not guarded and self._write(
                    changes.archive, name, entry, member, local_entries
                ):
                    local_entries[name] = self._base[name] = entry
                    self._sandbox_only.discard(name)
            # Check earlier links as well: other changes may make one lead out of the folder.
            links = (name for name, entry in self._base.items() if entry.kind == "link")
            for path in remove_links_out([self.folder / name for name in links], self.folder):
                name = str(path.relative_to(self.folder))
                del self._base[name]
                self._sandbox_only.add(name)
        missing = {
            name
            for name, inode in changes.inodes.items()
            if name not in changes.entries and inode != self._inodes.get(name)
        }
        self._inodes = changes.inodes
        self._since = changes.since
        self._sandbox_only &= changes.inodes.keys()
        if whole:
            self._sandbox_only |= missing - self._base.keys()
        return not missing or whole

    def push(self) -> None:
        """Copy in what the program has changed.

        Raises:
            AgentError: the changes are too large, or the task's user may not write them.
            BudgetExhausted: the episode is over.
        """
        local_entries = self._scan()
        changed = sorted(
            name for name, entry in local_entries.items() if self._base.get(name) != entry
        )
        gone = [name for name in self._base if name not in local_entries]
        if not changed and not gone:
            return
        replaced = [name for name in changed if self._replaces_kind(name, local_entries[name])]
        removed = _outermost({*gone, *replaced})
        archive, packed = self._pack(changed, local_entries)
        names = [os.fsencode(name) for name in removed]
        self._act(lambda shell: shell.apply_changes(archive, names))
        self._env.log(f"[{_summary(sorted(packed), sorted(gone))}]\n")
        for name in gone:
            del self._base[name]
        self._base |= packed
        self._sandbox_only -= {*packed, *replaced}

    def push_last(self) -> None:
        """Copy in the program's last changes, unless the episode is already over.

        Raises:
            AgentError: they cannot be copied in, and the episode is not over.
        """
        try:
            self.push()
        except BudgetExhausted:
            pass
        except AgentError:
            if not self._env.over:
                raise

    def close(self) -> None:
        """Remove the folder unless it is kept."""
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _act(self, copy: Callable[[ShellEnvironment], Result]) -> Result:
        return copy_files(self._env, _CALLER, copy)

    # -- this side

    def _scan(self) -> dict[str, Entry]:
        """Return the entries of the folder; links are not followed."""
        current_time, entries = time.time_ns(), dict[str, Entry]()
        digests: dict[str, tuple[tuple[int, ...], bytes]] = {}
        pending = [""]
        while pending:
            folder = pending.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for directory_entry in self._entries(folder):
                    name = f"{folder}{directory_entry.name}"
                    if len(entries) >= MAX_ENTRIES:
                        raise AgentError(
                            f"workspace: it has more than {MAX_ENTRIES:,} files and folders"
                        )
                    with contextlib.suppress(OSError):  # it has just been replaced or removed
                        status = directory_entry.stat(follow_symlinks=False)
                        entry = self._entry(name, status, digests, current_time)
                        if entry is None:
                            continue  # a pipe or the like
                        entries[name] = entry
                        if entry.kind == "folder":
                            pending.append(f"{name}/")
        self._digests = digests
        return entries

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
        current_time: int,
    ) -> Entry | None:
        path = self.folder / name
        if stat.S_ISLNK(status.st_mode):
            return Entry("link", 0, os.fsencode(os.readlink(path)))  # noqa: PTH115
        kind: Kind
        if stat.S_ISDIR(status.st_mode):
            kind, content = "folder", b""
        elif stat.S_ISREG(status.st_mode):
            kind = "file"
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            cached, base = self._digests.get(name), self._base.get(name)
            try:
                content = cached[1] if cached and cached[0] == stamp else digest(_content(path))
            except PermissionError:
                if base is None:
                    return None
                content = base.content
            # A file that was just written may be written again within the same clock tick.
            if status.st_ctime_ns < current_time - RACY_SECONDS * 1e9:
                digests[name] = stamp, content
        else:
            return None
        base, mode = self._base.get(name), stat.S_IMODE(status.st_mode) & 0o777
        # The copy here may have bits that the sandbox's mode lacks.
        if base is not None and base.kind == kind and base.local_mode == mode:
            mode = base.mode
        return Entry(kind, mode, content)

    def _replaces_kind(self, name: str, entry: Entry) -> bool:
        base = self._base.get(name)
        return name in self._sandbox_only or (base is not None and base.kind != entry.kind)

    def _pack(
        self, names: list[str], local_entries: Mapping[str, Entry]
    ) -> tuple[bytes, dict[str, Entry]]:
        """Return an archive of what the program has changed, and the entries in it."""
        buffer, packed, room = io.BytesIO(), dict[str, Entry](), MAX_BYTES
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name in names:
                entry, data = local_entries[name], b""
                content: bytes | str | None = None
                if entry.kind == "link":
                    content = os.fsdecode(entry.content)
                elif entry.kind != "folder":
                    try:
                        data = content = _content(self.folder / name)
                    except OSError:
                        continue  # it has just been replaced; the next push checks it again
                    entry = Entry("file", entry.mode, digest(data))
                room -= len(data)
                if room < 0:
                    raise AgentError(
                        f"workspace: more than {MAX_BYTES // 1024**2} MiB have changed at once"
                    )
                add_entry(archive, f"./{name}", content, entry.mode, mtime=int(time.time()))
                packed[name] = entry
        return buffer.getvalue(), packed

    # -- what comes from the sandbox

    def _remove(self, names: set[str], local_entries: dict[str, Entry]) -> None:
        """Remove what the sandbox has removed, except what the program has changed."""
        for name in sorted(names, reverse=True):  # the content of a folder comes before the folder
            unchanged = local_entries.get(name) == self._base.pop(name)
            if unchanged and self._clear(self.folder / name):
                del local_entries[name]

    def _write(
        self,
        archive: tarfile.TarFile,
        name: str,
        entry: Entry,
        member: tarfile.TarInfo,
        local_entries: Mapping[str, Entry],
    ) -> bool:
        """Write an entry unless the program has changed it; return whether it is now present."""
        parent, path = posixpath.dirname(name), self.folder / name
        local, local_parent = local_entries.get(name), local_entries.get(parent)
        if parent and (local_parent is None or local_parent.kind != "folder"):
            return False
        if local == entry:
            return True
        if local != self._base.get(name):
            return False
        try:
            if entry.kind == "folder" and local is not None and local.kind == "folder":
                path.chmod(entry.local_mode)
                return True
            if not self._clear(path):
                return False
            if entry.kind == "folder":
                path.mkdir(0o700)
            elif entry.kind == "link":
                path.symlink_to(os.fsdecode(entry.content))
                return True
            else:
                content = archive.extractfile(member)
                assert content is not None
                with content, path.open("xb") as file:
                    shutil.copyfileobj(content, file)
            path.chmod(entry.local_mode)
        except OSError as error:
            raise AgentError(f"workspace: {name!r:.100}: {error.strerror}") from None
        return True

    def _clear(self, path: Path) -> bool:
        """Remove what is at a path; a folder only if it is empty."""
        try:
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
        except OSError:
            return False
        return True


def _content(path: Path) -> bytes:
    """Return the content of a file; anything may replace the file at any moment."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(path)
        data = file.read(MAX_BYTES + 1) if status.st_size <= MAX_BYTES else b""
    if status.st_size > MAX_BYTES or len(data) > MAX_BYTES:
        raise AgentError(f"workspace: {path.name!r:.80} has more than {MAX_BYTES // 1024**2} MiB")
    return data


def _outermost(names: set[str]) -> list[str]:
    """Return the names that are not inside a folder that is also among the names."""
    outermost: list[str] = []
    for name in sorted(names):
        parents = (name[:index] for index, character in enumerate(name) if character == "/")
        if not any(parent in names for parent in parents):
            outermost.append(name)
    return outermost


def _summary(changed: list[str], gone: list[str]) -> str:
    parts = [
        f"{verb} {', '.join(names[:_MAX_NAMES])}"
        + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")
        for verb, names in (("changed", changed), ("removed", gone))
        if names
    ]
    return f"workspace: {'; '.join(parts)}"
