"""Programs of this machine in a folder that runs in any Linux sandbox of the same processor.

A program is copied with its shared libraries and their loader, which a wrapper starts by its path;
so nothing of an image's own C library is used. Packages come from pip and npm, which the user has.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_intercode.errors import FetchError

__all__ = ["copy_program", "copy_python", "find_reason", "run_installer", "write_program"]

_EXCLUDED = ("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "site-packages")
_LIBRARY = re.compile(r"(?:=>\s*)?(/\S+)\s+\(0x")
_INSTALL_TIMEOUT = 1800.0  # seconds
_MARK = re.compile(r"^(?:ERROR: |npm (?:error|ERR!) ?)")
_MAX_REASONS = 4  # rows of an error that are shown
_MAX_ROW_LENGTH = 160  # characters of such a row


def run_installer(purpose: str, *words: str) -> None:
    """Run pip or npm.

    Args:
        purpose: for the message, what it is run for.
        words: ``pip`` or ``npm``, and the arguments.

    Raises:
        FetchError: it is not there, or failed; the message has its last words.
    """
    program, *arguments = words
    line = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check"]
    if program != "pip":
        executable = shutil.which(program)
        if executable is None:
            raise FetchError(f"{purpose}: {program} is needed, and is not on the PATH")
        line = [executable, *arguments]
    try:
        result = subprocess.run(
            line, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{purpose}: {program} {arguments[0]} failed: {error}") from None
    if result.returncode:
        reason = find_reason(result.stderr, result.stdout)
        raise FetchError(f"{purpose}: {program} {arguments[0]} failed: {reason}")


def find_reason(errors: str, output: str = "") -> str:
    """Return in one line why pip or npm failed.

    Args:
        errors: what it wrote to its standard error.
        output: what it wrote to its standard output, where pip names what contradicts each other.
    """
    rows = [row.strip() for row in errors.splitlines() if row.strip()]
    marked = [_MARK.sub("", row) for row in rows if _MARK.match(row)]
    reasons = [row for row in marked if row and not row.startswith("at ")][:_MAX_REASONS]
    if rows and not _MARK.match(rows[-1]):  # a traceback has its reason at the end
        reasons.append(rows[-1])
    _, conflict, causes = output.partition("The conflict is caused by:")
    if conflict:
        causes = causes.partition("To fix this")[0]
        reasons += [row.strip() for row in causes.splitlines() if row.strip()][:_MAX_REASONS]
    lines = (
        row if len(row) <= _MAX_ROW_LENGTH else f"{row[:_MAX_ROW_LENGTH]}..." for row in reasons
    )
    return "; ".join(dict.fromkeys(lines)) or "no reason given"


def write_program(path: Path, text: str) -> None:
    """Write a script that anybody may run."""
    path.write_text(text, "utf-8")
    path.chmod(0o755)


def copy_python(target: Path, mount_path: str, programs: Iterable[Path] = ()) -> None:
    """Copy this process's Python: the interpreter and its standard library, without packages.

    Args:
        target: the folder to make; ``bin/python3`` starts it.
        mount_path: where a sandbox will see that folder.
        programs: further programs that are put into ``bin``, which find their libraries there.

    Raises:
        FetchError: it cannot be copied.
    """
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    part = _begin(target)
    program = Path(os.path.realpath(sys.executable))
    shutil.copy(program, part / "bin" / "python")
    library = part / "lib" / version
    ignored = shutil.ignore_patterns(*_EXCLUDED, "config-*", "dist-packages")
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=ignored)
    (library / "site-packages").mkdir()
    dependents = [program, *library.rglob("*.so"), *programs]
    for path in programs:
        shutil.copy(path, part / "bin" / path.name)
    _copy_libraries(dependents, part, "Python")
    _write_wrapper(part / "bin" / "python3", mount_path, "python")
    words = ("-q", "--invalidation-mode", "unchecked-hash", str(library))
    compiled = [sys.executable, "-m", "compileall", *words]
    subprocess.run(compiled, capture_output=True, timeout=_INSTALL_TIMEOUT)
    _end(part, target)


def copy_program(name: str, target: Path, mount_path: str) -> None:
    """Copy a program of this machine.

    Args:
        name: the program, as the PATH knows it.
        target: the folder to make; ``bin/NAME`` starts it.
        mount_path: where a sandbox will see that folder.

    Raises:
        FetchError: there is none, or it cannot be copied.
    """
    executable = shutil.which(name)
    if executable is None:
        raise FetchError(f"{name} is needed, and is not on the PATH")
    part = _begin(target)
    program = Path(os.path.realpath(executable))
    shutil.copy(program, part / "bin" / f".{name}")
    _copy_libraries([program], part, name)
    _write_wrapper(part / "bin" / name, mount_path, f".{name}")
    _end(part, target)


def _begin(target: Path) -> Path:
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    (part / "bin").mkdir(parents=True)
    (part / "lib").mkdir()
    return part


def _end(part: Path, target: Path) -> None:
    for path in (part / "bin").iterdir():
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    part.rename(target)


def _write_wrapper(path: Path, mount_path: str, program: str) -> None:
    write_program(
        path,
        f'#!/bin/sh\nexec {mount_path}/lib/ld.so --library-path {mount_path}/lib --argv0 "$0" '
        f'{mount_path}/bin/{program} "$@"\n',
    )


def _copy_libraries(programs: Sequence[Path], part: Path, purpose: str) -> None:
    for path in _find_libraries(programs):
        shutil.copy(path, part / "lib" / path.name)
        if path.name.startswith("ld-"):
            shutil.copy(path, part / "lib" / "ld.so")
    if not (part / "lib" / "ld.so").is_file():
        raise FetchError(f"this machine's {purpose} is of no use elsewhere (no ldd)")


def _find_libraries(programs: Iterable[Path]) -> set[Path]:
    """Return the shared libraries that programs need, and those that these need."""
    libraries: set[Path] = set()
    for path in programs:
        result = subprocess.run(["ldd", str(path)], capture_output=True, text=True, timeout=60)
        libraries.update(Path(name) for name in _LIBRARY.findall(result.stdout))
    return libraries
