"""The verifier brings what an agent left into a sandbox in which it never acted, and tests it.

If a task asks for it, tests run in the agent's own sandbox instead, and nothing is brought. Tests
and other files for grading are brought only after what the agent left.
"""

from __future__ import annotations

import posixpath
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import replace

from pytest_intercode.core.task import FileSpec, Services, Task
from pytest_intercode.environments.swe.carrying import Carrying
from pytest_intercode.environments.swe.commands import NOTE, Commands
from pytest_intercode.environments.swe.end_state import EndState
from pytest_intercode.environments.swe.kit import mounts, settings
from pytest_intercode.environments.swe.machine import Index
from pytest_intercode.environments.swe.sentinels import sentinels_for
from pytest_intercode.errors import CommandFailed, TaskError, UngradableState
from pytest_intercode.rewards.eval_scripts import sealed_script
from pytest_intercode.rewards.verification import TestRun
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.archives import build_archive, pack_files, unpack_files

__all__ = ["Verifier", "verifier_spec"]

_REWARDS = ("reward.json", "reward.txt")
_MAX_OUTPUT = 64 * 1024**2  # bytes that tests may print
_MAX_ARGUMENT = 100_000  # bytes; Linux allows 128 KiB


def verifier_spec(
    spec: SandboxSpec, task: Task, provider: SandboxProvider, host: str = ""
) -> SandboxSpec:
    """Return a verifier's sandbox: like the agent's, or with its own image; it runs as root.

    Args:
        spec: the agent's sandbox.
        task: the task, which has a verification.
        provider: where sandboxes come from.
        host: the host of the agent's sandbox, because its services can be reached only there.
    """
    verification = task.verification
    assert verification is not None
    limits = replace(verification.limits or spec.limits, output=_MAX_OUTPUT)
    if verification.image is not None:
        spec = replace(
            spec, image=provider.image(task.for_platform(verification.image)), workdir="/"
        )
    kit = mounts(task, verification)
    joins = bool(spec.services) and verification.image is None
    return replace(
        spec,
        limits=limits,
        user="",
        readonly=kit,
        scratch=(),
        services=_first_services(spec.services, task),
        joins=joins,
        host=host if joins else "",
    )


def _first_services(services: Services, task: Task) -> Services:
    """Return the services that a verifier needs for the task's first state.

    They end before the tests run, which use the services of the agent's sandbox.
    """
    verification = task.verification
    if verification is not None and verification.image is not None:
        return Services()
    services = replace(services, read_only=())  # to bring what services have left there
    return services if task.setup or services.volumes else replace(services, machines=())


class Verifier:
    """One verification of one end state.

    Args:
        sandbox: a fresh sandbox in the task's first state.
        task: the task, which has a verification.
        carrying: decides which parts of the end state are carried.
        index: the index of the repository in its first state; if None, it is read when it is
            needed.

    Attributes:
        end_state: the end state that is brought from the agent's sandbox.
    """

    def __init__(
        self, sandbox: Sandbox, task: Task, carrying: Carrying, index: Index | None = None
    ) -> None:
        assert task.verification is not None
        self._sandbox = sandbox
        self._task = task
        self._verification = task.verification
        variables = (*task.variables, *task.verification.variables)
        self._sentinels = sentinels_for(replace(task.verification, variables=variables))
        self._commands = Commands(sandbox, task)
        self.end_state = EndState(self._commands, task, carrying, index, self._clearing)

    def join(self, agents: Sandbox) -> None:
        """Let the tests reach the services of the agent's sandbox, as it left them."""
        if self._sandbox.spec.joins:
            self._sandbox.join(agents)

    def run(self) -> TestRun:
        """Bring the tests, and run them.

        Raises:
            TaskError: the tests cannot be brought.
        """
        task, verification = self._task, self._verification
        sentinels = self._sentinels
        command, variables = verification.command, dict(verification.variables)
        if sentinels is not None:
            command = sentinels.command
            variables |= sentinels.variables
        seal = f"-{secrets.token_hex(8)}"
        command = sealed_script(command, seal)
        if verification.patch:
            self._apply_tests(verification.patch)
        clearing = "" if self.end_state.cleared else self._clearing()
        if clearing:
            self._commands.run(clearing)
        later_time = self.end_state.transfer.later_time
        for verification_archive in verification.archives:
            files_task = replace(task, archive=verification_archive, files={})
            self._sandbox.unpack(build_archive(files_task, later_time()))
        files = self._files()
        if files:
            self._sandbox.unpack(pack_files(files, task.workdir, later_time()))
        script = "".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()
        )
        if verification.kit is not None and not verification.fetches:
            script = settings() + script
        if verification.place != "shell":  # in the agent's shell, tests run in its directory
            workdir = verification.workdir or task.workdir
            script += f"cd -- {shlex.quote(workdir)} || exit\n"
        script += command
        if len(script.encode("utf-8", "surrogateescape")) > _MAX_ARGUMENT:
            self._commands.note({"": script})
            script = f'script=$(cat {NOTE}); rm -f {NOTE}; eval "$script"'
        action = f"bash -c {shlex.quote(script)}"
        if verification.user:
            action = f"runuser -u {shlex.quote(verification.user)} -- {action}"
        run, reports = self._ran(action), self._reports()
        return replace(
            run,
            reports=unpack_files(self._sandbox.archive(reports)) if reports else {},
            passes=sentinels.passes if sentinels else "",
            fails=sentinels.fails if sentinels else "",
            seal=seal,
        )

    def _ran(self, action: str) -> TestRun:
        """Run the tests in the sandbox's shell, or outside of it if it cannot be trusted."""
        place, timeout = self._verification.place, self._verification.timeout
        if place == "agents":
            try:
                status, output = self._sandbox.admin(action, timeout)
            except CommandFailed as failed:
                raise UngradableState(f"the tests did not end well: {failed}") from None
            return TestRun(status, "itself", output.decode("utf-8", "replace"))
        execution = self._sandbox.run(action, timeout)
        # A process that still runs could write another report while this one is read.
        if place == "fresh" and self._verification.report:
            self._sandbox.halt()
        log = execution.output.decode("utf-8", "replace")
        return TestRun(execution.status, execution.ended, log)

    def _clearing(self, more: Sequence[str] = ()) -> str:
        """Return the command that makes room for what the tests bring and write, if any."""
        reports = self._reports()
        old = [*more, *map(self._at, self._files()), *reports]
        old += [archive.at for archive in self._verification.archives if archive.at.strip("/")]
        folders = sorted({posixpath.dirname(path) for path in reports})
        if not old:
            return ""
        make_folders = f"mkdir -p -- {shlex.join(folders)}" if folders else ":"
        return f"{{ rm -rf -- {shlex.join(old)}; {make_folders}; }}"

    def _files(self) -> dict[str, FileSpec]:
        """Return the files that the tests bring, by their paths."""
        files = dict(self._verification.files)
        if self._sentinels is not None:
            files[self._sentinels.path] = FileSpec("file", self._sentinels.text.encode())
        return files

    def _apply_tests(self, patch: str) -> None:
        status, output = self._commands.attempt(
            f"{self._commands.git} apply --whitespace=nowarn", patch
        )
        if status:
            task = self._task
            raise TaskError(
                f"{task.source}: task {task.id!r}: the patch with the tests does not apply: "
                f"{output.decode('utf-8', 'replace').strip()[:300]}"
            )

    def _reports(self) -> list[str]:
        """Return the files that the tests have to write."""
        report, parser = self._verification.report, self._verification.parser
        names = _REWARDS if parser == "reward" else ("",)
        return [self._at(posixpath.join(report, name)) for name in names] if report else []

    def _at(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._task.workdir, path))

    def close(self) -> None:
        """End its sandbox."""
        self._sandbox.close()
