"""The verifier: takes what an agent left into a sandbox that it never had, and runs tests there.

Where it is asked for, tests run in the agent's own sandbox instead, and nothing is taken.

What an agent left is read from outside of its sandbox. In a repository it comes to a patch, made by
the verifier's own git; elsewhere it is every path that changed. Tests, and what else grading needs,
are brought only then.
"""

from __future__ import annotations

import fnmatch
import io
import posixpath
import secrets
import shlex
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_intercode.core.task import Artifact, FileSpec, Task
from pytest_intercode.environments.swe.carrying import (
    SURVEY,
    Carrying,
    Programs,
    parents,
    read_survey,
    topmost,
)
from pytest_intercode.environments.swe.kit import settings
from pytest_intercode.environments.swe.sentinels import sentinels_for
from pytest_intercode.errors import CommandFailed, SandboxBroken, TaskError, UngradableState
from pytest_intercode.rewards.verification import TestRun
from pytest_intercode.sandboxes.protocol import Changes, Entry, Sandbox
from pytest_intercode.suites.eval_scripts import sealed_script
from pytest_intercode.suites.files import build_archive, pack_files, unpacked_files

__all__ = ["Index", "Verifier", "read_index", "read_programs"]

_HOSTS = "/etc/hosts"
_KEPT_BY_ENGINES = (_HOSTS, "/etc/hostname", "/etc/resolv.conf")  # mounted, so never replaced
_NOTE = "/dev/shm/.intercode"  # what one of our commands reads
_REWARDS = ("reward.json", "reward.txt")
_MAX_ARGUMENT = 100_000  # bytes; Linux takes 128 KiB
_COMMAND_TIMEOUT = 120.0  # seconds for one of our commands
_MAX_PATCH = 64 * 1024**2  # bytes of a patch
_MAX_INLINE = 4000  # characters that one of our commands may be given with its text
_GIT = (
    "GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null "
    "git -c safe.directory='*' -c core.hooksPath=/dev/null -c core.fsmonitor=false "
    "-c core.quotePath=false -C {at} "
)


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


def read_index(sandbox: Sandbox, task: Task) -> Index | None:
    """Copy the index of a verifier's repository, before anything of an agent's comes there.

    Returns:
        None where there is no repository, or git cannot read it.
    """
    if task.repository is None:
        return None
    folder = task.repository.at
    git = _GIT.format(at=shlex.quote(folder))
    command = _READ_INDEX.format(at=shlex.quote(folder), git=git, suffix=_COPY)
    status, output = sandbox.admin(command, _COMMAND_TIMEOUT)
    if status:
        return None
    index, *tracked = _paths(output)
    return Index(posixpath.join(folder, index) + _COPY, frozenset(tracked))


def read_programs(sandbox: Sandbox, task: Task) -> Programs:
    """Return what the programs of a verifier load from, before anything of an agent's comes there.

    Raises:
        SandboxError: it cannot be asked.
    """
    work = [posixpath.normpath(task.workdir)]
    if task.repository is not None:
        work.append(posixpath.normpath(task.repository.at))
    command = f"workdir={shlex.quote(work[-1])}\n{SURVEY}"
    _, output = sandbox.admin(f"bash -c {shlex.quote(command)}", _COMMAND_TIMEOUT)
    return read_survey(output, work)


def host_lines(sandbox: Sandbox) -> list[bytes]:
    """Return the lines of a sandbox's list of hosts but for its own, which is like no other's."""
    hostname = (sandbox.spec.hostname or sandbox.name).encode()
    return [line for line in _lines(sandbox) if line.split()[-1:] != [hostname]]


def _lines(sandbox: Sandbox) -> list[bytes]:
    archive = sandbox.archive([_HOSTS])
    return unpacked_files(archive).get(_HOSTS, b"").splitlines()


def machine_changes(sandbox: Sandbox, first_hosts: list[bytes]) -> Changes:
    """Return what changed in a sandbox, its list of hosts included.

    That is not a part of its disk where it has a network, as the engine writes an address to it.

    Args:
        sandbox: the sandbox.
        first_hosts: what :func:`host_lines` returned in the first state.
    """
    changes = sandbox.changes()
    if _HOSTS in changes.entries or not sandbox.spec.limits.network:
        return changes
    if host_lines(sandbox) == first_hosts:
        return changes
    return Changes(
        {**changes.entries, **sandbox.entries([_HOSTS])}, {**changes.before, _HOSTS: None}
    )


class Verifier:
    """One verification of one end state.

    Args:
        sandbox: a fresh sandbox in the task's first state.
        task: the task, which has a verification.
        carrying: decides what of the end state is carried.
        index: what :func:`read_index` returned; without it, it is called when it is needed.

    Attributes:
        patch: what the agent did to the repository, as a patch; empty where there is none.
        left_out: paths that the agent changed and that are not tested.
    """

    def __init__(
        self, sandbox: Sandbox, task: Task, carrying: Carrying, index: Index | None = None
    ) -> None:
        assert task.verification is not None
        self._carrying = carrying
        self._sandbox = sandbox
        self._task = task
        self._index = index
        self._verification = task.verification
        self._sentinels = sentinels_for(task.verification)
        self._cleared = False  # there is room for what the tests bring and write
        self._git = ""
        if task.repository is not None:
            self._git = _GIT.format(at=shlex.quote(task.repository.at))
        self._newest = 0.0  # the latest time of what the agent left
        self.patch = ""
        self.left_out: list[str] = []

    # -- the end state

    def take(self, agents: Sandbox) -> None:
        """Bring what is in the agent's sandbox.

        Raises:
            UngradableState: it is too much.
            SandboxBroken: it ended the sandbox.
        """
        self._sandbox.expose()
        if self._verification.artifacts is not None:
            self._carry(agents, self._verification.artifacts)
            return
        if self._task.repository is None:
            self._take_machine(agents, machine_changes(agents, host_lines(self._sandbox)))
        else:
            self._take_patch(agents, agents.changes(), self._task.repository.at.rstrip("/"))

    def _take_patch(self, agents: Sandbox, changes: Changes, root: str) -> None:
        """Bring what the agent did to the repository at ``root``."""
        inside = {
            path[len(root) + 1 :]: path
            for path in changes.entries
            if path.startswith(f"{root}/") and f"{path}/".removeprefix(root)[:6] != "/.git/"
            if not self._carrying.is_cache(path)
        }
        index = self._known_index()
        changes, removed = self._with_removed(changes, inside.values())
        removed = {path for path in removed if path[len(root) + 1 :] not in index.tracked}
        left_out = set(self._take_rules(agents, changes, inside, index))
        # Git compares what it keeps, and not what tests see: it may take other line ends for equal.
        # Of what is gone it knows what it tracks, in folders as well.
        looked_at = {
            full
            for path, full in inside.items()
            if not _is_folder(changes.entries[full])
            and (
                changes.entries[full] is not None
                or (path not in index.tracked and not _may_have_been_folder(full, changes))
            )
        }
        left_out |= self._carrying.left_out(changes, looked_at | removed)
        # Git brings back what it tracks; what else was there at first stays as it is.
        stays = {folder for path in left_out & removed for folder in parents(path)}
        for path, full in list(inside.items()):
            if full in stays or (
                full in left_out
                and path not in index.tracked
                and _was_there(full, changes)
                and not _may_have_been_folder(full, changes)
            ):
                del inside[path]
        self._lay(agents, changes, list(inside.values()))
        names = self._make_patch(
            {path: changes.entries[full] for path, full in inside.items()}, index
        )
        remaining = {f"{root}/{name}" for name in names} - looked_at
        left_out |= self._carrying.left_out(changes, remaining)
        self.left_out = sorted(path[len(root) + 1 :] for path in left_out - removed)
        self._bring_back(root, [path for path in self.left_out if path in inside])
        if any(path not in index.tracked for path in names):
            tests = [path for path in index.tracked if self._carrying.is_test(f"{root}/{path}")]
            self._renew([f"{root}/{path}" for path in tests])

    def _take_rules(
        self, agents: Sandbox, changes: Changes, inside: dict[str, str], index: Index
    ) -> list[str]:
        """Forget what git is to ignore, which no patch has; the agent's own rules count.

        Returns:
            The paths that were ignored and would not be any more, which gold does not change:
            rules may be added, and not be taken away.
        """
        new = [path for path in inside if path not in index.tracked]
        if not new:
            return []
        rules = [full for full in inside.values() if posixpath.basename(full) == ".gitignore"]
        ask = "check-ignore -z --stdin"
        ignored_before = set(self._asked(ask, new, (0, 1))) if rules else set()
        self._lay(agents, changes, rules)
        ignored = set(self._asked(ask, new, (0, 1)))
        left_out = ignored_before - ignored
        if left_out:
            gold = self._carrying.gold()
            left_out = {path for path in left_out if inside[path] not in gold}
        full = [inside[path] for path in left_out]
        for path in ignored | left_out:
            inside.pop(path, None)
        return full

    def _take_machine(self, agents: Sandbox, changes: Changes) -> None:
        """Bring what the agent did to the machine, where there is no repository."""
        paths = [path for path in changes.entries if not self._carrying.is_cache(path)]
        changes, removed = self._with_removed(changes, paths)
        left_out = self._carrying.left_out(changes, [*paths, *removed])
        self._lay(agents, changes, [path for path in paths if path not in left_out])
        self.left_out = topmost(left_out)

    def _with_removed(self, changes: Changes, paths: Iterable[str]) -> tuple[Changes, set[str]]:
        """Add what was in folders that have been replaced.

        Args:
            changes: the changes, which name such a folder alone.
            paths: those of the changed paths that count.

        Returns:
            The changes with the paths that are gone with them, and these paths.
        """
        tops = [
            path
            for path in paths
            if not _is_folder(changes.entries[path]) and _may_have_been_folder(path, changes)
        ]
        inner = self._sandbox.below(sorted(tops)) if tops else ()
        removed = {
            path
            for path in inner
            if path not in changes.entries and not self._carrying.is_cache(path)
        }
        return Changes({**changes.entries, **dict.fromkeys(removed)}, changes.before), removed

    def _known_index(self) -> Index:
        if self._index is None:
            self._index = read_index(self._sandbox, self._task)
        if self._index is None:
            _, output = self._tried(f"{self._git} ls-files 2>&1 >/dev/null")
            raise self._failed("git ls-files", output)
        return self._index

    def _carry(self, agents: Sandbox, artifacts: Iterable[Artifact]) -> None:
        """Bring declared files and folders, and nothing else; one that is not there is left out."""
        carried: set[str] = set()
        for artifact in artifacts:
            paths = agents.below([posixpath.normpath(artifact.path)])
            carried.update(path for path in paths if not _excluded(path, artifact.exclude))
        carried = {path for path in carried if not self._carrying.is_cache(path)}
        self._unpack(agents.archive(sorted(carried)))

    def _unpack(self, archive: bytes, entries: Mapping[str, Entry | None] | None = None) -> None:
        """Unpack what an agent left.

        Args:
            archive: a tar archive of it.
            entries: what it was when it was looked at; where no process of the agent's is ended,
                something else may stand there when it is read.
        """
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            kinds: dict[str, str] = {}
            for member in packed:
                path = f"/{member.name}"
                kind = "d" if member.isdir() else "l" if member.issym() else "f"
                entry = entries.get(path) if entries is not None else None
                parent_kind = kinds.get(posixpath.dirname(path), "d")
                if parent_kind != "d" or (entry is not None and entry.type != kind):
                    raise UngradableState(f"{path} was replaced while it was read")
                kinds[path] = kind
                self._newest = max(self._newest, float(member.mtime))
        try:
            self._sandbox.unpack(archive)
        except SandboxBroken as error:
            self._command(":")  # it does answer, so it is what was left
            raise UngradableState(f"what was left cannot be tested: {error}") from None

    def _lay(self, agents: Sandbox, changes: Changes, paths: list[str]) -> None:
        """Make the given paths what they are in the agent's sandbox; ``changes`` are its own."""
        engine_files = [
            path for path in paths if path in _KEPT_BY_ENGINES and changes.entries[path]
        ]
        paths = [path for path in paths if path not in engine_files]
        present = [path for path in paths if changes.entries[path] is not None]
        archive = agents.archive(present) if present else b""
        gone = []
        for path in paths:
            entry, is_known = changes.entries[path], path in changes.before
            first_entry = changes.before.get(path)
            first_type = first_entry.type if first_entry is not None else "" if is_known else "?"
            if entry is None or entry.type not in "fdl" or first_type not in ("", entry.type):
                gone.append(path)
        if gone:
            self._command("xargs -0r rm -rf --", gone)
        if present:
            self._unpack(archive, changes.entries)
        for path in engine_files:
            self._write(path, agents)

    def _write(self, path: str, agents: Sandbox) -> None:
        """Give a file that the engine keeps the content that it has in the agent's sandbox."""
        content = unpacked_files(agents.archive([path])).get(path, b"")
        if path == _HOSTS:
            own_lines = set(_lines(self._sandbox)).difference(host_lines(self._sandbox))
            content = b"".join(line + b"\n" for line in [*own_lines, *host_lines(agents)])
        self._note({"": content.decode("utf-8", "surrogateescape")})
        self._command(f"cat {_NOTE} >{path}")

    def _make_patch(self, entries: Mapping[str, Entry | None], index: Index) -> list[str]:
        """Have git note the given paths as they are now, and take the difference.

        Returns:
            The paths that the patch changes, relative to the repository.
        """
        noted: dict[str, list[str]] = {"gone": [], "other": [], "file": []}
        for path, entry in entries.items():
            kind = "gone" if entry is None else "file" if entry.type in "fl" else "other"
            noted[kind].append(path)
        # A path that is gone may have been a folder; what is not a file any more may have been one,
        # and the index knows no folders.
        words = {
            "gone": "--literal-pathspecs rm -rq --cached --ignore-unmatch "
            "--pathspec-from-file=- --pathspec-file-nul",
            "other": "update-index --force-remove -z --stdin",
            "file": "update-index --add --remove --replace -z --stdin",
        }
        git = f"GIT_INDEX_FILE={shlex.quote(index.copy)} {self._git}"
        inputs = {f"-{kind}": _zeroed(paths) for kind, paths in noted.items() if paths}
        long = {name: text for name, text in inputs.items() if not _is_short(text)}
        if long:
            self._note(long)
        commands = [
            _with_input(f"{git} {words[name[1:]]}", text, _NOTE + name)
            for name, text in inputs.items()
        ]
        commands.append(  # the paths, and after an empty one the patch
            f"{git} diff --cached --raw -z --patch --binary --full-index --no-color --no-renames "
            "--no-ext-diff --no-textconv HEAD"
        )
        # What the tests bring is written over what a patch of theirs has done.
        early = not self._verification.patch
        used_files = [index.copy, *(_NOTE + name for name in long)]
        commands.append(
            self._clearing(used_files) if early else f"rm -f -- {shlex.join(used_files)}"
        )
        names, _, patch = self._command(" && ".join(commands)).partition(b"\0\0")
        self.patch = patch.decode("utf-8", "surrogateescape")
        if len(self.patch) > _MAX_PATCH:
            raise UngradableState(f"the patch has more than {_MAX_PATCH} characters")
        self._cleared = early
        return _paths(names)[1::2]

    def _bring_back(self, root: str, laid: Iterable[str]) -> None:
        """Make the paths that are left out what they were; tests are cleared away after that.

        Args:
            root: the repository.
            laid: those of the paths that were brought.
        """
        if not self.left_out:
            return
        self._cleared = False
        tracked = self._known_index().tracked
        new = [path for path in laid if path not in tracked]
        if new:
            self._command(f"cd {shlex.quote(root)} && xargs -0r rm -rf --", new)
        old = [path for path in self.left_out if path in tracked]
        # By the agent's attributes, git would write the others in another form.
        first = [path for path in old if posixpath.basename(path) == ".gitattributes"]
        for paths in (first, [path for path in old if path not in first]):
            if paths:
                self._asked("checkout-index -f -q -z --stdin", paths)

    def _renew(self, paths: list[str]) -> None:
        """Make files newer than all that the agent left, so that builds do not take it for them."""
        if paths:
            self._command(f"xargs -0r touch -ch -d @{self._time():.0f} --", paths)

    def _time(self) -> float:
        """Return a time that is later than that of all that the agent left."""
        return float(max(int(time.time()), int(self._newest) + 1))

    # -- the tests

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
        clearing = "" if self._cleared else self._clearing()
        if clearing:
            self._command(clearing)
        for verification_archive in verification.archives:
            archive = build_archive(
                replace(task, archive=verification_archive, files={}), self._time()
            )
            self._sandbox.unpack(archive)
        files = self._files()
        if files:
            self._sandbox.unpack(pack_files(files, task.workdir, self._time()))
        script = "".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()
        )
        if verification.kit is not None and not verification.fetches:
            script = settings() + script
        if verification.place != "shell":  # there, the agent's directory is that of the tests
            workdir = verification.workdir or task.workdir
            script += f"cd -- {shlex.quote(workdir)} || exit\n"
        script += command
        if len(script.encode("utf-8", "surrogateescape")) > _MAX_ARGUMENT:
            self._note({"": script})
            script = f'script=$(cat {_NOTE}); rm -f {_NOTE}; eval "$script"'
        action = f"bash -c {shlex.quote(script)}"
        if verification.user:
            action = f"runuser -u {shlex.quote(verification.user)} -- {action}"
        run, reports = self._ran(action), self._reports()
        return replace(
            run,
            reports=unpacked_files(self._sandbox.archive(reports)) if reports else {},
            passes=sentinels.passes if sentinels else "",
            fails=sentinels.fails if sentinels else "",
            seal=seal,
        )

    def _ran(self, action: str) -> TestRun:
        """Run the tests: in the shell that there is, or next to it, as it is not to be trusted."""
        place, timeout = self._verification.place, self._verification.timeout
        if place == "agents":
            try:
                status, output = self._sandbox.admin(action, timeout)
            except CommandFailed as failed:
                raise UngradableState(f"the tests did not end well: {failed}") from None
            return TestRun(status, "itself", output.decode("utf-8", "replace"))
        execution = self._sandbox.run(action, timeout)
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
        status, output = self._tried(f"{self._git} apply --whitespace=nowarn", patch)
        if status:
            task = self._task
            raise TaskError(
                f"{task.source}: task {task.id!r}: the patch with the tests does not apply: "
                f"{output.decode('utf-8', 'replace').strip()[:300]}"
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

    # -- our own commands

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

    def _tried(self, command: str, text: str = "") -> tuple[int, bytes]:
        if not _is_short(text):
            self._note({"": text})
        line = _with_input(f"{{ {command}; }}", text, _NOTE)
        try:
            return self._sandbox.admin(line, _COMMAND_TIMEOUT)
        except CommandFailed as failed:
            raise UngradableState(f"what was left cannot be tested: {failed}") from None

    def _note(self, texts: Mapping[str, str]) -> None:
        """Bring texts that our commands read, by what follows the note's name."""
        files = {
            f"{_NOTE}{name}": FileSpec("file", text.encode("utf-8", "surrogateescape"))
            for name, text in texts.items()
        }
        self._sandbox.unpack(pack_files(files, "/", 0.0))

    def _failed(self, command: str, output: bytes) -> UngradableState:
        message = output.decode("utf-8", "replace").strip()[-300:]
        return UngradableState(
            f"{command[:60]} failed on what was left: {message or 'no reason given'}"
        )


def _is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.type == "d"


def _was_there(path: str, changes: Changes) -> bool:
    return path not in changes.before or changes.before[path] is not None


def _may_have_been_folder(path: str, changes: Changes) -> bool:
    return path not in changes.before or _is_folder(changes.before[path])


def _excluded(path: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern fits a path, or a part of it from a slash on, or a folder above it."""
    names = path.split("/")
    parts = ["/".join(names[a:b]) for a in range(len(names)) for b in range(a + 1, len(names) + 1)]
    return any(fnmatch.fnmatchcase(part, pattern) for pattern in patterns for part in parts)


def _is_short(text: str) -> bool:
    """Whether a command can be given a text with its own, which saves the way of a file."""
    return len(text) <= _MAX_INLINE and text.isascii()


def _with_input(command: str, text: str, note: str) -> str:
    """Return a command that reads a text, from a file if it is not short."""
    if not _is_short(text):
        return f"{command} <{note}"
    if "\0" in text:
        return f"printf '%s\\0' {shlex.join(_split(text))} | {command}"
    return f"printf %s {shlex.quote(text)} | {command}" if text else f"{command} </dev/null"


def _zeroed(paths: Iterable[str]) -> str:
    return "".join(f"{path}\0" for path in paths)


def _paths(output: bytes) -> list[str]:
    return _split(output.decode("utf-8", "surrogateescape"))


def _split(text: str) -> list[str]:
    return [path for path in text.split("\0") if path]
