"""InterCode's picture of a file system: a git repository at the root of a sandbox.

Its status stands for what changed. Its reset is all that InterCode does between two episodes, so
that what a reset leaves of one episode is there in the next: :class:`Repositories` remembers it.
Everything here runs git in a sandbox; nothing is read from the host.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from pytest_intercode.core.task import Task
from pytest_intercode.rewards.bash_paper import parse_status
from pytest_intercode.sandboxes.protocol import Sandbox

__all__ = ["IMAGE_AGE", "Repositories", "Side", "make_repository", "reset", "status"]

IMAGE_AGE = 2 * 3600
"""Seconds before the run at which InterCode's image was built, as files' times say.

Its files are older than what a reset brings back, and not as old as what tasks call old.
"""

_IGNORED = "bin boot dev etc home lib media opt proc root run sbin srv sys usr var .dockerenv"
_RESET = "git reset -q --hard && git clean -q -f -d"
_UNKNOWN = " -o ".join(f"-name {name}" for name in (*_IGNORED.split(), ".git"))
_FIND = f"find . \\( {_UNKNOWN} \\) -prune -o"
# A file that was read has a time of access after that of its change, or reading it sets a new one.
_MAKE = (
    f"cd / && printf '%s\\n' {_IGNORED} >.gitignore && touch -d @{{time}} .gitignore && "
    "printf '[user]\\n\\tname = sandbox\\n\\temail = sandbox@localhost\\n' >/root/.gitconfig && "
    "export HOME=/root && git init -q 2>/dev/null && git add -A && git commit -q -m start && "
    f"{_FIND} -exec touch -h -a -d @{{read}} -- {{{{}}}} + && git clean -q -f -d"
)
_LIST = f"{_FIND} -printf '%y%m %U:%G %T@ %p\\0'"
_STATE = re.compile(r"([fdl])([0-7]+) (\d+:\d+) (-?\d+\.\d+) (\.[^\0]*)\0")
_TIMEOUT = 60.0
_END_TIMEOUT = 10.0  # of an episode that is over

Side: TypeAlias = Literal["agent", "gold"]


class _State(NamedTuple):
    """What a reset may leave of a file or directory besides its content.

    Attributes:
        kind: ``f`` file, ``d`` directory, ``l`` link.
        mode: permissions, in octal digits.
        owner: user and group, as ``0:0``.
        time: of the last change, in seconds since the epoch, to the nanosecond.
    """

    kind: str
    mode: str
    owner: str
    time: str


States: TypeAlias = dict[str, _State]


def make_repository(sandbox: Sandbox, built: int) -> str:
    """Make the root directory a git repository with all of its files, and clean it.

    Args:
        sandbox: a sandbox with the task's files.
        built: when InterCode's image was built, in seconds since the epoch.

    Returns:
        What went wrong; empty if nothing did.
    """
    command = _MAKE.format(time=built, read=built + 1)
    failed, output = sandbox.admin(command, _TIMEOUT)
    return output.decode("utf-8", "replace").strip() or "git failed" if failed else ""


def reset(sandbox: Sandbox) -> None:
    """Clean a repository as InterCode does between episodes."""
    sandbox.admin(f"cd / && {_RESET}", _TIMEOUT)


def status(sandbox: Sandbox, timeout: float) -> tuple[tuple[str, str], ...]:
    """Return what changed as InterCode reads it: pairs of a path and a code."""
    _, output = sandbox.admin("cd / && git status --short", timeout)
    return parse_status(output.decode("utf-8", "replace"))


class Repositories:
    """What InterCode's resets have left by now, in its two containers for each file system.

    It cleans its containers with ``git reset --hard`` and ``git clean -fd``. What an episode
    changed comes back with a new time and with git's modes, and its folders have a new time too; a
    mode that git does not know of stays as the episode set it. From then on ``find -mtime`` and
    ``ls -l`` see something else than before, on the agent's side or on gold's. The paper profile
    gives every episode fresh sandboxes, and then gives files the modes, owners and times that
    InterCode's would have. So rewards depend on the order of episodes, as InterCode's do.

    Attributes:
        built: when InterCode's image was built, in seconds since the epoch. A whole number, as in
            the layers of an image.
    """

    def __init__(self) -> None:
        self.built = int(time.time()) - IMAGE_AGE
        self._left: dict[tuple[Hashable, Side], States] = defaultdict(dict)
        self._lock = threading.Lock()

    def carry_over(self, sandbox: Sandbox, task: Task, side: Side) -> None:
        """Give the files of a fresh sandbox what earlier episodes left of them."""
        with self._lock:
            left = dict(self._left[_file_system(task), side])
        if left:
            command = _restoring(_states(sandbox, _LIST, _TIMEOUT), left)
            if command:
                sandbox.admin(f"cd / && {{ {command}; }}", _TIMEOUT)

    def note(self, sandbox: Sandbox, task: Task, side: Side, *, graded: bool) -> None:
        """Reset a sandbox whose episode is over, and remember what that leaves.

        Args:
            sandbox: the sandbox.
            task: the task.
            side: whose sandbox it is.
            graded: whether git has looked at the files since they were made ready. A reset writes
                anew what it has not looked at, be it the same content.
        """
        look = "" if graded else "git status --short >&2; "
        states = _states(sandbox, f"{look}{_RESET} >&2; {_LIST}", _END_TIMEOUT)
        with self._lock:
            self._left[_file_system(task), side].update(states)


def _file_system(task: Task) -> Hashable:
    """Return what tasks have in common that one container of InterCode's would run."""
    return task.dataset, task.image, task.archive, tuple(sorted(task.files)), task.setup


def _states(sandbox: Sandbox, command: str, timeout: float) -> States:
    _, output = sandbox.admin(f"cd / && {{ {command}; }} 2>/dev/null", timeout)
    found = _STATE.findall(output.decode("utf-8", "surrogateescape"))
    return {path: _State(*state) for *state, path in found}


def _restoring(present: Mapping[str, _State], left: Mapping[str, _State]) -> str:
    """Return the command that turns what is present into what was left; empty if they are equal.

    Only what is present and of the same kind is touched: an episode may have left anything.
    """
    changes: dict[str, list[str]] = defaultdict(list)
    for path, state in present.items():
        then = left.get(path, state)
        if then.kind != state.kind:
            continue
        if then.owner != state.owner:
            changes[f"chown -h {then.owner}"].append(path)
        if then.mode != state.mode and then.kind != "l":
            changes[f"chmod {then.mode}"].append(path)
        if then.time != state.time:
            changes[f"touch -h -d @{then.time}"].append(path)
    return "; ".join(f"{change} -- {shlex.join(paths)}" for change, paths in changes.items())
