"""What a verifier's machine is like at first, and what has changed in an agent's."""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass, field, replace

from pytest_intercode.core.task import Repository, Task
from pytest_intercode.environments.gold import Gold
from pytest_intercode.environments.swe.carrying import SURVEY, Programs, read_survey
from pytest_intercode.environments.swe.commands import COMMAND_TIMEOUT, git_command, paths_of
from pytest_intercode.environments.swe.fields import SweFields, repository_of
from pytest_intercode.sandboxes.protocol import Changes, Sandbox
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.archives import unpack_files
from pytest_intercode.system.digest import digest

__all__ = [
    "HOSTS",
    "Index",
    "PreparedVerifier",
    "all_host_lines",
    "host_lines",
    "machine_changes",
    "read_first_state",
    "read_index",
]

HOSTS = "/etc/hosts"
"""A machine's list of hosts, which the engine keeps."""

# A copy of the index takes what an agent changed, so that the index itself stays as it is. Where
# .git is a file, git says where the index is.
_READ_INDEX = r"""
cd -- {at} || exit 1
[ -f .git/index ] && index=.git/index || index=$({git} rev-parse --git-path index) || exit 1
printf '%s\0' "$index"
[ ! -e "$index" ] || cp -- "$index" "$index{suffix}" || exit 1
{git} ls-files -z 2>/dev/null
"""
_COPY = ".intercode"  # what is added to the name of an index


@dataclass(frozen=True)
class Index:
    """Git's index of a repository in its first state.

    Attributes:
        copy: where a copy of it is.
        tracked: the paths that are in it.
    """

    copy: str
    tracked: frozenset[str]


@dataclass
class PreparedVerifier(Gold):
    """A verifier in the task's first state; nothing of gold is in it.

    Attributes:
        index: its repository's, where one is to be compared.
        programs: what its programs load from.
    """

    index: Index | None = None
    programs: Programs = field(default_factory=Programs)


def read_first_state(sandbox: Sandbox, task: Task, provider: SandboxProvider) -> PreparedVerifier:
    """Look at a verifier in the task's first state, before anything of an agent's comes there."""
    # A repository that is laid over an image brings history and sources, and no programs.
    first_state = replace(task, query="", gold=(), verification=None, steps=())
    place: object = sandbox.spec.image
    repository = repository_of(task)
    if repository is not None and repository.source is not None:
        fields = SweFields(Repository(at=repository.at))
        first_state, place = replace(first_state, fields=fields), (task.image, task.platform)
    name = f"programs {place} {digest(first_state)} {sandbox.spec.readonly}"
    programs = provider.share(name, lambda: _read_programs(sandbox, task))
    return PreparedVerifier(sandbox, index=read_index(sandbox, task), programs=programs)


def read_index(sandbox: Sandbox, task: Task) -> Index | None:
    """Copy the index of a verifier's repository, before anything of an agent's comes there.

    Returns:
        None where there is no repository, or git cannot read it.
    """
    repository = repository_of(task)
    if repository is None:
        return None
    folder = repository.at
    command = _READ_INDEX.format(at=shlex.quote(folder), git=git_command(task), suffix=_COPY)
    status, output = sandbox.admin(command, COMMAND_TIMEOUT)
    if status:
        return None
    index, *tracked = paths_of(output)
    return Index(posixpath.join(folder, index) + _COPY, frozenset(tracked))


def _read_programs(sandbox: Sandbox, task: Task) -> Programs:
    """Return what the programs of a verifier load from, before anything of an agent's comes there.

    Raises:
        SandboxError: it cannot be asked.
    """
    work = [posixpath.normpath(task.workdir)]
    if (repository := repository_of(task)) is not None:
        work.append(posixpath.normpath(repository.at))
    command = f"workdir={shlex.quote(work[-1])}\n{SURVEY}"
    _, output = sandbox.admin(f"bash -c {shlex.quote(command)}", COMMAND_TIMEOUT)
    return read_survey(output, work)


def host_lines(sandbox: Sandbox) -> list[bytes]:
    """Return the lines of a sandbox's list of hosts but for its own, which is like no other's."""
    hostname = (sandbox.spec.hostname or sandbox.name).encode()
    return [line for line in all_host_lines(sandbox) if line.split()[-1:] != [hostname]]


def all_host_lines(sandbox: Sandbox) -> list[bytes]:
    """Return the lines of a sandbox's list of hosts."""
    archive = sandbox.archive([HOSTS])
    return unpack_files(archive).get(HOSTS, b"").splitlines()


def machine_changes(sandbox: Sandbox, first_hosts: list[bytes]) -> Changes:
    """Return what changed in a sandbox, its list of hosts included.

    That is not a part of its disk where it has a network, as the engine writes an address to it.

    Args:
        sandbox: the sandbox.
        first_hosts: what :func:`host_lines` returned in the first state.
    """
    changes = sandbox.changes()
    is_written = sandbox.spec.limits.network or sandbox.spec.is_connected
    if HOSTS in changes.entries or not is_written:
        return changes
    if host_lines(sandbox) == first_hosts:
        return changes
    return Changes({**changes.entries, **sandbox.entries([HOSTS])}, {**changes.before, HOSTS: None})
