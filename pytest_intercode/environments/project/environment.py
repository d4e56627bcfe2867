"""The environment of project tests: an agent acts in a copy of a project, and nothing is graded.

When the agent is done, the processes in its sandbox are ended, and what it left is read from
outside of the sandbox. The sandbox stays until the test is over, so that the test can read files
and run commands on what the agent left.
"""

from __future__ import annotations

import functools
import posixpath
import shlex
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import CommandResult, Profile, StepResult
from pytest_intercode.environments.access import as_user
from pytest_intercode.environments.action_space import User
from pytest_intercode.environments.mcp_servers import start_servers
from pytest_intercode.environments.project.fields import ProjectFields
from pytest_intercode.environments.project.patch import FileState, git_patch
from pytest_intercode.environments.shell import ShellEnvironment, set_up
from pytest_intercode.errors import TaskError, UngradableState
from pytest_intercode.sandboxes.protocol import Changes, Sandbox

__all__ = ["Commit", "ProgramRecorder", "ProjectEnvironment", "ProjectState"]

__tracebackhide__ = True  # a report shows the line of the test that made the call

_SETTLE_TIMEOUT = 2.0  # seconds that background jobs have to end before the state is read
_COMMAND_TIMEOUT = 60.0  # seconds for one of our own commands
_MAX_PATCH_BYTES = 2 * 1024**2  # of the files in a patch
_MAX_PATCH_FILES = 500
_MAX_READ_BYTES = 256 * 1024**2  # of a file that a test reads
_PATCH_TIMEOUT = 20.0  # seconds to read the files of a patch
_MAX_COMMITS = 200
_KERNEL_FOLDERS = ("dev", "proc", "sys")  # agents do not leave files there
_FILE_TYPES = ("f", "l")  # of entries that count as files
_LOG = (
    "GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null git -c safe.directory='*' "
    "-c core.hooksPath=/dev/null -c core.fsmonitor=false -c log.showSignature=false "
    "-C {workdir} log -z --reverse --no-show-signature --no-color --max-count={most} "
    "--format='%H%x1f%an%x1f%ae%x1f%B' {commit}..HEAD 2>/dev/null"
)


@dataclass(frozen=True)
class Commit:
    """A commit that the agent made.

    Attributes:
        id: its id.
        author: the author's name and address: ``NAME <ADDRESS>``.
        message: its message, without surrounding blanks.
    """

    id: str
    author: str
    message: str

    @property
    def subject(self) -> str:
        """The first line of its message."""
        return self.message.partition("\n")[0]


@dataclass(frozen=True)
class ProjectState:
    """What an agent left in the copy of a project; paths are relative to it.

    Attributes:
        created: new files and symbolic links.
        changed: files and links whose content or mode has changed.
        deleted: files and links that no longer exist.
        patch: all of these as a patch in git's format.
        commits: the agent's commits, oldest first.
        unread: why something could not be read; empty if everything was read.
    """

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    patch: str = ""
    commits: tuple[Commit, ...] = ()
    unread: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the state as builtins, for the record."""
        return {**vars(self), "commits": [vars(commit) for commit in self.commits]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ProjectState:
        """Return the state from what :meth:`to_json` returned, also if it went through JSON."""

        def names(key: str) -> tuple[str, ...]:
            return tuple(map(str, values.get(key, ())))

        return cls(
            *(names("created"), names("changed"), names("deleted")),
            patch=str(values.get("patch", "")),
            commits=tuple(
                Commit(**{name: str(value) for name, value in commit.items()})
                for commit in values.get("commits", ())
            ),
            unread=str(values.get("unread", "")),
        )


class ProgramRecorder(Protocol):
    """Answers for programs in the agent's sandbox, or records their calls."""

    @property
    def readonly(self) -> tuple[tuple[str, str], ...]:
        """Folders that the sandbox needs, as ``SandboxSpec.readonly`` takes them."""

    def open(self, sandbox: Sandbox) -> None:
        """Start to answer for the programs of a fresh sandbox; forget the last sandbox's calls."""

    def close(self) -> None:
        """Stop answering; may be called twice."""


class ProjectEnvironment(ShellEnvironment):
    """A plain shell in a copy of a project.

    Attributes:
        state: what the agent left; empty until the episode is over.
        message: what the agent said at the end.
    """

    name = "project"
    profile: Profile = "strict"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._recorder: ProgramRecorder | None = None
        self.state = ProjectState()
        self.message = ""
        self._changes: Changes | None = None

    def equip(self, recorder: ProgramRecorder, user: User) -> None:
        """Set the recorder for the agent's sandboxes, and the user; before the first reset."""
        self._recorder, self.user = recorder, user
        folders = (*self.provider.readonly, *recorder.readonly)
        self.provider = self.provider.with_folders(folders, self.provider.scratch)

    def start(self, task: Task) -> None:
        """Start the agent's sandbox."""
        self.state, self.message, self._changes = ProjectState(), "", None
        super().start(task)

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Bring a sandbox into the task's first state, from which changes are counted."""
        super().prepare(sandbox, task)
        if self._recorder is not None:
            self._recorder.open(sandbox)
        start_servers(self, ProjectFields.of(task).mcp)
        try:
            sandbox.mark()
        except UngradableState as error:
            raise TaskError(f"{task.source}: setup leaves what cannot be read: {error}") from None

    def answer(self, message: str) -> str | None:
        """Return the user's reply to an agent that hands back."""
        self.message = message  # if nobody answers, this is the agent's last message
        return super().answer(message)

    def handle_submission(self, action: str, answer: str | None) -> StepResult:
        """End the episode; an answer is the agent's message to the user."""
        self.message = answer or self.message
        return super().handle_submission(action, answer)

    def grade(self, answer: str | None) -> Reward:
        """Read what the agent left. There is no reward, because the test grades."""
        if self.episode.goes_on:
            return Reward(0.0)
        self.sandbox.settle(_SETTLE_TIMEOUT)
        # Before halt() and changes(): git may be the agent's own program, whose processes have to
        # end and whose changes have to be read with the others.
        commits = tuple(self._read_commits())
        self.sandbox.halt()
        try:
            self._changes = self.sandbox.changes()
            self.state = self._read_state(self._changes, commits)
        except UngradableState as error:
            self.state = ProjectState(unread=str(error))
        return Reward(0.0)

    def stop(self) -> None:
        """End the agent's sandbox and its recording."""
        if self._recorder is not None:
            self._recorder.close()
        super().stop()

    def end_state(self) -> dict[str, Any]:
        """Return what the agent left, and what it said at the end."""
        return {"project": self.state.to_json(), "message": self.message}

    # -- methods for tests, after the agent is done

    def read(self, path: str) -> bytes:
        """Return a file that the agent left.

        Raises:
            FileNotFoundError: there is no such file.
            UngradableState: it is too large.
        """
        full_path = posixpath.normpath(self._absolute(path))
        # For an ordinary user, bubblewrap lists the files in these folders as empty ones.
        if full_path.lstrip("/").partition("/")[0] in _KERNEL_FOLDERS:
            raise FileNotFoundError(path)
        archive = self.sandbox.archive([full_path], content=_MAX_READ_BYTES)
        with tarfile.open(fileobj=BytesIO(archive)) as packed:
            for member in packed:
                content = packed.extractfile(member) if member.isreg() else None
                if content is not None:
                    return content.read()
        raise FileNotFoundError(path)

    def check(self, command: str, timeout: float) -> CommandResult:
        """Run a command as the task's user in a fresh sandbox that has what the agent left.

        Args:
            command: a command for bash, which runs in the project's folder.
            timeout: seconds for the command.

        Raises:
            UngradableState: what the agent left could not be read, or is too large.
        """
        if self._changes is None:
            raise UngradableState(self.state.unread or "the episode is not over")
        task = self.current_task
        sandbox = self.provider.acquire(self.spec(task, self.provider))
        try:
            set_up(sandbox, task, self._began)
            sandbox.expose()
            self._lay(sandbox, self._changes)
            execution = sandbox.run(command, timeout)
            return CommandResult(execution.status, execution.output.decode("utf-8", "replace"))
        finally:
            sandbox.close()

    def _lay(self, sandbox: Sandbox, changes: Changes) -> None:
        """Apply the agent's changes to a sandbox."""
        present = [path for path, entry in changes.entries.items() if entry is not None]
        gone = [
            path
            for path, entry in changes.entries.items()
            if entry is None or _type_before(changes, path) not in ("", entry.type)
        ]
        for start in range(0, len(gone), 500):  # the length of a command line is limited
            words = shlex.join(gone[start : start + 500])
            sandbox.admin(f"rm -rf -- {words}", _COMMAND_TIMEOUT)
        if present:
            sandbox.unpack(self.sandbox.archive(present))

    # -- inside

    def _read_state(self, changes: Changes, commits: tuple[Commit, ...]) -> ProjectState:
        task = self.current_task
        workdir = task.workdir.rstrip("/") + "/"
        first_names = _names_of_layers(task, workdir)
        names: dict[str, set[str]] = {"created": set(), "changed": set(), "deleted": set()}
        for full_path, entry in changes.entries.items():
            name = full_path.removeprefix(workdir)
            if name == full_path or f"{name}/".startswith(".git/"):
                continue
            type_before = _type_before(changes, full_path)
            was_file = type_before in _FILE_TYPES or (type_before == "?" and name in first_names)
            is_file = entry is not None and entry.type in _FILE_TYPES
            kind = {(False, True): "created", (True, True): "changed", (True, False): "deleted"}
            if (was_file, is_file) in kind:
                names[kind[was_file, is_file]].add(name)
            if entry is None or is_file:  # changes do not list the files of a removed folder
                names["deleted"].update(
                    inner for inner in first_names if inner.startswith(f"{name}/")
                )
        names["deleted"] -= names["changed"]
        created, changed, deleted = (tuple(sorted(group)) for group in names.values())
        patch = self._make_patch({*created, *changed}, {*changed, *deleted}, workdir)
        return ProjectState(created, changed, deleted, patch, commits)

    def _make_patch(self, present: set[str], earlier: set[str], workdir: str) -> str:
        """Return the patch of all changes, or a note if the patch would be too large."""
        if len(present | earlier) > _MAX_PATCH_FILES:
            return f"# {len(present | earlier):,} files were changed: too many for a patch\n"
        paths = [workdir + name for name in sorted(present)]
        try:
            archive = self.sandbox.archive(paths, content=_MAX_PATCH_BYTES, seconds=_PATCH_TIMEOUT)
        except UngradableState as error:
            return f"# no patch: {error}\n"
        first_states = _states_of_layers(self.current_task, earlier, workdir)
        return git_patch(first_states, _states(archive, workdir))

    def _read_commits(self) -> Iterator[Commit]:
        task = self.current_task
        fields = ProjectFields.of(task)
        if not fields.commit:
            return
        command = _LOG.format(
            workdir=shlex.quote(task.workdir), most=_MAX_COMMITS, commit=fields.commit
        )
        status, output = self.sandbox.admin(as_user(command, task.user), _COMMAND_TIMEOUT)
        if status:
            return
        for text in filter(None, output.decode("utf-8", "replace").split("\0")):
            parts = text.split("\x1f", 3)
            if len(parts) == 4:
                identity, name, address, message = parts
                yield Commit(identity, f"{name} <{address}>", message.strip())


def _type_before(changes: Changes, path: str) -> str:
    """Return the type of the first entry at a path; empty for none, ``?`` if it is unknown."""
    if path not in changes.before:
        return "?"
    entry = changes.before[path]
    return "" if entry is None else entry.type


def _states(archive: bytes, workdir: str) -> dict[str, FileState]:
    with tarfile.open(fileobj=BytesIO(archive)) as packed:
        return dict(_members(packed, workdir, None))


def _names_of_layers(task: Task, workdir: str) -> frozenset[str]:
    """Return the paths of files and links in the copy's layers, relative to the project."""
    layers = task.image.layers if task.image is not None else ()
    return frozenset().union(*(_names_of_layer(layer, workdir) for layer in layers))


@functools.lru_cache(maxsize=16)  # tests share layers, whose names change with their content
def _names_of_layer(layer: Path, workdir: str) -> frozenset[str]:
    with tarfile.open(layer) as packed:
        files = (member for member in packed if not member.isdir())
        paths = (f"/{member.name.lstrip('/')}" for member in files)
        names = (path.removeprefix(workdir) for path in paths if path.startswith(workdir))
        return frozenset(name for name in names if not name.startswith(".git/"))


def _states_of_layers(task: Task, names: set[str], workdir: str) -> dict[str, FileState]:
    """Return the first states of files, from the copy's layers."""
    states: dict[str, FileState] = {}
    layers: tuple[Path, ...] = task.image.layers if task.image is not None else ()
    for layer in layers if names else ():
        with tarfile.open(layer) as packed:
            states.update(_members(packed, workdir, names))
    return states


def _members(
    packed: tarfile.TarFile, workdir: str, names: set[str] | None
) -> Iterator[tuple[str, FileState]]:
    for member in packed:
        name = f"/{member.name.lstrip('/')}".removeprefix(workdir)
        if names is not None and name not in names:
            continue
        if member.issym():
            yield name, FileState(member.linkname.encode("utf-8", "surrogateescape"), "120000")
        elif member.isreg() and (content := packed.extractfile(member)) is not None:
            mode = "100755" if member.mode & stat.S_IXUSR else "100644"
            yield name, FileState(content.read(), mode)
