"""Keeps an agent's hands off the next one's process: what it changed is set back and named.

Agents of one run live in one process. Directory, environment variables, import path, standard
streams, umask and the root logger are as they were when an episode ends. Threads that it leaves
cannot be ended, and are named. Memory, open files and the modules it patched are not looked at.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["OUR_THREADS", "kept_apart"]

OUR_THREADS = "intercode-"
"""How the names of our own threads begin."""

_MOST_NAMES = 5


@contextlib.contextmanager
def kept_apart() -> Iterator[list[str]]:
    """Run an episode; set back what the agent changed in this process.

    Returns:
        A list, filled when the episode is over: a line for each thing that the agent left.
    """
    left: list[str] = []
    keepers = (_directory(), _variables(), _import_path(), _streams(), _umask(), _logging())
    threads = set(threading.enumerate())
    try:
        yield left
    finally:
        for set_back in keepers:
            said = set_back()
            if said:
                left.append(f"{said} (set back)")
        new = [
            thread.name
            for thread in threading.enumerate()
            if thread not in threads and not thread.name.startswith(OUR_THREADS)
        ]
        if new:
            left.append(f"threads that still run: {_names(new)}")


_Keeper = Callable[[], str]


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(sorted(names)[:_MOST_NAMES]) + more


def _directory() -> _Keeper:
    before = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    name = Path.cwd()

    def set_back() -> str:
        try:
            now: Path | str = Path.cwd()
        except OSError:
            now = "a folder that is gone"
        try:
            if now == name:
                return ""
            os.fchdir(before)
            return f"the working directory {now}"
        finally:
            os.close(before)

    return set_back


def _variables() -> _Keeper:
    before = dict(os.environ)

    def set_back() -> str:
        now = dict(os.environ)
        changed = [
            name
            for name in {**before, **now}
            if before.get(name) != now.get(name) and name != "PYTEST_CURRENT_TEST"
        ]
        for name in changed:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]
        return f"environment variables: {_names(changed)}" if changed else ""

    return set_back


def _import_path() -> _Keeper:
    path, words = list(sys.path), list(sys.argv)

    def set_back() -> str:
        if sys.path == path and sys.argv == words:
            return ""
        sys.path[:], sys.argv[:] = path, words
        return "another sys.path or sys.argv"

    return set_back


def _streams() -> _Keeper:
    names = ("stdin", "stdout", "stderr")
    before = [getattr(sys, name) for name in names]

    def set_back() -> str:
        changed = []
        for name, stream in zip(names, before, strict=True):
            if getattr(sys, name) is not stream:
                setattr(sys, name, stream)
                changed.append(f"sys.{name}")
        return f"another {' and '.join(changed)}" if changed else ""

    return set_back


def _umask() -> _Keeper:
    before = _present_umask()

    def set_back() -> str:
        now = _present_umask()
        if before is None or now is None or now == before:
            return ""
        os.umask(before)
        return f"the umask {now:04o}"

    return set_back


def _present_umask() -> int | None:
    """Return the umask without changing it, as ``os.umask`` would; None where nobody says."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return None


def _logging() -> _Keeper:
    root = logging.getLogger()
    level, disabled, handlers = root.level, root.manager.disable, list(root.handlers)

    def set_back() -> str:
        same = (root.level, root.manager.disable, root.handlers) == (level, disabled, handlers)
        if same:
            return ""
        root.setLevel(level)
        logging.disable(disabled)
        root.handlers[:] = handlers
        return "another set-up of the root logger"

    return set_back
