"""The base of environments whose actions are lines for a shell: a sandbox and its setup.

Actions run exactly as they are written. A subclass defines how an episode is graded.
"""

from __future__ import annotations

import errno
import functools
import os
import posixpath
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_intercode.core.task import ImageSource, Services, Task
from pytest_intercode.core.turn import Command, CommandResult, Observation, SandboxInfo
from pytest_intercode.environments import access
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.gold import Gold, GoldRun
from pytest_intercode.errors import (
    AgentError,
    SandboxBroken,
    SandboxError,
    TaskError,
    UngradableState,
    UnpackFailed,
)
from pytest_intercode.sandboxes.protocol import Execution, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.archives import build_archive, pack_files
from pytest_intercode.system.files import bundled_folder

__all__ = [
    *("NAMES_LOST", "STATE_LOST", "ShellEnvironment", "mark_first_state", "own_image", "set_up"),
    *("text_of", "unsendable"),
]

NAMES_LOST = "a new interpreter has none of the names from before"
"""What an observation says when the interpreter was replaced."""

STATE_LOST = "a new shell has nothing of the state from before, which kept a shell from starting"
"""What an observation says when a new shell does not have the state of the previous one."""

_SETUP_TIMEOUT = 120.0  # seconds for one setup command
# Setup runs in a shell that reads its script from a pipe and prints into a file that is emptied. So
# a process that setup leaves behind does not show the script in its arguments, and holds no
# descriptor that leads to the script or to the channel.
_SETUP = (
    'printf %s {script} | bash -c \'IFS= read -rd "" text; exec </dev/null; eval "$text"\' setup '
    '>|{out} 2>&1; status=${{PIPESTATUS[1]}}; printf %s "$(<{out})"; : >|{out}; rm -f {out}; '
    "exit $status"
)
# The folder itself stays, because a shell may be in it.
_EMPTY = (
    "mkdir -p -- {at} && cd -- {at} && shopt -s dotglob nullglob && "
    "printf '%s\\0' * | xargs -0r rm -rf --"
)
# Reasons why a file cannot be at its path, in the words of the C library, which every tar prints.
_UNPLACEABLE_CODES = (
    *(errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP),
    *(errno.ENAMETOOLONG, errno.ENOENT, errno.EACCES, errno.EBUSY),
)
_UNPLACEABLE = re.compile("|".join(re.escape(os.strerror(code)) for code in _UNPLACEABLE_CODES))
_DOCKERFILE = "bash.Dockerfile"  # for environments that do not bring their own
_SETUP_OUTPUT = "/dev/shm/.intercode-setup"
_MAX_REFUSED_SHOWN = 10  # lines
_VARIABLES = (("LC_ALL", "C.UTF-8"), ("PAGER", "cat"), ("TERM", "dumb"))


@functools.cache
def own_image(dockerfile: Path | None, environment: str) -> ImageSource:
    """Return an environment's image, for tasks that do not name one."""
    bundled = bundled_folder("dockerfiles")
    own_file = bundled / f"{environment}.Dockerfile"
    return ImageSource(dockerfile or (own_file if own_file.is_file() else bundled / _DOCKERFILE))


def _ready_services(task: Task, provider: SandboxProvider) -> Services:
    """Return a task's services, with images that are ready to use."""
    machines = (
        replace(machine, image=ImageSource(image=provider.image(task.for_platform(machine.image))))
        for machine in task.services.machines
    )
    return replace(task.services, machines=tuple(machines)) if task.services else Services()


def set_up(sandbox: Sandbox, task: Task, timestamp: float, archive: bytes | None = None) -> None:
    """Bring a fresh sandbox into the task's first state.

    Args:
        sandbox: the sandbox.
        task: the task.
        timestamp: the time (seconds since the epoch) that the task's files get; with the same
            one, two sandboxes list the same times.
        archive: the task's files with these times, if they are packed already.

    Raises:
        TaskError: a setup command of the task failed, or its files cannot be at their paths.
        SandboxError: the sandbox broke.
    """
    _lay_mounts(sandbox, task, timestamp)
    archive = build_archive(task, timestamp) if archive is None else archive
    if archive:
        _unpack(sandbox, task, archive)
    for command in task.setup:
        folder = shlex.quote(task.workdir)  # a sandbox may start in another directory
        script = f"{{ [ -d {folder} ] || mkdir -p -- {folder}; }} && cd -- {folder} || exit 1\n"
        script += command
        line = _SETUP.format(script=shlex.quote(script), out=_SETUP_OUTPUT)
        status, output = sandbox.admin(line, _SETUP_TIMEOUT)
        if status != 0:
            message = " ".join(output.decode("utf-8", "replace").split())[-300:]
            raise TaskError(
                f"{task.source}: task {task.id!r}: the setup command {command!r} ended with "
                f"status {status}: {message or 'no output'}"
            )


def mark_first_state(sandbox: Sandbox, task: Task) -> None:
    """Remember the state of a sandbox after setup; changes are counted from there.

    Raises:
        TaskError: the state is larger than can be read.
        SandboxError: the sandbox broke.
    """
    try:
        sandbox.mark()
    except UngradableState as error:
        raise TaskError(
            f"{task.source}: task {task.id!r}: setup leaves what cannot be graded: {error}"
        ) from None


def _lay_mounts(sandbox: Sandbox, task: Task, timestamp: float) -> None:
    """Replace what the image has at the task's mount points with the task's folders."""
    for mount in task.mounts:
        status, output = sandbox.admin(_EMPTY.format(at=shlex.quote(mount.at)), _SETUP_TIMEOUT)
        if status != 0:
            raise TaskError(
                f"{task.source}: task {task.id!r}: {mount.at} cannot be emptied for what is "
                f"mounted there: {output.decode('utf-8', 'replace').strip()[-300:]}"
            )
        _unpack(sandbox, task, pack_files({}, task.workdir, timestamp, mount))


def _unpack(sandbox: Sandbox, task: Task, archive: bytes) -> None:
    """Unpack files of a task.

    Raises:
        TaskError: they cannot be at their paths.
        SandboxError: the sandbox broke.
    """
    try:
        sandbox.unpack(archive)
    except UnpackFailed as error:
        if not _UNPLACEABLE.search(str(error)):
            raise  # for example, because the disk is full
        raise TaskError(
            f"{task.source}: task {task.id!r}: its files have no place in this sandbox: "
            f"{error}. Put them elsewhere (bubblewrap has this machine's /usr, read-only)"
        ) from None


class ShellEnvironment(Environment):
    """A plain shell: an action is what a person would type.

    Attributes:
        takes_commands: commands may be run in addition to actions, because bash reads the input of
            the sandbox.
    """

    takes_commands = True
    _reader = "shell"  # the program that reads the actions, as observations call it
    _timeout_effect = " and was stopped"  # what happened to an action that timed out

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sandbox: Sandbox | None = None
        self._gold: GoldRun | None = None  # runs while the agent works, for grading
        self._last: Execution | None = None
        self._began = 0.0

    @classmethod
    def spec(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the sandbox that this task needs."""
        image = task.image or own_image(cls.dockerfile, cls.name)
        return SandboxSpec(
            image=provider.image(task.for_platform(image)),
            limits=task.limits,
            workdir=task.workdir,
            hostname="sandbox",
            variables=(*_VARIABLES, *task.variables),
            user=task.user,
            readonly=provider.readonly,
            scratch=provider.scratch,
            services=_ready_services(task, provider),
        )

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return the agent's own sandbox."""
        return [cls.spec(task, provider)]

    def newly_refused(self) -> list[str]:
        """Return the network accesses refused to the agent's sandbox since the last call."""
        sandbox = self._sandbox
        return [] if sandbox is None else sandbox.refused()

    def interrupt(self) -> None:
        """End the running action from another thread."""
        sandbox = self._sandbox
        if sandbox is not None:
            sandbox.interrupt()

    @property
    def sandbox(self) -> Sandbox:
        """The agent's sandbox.

        Raises:
            SandboxError: there is none before and after an episode.
        """
        if self._sandbox is None:
            raise SandboxError("the sandbox was ended")
        return self._sandbox

    def start(self, task: Task) -> None:
        """Start and prepare the agent's sandbox, and at the same time what grading needs."""
        self._last = None
        self._began = time.time()
        wait = self.order_sandbox(self.spec(task, self.provider))
        self._gold = self._start_gold(task)  # after the agent's sandbox, which is needed first
        self._sandbox = wait()
        self.prepare(self._sandbox, task)

    def _start_gold(self, task: Task) -> GoldRun | None:
        """Start a run for grading while the agent works; by default none."""
        return None

    def _gold_result(self) -> Gold:
        """Wait for the run that :meth:`_start_gold` started, and return its result."""
        assert self._gold is not None
        return self._gold.result()

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Bring a fresh sandbox, the agent's or gold's, into the task's first state."""
        set_up(sandbox, task, self._began)

    def execute(self, action: str) -> Observation:
        """Run one action in the shell and show its output."""
        fault = unsendable(action)
        if fault:
            return Observation(f"[not run: an action cannot hold {fault}]\n", executed=False)
        self._last = execution = self._run(action)
        refused_hosts = self.newly_refused()
        self.episode.note_refused(refused_hosts)
        notices = (self._describe_end(execution), _refusal(refused_hosts))
        text = text_of(execution) + _bracketed(execution, *notices)
        return Observation(text, executed=execution.status == 0, status=execution.status)

    def _run(self, action: str) -> Execution:
        """Run one action in the agent's sandbox."""
        return self.sandbox.run(action, self.action_timeout)

    # -- commands and files besides the turns, for an agent that owns its shell

    def run_command(self, command: Command) -> CommandResult:
        """Run a command in a bash of its own; see ``AgentEnvironment.exec``.

        Raises:
            BudgetExhausted: the episode is over.
            AgentError: the user must not be changed, or the command cannot be sent.
        """
        line = access.command_line(
            command.text, self._absolute(command.cwd), self._other_user(command.user)
        )
        seconds = self.action_timeout if command.timeout is None else command.timeout
        if fault := unsendable(line):
            raise AgentError(f"env.exec(): a command cannot contain {fault}")
        result = CommandResult(None, "")

        def execute(_: str) -> Observation:
            nonlocal result
            execution = self.sandbox.run(line, seconds)
            result = CommandResult(execution.status, text_of(execution))
            if command.counts_as_turn:
                self._last = execution
            return Observation(result.output, executed=result.status == 0, status=result.status)

        if command.counts_as_turn:
            self.take_turn(command.text, execute)
            return result
        try:
            with self.acting():
                self.episode.action = command.text
                execute(command.text)
        except SandboxBroken as broken:
            return CommandResult(None, f"[this broke the sandbox: {broken}]\n")
        return result

    def upload(self, path: Path, at: str) -> None:
        """Copy a file or a folder into the sandbox, as the task's user; see ``access.put``."""
        with self.acting():
            access.put(self.sandbox, path, self._absolute(at), self.current_task.user)

    def download(self, path: str) -> bytes:
        """Return a tar archive of what the task's user may read; see ``access.fetch``."""
        with self.acting():
            return access.fetch(self.sandbox, self._absolute(path), self.current_task.user)

    def read_file(self, path: str, max_bytes: int) -> bytes:
        """Return the bytes of a file that the task's user may read; see ``access.read_file``."""
        with self.acting():
            user = self.current_task.user
            return access.read_file(self.sandbox, self._absolute(path), user, max_bytes)

    def write_file(self, path: str, content: bytes) -> None:
        """Write a file in the sandbox, as the task's user; see ``access.write_file``."""
        with self.acting():
            user = self.current_task.user
            access.write_file(self.sandbox, self._absolute(path), content, user)

    def forward_port(self, port: int, outside: Path) -> Callable[[], None] | None:
        """Forward a port of the sandbox to a socket here; see :meth:`Sandbox.forward_port`."""
        with self.acting():
            return self.sandbox.forward_port(port, outside)

    def changed_files(self, since: str) -> bytes:
        """Return what has changed in the task's directory; see ``access.changed_files``."""
        task = self.current_task
        with self.acting():
            return access.changed_files(self.sandbox, task.workdir, since, task.user)

    def apply_changes(self, archive: bytes, removed: Sequence[bytes]) -> None:
        """Change files in the task's directory; see ``access.apply_changes``.

        Changes that were made in time count, even if they arrive when the budget is used up.
        """
        task = self.current_task
        with self.acting(late=True):
            access.apply_changes(self.sandbox, archive, removed, task.workdir, task.user)

    @property
    def sandbox_info(self) -> SandboxInfo:
        """The backend and the name of the sandbox."""
        return SandboxInfo(self.provider.choice.backend, self.sandbox.name)

    def _absolute(self, path: str) -> str:
        return posixpath.join(self.current_task.workdir, path)

    def _other_user(self, user: str) -> str:
        """Return the user to change to; empty to stay the user who acts in the sandbox."""
        current_user = self.current_task.user or "root"
        if user in ("", current_user):
            return ""
        if current_user not in ("root", "0"):
            raise AgentError(
                f"env.exec(user={user!r}): the agent of this task runs as {current_user}, and "
                "may not be another user"
            )
        return user

    def _describe_end(self, execution: Execution) -> str:
        """Describe, for an observation, how an action was stopped or the shell was replaced."""
        if execution.ended == "itself" and not execution.restarted:
            return ""
        consequence = self._describe_state(execution)
        if execution.ended == "timeout":
            return f"timed out after {self.action_timeout:g} s{self._timeout_effect}; {consequence}"
        if execution.ended == "flood":
            return f"stopped after {execution.size} bytes of output; {consequence}"
        if execution.ended == "cancelled":
            return "stopped: the episode is over"
        if execution.restarted and execution.status is None:
            return f"the {self._reader} gave no answer that can be read; {consequence}"
        return f"the {self._reader} ended with status {execution.status}; {consequence}"

    def _describe_state(self, execution: Execution) -> str:
        """Describe what remains of the state after such an action."""
        if execution.state_lost:
            return STATE_LOST
        return "a new shell has the directory, variables and functions from before this command"

    def abandon(self) -> None:
        """End gold immediately, and whatever reads from or waits for the agent's sandbox."""
        gold, sandbox = self._gold, self._sandbox
        if gold is not None:
            gold.abandon()
        if sandbox is not None:
            sandbox.close()

    def stop(self) -> None:
        """End the agent's sandbox, and gold's."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close()
        gold, self._gold = self._gold, None
        if gold is not None:
            gold.stop()


def unsendable(action: str) -> str:
    """Return the reason why an action cannot be sent to a shell; empty if it can."""
    if "\0" in action:
        return "a NUL character"
    try:
        action.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        return f"the lone surrogate {action[error.start]!r}"
    return ""


def text_of(execution: Execution) -> str:
    """Decode an output, with a note in the place of bytes that were left out of its middle."""
    if not execution.truncated:
        return execution.output.decode("utf-8", "backslashreplace")
    head = len(execution.output) * 3 // 4
    left_out = execution.size - len(execution.output)
    return (
        execution.output[:head].decode("utf-8", "backslashreplace")
        + f"\n[... {left_out} of {execution.size} bytes left out ...]\n"
        + execution.output[head:].decode("utf-8", "backslashreplace")
    )


def is_cut(text: str) -> bool:
    """Whether a text of :func:`text_of` has the note that bytes were left out."""
    return (
        re.search(r"^\[\.\.\. \d+ of \d+ bytes left out \.\.\.\]$", text, re.MULTILINE) is not None
    )


def _refusal(lines: list[str]) -> str:
    """Describe, for an observation, the hosts that the network refused."""
    if not lines:
        return ""
    hosts = ", ".join(lines[:_MAX_REFUSED_SHOWN])
    remainder = (
        f" and {len(lines) - _MAX_REFUSED_SHOWN} more" if len(lines) > _MAX_REFUSED_SHOWN else ""
    )
    return f"refused by the network of this sandbox: {hosts}{remainder}"


def _bracketed(execution: Execution, *notices: str) -> str:
    lines = [f"[{note}]\n" for note in notices if note]
    line_end = "" if not execution.output or execution.output.endswith(b"\n") else "\n"
    return line_end + "".join(lines) if lines else ""
