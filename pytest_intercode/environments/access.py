"""What an agent does in its sandbox beside its turns: commands of its own shell, and files.

Everything is done with the rights of the task's user. What comes out of a sandbox is not trusted:
it is read within limits, and nothing of it lands outside of the place that it was asked for.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import secrets
import shlex
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from pytest_intercode.errors import AgentError, CommandFailed, SandboxBroken
from pytest_intercode.sandboxes.protocol import Sandbox

__all__ = ["as_user", "command_line", "content_of", "extract", "fetch", "put"]

MOST_BYTES = 256 * 1024**2
"""Bytes that are carried in or out at once."""

_MOST_ENTRIES = 100_000
_TIMEOUT = 120.0


def as_user(command: str, user: str) -> str:
    """Return a line of shell that runs a command as a user; as root if no user is given."""
    if not user:
        return command
    return f"runuser -u {shlex.quote(user)} -- bash -c {shlex.quote(command)}"


def command_line(command: str, cwd: str, user: str) -> str:
    """Return a line for the agent's shell that runs a command in a shell of its own.

    What the agent's shell remembers stays as it is.

    Args:
        command: what a new bash runs.
        cwd: where.
        user: by whom, if that is not the shell's own user.
    """
    words = ["bash", "-c", command]
    if user:
        words = ["runuser", "-u", user, "--", *words]
    return f"( builtin cd -- {shlex.quote(cwd)} && builtin exec {shlex.join(words)} )"


def put(sandbox: Sandbox, path: Path, at: str, user: str) -> None:
    """Copy a file or a folder of ours to a place in a sandbox, replacing files that are there.

    Args:
        sandbox: where to.
        path: the file or folder.
        at: its path in there, absolute; folders on the way are made.
        user: whose it is there, and with whose rights it is written; empty for root.

    Raises:
        AgentError: it cannot be read, is too large, or cannot be written there.
    """
    staged = f"/tmp/.put-{secrets.token_hex(8)}"
    archive = _pack(path, staged.lstrip("/"))
    with _agents_fault(f"upload to {at}"):
        sandbox.unpack(archive)
    place, parent = shlex.quote(at), shlex.quote(posixpath.dirname(at) or "/")
    source = f"{staged}/." if path.is_dir() else staged
    copy = f"mkdir -p -- {place if path.is_dir() else parent} && cp -Rp -- {source} {place}"
    own = f"chown -R -- {shlex.quote(user)} {staged} && " if user else ""
    line = f"{own}{as_user(copy, user)}; status=$?; rm -rf {staged}; exit $status"
    with _agents_fault(f"upload to {at}"):
        status, said = sandbox.admin(line, _TIMEOUT)
    if status != 0:
        raise AgentError(f"upload to {at}: {_last_line(said) or f'status {status}'}")


def fetch(sandbox: Sandbox, path: str, user: str) -> bytes:
    """Return a tar archive of a file or a folder in a sandbox; its names begin with ``./``.

    Args:
        sandbox: where it is.
        path: its path in there, absolute.
        user: with whose rights it is read; empty for root's.

    Raises:
        AgentError: it is not there, may not be read, or is too large.
    """
    folder, name = posixpath.split(posixpath.normpath(path))
    line = (
        f"[ -d {shlex.quote(path)} ] && tar -C {shlex.quote(path)} -cf - . "
        f"|| {{ [ -e {shlex.quote(path)} ] && tar -C {shlex.quote(folder)} -cf - "
        f"{shlex.quote('./' + name)}; }}"
    )
    with _agents_fault(f"download of {path}"):
        status, said = sandbox.admin(as_user(line, user), _TIMEOUT)
    if status != 0:
        # What it printed may be half an archive.
        raise AgentError(
            f"download of {path}: it is not there, or {user or 'root'} may not read it"
        )
    return said


def content_of(archive: bytes, path: str) -> bytes:
    """Return the bytes of the one file that an archive of :func:`fetch` holds.

    Raises:
        AgentError: it holds a folder, or is no archive.
    """
    with _unpacking(), tarfile.open(fileobj=io.BytesIO(archive)) as members:
        member = members.next()
        if member is not None and member.isreg() and 0 <= member.size <= len(archive):
            content = members.extractfile(member)
            assert content is not None
            return content.read()
    raise AgentError(f"download of {path}: it is no file; give to=FOLDER")


def extract(archive: bytes, to: Path) -> None:
    """Write what an archive of :func:`fetch` holds: a file at ``to``, or a folder's content in it.

    Only files, folders and links that stay inside are written; owners and times are ours.

    Raises:
        AgentError: it is no archive, holds too much, or has names that lead elsewhere.
    """
    links: list[tuple[Path, str]] = []
    room = MOST_BYTES
    with _unpacking(), tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for count, member in enumerate(members):
            room -= member.size
            if member.size < 0 or room < 0 or count >= _MOST_ENTRIES:
                raise AgentError("download: it holds too much")
            name = posixpath.normpath(member.name)
            if name.startswith(("/", "../")) or name == "..":
                raise AgentError(f"download: the name {member.name!r:.80} leads elsewhere")
            if member.isdir():
                (to / name).mkdir(parents=True, exist_ok=True)
            elif member.issym():
                links.append((to / name, member.linkname))
            elif member.isreg():
                _write(members, member, to if count == 0 else to / name)
        for place, target in links:  # last, so that nothing is written through one
            _link(place, target, to)


@contextlib.contextmanager
def _unpacking() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise AgentError(f"download: it cannot be unpacked: {error}") from None


@contextlib.contextmanager
def _agents_fault(what: str) -> Iterator[None]:
    """Take a failure for the agent's: programs of its sandbox do the work, and may be its own."""
    try:
        yield
    except (CommandFailed, SandboxBroken) as error:
        raise AgentError(f"{what}: {error}") from None


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    content = members.extractfile(member)
    assert content is not None
    with content, place.open("xb") as file:
        shutil.copyfileobj(content, file)
    place.chmod(0o755 if member.mode & 0o100 else 0o644)


def _link(place: Path, target: str, to: Path) -> None:
    """Make a link, unless it leads out of the folder ``to``."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(target)
    try:
        inside = place.resolve().is_relative_to(to.resolve())
    except (OSError, RuntimeError):  # a loop
        inside = False
    if not inside:
        place.unlink()


def _pack(path: Path, name: str) -> bytes:
    """Return a tar archive of a file or a folder of ours, under a name."""
    buffer = io.BytesIO()
    room = MOST_BYTES

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        nonlocal room
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        room -= member.size
        if room < 0:
            raise AgentError(f"upload of {path}: it has more than {MOST_BYTES // 1024**2} MiB")
        return member

    try:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(path, name, filter=owned)
    except (OSError, ValueError) as error:
        raise AgentError(f"upload of {path}: {error}") from None
    return buffer.getvalue()


def _last_line(said: bytes) -> str:
    return said.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
