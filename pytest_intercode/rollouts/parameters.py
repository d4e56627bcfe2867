"""Parameters that a trainer gives its agent, in versions: JSON values, and files by content.

A file is copied when it is given, so that it can be overwritten immediately; the copy is removed
when no episode uses it any more.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.rollouts.spec import Parameters
from pytest_intercode.suites.arguments import ArgumentChecks

if TYPE_CHECKING:
    from pytest_intercode.rollouts.cluster.executor import ClusterExecutor

__all__ = ["ParameterSource"]

_LARGEST = 1024 * 1024  # maximum characters of the JSON values of a version
_BLOCK = 4 * 1024 * 1024


class ParameterSource:
    """The parameters of a stream; safe to use from any thread.

    Args:
        asked: the function that the user called, for messages.
        names: the names of the parameters, which must not change.
    """

    def __init__(self, asked: str, names: frozenset[str] = frozenset()) -> None:
        self.names = names
        self.user: ClusterExecutor | None = None
        self._asked = asked
        self._checks = ArgumentChecks(f"{asked}: set_parameters")
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._present: Parameters | None = None
        self._uses: Counter[Path] = Counter()
        self._numbers = itertools.count(1)
        self._closed = False

    def set(self, given: Mapping[str, object], version: int | None = None) -> int:
        """Use these parameters for episodes that begin from now on; return their version.

        Args:
            given: JSON values and paths of files, by name.
            version: their number; by default one more than before.

        Raises:
            ConfigurationError: a value is neither, a file cannot be read, names differ, or the
                stream is closed. Then the earlier parameters stay, and these are dropped.
        """
        if frozenset(given) != self.names:
            raise self._wrong(
                f"{_named(given)} instead of {_named(self.names)}, which run_rollouts was given"
            )
        version = self._checks.whole("version", version)
        paths = {name: value for name, value in given.items() if isinstance(value, os.PathLike)}
        values = self._values({name: given[name] for name in given if name not in paths})
        copies: list[tuple[str, Path]] = []
        try:
            for name, path in paths.items():
                copies.append((name, self._reserve(Path(path).name)))
                self._copy(name, Path(path), copies[-1][1])
            with self._lock:
                self._check_open()
                previous = self._present
                if version is None:
                    version = 1 if previous is None else previous.version + 1
                self._present = Parameters(version, values, tuple(copies))
        except BaseException:  # also Ctrl-C, as copying adapter weights takes a while
            self._release(copies)
            raise
        self.give_back(previous)
        return version

    def take(self) -> Parameters | None:
        """Return the current parameters, for an episode; :meth:`give_back` ends their use."""
        with self._lock:
            if self._present is not None:
                self._uses.update(path for _, path in self._present.files)
            return self._present

    def give_back(self, parameters: Parameters | None) -> None:
        """End the use by an episode; remove files that are not used any more."""
        if parameters is not None:
            self._release(parameters.files)

    def _release(self, files: Sequence[tuple[str, Path]]) -> None:
        """End one use of each file; remove files that are not used any more."""
        unused = []
        with self._lock:
            for _, path in files:
                if path in self._uses:
                    self._uses[path] -= 1
                    if not self._uses[path]:
                        del self._uses[path]
                        unused.append(path)
        for path in unused:
            if self.user is not None:
                self.user.forget(path)
            shutil.rmtree(path.parent, ignore_errors=True)

    def close(self) -> None:
        """Remove all files, which must not be in use any more."""
        with self._lock:
            self._closed = True
            copies, self._uses = list(self._uses), Counter()
            folder, self._folder = self._folder, None
        for path in copies:
            if self.user is not None:
                self.user.forget(path)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _values(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return a copy of JSON values, equal to what a node would receive."""
        try:
            text = json.dumps(values)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._wrong(f"{error}: JSON values and paths of files are allowed") from None
        if len(text) > _LARGEST:
            raise self._wrong(
                f"{len(text):,} characters, but at most {_LARGEST:,} are allowed; write them to a "
                "file, and give its path as a pathlib.Path"
            )
        copied: dict[str, object] = json.loads(text)
        return copied

    def _reserve(self, file_name: str) -> Path:
        """Return the path for a copy of a file, in its own folder; it counts as used."""
        with self._lock:
            self._check_open()
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="intercode-parameters-"))
            target = self._folder / str(next(self._numbers)) / file_name
            self._uses[target] += 1
        return target

    def _copy(self, name: str, path: Path, target: Path) -> None:
        content = hashlib.sha256()
        try:
            target.parent.mkdir()
            with path.open("rb") as file, target.open("wb") as copy:
                while block := file.read(_BLOCK):
                    content.update(block)
                    copy.write(block)
        except OSError as error:
            raise self._wrong(f"{name}: {path} cannot be copied: {error.strerror}") from None
        if self.user is not None:
            self.user.put(target, content.hexdigest())

    def _check_open(self) -> None:
        """Raise if the stream is closed; with the lock held."""
        if self._closed:
            raise self._wrong("the stream is closed")

    def _wrong(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self._asked}: parameters: {what}")


def _named(names: object) -> str:
    return ", ".join(sorted(map(str, names))) or "none"  # type: ignore[call-overload]
