"""The verifier: takes what an agent left into a sandbox that it never had, and runs tests there.

Where it is asked for, tests run in the agent's own sandbox instead, and nothing is taken.

What an agent left is read from outside of its sandbox. In a repository it comes to a patch, made by
the verifier's own git; elsewhere it is every path that changed. Tests, and what else grading needs,
are brought only then.
"""

from __future__ import annotations

import fnmatch
import posixpath
import secrets
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pytest_intercode.core.task import Artifact, FileSpec, Task
from pytest_intercode.environments.swe.kit import settings
from pytest_intercode.environments.swe.protected import left_out, stands_for
from pytest_intercode.environments.swe.sentinels import sentinels_for
from pytest_intercode.errors import CommandFailed, SandboxError, TaskError, UngradableState
from pytest_intercode.rewards.verification import TestRun
from pytest_intercode.sandboxes.protocol import Changes, Entry, Sandbox
from pytest_intercode.suites.eval_scripts import sealed_script
from pytest_intercode.suites.files import build_archive, pack_files, unpacked_files

__all__ = ["Verifier"]

_NOTE = "/dev/shm/.intercode"  # what a command of ours reads
_REWARDS = ("reward.json", "reward.txt")
_LONGEST_ARGUMENT = 100_000  # bytes; Linux takes 128 KiB
_SECONDS = 120.0  # for one command of ours
_LARGEST = 64 * 1024**2  # bytes of a patch
_GIT = (
    "GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null "
    "git -c safe.directory='*' -c core.hooksPath=/dev/null -c core.fsmonitor=false "
    "-c core.quotePath=false -C {at} "
)


class Verifier:
    """One verification of one end state.

    Args:
        sandbox: a fresh sandbox in the task's first state.
        task: the task, which has a verification.

    Attributes:
        patch: what the agent did to the repository, as a patch; empty where there is none.
        left_out: paths that the agent changed and that are not tested.
    """

    def __init__(self, sandbox: Sandbox, task: Task) -> None:
        assert task.verification is not None
        self._sandbox = sandbox
        self._task = task
        self._verification = task.verification
        self._git = ""
        if task.repository is not None:
            self._git = _GIT.format(at=shlex.quote(task.repository.at))
        self.patch = ""
        self.left_out: list[str] = []

    # -- the end state

    def take(self, agents: Sandbox) -> None:
        """Bring what is in the agent's sandbox.

        Raises:
            UngradableState: it is too much.
        """
        if self._verification.artifacts is not None:
            self._carry(agents, self._verification.artifacts)
            return
        changes = agents.changes()
        if self._task.repository is None:
            self._lay(agents, changes, self._carried(changes.entries))
            return
        at = self._task.repository.at.rstrip("/")
        inside = [
            path
            for path in changes.entries
            if path.startswith(f"{at}/") and f"{path}/".removeprefix(at)[:6] != "/.git/"
        ]
        # What git is to ignore is no part of a patch, and the agent's own rules are.
        self._lay(agents, changes, [p for p in inside if posixpath.basename(p) == ".gitignore"])
        relative = [path[len(at) + 1 :] for path in inside]
        ignored = set(self._asked("check-ignore -z --stdin", relative, (0, 1)))
        kept = {path: f"{at}/{path}" for path in relative if path not in ignored}
        self._lay(agents, changes, list(kept.values()))
        self._make_patch({path: changes.entries[full] for path, full in kept.items()})

    def _carry(self, agents: Sandbox, artifacts: Iterable[Artifact]) -> None:
        """Bring declared files and folders, and nothing else; one that is not there is left out.

        The agent's programs may say what there is. What it holds is read from outside.
        """
        changed = [path for path, entry in agents.changes().entries.items() if entry is not None]
        carried: set[str] = set()
        for artifact in artifacts:
            top = posixpath.normpath(artifact.path)
            line = f"find {shlex.quote(top)} -xdev -print0 2>/dev/null"
            said = agents.admin(line, _SECONDS)[1].decode("utf-8", "surrogateescape")
            paths = {*said.split("\0"), *changed}
            inside = (path for path in paths if f"{path}/".startswith(f"{top}/"))
            carried.update(path for path in inside if not _excluded(path, artifact.exclude))
        self._unpack(agents.archive(sorted(carried)))

    def _unpack(self, archive: bytes) -> None:
        try:
            self._sandbox.unpack(archive)
        except SandboxError as error:
            self._command(":")  # it does answer, so it is what was left
            raise UngradableState(f"what was left cannot be tested: {error}") from None

    def _carried(self, paths: Iterable[str]) -> list[str]:
        """Return the paths of a whole machine but for those that the verification brings itself."""
        own = [self._at(path) for path in self._verification.files]
        own += [self._at(self._verification.report)] if self._verification.report else []
        own += [each.at for each in self._verification.archives if each.at != "/"]
        paths = list(paths)
        replaced = {path: found for path in paths if (found := stands_for(path)) is not None}
        asked = {each for found in replaced.values() for each in found}
        has = {path for path, entry in self._sandbox.entries(asked).items() if entry is not None}
        carried = []
        for path in paths:
            stands = replaced.get(path)
            if stands is not None and (not stands or has.intersection(stands)):
                self.left_out.append(path)
            elif not any(f"{path}/".startswith(f"{o}/") for o in own):
                carried.append(path)
        self.left_out.sort()
        return carried

    def _lay(self, agents: Sandbox, changes: Changes, paths: list[str]) -> None:
        """Make the given paths what they are in the agent's sandbox."""
        there = [path for path in paths if changes.entries[path] is not None]
        archive = agents.archive(there)
        gone = []
        for path in paths:
            now, before = changes.entries[path], changes.before.get(path)
            if now is None or now.type not in "fdl" or before is None or before.type != now.type:
                gone.append(path)
        if gone:
            self._command("xargs -0r rm -rf --", gone)
        if there:
            self._unpack(archive)

    def _make_patch(self, entries: Mapping[str, Entry | None]) -> None:
        """Have git note the given paths as they are now, and take the difference."""
        noted: dict[str, list[str]] = {"gone": [], "other": [], "file": []}
        for path, entry in entries.items():
            kind = "gone" if entry is None else "file" if entry.type in "fl" else "other"
            noted[kind].append(path)
        git, words = self._git, "--no-renames --no-ext-diff --no-textconv HEAD"
        # A path that is gone may have been a folder; what is no file any more may have been one,
        # and the index knows no folders.
        commands = (
            f"{git} --literal-pathspecs rm -rq --cached --ignore-unmatch --pathspec-file-nul "
            f"--pathspec-from-file={_NOTE}-gone",
            f"{git} update-index --force-remove -z --stdin <{_NOTE}-other",
            f"{git} update-index --add --remove --replace -z --stdin <{_NOTE}-file",
            f"printf '\\0' && {git} diff --cached --name-only -z {words}",
            f"printf '\\0' && {git} diff --cached --binary --full-index --no-color {words}",
            f"{git} reset -q && rm -f {_NOTE}-*",  # the index is as it was
        )
        self._note({f"-{kind}": _zeroed(paths) for kind, paths in noted.items()})
        command = " && ".join(commands if noted["gone"] else commands[1:])  # no list is all of it
        names, _, patch = self._command(command).partition(b"\0\0")
        self.patch = patch.decode("utf-8", "surrogateescape")
        if len(self.patch) > _LARGEST:
            raise UngradableState(f"the patch has more than {_LARGEST} characters")
        self._leave_out(_paths(names))

    def _leave_out(self, changed: Iterable[str]) -> None:
        """Bring back what is not tested."""
        self.left_out = sorted(left_out(self._task, changed))
        if not self.left_out:
            return
        known = set(self._asked("ls-files -z"))
        old = [path for path in self.left_out if path in known]
        if old:
            self._asked("checkout-index -f -q -z --stdin", old)
        at = shlex.quote(self._task.repository.at) if self._task.repository else "/"
        new = [path for path in self.left_out if path not in known]
        if new:
            self._command(f"cd {at} && xargs -0r rm -rf --", new)

    # -- the tests

    def run(self) -> TestRun:
        """Bring the tests, and run them.

        Raises:
            TaskError: the tests cannot be brought.
        """
        task, verification = self._task, self._verification
        files = dict(verification.files)
        sentinels = sentinels_for(verification)
        command, variables = verification.command, dict(verification.variables)
        if sentinels is not None:
            files[sentinels.path] = FileSpec("file", sentinels.text.encode())
            command = sentinels.command
            variables |= sentinels.variables
        seal = f"-{secrets.token_hex(8)}"
        command = sealed_script(command, seal)
        if verification.patch:
            self._apply_tests(verification.patch)
        old = [*map(self._at, files), *self._reports()]
        old += [each.at for each in verification.archives if each.at != "/"]
        folders = sorted({posixpath.dirname(path) for path in self._reports()})
        self._command(f"rm -rf -- {shlex.join(old)}; mkdir -p / {shlex.join(folders)}")
        for each in verification.archives:
            self._sandbox.unpack(build_archive(replace(task, archive=each, files={}), 0.0))
        if files:
            self._sandbox.unpack(pack_files(files, task.workdir, 0.0))
        script = "".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()
        )
        if verification.kit is not None:
            script = settings() + script
        if verification.place != "shell":  # there, the agent's directory is that of the tests
            workdir = verification.workdir or task.workdir
            script += f"cd -- {shlex.quote(workdir)} || exit\n"
        script += command
        if len(script.encode("utf-8", "surrogateescape")) > _LONGEST_ARGUMENT:
            self._note({"": script})
            script = f'script=$(cat {_NOTE}); rm -f {_NOTE}; eval "$script"'
        action = f"bash -c {shlex.quote(script)}"
        if verification.user:
            action = f"runuser -u {shlex.quote(verification.user)} -- {action}"
        return replace(
            self._ran(action),
            reports=unpacked_files(self._sandbox.archive(self._reports())),
            passes=sentinels.passes if sentinels else "",
            fails=sentinels.fails if sentinels else "",
            seal=seal,
        )

    def _ran(self, action: str) -> TestRun:
        """Run the tests: in the shell that there is, or beside it, as it is not to be trusted."""
        place, timeout = self._verification.place, self._verification.timeout
        if place == "agents":
            try:
                status, output = self._sandbox.admin(action, timeout)
            except CommandFailed as failed:
                raise UngradableState(f"the tests did not end well: {failed}") from None
            return TestRun(status, "itself", output.decode("utf-8", "replace"))
        execution = self._sandbox.run(action, timeout)
        if place == "fresh":
            self._sandbox.halt()
        log = execution.output.decode("utf-8", "replace")
        return TestRun(execution.status, execution.ended, log)

    def _apply_tests(self, patch: str) -> None:
        status, said = self._tried(f"{self._git} apply --whitespace=nowarn", patch)
        if status:
            task = self._task
            raise TaskError(
                f"{task.source}: task {task.id!r}: the patch with the tests does not apply: "
                f"{said.decode('utf-8', 'replace').strip()[:300]}"
            )

    def _reports(self) -> list[str]:
        """Return the files that the tests are to write."""
        report, parser = self._verification.report, self._verification.parser
        names = _REWARDS if parser == "reward" else ("",)
        return [self._at(posixpath.join(report, name)) for name in names] if report else []

    def _at(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._task.workdir, path))

    def close(self) -> None:
        """End its sandbox."""
        self._sandbox.close()

    # -- commands of ours

    def _asked(
        self, words: str, paths: Iterable[str] = (), allowed: tuple[int, ...] = (0,)
    ) -> list[str]:
        """Ask git about paths, and return the paths that it answers."""
        status, output = self._tried(self._git + words, _zeroed(paths))
        if status not in allowed:
            raise self._failed(words, output)
        return _paths(output)

    def _command(self, command: str, paths: Iterable[str] = ()) -> bytes:
        status, output = self._tried(command, _zeroed(paths))
        if status:
            raise self._failed(command, output)
        return output

    def _tried(self, command: str, given: str) -> tuple[int, bytes]:
        if given:
            self._note({"": given})
        line = f"{{ {command}; }} <{_NOTE if given else '/dev/null'}"
        try:
            return self._sandbox.admin(line, _SECONDS)
        except CommandFailed as failed:
            raise UngradableState(f"what was left cannot be tested: {failed}") from None

    def _note(self, texts: Mapping[str, str]) -> None:
        """Bring texts that a command of ours reads, by what follows the note's name."""
        files = {
            f"{_NOTE}{name}": FileSpec("file", text.encode("utf-8", "surrogateescape"))
            for name, text in texts.items()
        }
        self._sandbox.unpack(pack_files(files, "/", 0.0))

    def _failed(self, command: str, output: bytes) -> UngradableState:
        said = output.decode("utf-8", "replace").strip()[-300:]
        return UngradableState(
            f"{command[:60]} failed on what was left: {said or 'no reason given'}"
        )


def _excluded(path: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern fits a path, or a part of it from a slash on, or a folder above it."""
    names = path.split("/")
    parts = ["/".join(names[a:b]) for a in range(len(names)) for b in range(a + 1, len(names) + 1)]
    return any(fnmatch.fnmatchcase(part, pattern) for pattern in patterns for part in parts)


def _zeroed(paths: Iterable[str]) -> str:
    return "".join(f"{path}\0" for path in paths)


def _paths(output: bytes) -> list[str]:
    return [path for path in output.decode("utf-8", "surrogateescape").split("\0") if path]
