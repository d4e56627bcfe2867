"""What an agent does in its sandbox besides its turns: commands in a shell of its own, and files.

Everything is done with the rights of the task's user. Data from a sandbox are not trusted: they are
read within limits, and are written nowhere but to the requested place.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import posixpath
import secrets
import shlex
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pytest_intercode.core.task import FileSpec
from pytest_intercode.errors import AgentError, CommandFailed, SandboxBroken
from pytest_intercode.sandboxes.protocol import Sandbox
from pytest_intercode.system.archives import pack_files

__all__ = [
    *("MAX_BYTES", "MAX_ENTRIES", "apply_changes", "as_user", "changed_files", "command_line"),
    *("content_of", "extract", "fetch", "put", "read_file", "remove_links_out", "write_file"),
]

MAX_BYTES = 256 * 1024**2
"""The most bytes that one copy carries in or out."""

MAX_ENTRIES = 100_000
"""The most files and folders that one copy carries in or out."""

_TIMEOUT = 120.0  # seconds for one copy

# Prints the names of everything in a folder, and an archive of what has changed in it since a time;
# of everything if a tool is not GNU's. It compares ctimes, which the agent's programs cannot set.
_CHANGED = """\
cd -- {path} || exit 1
if [[ $(tar --version 2>/dev/null) == *GNU* ]] && find . -prune -newerct @0 >/dev/null 2>&1; then
  printf 'some %s\\0' "$(date +%s.%N)"
  find . -mindepth 1 -printf '%i %P\\0' 2>/dev/null
  printf '\\0'
  find . -mindepth 1 -newerct @{since} -print0 2>/dev/null |
    tar --null --no-recursion -cf - -T - 2>/dev/null
else
  printf 'all\\0\\0'
  tar -cf - . 2>/dev/null
fi
:"""
_APPLY = """\
cd -- {path} || exit 1
while IFS= read -rd '' each; do rm -rf -- "$each" || exit 1; done <{staged}/removed
over=
[[ $(tar --version 2>/dev/null) == *GNU* ]] && over=--overwrite
tar -x -p -o -m $over -f {staged}/changes.tar"""


def as_user(command: str, user: str) -> str:
    """Return a shell command that runs another one as a user; as root if no user is given."""
    if not user:
        return command
    return f"runuser -u {shlex.quote(user)} -- bash -c {shlex.quote(command)}"


def command_line(command: str, cwd: str, user: str) -> str:
    """Return a line for the agent's shell that runs a command in a new bash.

    The state of the agent's shell does not change.

    Args:
        command: what the new bash runs.
        cwd: its working directory.
        user: its user, if that is not the shell's own user.
    """
    words = ["bash", "-c", command]
    if user:
        words = ["runuser", "-u", user, "--", *words]
    return f"( builtin cd -- {shlex.quote(cwd)} && builtin exec {shlex.join(words)} )"


def put(sandbox: Sandbox, path: Path, target: str, user: str) -> None:
    """Copy a file or a folder of this machine into a sandbox, replacing existing files.

    Args:
        sandbox: the sandbox.
        path: the file or folder.
        target: its absolute path in the sandbox; missing parent folders are created.
        user: who owns it there, and with whose rights it is written; empty for root.

    Raises:
        AgentError: it cannot be read, is too large, or cannot be written there.
    """
    staged = f"/tmp/.put-{secrets.token_hex(8)}"
    archive = _pack(path, staged.lstrip("/"))
    place, parent = shlex.quote(target), shlex.quote(posixpath.dirname(target) or "/")
    source = f"{staged}/." if path.is_dir() else staged
    copy = f"mkdir -p -- {place if path.is_dir() else parent} && cp -Rp -- {source} {place}"
    status, output = _run_with_staged(sandbox, archive, staged, copy, user, f"upload to {target}")
    if status != 0:
        raise AgentError(f"upload to {target}: {_last_line(output) or f'status {status}'}")


def fetch(sandbox: Sandbox, path: str, user: str) -> bytes:
    """Return a tar archive of a file or a folder in a sandbox; its names begin with ``./``.

    Args:
        sandbox: the sandbox.
        path: the absolute path in the sandbox.
        user: with whose rights it is read; empty for root's.

    Raises:
        AgentError: it does not exist, may not be read, or is too large.
    """
    folder, name = posixpath.split(posixpath.normpath(path))
    line = (
        f"[ -d {shlex.quote(path)} ] && tar -C {shlex.quote(path)} -cf - . "
        f"|| {{ [ -e {shlex.quote(path)} ] && tar -C {shlex.quote(folder)} -cf - "
        f"{shlex.quote('./' + name)}; }}"
    )
    with _attribute_to_agent(f"download of {path}"):
        status, output = sandbox.admin(as_user(line, user), _TIMEOUT)
    if status != 0:
        # Do not show the output: it may be half an archive.
        raise AgentError(
            f"download of {path}: it is not there, or {user or 'root'} may not read it"
        )
    return output


def read_file(sandbox: Sandbox, path: str, user: str, max_bytes: int) -> bytes:
    """Return the bytes of a file in a sandbox; links are resolved there.

    Args:
        sandbox: the sandbox.
        path: the absolute path in the sandbox.
        user: with whose rights it is read; empty for root's.
        max_bytes: how many bytes it may have.

    Raises:
        AgentError: it is not a file, may not be read, or is too large.
    """
    place = shlex.quote(path)
    line = f"[ -f {place} ] && [ -r {place} ] && head -c {max_bytes + 1} {place} 2>/dev/null"
    with _attribute_to_agent(f"reading {path}"):
        status, output = sandbox.admin(as_user(line, user), _TIMEOUT)
    if status != 0:
        raise AgentError(f"{path} is not a file, or {user or 'root'} may not read it")
    if len(output) > max_bytes:
        raise AgentError(f"{path} has more than {max_bytes // 1024**2} MiB")
    return output


def write_file(sandbox: Sandbox, path: str, content: bytes, user: str) -> None:
    """Write a file in a sandbox; an existing one keeps its mode, and links are resolved there.

    Args:
        sandbox: the sandbox.
        path: the absolute path in the sandbox; missing parent folders are created.
        content: its bytes.
        user: with whose rights it is written; empty for root's.

    Raises:
        AgentError: it cannot be written.
    """
    staged = f"/tmp/.put-{secrets.token_hex(8)}"
    archive = pack_files({staged: FileSpec("file", content, mode=0o600)}, "/", 0.0)
    place, parent = shlex.quote(path), shlex.quote(posixpath.dirname(path) or "/")
    command = (
        f"mkdir -p -- {parent} && {{ [ ! -e {place} ] || [ -f {place} ]; }} && cat {staged} "
        f">{place}"
    )
    action = f"writing {path}"
    status, output = _run_with_staged(sandbox, archive, staged, command, user, action)
    if status != 0:
        raise AgentError(f"{action}: {_last_line(output) or 'it is not a file'}")


def content_of(archive: bytes, path: str) -> bytes:
    """Return the bytes of the single file in an archive that :func:`fetch` returned.

    Raises:
        AgentError: it holds a folder, or is not an archive.
    """
    with _unpacking(), tarfile.open(fileobj=io.BytesIO(archive)) as members:
        member = members.next()
        if member is not None and member.isreg() and 0 <= member.size <= len(archive):
            content = members.extractfile(member)
            assert content is not None
            return content.read()
    raise AgentError(f"download of {path}: it is not a file; give to=FOLDER")


def extract(archive: bytes, target_path: Path) -> None:
    """Extract an archive of :func:`fetch`: a file is written to the path, a folder's content there.

    Only files, folders and links that stay inside are written. Owners and times are not restored.

    Raises:
        AgentError: it is not an archive, holds too much, or has names that lead elsewhere.
    """
    links: list[tuple[Path, str]] = []
    files: dict[str, tarfile.TarInfo] = {}
    room = MAX_BYTES
    # After the changes of this archive, a link of an earlier archive may lead out.
    root = target_path.resolve()
    earlier = [link for link in _links_below(target_path) if _is_inside(link, root)]
    with _unpacking(), tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for count, member in enumerate(members):
            room -= member.size
            if member.size < 0 or room < 0 or count >= MAX_ENTRIES:
                raise AgentError("download: it holds too much")
            name = posixpath.normpath(member.name)
            if name.startswith(("/", "../")) or name == "..":
                raise AgentError(f"download: the name {member.name!r:.80} leads elsewhere")
            if member.isdir():
                _make_folder(target_path, name)
            elif member.issym():
                links.append((target_path / name, member.linkname))
            elif member.isreg():
                # The first member is what was requested; it is written to the path itself.
                if count:
                    _make_folder(target_path, posixpath.dirname(name))
                _write(members, member, target_path / name if count else target_path)
            elif member.islnk():  # a hard link to an earlier member
                first = posixpath.normpath(member.linkname)
                if (first_member := files.get(first)) is not None:
                    room -= first_member.size
                    _make_folder(target_path, posixpath.dirname(name))
                    _write(members, first_member, target_path / name)
            if member.isreg():
                files[name] = member
        for place, target in links:  # last, so that nothing is written through one
            _make_folder(target_path, str(place.parent.relative_to(target_path)))
            place.unlink(missing_ok=True)
            place.symlink_to(target)
        remove_links_out([*earlier, *(place for place, _ in links)], target_path)


def _links_below(folder: Path) -> Iterator[Path]:
    for top, folders, files in os.walk(folder):
        yield from (path for name in (*folders, *files) if (path := Path(top, name)).is_symlink())


def _make_folder(folder: Path, name: str) -> None:
    """Create a folder below another; replace links on the way by folders, as they may lead out."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in Path(name).parts:
        folder /= part
        if folder.is_symlink():
            folder.unlink()
        folder.mkdir(exist_ok=True)


def remove_links_out(links: Iterable[Path], folder: Path) -> list[Path]:
    """Remove the links that lead out of a folder, directly or not; return the removed ones.

    A link may lead out through another one, so all of them have to exist already.
    """
    root = folder.resolve()
    removed: list[Path] = []
    remaining = list(links)
    while leading_out := {link for link in remaining if not _is_inside(link, root)}:
        for link in leading_out:
            link.unlink(missing_ok=True)
        removed.extend(leading_out)
        remaining = [link for link in remaining if link not in leading_out]
    return removed


def _is_inside(path: Path, root: Path) -> bool:
    try:
        place = path.resolve()
    except (OSError, RuntimeError):  # a loop
        return False
    return place.is_relative_to(root) and not _is_loop(path)


def _is_loop(path: Path) -> bool:
    """Whether a link leads to itself, which ``resolve`` does not report since Python 3.13."""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def changed_files(sandbox: Sandbox, path: str, since: str, user: str) -> bytes:
    """Return what has changed in a folder of a sandbox, as ``agents/workspace.py`` reads it.

    The format is a line, ``INODE NAME`` for everything in the folder, an empty name, and a tar
    archive; the line and each name end with a NUL. The line is ``some TIME``, or ``all`` if the
    archive holds everything, without names before it. Unreadable files are left out.

    Args:
        sandbox: the sandbox.
        path: the absolute path of the folder.
        since: a time of the sandbox, in seconds since the epoch.
        user: with whose rights it is read; empty for root's.

    Raises:
        AgentError: there is no such folder.
    """
    line = _CHANGED.format(path=shlex.quote(path), since=shlex.quote(since))
    with _attribute_to_agent(f"what changed in {path}"):
        status, output = sandbox.admin(as_user(line, user), _TIMEOUT)
    if status != 0:
        raise AgentError(f"what changed in {path}: {_last_line(output) or f'status {status}'}")
    return output


def apply_changes(
    sandbox: Sandbox, archive: bytes, removed: Sequence[bytes], path: str, user: str
) -> None:
    """Remove files in a folder of a sandbox, and unpack an archive there.

    Args:
        sandbox: the sandbox.
        archive: a tar archive, with names relative to the folder.
        removed: the names of what is removed first; folders are removed with their content.
        path: the absolute path of the folder.
        user: with whose rights it is done; empty for root's.

    Raises:
        AgentError: it cannot be written there.
    """
    staged = f"/tmp/.put-{secrets.token_hex(8)}"
    names = b"".join(b"./" + name + b"\0" for name in removed)
    files = {
        staged: FileSpec("directory", mode=0o700),
        f"{staged}/changes.tar": FileSpec("file", archive),
        f"{staged}/removed": FileSpec("file", names),
    }
    status, output = _run_with_staged(
        sandbox,
        pack_files(files, "/", 0.0),
        staged,
        _APPLY.format(path=shlex.quote(path), staged=staged),
        user,
        f"changes in {path}",
    )
    if status != 0:
        first = output.decode("utf-8", "replace").strip().partition("\n")[0][:300]
        raise AgentError(f"changes in {path}: {first or f'status {status}'}")


def _run_with_staged(
    sandbox: Sandbox, archive: bytes, staged: str, command: str, user: str, action: str
) -> tuple[int, bytes]:
    """Unpack an archive as ``staged``, run a command with a user's rights, and remove it again.

    Returns:
        The command's status, and what it printed.
    """
    take_ownership = f"chown -R -- {shlex.quote(user)} {staged} && " if user else ""
    line = f"{take_ownership}( {as_user(command, user)}\n )"
    with _attribute_to_agent(action):
        sandbox.unpack(archive)
        return sandbox.admin(f"{line}; status=$?; rm -rf {staged}; exit $status", _TIMEOUT)


@contextlib.contextmanager
def _unpacking() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise AgentError(f"download: it cannot be unpacked: {error}") from None


@contextlib.contextmanager
def _attribute_to_agent(action: str) -> Iterator[None]:
    """Attribute a failure to the agent: programs in its sandbox do the work, and may be its own."""
    try:
        yield
    except (CommandFailed, SandboxBroken) as error:
        raise AgentError(f"{action}: {error}") from None


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    content = members.extractfile(member)
    assert content is not None
    with content, path.open("xb") as file:
        shutil.copyfileobj(content, file)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _pack(path: Path, name: str) -> bytes:
    """Return a tar archive of a file or a folder of this machine, under a name."""
    buffer = io.BytesIO()
    room = MAX_BYTES

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        nonlocal room
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        room -= member.size
        if room < 0:
            raise AgentError(f"upload of {path}: it has more than {MAX_BYTES // 1024**2} MiB")
        return member

    try:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(path, name, filter=owned)
    except (OSError, ValueError) as error:
        raise AgentError(f"upload of {path}: {error}") from None
    return buffer.getvalue()


def _last_line(output: bytes) -> str:
    return output.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
