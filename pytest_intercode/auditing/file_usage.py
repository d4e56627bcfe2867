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

from pytest_intercode.core.task import CodeTest, Task
from pytest_intercode.environments.gold import attribute_to_gold
from pytest_intercode.environments.shell import ShellEnvironment, set_up
from pytest_intercode.sandboxes.protocol import Sandbox
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["unused_files"]

_WORD = re.compile(r"[\w.-]*\w")
_SECONDS = 30.0
_BATCH = 200  # paths of one command line
_SETTLE = 2.0  # seconds


def unused_files(
    provider: SandboxProvider, task: Task, environment: type[ShellEnvironment]
) -> set[str]:
    """Return the paths of the files that gold does not use and nothing names.

    Args:
        provider: where the sandbox comes from.
        task: the task.
        environment: the class of its environment.

    Raises:
        TaskError: setup failed.
        InfrastructureError: there is no sandbox.
    """
    candidates = {
        path
        for path, spec in task.files.items()
        if spec.kind != "directory"
        and not any(fnmatch.fnmatch(path, pattern) for pattern in task.decoys)
        and not _named(path, task)
    }
    actions = task.solution if task.env == "ctf" else task.gold
    if not candidates or task.env not in ("bash", "ctf") or not actions:
        return candidates
    sandbox = provider.acquire(environment.spec(task, provider))
    try:
        return candidates - _used(sandbox, task, actions, sorted(candidates))
    finally:
        sandbox.close()


def _named(path: str, task: Task) -> bool:
    """Whether the query, gold, the setup, the tests or another file name a file or its folder."""
    tests = [test.code for test in task.tests if isinstance(test, CodeTest)]
    texts = [task.query, *task.gold, *task.setup, *task.solution, *tests, task.test_setup]
    for other, spec in task.files.items():
        if other != path:
            texts.append(spec.content.decode("utf-8", "replace") or spec.target)
    if any(posixpath.basename(path) in text for text in texts):
        return True
    words = set(_WORD.findall(" ".join([task.query, *task.gold, *task.solution])))
    return any(posixpath.basename(folder) in words for folder in _folders(path))


def _folders(path: str) -> list[str]:
    """Return the folders that a file is in; of an absolute path the last alone."""
    folders = [folder.as_posix() for folder in PurePosixPath(path).parents]
    return folders[:1] if path.startswith("/") else [f for f in folders if f != "."]


def _used(sandbox: Sandbox, task: Task, actions: Iterable[str], paths: list[str]) -> set[str]:
    """Return which of the paths setup and gold used; all of them where that is unknown."""
    now = time.time()
    set_up(sandbox, replace(task, setup=()), now)
    full = {path: _absolute(task, path) for path in paths}
    inside = {
        path: {posixpath.dirname(there), *(_absolute(task, folder) for folder in _folders(path))}
        for path, there in full.items()
    }
    folders = set().union(*inside.values())
    watched = sorted({*full.values(), *folders})
    for at in range(0, len(watched), _BATCH):
        names = " ".join(map(shlex.quote, watched[at : at + _BATCH]))
        sandbox.admin(f"touch -c -h -a -d @1 -- {names}", _SECONDS)
    before = _times(sandbox, watched)
    set_up(sandbox, replace(task, files={}, archive=None), now)
    with attribute_to_gold():
        for action in actions:
            sandbox.run(action, task.action_timeout)
        sandbox.settle(_SETTLE)
        after = _times(sandbox, watched)
        if not _updates_access_times(sandbox, watched):
            return set(paths)
    # A folder's change time also moves when a file is made in it; only its access time counts.
    listed = {f for f in folders if before.get(f, "").split()[:1] != after.get(f, "").split()[:1]}
    return {
        path
        for path, there in full.items()
        if before.get(there) != after.get(there) or inside[path] & listed
    }


def _absolute(task: Task, path: str) -> str:
    return posixpath.normpath(posixpath.join(task.workdir, path))


def _times(sandbox: Sandbox, paths: list[str]) -> dict[str, str]:
    """Return times (that of access first), inode and mode of each path that is there."""
    found: dict[str, str] = {}
    for at in range(0, len(paths), _BATCH):
        names = " ".join(map(shlex.quote, paths[at : at + _BATCH]))
        _, said = sandbox.admin(
            f"stat -c '%.9X %.9Y %.9Z %i %f //%n' -- {names} 2>/dev/null", _SECONDS
        )
        for line in said.decode("utf-8", "surrogateescape").splitlines():
            stamp, _, path = line.partition(" //")
            found[path] = stamp
    return found


def _updates_access_times(sandbox: Sandbox, paths: list[str]) -> bool:
    """Whether the file system updates access times at all."""
    for path in paths:
        name = shlex.quote(path)
        status, _ = sandbox.admin(f"test -f {name} && touch -a -d @1 -- {name}", _SECONDS)
        if status == 0:
            sandbox.admin(f"cat -- {name}", _SECONDS)
            return not _times(sandbox, [path]).get(path, "1.").startswith("1.")
    return False
