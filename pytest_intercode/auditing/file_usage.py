"""File usage: which files of a task gold neither reads, changes nor lists.

In a sandbox, the files get an old access time; after setup and gold, those whose times changed were
used. Linux updates the access time of a file that is read, and of a folder that is listed, when it
is older than the last change.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import shlex
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath

from pytest_intercode.core.task import Task
from pytest_intercode.environments.fields import leaves_of
from pytest_intercode.environments.gold import attribute_to_gold
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.environments.shell import ShellEnvironment, set_up
from pytest_intercode.sandboxes.protocol import Sandbox
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["unused_files"]

_WORD = re.compile(r"[\w.-]*\w")
_COMMAND_TIMEOUT = 30.0  # seconds for a command that reads or sets times
_MAX_BATCH = 200  # paths of one command line
_SETTLE_TIMEOUT = 2.0  # seconds for background jobs of gold


def unused_files(
    provider: SandboxProvider, task: Task, environment: type[ShellEnvironment]
) -> set[str]:
    """Return the paths of files that gold does not use, tests do not contain and nothing names.

    Args:
        provider: where the sandbox comes from.
        task: the task.
        environment: the class of its environment.

    Raises:
        TaskError: setup failed.
        InfrastructureError: there is no sandbox.
    """
    verification = task.verification
    tests = {_absolute(task, path) for path in verification.files} if verification else set()
    candidates = {
        path
        for path, spec in task.files.items()
        if spec.kind != "directory"
        and _absolute(task, path) not in tests  # such as a build file
        and not any(fnmatch.fnmatch(path, pattern) for pattern in task.decoys)
        and not _is_named(path, task)
    }
    actions = kind_of(task.env).file_actions(task)
    if not candidates or not actions:
        return candidates
    sandbox = provider.acquire(environment.spec(task, provider))
    try:
        return candidates - _find_used(sandbox, task, actions, sorted(candidates))
    finally:
        sandbox.close()


def _is_named(path: str, task: Task) -> bool:
    """Whether the query, gold, the setup, tests or another file name a file or its folder."""
    own_texts = [value for value in leaves_of(task.fields) if isinstance(value, str)]
    texts = [task.query, *task.gold, *task.setup, *own_texts]
    for file_path, spec in task.files.items():
        if file_path != path:
            texts.append(spec.content.decode("utf-8", "replace") or spec.target)
    if any(posixpath.basename(path) in text for text in texts):
        return True
    actions = kind_of(task.env).file_actions(task)
    words = set(_WORD.findall(" ".join([task.query, *task.gold, *actions])))
    return any(posixpath.basename(folder) in words for folder in _folders(path))


def _folders(path: str) -> list[str]:
    """Return the folders that a file is in; for an absolute path, only the innermost."""
    folders = [folder.as_posix() for folder in PurePosixPath(path).parents]
    return folders[:1] if path.startswith("/") else [f for f in folders if f != "."]


def _find_used(sandbox: Sandbox, task: Task, actions: Iterable[str], paths: list[str]) -> set[str]:
    """Return the paths that setup and gold used; all of them if that is unknown."""
    start = time.time()
    set_up(sandbox, replace(task, setup=()), start)
    full_paths = {path: _absolute(task, path) for path in paths}
    inside = {
        path: {
            posixpath.dirname(full_path),
            *(_absolute(task, folder) for folder in _folders(path)),
        }
        for path, full_path in full_paths.items()
    }
    folders = set().union(*inside.values())
    watched = sorted({*full_paths.values(), *folders})
    for index in range(0, len(watched), _MAX_BATCH):
        names = " ".join(map(shlex.quote, watched[index : index + _MAX_BATCH]))
        sandbox.admin(f"touch -c -h -a -d @1 -- {names}", _COMMAND_TIMEOUT)
    earlier_times = _read_times(sandbox, watched)
    set_up(sandbox, replace(task, files={}, archive=None), start)
    with attribute_to_gold():
        for action in actions:
            sandbox.run(action, task.action_timeout)
        sandbox.settle(_SETTLE_TIMEOUT)
        later_times = _read_times(sandbox, watched)
        if not _updates_access_times(sandbox, watched):
            return set(paths)
    # A folder's change time also moves when a file is created in it; only its access time counts.
    listed_folders = {
        f
        for f in folders
        if earlier_times.get(f, "").split()[:1] != later_times.get(f, "").split()[:1]
    }
    return {
        path
        for path, full_path in full_paths.items()
        if earlier_times.get(full_path) != later_times.get(full_path)
        or inside[path] & listed_folders
    }


def _absolute(task: Task, path: str) -> str:
    return posixpath.normpath(posixpath.join(task.workdir, path))


def _read_times(sandbox: Sandbox, paths: list[str]) -> dict[str, str]:
    """Return the times (access first), inode and mode of each path that exists."""
    times: dict[str, str] = {}
    for index in range(0, len(paths), _MAX_BATCH):
        names = " ".join(map(shlex.quote, paths[index : index + _MAX_BATCH]))
        _, output = sandbox.admin(
            f"stat -c '%.9X %.9Y %.9Z %i %f //%n' -- {names} 2>/dev/null", _COMMAND_TIMEOUT
        )
        for line in output.decode("utf-8", "surrogateescape").splitlines():
            stamp, _, path = line.partition(" //")
            times[path] = stamp
    return times


def _updates_access_times(sandbox: Sandbox, paths: list[str]) -> bool:
    """Whether the file system updates access times at all."""
    for path in paths:
        name = shlex.quote(path)
        status, _ = sandbox.admin(f"test -f {name} && touch -a -d @1 -- {name}", _COMMAND_TIMEOUT)
        if status == 0:
            sandbox.admin(f"cat -- {name}", _COMMAND_TIMEOUT)
            return not _read_times(sandbox, [path]).get(path, "1.").startswith("1.")
    return False
