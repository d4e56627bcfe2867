"""The first state of a verifier's machine, and the changes in an agent's."""

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
"""A machine's list of hosts, which the engine maintains."""

# An agent's changes go to a copy of the index, so that the index itself stays as it is. If .git is
# a file, git reports where the index is.
_READ_INDEX = r"""
cd -- {at} || exit 1
[ -f .git/index ] && index=.git/index || index=$({git} rev-parse --git-path index) || exit 1
printf '%s\0' "$index"
[ ! -e "$index" ] || cp -- "$index" "$index{suffix}" || exit 1
{git} ls-files -z 2>/dev/null
"""
_COPY = ".intercode"  # the suffix of the copy's name


@dataclass(frozen=True)
class Index:
    """Git's index of a repository in its first state.

    Attributes:
        copy: the path of its copy.
        tracked: the paths in it.
    """

    copy: str
    tracked: frozenset[str]


@dataclass
class PreparedVerifier(Gold):
    """A verifier in the task's first state; nothing of gold is in it.

    Attributes:
        index: the index of its repository, if there is one to compare.
        programs: where its programs load from.
    """

    index: Index | None = None
    programs: Programs = field(default_factory=Programs)


def read_first_state(sandbox: Sandbox, task: Task, provider: SandboxProvider) -> PreparedVerifier:
    """Read a verifier in the task's first state, before anything of an agent is brought there."""
    # A repository that is a layer over an image brings history and sources, but no programs.
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
    """Copy the index of a verifier's repository, before anything of an agent is brought there.

    Returns:
        The index; None if there is no repository, or git cannot read it.
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
    """Return where a verifier's programs load from, before anything of an agent is brought there.

    Raises:
        SandboxError: the sandbox does not answer.
    """
    work = [posixpath.normpath(task.workdir)]
    if (repository := repository_of(task)) is not None:
        work.append(posixpath.normpath(repository.at))
    command = f"workdir={shlex.quote(work[-1])}\n{SURVEY}"
    _, output = sandbox.admin(f"bash -c {shlex.quote(command)}", COMMAND_TIMEOUT)
    return read_survey(output, work)


def host_lines(sandbox: Sandbox) -> list[bytes]:
    """Return the lines of a sandbox's list of hosts without its own line, which is unique."""
    hostname = (sandbox.spec.hostname or sandbox.name).encode()
    return [line for line in all_host_lines(sandbox) if line.split()[-1:] != [hostname]]


def all_host_lines(sandbox: Sandbox) -> list[bytes]:
    """Return the lines of a sandbox's list of hosts."""
    archive = sandbox.archive([HOSTS])
    return unpack_files(archive).get(HOSTS, b"").splitlines()


def machine_changes(sandbox: Sandbox, first_hosts: list[bytes]) -> Changes:
    """Return what changed in a sandbox, including its list of hosts.

    If a sandbox has a network, that list is not a part of its disk: the engine writes addresses.

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
