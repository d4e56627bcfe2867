"""InterCode's view of a file system: a git repository at the root of a sandbox.

Its status tells what changed. InterCode only resets it between two episodes, so the next episode
sees what a reset does not undo: :class:`Repositories` remembers that. Everything here runs git in a
sandbox; nothing is read from the host.
"""

from __future__ import annotations

import contextlib
import io
import re
import secrets
import shlex
import tarfile
import threading
import time
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from pytest_intercode.core.task import Task
from pytest_intercode.environments.shell import set_up
from pytest_intercode.errors import CommandFailed, TaskError
from pytest_intercode.rewards.bash_paper import parse_status
from pytest_intercode.sandboxes.pool import fill
from pytest_intercode.sandboxes.protocol import STAMP, Sandbox, Stamps
from pytest_intercode.system.archives import build_archive

__all__ = ["IGNORED", "IMAGE_AGE", "Repositories", "Repository"]

IMAGE_AGE = 2 * 3600
"""How many seconds before the run InterCode's image was built, by the times of its files.

They are older than files that a reset restores, but not as old as what tasks call old.
"""

IGNORED = "bin boot dev etc home lib media opt proc root run sbin srv sys usr var .dockerenv"
"""The names that InterCode's repository leaves out, wherever they are."""

_RESET = "git reset -q --hard && git clean -q -f -d"
_UNKNOWN = " -o ".join(f"-name {name}" for name in (*IGNORED.split(), ".git"))
_FIND = f"find . \\( {_UNKNOWN} \\) -prune -o"
_MAKE = (
    f"printf '%s\\n' {IGNORED} >.gitignore && touch -d @{{time}} .gitignore && "
    "printf '[user]\\n\\tname = sandbox\\n\\temail = sandbox@localhost\\n' >/root/.gitconfig && "
    "export HOME=/root && git init -q 2>/dev/null && git add -A && git commit -q -m start && "
    "find .git root/.gitconfig -exec touch -d @{time} -- {{}} +"
)
# Set access times that are later than the files' changes. Otherwise, reading a file sets a new one.
_CLEAN = f"{_FIND} -exec touch -h -a -d @{{read}} -- {{{{}}}} + && git clean -q -f -d"
_MAX_ARCHIVE = 64 * 1024**2  # bytes of an archive that is kept for other sandboxes
_PACK = (
    f"cd / && [ $(du -sk .git | cut -f1) -lt {_MAX_ARCHIVE // 1024} ] && "
    "tar -cf - .git .gitignore root/.gitconfig 2>/dev/null"
)
_LIST = f"{_FIND} -printf '%y%m %U:%G %T@ %p\\0'"
_STATE = re.compile(r"([fdl])([0-7]+) (\d+:\d+) (-?\d+\.\d+) (\.[^\0]*)\0")
_INDEX = ("/.git", "/.git/index")
_TIMEOUT = 60.0  # seconds for a command that prepares it
_GRADING_TIMEOUT = 60.0  # seconds for git, and as many for the checksums
_END_TIMEOUT = 10.0  # seconds for the reset after an episode

Side: TypeAlias = Literal["agent", "gold"]
Status: TypeAlias = tuple[tuple[str, str], ...]


class _State(NamedTuple):
    """The metadata of a file or directory, which a reset may leave changed.

    Attributes:
        kind: ``f`` file, ``d`` directory, ``l`` link.
        mode: permissions, in octal digits.
        owner: user and group, such as ``0:0``.
        time: the last change, in seconds since the epoch, to the nanosecond.
    """

    kind: str
    mode: str
    owner: str
    time: str


States: TypeAlias = dict[str, _State]


class _Prepared(NamedTuple):
    """A repository that was made.

    Attributes:
        content: an archive of the task's files and the repository, and the command that cleans it;
            None if the task also has setup, or the archive would be too large.
        states: the states of everything in it.
    """

    content: tuple[bytes, str] | None
    states: States

    def copied(self) -> States:
        """Return the states in a copy, without the times of directories, which copying sets."""
        return {
            path: state._replace(time="") if state.kind == "d" else state
            for path, state in self.states.items()
        }


class Repository:
    """The repository of one sandbox. Git does not run again while the disk is as git has left it.

    If the stamps of the disk cannot be read quickly, git runs each time.

    Args:
        sandbox: its sandbox, in which only our own commands have run so far.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._ready = self._clean = _surely(sandbox.stamps())
        self._now: Stamps | None = None  # at the last `look`
        self._read: Stamps | None = None  # at the last `read` of the status
        self._status: Status = ()

    def look(self) -> bool:
        """Check the disk; return whether it is as it was when the status was read."""
        self._now = self.sandbox.stamps()
        return self._now is not None and self._now == self._read

    def read(self) -> Status:
        """Return what had changed at the last :meth:`look`, as InterCode does: paths and codes."""
        if self._now is None or self._now != self._read:
            _, output = self.sandbox.admin("cd / && git status --short", _GRADING_TIMEOUT)
            self._status = parse_status(output.decode("utf-8", "replace"))
            # Only for the index, because git has just written it.
            new_stamps = self._now and _surely(self.sandbox.stamps(), _INDEX)
            is_unchanged = self._now and new_stamps and _files(self._now) == _files(new_stamps)
            self._read = new_stamps if is_unchanged else None
        return self._status

    def sums(self, paths: Sequence[str]) -> dict[str, str]:
        """Return checksums of paths; like InterCode, take those without a dot for directories."""
        end = secrets.token_hex(16)
        sums = (f"md5sum {path}" if "." in path else f"md5deep -r {path}" for path in paths)
        commands = (
            f"bash -c {shlex.quote(f'cd / && {command}')}; printf %s {end}; " for command in sums
        )
        _, output = self.sandbox.admin("".join(commands), _GRADING_TIMEOUT)
        return dict(zip(paths, output.decode("utf-8", "replace").split(end), strict=False))

    def reset(self) -> None:
        """Reset and clean the repository as InterCode does between episodes."""
        clean = self._clean and self._read and _files(self._clean) == _files(self._read)
        if self._status or not clean or not self.look():
            self.sandbox.admin(f"cd / && {_RESET}", _TIMEOUT)
            self._clean = self._clean and self.sandbox.stamps()

    def untouched(self) -> bool:
        """Return whether all files are known to be as they were at first, including their times."""
        stamps = self._ready and self.sandbox.stamps()
        return bool(stamps and self._ready and _files(stamps) == _files(self._ready))


def _surely(stamps: Stamps | None, paths: Iterable[str] | None = None) -> Stamps | None:
    """Return stamps that treat these paths, or all, as not changing again at the same time."""
    if stamps is None:
        return None
    plain = {path: stamps[path][:STAMP] for path in paths or stamps if path in stamps}
    return {**stamps, **plain}


def _files(stamps: Stamps) -> Stamps:
    """Return the stamps without git's index, which git writes whenever it reads the status."""
    return {path: stamp for path, stamp in stamps.items() if path not in _INDEX}


class Repositories:
    """What InterCode's resets have left so far, in its two containers for each file system.

    InterCode cleans its containers with ``git reset --hard`` and ``git clean -fd``. A file that an
    episode changed is restored with a new time and with git's mode, and its folders have a new
    time, too; a mode that git does not track stays as the episode set it. From then on
    ``find -mtime`` and ``ls -l`` have another result, on the agent's side or on gold's. The paper
    profile gives every episode fresh sandboxes, and sets the modes, owners and times that files
    would have in InterCode. So rewards depend on the order of episodes, as in InterCode.

    Attributes:
        built: when InterCode's image was built, in seconds since the epoch. A whole number, as in
            the layers of an image.
    """

    def __init__(self) -> None:
        self.built = int(time.time()) - IMAGE_AGE
        self._left: dict[tuple[Hashable, Side], States] = defaultdict(dict)
        self._prepared: dict[Hashable, _Prepared] = {}
        self._lock = threading.Lock()
        self._making = threading.Lock()

    def prepare(self, sandbox: Sandbox, task: Task, side: Side) -> None:
        """Make a fresh sandbox's root a repository, as earlier episodes would have left it.

        The first sandbox with these files makes the repository, and all others get a copy.

        Raises:
            TaskError: the task cannot be set up, or its image lacks git.
        """
        with contextlib.nullcontext() if task.setup else self._making:
            prepared = self._prepared.get(_content(task))
            copied = prepared is not None
            if prepared is None:
                prepared = self._make(sandbox, task)
            if prepared.content:
                self._prepared[_content(task)] = prepared
        if copied and prepared.content and sandbox.spec.content is not prepared.content:
            fill(sandbox, *prepared.content)
        with self._lock:
            earlier_states = self._left[_file_system(task), side].copy()
        restoring = _restoring(prepared.copied() if copied else prepared.states, earlier_states)
        # The touch is what a reset does. Other failures are ignored: episodes may leave any state.
        _run(sandbox, task, "; ".join(["touch .git .git/index", *restoring, ":"]))

    def content(self, task: Task) -> tuple[bytes, str] | None:
        """Return what a task's sandbox can be filled with in advance; None if not known yet."""
        prepared = self._prepared.get(_content(task))
        return prepared and prepared.content

    def _make(self, sandbox: Sandbox, task: Task) -> _Prepared:
        """Make and clean the repository; pack it for other sandboxes if the task has no setup."""
        archive = build_archive(task, self.built)
        set_up(sandbox, task, self.built, archive)
        _run(sandbox, task, _MAKE.format(time=self.built))
        packed = b"" if task.setup else _packed(sandbox, archive)
        clean = _CLEAN.format(read=self.built + 1)
        _run(sandbox, task, clean)
        content = (packed, f"cd / && {clean}") if packed else None
        return _Prepared(content, _states(sandbox, _LIST, _TIMEOUT))

    def note(self, repository: Repository, task: Task, side: Side, *, graded: bool) -> None:
        """Reset a repository whose episode is over, and remember what the reset leaves.

        Args:
            repository: the repository.
            task: the task.
            side: the side that it belongs to.
            graded: whether git has read the status since the files were prepared. A reset rewrites
                files that git has not checked, even if their content is the same.
        """
        system = _file_system(task), side
        if self._left.get(system) and repository.untouched():
            return  # the reset leaves the same as after the previous episode
        look = "" if graded else "git status --short >&2; "
        states = _states(repository.sandbox, f"{look}{_RESET} >&2; {_LIST}", _END_TIMEOUT)
        with self._lock:
            self._left[system].update(states)


def _file_system(task: Task) -> Hashable:
    """Return a key that is equal for tasks that one container of InterCode would run."""
    return task.dataset, task.image, task.archive, tuple(sorted(task.files)), task.setup


def _content(task: Task) -> Hashable:
    """Return a key that is equal for tasks with equal repositories."""
    return _file_system(task), task.workdir, tuple(sorted(task.files.items()))


def _states(sandbox: Sandbox, command: str, timeout: float) -> States:
    _, output = sandbox.admin(f"cd / && {{ {command}; }} 2>/dev/null", timeout)
    matches = _STATE.findall(output.decode("utf-8", "surrogateescape"))
    return {path: _State(*state) for *state, path in matches}


def _restoring(present: Mapping[str, _State], target_states: Mapping[str, _State]) -> list[str]:
    """Return the commands that give the present files the states that were left.

    Files that do not exist or have another kind are skipped: an episode may have left anything.
    """
    changes: dict[str, list[str]] = defaultdict(list)
    for path, state in present.items():
        target = target_states.get(path, state)
        if target.kind != state.kind:
            continue
        if target.owner != state.owner:
            changes[f"chown -h {target.owner}"].append(path)
        if target.mode != state.mode and target.kind != "l":
            changes[f"chmod {target.mode}"].append(path)
        if target.time != state.time:
            changes[f"touch -h -d @{target.time}"].append(path)
    return [f"{change} -- {shlex.join(paths)}" for change, paths in changes.items()]


def _run(sandbox: Sandbox, task: Task, command: str) -> None:
    failed, output = sandbox.admin(f"cd / && {{ {command}; }}", _TIMEOUT)
    if failed:
        message = output.decode("utf-8", "replace").strip() or "git failed"
        raise TaskError(
            f"the paper profile needs git in the image of task {task.id!r}: {message[-300:]}"
        )


def _packed(sandbox: Sandbox, archive: bytes) -> bytes:
    """Return an archive of a task's files with the repository added.

    Empty if that fails, or if the archive would be too large to keep.
    """
    with contextlib.suppress(CommandFailed):
        failed, repository = sandbox.admin(_PACK, _TIMEOUT)
        if failed or len(archive) > _MAX_ARCHIVE:
            return b""
        buffer = io.BytesIO(archive)
        with (
            tarfile.open(fileobj=io.BytesIO(repository)) as members,
            tarfile.open(
                fileobj=buffer, mode="a" if archive else "w", format=tarfile.PAX_FORMAT
            ) as merged,
        ):
            for member in members:
                merged.addfile(member, members.extractfile(member) if member.isreg() else None)
        return buffer.getvalue()
    return b""
