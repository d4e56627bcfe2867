"""What only some systems have is behind ``system/platform``, and in modules that are of one system.

Read from the sources: a name counts where it is imported, called or compared, and a path where it
is in a text that is no docstring.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.architecture import MODULES

_NAMES = frozenset(
    {
        # Unix's modules
        *("fcntl", "grp", "pwd", "resource", "termios"),
        # Linux's names in os, select, socket and fcntl
        *("O_PATH", "O_TMPFILE", "eventfd", "getxattr", "listxattr", "memfd_create"),
        *("pidfd_open", "pidfd_send_signal", "setxattr", "POLLRDHUP", "epoll", "SO_PEERCRED"),
        *("F_OFD_GETLK", "F_OFD_SETLK", "register_at_fork"),
        # and in its C library
        *("prctl", "setns", "unshare", "syscall"),
    }
)
_PATHS = ("/proc/", "/sys/")

_LINUX_ONLY = (
    "sandboxes.bubblewrap.",
    *(f"sandboxes.egress.{name}" for name in ("namespace", "proxy", "uplink")),
)
"""Beginnings of modules that are imported on Linux alone."""

_INSIDE = "its texts are run in sandboxes, which are Linux"
_PROCESSES = "Linux's way to end processes is next to a portable one"
_TERMINAL = "terminals of macOS are as Linux's, and Windows loads but never calls it"
_EXCEPTIONS = {
    "agents.human.console": ({"termios"}, _TERMINAL),
    "agents.program.supervisor": ({"/proc/", "prctl", "sys.platform"}, _PROCESSES),
    "databases.sqlite.worker": ({"/proc/", "resource"}, _PROCESSES),
    "environments.ctf.strict": ({"/proc/"}, _INSIDE),
    "environments.interpreter": ({"/proc/"}, _INSIDE),
    "environments.paper": ({"/proc/"}, _INSIDE),
    "environments.python.inside.judge": ({"/proc/", "resource"}, _INSIDE),
    "environments.python.inside.one_by_one": ({"/proc/"}, _INSIDE),
    "plugin.terminal": ({"termios"}, _TERMINAL),
    "sandboxes.attached": ({"/proc/"}, "where Linux's log is not to be had, it says nothing"),
    "sandboxes.docker.container": (
        {"/proc/", "/sys/"},
        "paths inside a container; and a process that is not found is on another machine",
    ),
    "sandboxes.docker.podman": ({"/sys/"}, "a path inside a container"),
    "sandboxes.docker.streams": ({"/proc/"}, _INSIDE),
    "sandboxes.docker.places": ({"sys.platform"}, "a table of where engines are, by system"),
    "sandboxes.keeper": ({"/proc/"}, _INSIDE),
    "sandboxes.overlay": ({"/sys/", "getxattr", "sys.platform"}, "it refuses other systems"),
    "sandboxes.pipes": ({"/proc/"}, "for a keeper that is a process of this machine"),
    "system.folders": ({"sys.platform", "syscall"}, "openat2, next to what all systems have"),
    "system.platform": (_NAMES | {*_PATHS, "sys.platform"}, "this is the place"),
    "testing.actions": ({"/proc/"}, _INSIDE),
    "testing.clock": ({"/proc/"}, _INSIDE),
    "testing.limits": ({"/proc/", "/sys/"}, _INSIDE),
}
"""The names that a module may have nevertheless, and why."""


def _names(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "", *(alias.name for alias in node.names))
        elif isinstance(node, ast.Attribute):
            yield node.attr
            if ast.unparse(node) == "sys.platform":
                yield "sys.platform"
        elif isinstance(node, ast.Constant) and node not in docstrings:
            yield from (path for path in _PATHS if path in str(node.value))


def _linux_names(path: Path) -> set[str]:
    return {name for name in _names(path) if name in (*_NAMES, *_PATHS, "sys.platform")}


def test_what_only_some_systems_have_is_in_one_place() -> None:
    names = {
        module: sorted(_linux_names(path) - _EXCEPTIONS.get(module, (set(), ""))[0])
        for module, path in MODULES.items()
        if not module.startswith(_LINUX_ONLY)
    }
    unexpected = {module: its_names for module, its_names in names.items() if its_names}
    assert not unexpected, "add a portable function to system/platform.py"


def test_no_exception_without_need() -> None:
    assert not [module for module in _EXCEPTIONS if not _linux_names(MODULES[module])]


def test_the_rule_sees_what_it_should(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        '''"""/proc/ in words."""
import fcntl
from select import epoll
def f():
    """/sys/ in words."""
    if sys.platform == "linux":
        os.memfd_create(f"/proc/{1}")
'''
    )
    assert _linux_names(source) == {"fcntl", "epoll", "sys.platform", "memfd_create", "/proc/"}
