"""Bring what an agent left into a sandbox in which it never acted.

What an agent left is read from outside of its sandbox. For a repository, it is a patch, which the
verifier's own git makes; otherwise it is every path that changed.
"""

from __future__ import annotations

import fnmatch
import functools
import io
import posixpath
import re
import shlex
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pytest_intercode.core.task import Artifact, Task
from pytest_intercode.environments.swe.carrying import Carrying, parents, topmost
from pytest_intercode.environments.swe.commands import (
    NOTE,
    Commands,
    is_short,
    paths_of,
    with_input,
    zeroed,
)
from pytest_intercode.environments.swe.fields import repository_of
from pytest_intercode.environments.swe.machine import (
    HOSTS,
    Index,
    all_host_lines,
    host_lines,
    machine_changes,
    read_index,
)
from pytest_intercode.errors import SandboxBroken, UngradableState
from pytest_intercode.sandboxes.protocol import Changes, Entry, Sandbox, is_folder
from pytest_intercode.system.archives import filter_archive, unpack_files

__all__ = ["EndState"]

_KEPT_BY_ENGINES = (HOSTS, "/etc/hostname", "/etc/resolv.conf")  # mounts, which cannot be replaced
_MAX_PATCH = 64 * 1024**2  # characters of a patch


class Transfer:
    """Brings paths of an agent's sandbox into another one.

    Args:
        commands: run in the target sandbox.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._sandbox = commands.sandbox
        self._newest = 0.0  # the latest time of a file that the agent left

    def unpack(self, archive: bytes, entries: Mapping[str, Entry | None] | None = None) -> None:
        """Unpack what an agent left.

        Args:
            archive: a tar archive of it.
            entries: its earlier entries. If the agent's processes were not ended, they may have
                replaced paths before the archive was read.
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
            self._commands.run(":")  # if this works, the cause is what the agent left
            raise UngradableState(f"what was left cannot be tested: {error}") from None

    def lay(self, agents: Sandbox, changes: Changes, paths: list[str]) -> None:
        """Make paths the same as in the agent's sandbox, which has these changes."""
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
            self._commands.run("xargs -0r rm -rf --", gone)
        if present:
            self.unpack(archive, changes.entries)
        for path in engine_files:
            self._write(path, agents)

    def _write(self, path: str, agents: Sandbox) -> None:
        """Copy the content of a file that the engine mounts from the agent's sandbox."""
        content = unpack_files(agents.archive([path])).get(path, b"")
        if path == HOSTS:
            own_lines = set(all_host_lines(self._sandbox)).difference(host_lines(self._sandbox))
            content = b"".join(line + b"\n" for line in [*own_lines, *host_lines(agents)])
        self._commands.note({"": content.decode("utf-8", "surrogateescape")})
        self._commands.run(f"cat {NOTE} >{path}")

    def renew(self, paths: list[str]) -> None:
        """Make files newer than all that the agent left, so that builds do not use its products."""
        if paths:
            self._commands.run(f"xargs -0r touch -ch -d @{self.later_time():.0f} --", paths)

    def later_time(self) -> float:
        """Return a time that is later than the times of all that the agent left."""
        return float(max(int(time.time()), int(self._newest) + 1))


class EndState:
    """One end state in a verifier's sandbox.

    Args:
        commands: run in the sandbox, which is in the task's first state.
        task: the task, which has a verification.
        carrying: decides which parts of the end state are carried.
        index: what :func:`read_index` returned; if None, it is called when it is needed.
        clearing: returns the command that makes room for what the tests bring and write, and that
            also removes the given files.

    Attributes:
        patch: the agent's changes to the repository, as a patch; empty if there is none.
        left_out: paths that the agent changed and that are not tested.
        cleared: whether there is room for what the tests bring and write.
        transfer: brings what the agent left.
    """

    def __init__(
        self,
        commands: Commands,
        task: Task,
        carrying: Carrying,
        index: Index | None,
        clearing: Callable[[Sequence[str]], str],
    ) -> None:
        assert task.verification is not None
        self._commands = commands
        self._sandbox = commands.sandbox
        self._task = task
        self._carrying = carrying
        self._index = index
        self._verification = task.verification
        self._clearing = clearing
        self.transfer = Transfer(commands)
        self.cleared = False
        self.patch = ""
        self.left_out: list[str] = []

    def to_json(self) -> dict[str, Any]:
        """Return the parts that are recorded."""
        return {"patch": self.patch, "left_out": self.left_out}

    def take(self, agents: Sandbox) -> None:
        """Bring the end state of the agent's sandbox.

        Raises:
            UngradableState: it is too large, or cannot be tested.
            SandboxBroken: it ended the sandbox.
        """
        self._sandbox.expose()
        verification, repository = self._verification, repository_of(self._task)
        if verification.artifacts is not None:
            self._carry(agents, verification.artifacts)
        elif repository is None:
            self._take_machine(agents, machine_changes(agents, host_lines(self._sandbox)))
        else:
            self._take_patch(agents, agents.changes(), repository.at.rstrip("/"))
        for artifact in verification.evidence:
            self._take_evidence(agents, artifact)

    def _take_evidence(self, agents: Sandbox, artifact: Artifact) -> None:
        """Bring what is at a path of a service, replacing what is there."""
        archive = agents.archive_service(artifact.service, artifact.path)
        if archive and artifact.exclude:
            archive = filter_archive(archive, lambda path: not _excluded(path, artifact.exclude))
        self._commands.run(f"rm -rf -- {shlex.quote(posixpath.normpath(artifact.path))}")
        if archive:
            self.transfer.unpack(archive)

    def _take_patch(self, agents: Sandbox, changes: Changes, root: str) -> None:
        """Bring the agent's changes to the repository at ``root``."""
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
        # Git compares what it stores, not what tests see: it may take different line ends for
        # equal. Of removed paths, it reports the ones that it tracks, also those in folders.
        looked_at = {
            full
            for path, full in inside.items()
            if not is_folder(changes.entries[full])
            and (
                changes.entries[full] is not None
                or (path not in index.tracked and not _may_have_been_folder(full, changes))
            )
        }
        left_out |= self._carrying.left_out(changes, looked_at | removed)
        # Git can restore tracked paths. Other paths that existed at first must not be touched.
        stays = {folder for path in left_out & removed for folder in parents(path)}
        for path, full in list(inside.items()):
            if full in stays or (
                full in left_out
                and path not in index.tracked
                and _was_there(full, changes)
                and not _may_have_been_folder(full, changes)
            ):
                del inside[path]
        self.transfer.lay(agents, changes, list(inside.values()))
        names = self._make_patch(
            {path: changes.entries[full] for path, full in inside.items()}, index
        )
        remaining = {f"{root}/{name}" for name in names} - looked_at
        left_out |= self._carrying.left_out(changes, remaining)
        self.left_out = sorted(path[len(root) + 1 :] for path in left_out - removed)
        self._bring_back(root, [path for path in self.left_out if path in inside])
        if any(path not in index.tracked for path in names):
            tests = [path for path in index.tracked if self._carrying.is_test(f"{root}/{path}")]
            self.transfer.renew([f"{root}/{path}" for path in tests])

    def _take_rules(
        self, agents: Sandbox, changes: Changes, inside: dict[str, str], index: Index
    ) -> list[str]:
        """Drop paths that git ignores, also by the agent's own rules: patches do not have them.

        Returns:
            The paths that were ignored before and no longer are, except those that gold changes:
            an agent may add rules, but not remove any.
        """
        new = [path for path in inside if path not in index.tracked]
        if not new:
            return []
        rules = [full for full in inside.values() if posixpath.basename(full) == ".gitignore"]
        ask = "check-ignore -z --stdin"
        ignored_before = set(self._commands.git_paths(ask, new, (0, 1))) if rules else set()
        self.transfer.lay(agents, changes, rules)
        ignored = set(self._commands.git_paths(ask, new, (0, 1)))
        left_out = ignored_before - ignored
        if left_out:
            gold = self._carrying.gold()
            left_out = {path for path in left_out if inside[path] not in gold}
        full = [inside[path] for path in left_out]
        for path in ignored | left_out:
            inside.pop(path, None)
        return full

    def _take_machine(self, agents: Sandbox, changes: Changes) -> None:
        """Bring the agent's changes to the machine, for a task without a repository."""
        paths = [path for path in changes.entries if not self._carrying.is_cache(path)]
        changes, removed = self._with_removed(changes, paths)
        left_out = self._carrying.left_out(changes, [*paths, *removed])
        self.transfer.lay(agents, changes, [path for path in paths if path not in left_out])
        self.left_out = topmost(left_out)

    def _with_removed(self, changes: Changes, paths: Iterable[str]) -> tuple[Changes, set[str]]:
        """Add what was in folders that have been removed or replaced.

        Args:
            changes: the changes, which name only the folder itself.
            paths: the changed paths that count.

        Returns:
            The changes with the paths that were removed with the folders, and these paths.
        """
        tops = [
            path
            for path in paths
            if not is_folder(changes.entries[path]) and _may_have_been_folder(path, changes)
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
            _, output = self._commands.attempt(f"{self._commands.git} ls-files 2>&1 >/dev/null")
            raise self._commands.failure("git ls-files", output)
        return self._index

    def _carry(self, agents: Sandbox, artifacts: Iterable[Artifact]) -> None:
        """Bring only the declared files and folders; missing ones are skipped."""
        carried: set[str] = set()
        for artifact in artifacts:
            paths = agents.below([posixpath.normpath(artifact.path)])
            carried.update(path for path in paths if not _excluded(path, artifact.exclude))
        carried = {path for path in carried if not self._carrying.is_cache(path)}
        self.transfer.unpack(agents.archive(sorted(carried)))

    def _make_patch(self, entries: Mapping[str, Entry | None], index: Index) -> list[str]:
        """Add the current state of paths to git's index, and take the difference.

        Returns:
            The paths that the patch changes, relative to the repository.
        """
        noted: dict[str, list[str]] = {"gone": [], "other": [], "file": []}
        for path, entry in entries.items():
            kind = "gone" if entry is None else "file" if entry.type in "fl" else "other"
            noted[kind].append(path)
        # A removed path may have been a folder. A path that is not a file may have been one before,
        # and the index does not have folders.
        words = {
            "gone": "--literal-pathspecs rm -rq --cached --ignore-unmatch "
            "--pathspec-from-file=- --pathspec-file-nul",
            "other": "update-index --force-remove -z --stdin",
            "file": "update-index --add --remove --replace -z --stdin",
        }
        git = f"GIT_INDEX_FILE={shlex.quote(index.copy)} {self._commands.git}"
        inputs = {f"-{kind}": zeroed(paths) for kind, paths in noted.items() if paths}
        long = {name: text for name, text in inputs.items() if not is_short(text)}
        if long:
            self._commands.note(long)
        commands = [
            with_input(f"{git} {words[name[1:]]}", text, NOTE + name)
            for name, text in inputs.items()
        ]
        commands.append(  # prints the paths, then an empty one and the patch
            f"{git} diff --cached --raw -z --patch --binary --full-index --no-color --no-renames "
            "--no-ext-diff --no-textconv HEAD"
        )
        # If the tests have a patch, clear after it, because the tests' files overwrite its results.
        early = not self._verification.patch
        used_files = [index.copy, *(NOTE + name for name in long)]
        commands.append(
            self._clearing(used_files) if early else f"rm -f -- {shlex.join(used_files)}"
        )
        names, _, patch = self._commands.run(" && ".join(commands)).partition(b"\0\0")
        self.patch = patch.decode("utf-8", "surrogateescape")
        if len(self.patch) > _MAX_PATCH:
            raise UngradableState(f"the patch has more than {_MAX_PATCH} characters")
        self.cleared = early
        return paths_of(names)[1::2]

    def _bring_back(self, root: str, laid: Iterable[str]) -> None:
        """Restore the paths that are left out; room for the tests is made again after that.

        Args:
            root: the repository.
            laid: the paths among them that were brought.
        """
        if not self.left_out:
            return
        self.cleared = False
        tracked = self._known_index().tracked
        new = [path for path in laid if path not in tracked]
        if new:
            self._commands.run(f"cd {shlex.quote(root)} && xargs -0r rm -rf --", new)
        old = [path for path in self.left_out if path in tracked]
        # Attributes first: with those of the agent, git would write the other files differently.
        first = [path for path in old if posixpath.basename(path) == ".gitattributes"]
        for paths in (first, [path for path in old if path not in first]):
            if paths:
                self._commands.git_paths("checkout-index -f -q -z --stdin", paths)


def _was_there(path: str, changes: Changes) -> bool:
    return path not in changes.before or changes.before[path] is not None


def _may_have_been_folder(path: str, changes: Changes) -> bool:
    return path not in changes.before or is_folder(changes.before[path])


def _excluded(path: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern matches a path, its part after a slash, or a folder above it."""
    return any(_part_form(pattern).search(path) for pattern in patterns)


@functools.cache
def _part_form(pattern: str) -> re.Pattern[str]:
    """Return a regex that finds an ``fnmatch`` pattern between slashes or the ends of a path."""
    # More of the path may follow the pattern. Python 3.14 writes the end as the second form.
    form = fnmatch.translate(pattern).removesuffix(r"\Z").removesuffix(r"\z")
    return re.compile(rf"(?:\A|(?<=/)){form}(?=/|\Z)")
