"""Programs of this machine, in a folder that runs in any Linux sandbox of the same processor.

A program is copied with its shared libraries and their loader, and a wrapper starts the loader by
its path, so nothing of an image's own C library is used. Packages come from pip and npm, which the
user has, for any platform. For another platform than this machine's, see ``workshop.py``.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_intercode.core.platforms import Platform, platform_of_machine
from pytest_intercode.errors import FetchError
from pytest_intercode.system.platform import IS_LINUX

__all__ = [
    *("EXCLUDED", "LinuxPython", "copy_program", "copy_python", "download_wheels", "find_reason"),
    *("install_npm_packages", "install_wheels", "npm_processor", "own_platform"),
    *("run_installer", "write_program", "write_wrapper"),
]

EXCLUDED = ("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "site-packages")
"""Parts of Python's standard library that are of no use in a sandbox."""

_LIBRARY = re.compile(r"(?:=>\s*)?(/\S+)\s+\(0x")
_LDD_TIMEOUT = 60.0  # seconds
_INSTALL_TIMEOUT = 1800.0  # seconds
_NO_PIP_CHECK = "--disable-pip-version-check"
_MARK = re.compile(r"^(?:ERROR: |npm (?:error|ERR!) ?)")
_MAX_REASONS = 4  # rows of an error that are shown
_MAX_ROW_LENGTH = 160  # characters of such a row
# npm uses Node's names; these differ from those of images.
_NPM_PROCESSORS = {"amd64": "x64", "386": "ia32", "ppc64le": "ppc64"}
_OLDEST_GLIBC = 5  # the oldest minor version that wheels name, that of manylinux1
_OLD_WHEELS = ("manylinux2014", "manylinux2010", "manylinux1", "linux")
# pip can choose wheels for another platform, but evaluates conditions such as
# `sys_platform == "linux"` for its own, and has no option for that.
_PIP = """\
import json
import sys

from pip._internal.cli.main import main
from pip._vendor.packaging import markers

target = json.loads(sys.argv.pop(1))
own = markers.default_environment
markers.default_environment = lambda: {**own(), **target}
sys.exit(main())
"""


def own_platform() -> Platform | None:
    """Return this machine's platform; None if it does not run Linux."""
    return platform_of_machine(platform.machine()) if IS_LINUX else None


@dataclass(frozen=True)
class LinuxPython:
    """A Python for which packages are installed.

    Attributes:
        platform: its platform.
        version: its version: ``3.11.2``.
        glibc: the version of its C library: ``2.36``.
    """

    platform: Platform
    version: str
    glibc: str

    @property
    def short_version(self) -> str:
        """Its version without the last number: ``3.11``."""
        return ".".join(self.version.split(".")[:2])

    def wheel_arguments(self) -> list[str]:
        """Return the arguments with which pip chooses wheels for it, the newest first."""
        machine, (_, minor) = self.platform.machine, map(int, self.glibc.split(".")[:2])
        tags = [f"manylinux_2_{number}" for number in range(minor, _OLDEST_GLIBC - 1, -1)]
        words = [f"--platform={tag}_{machine}" for tag in (*tags, *_OLD_WHEELS)]
        abis = (f"cp{self.short_version.replace('.', '')}", "abi3", "none")
        words += [f"--abi={abi}" for abi in abis]
        return [*words, "--implementation=cp", f"--python-version={self.version}"]

    def markers(self) -> dict[str, str]:
        """Return the values for evaluating conditions of requirements (PEP 508)."""
        return {
            "implementation_name": "cpython",
            "implementation_version": self.version,
            "os_name": "posix",
            "platform_machine": self.platform.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": self.version,
            "python_version": self.short_version,
            "sys_platform": "linux",
        }


def install_wheels(
    purpose: str, requirements: Sequence[str], target: Path, python: LinuxPython | None = None
) -> None:
    """Install packages of PyPI into a folder; no code of theirs is run.

    Args:
        purpose: what they are for, in messages.
        requirements: the packages, as pip writes them.
        target: the folder.
        python: the Python that they are for; None for this process's.

    Raises:
        FetchError: they cannot be installed.
    """
    _run_pip(purpose, python, "install", f"--target={target}", *requirements)


def download_wheels(
    purpose: str, requirements: Sequence[str], target: Path, python: LinuxPython | None = None
) -> None:
    """Download the wheels of packages of PyPI into a folder; see :func:`install_wheels`."""
    _run_pip(purpose, python, "download", f"--dest={target}", *requirements)


def _run_pip(purpose: str, python: LinuxPython | None, command: str, *words: str) -> None:
    words = ("--only-binary=:all:", *words)
    if python is None:
        run_installer(purpose, "pip", command, *words)
        return
    line = [sys.executable, "-c", _PIP, json.dumps(python.markers()), command, *words]
    _run(f"{purpose}: pip {command}", [*line, *python.wheel_arguments(), _NO_PIP_CHECK])


def npm_processor(platform: Platform) -> str:
    """Return what npm calls the processor of a platform: ``x64``, ``arm64``."""
    return _NPM_PROCESSORS.get(platform.architecture, platform.architecture)


def install_npm_packages(
    purpose: str, packages: Sequence[str], target: Path, platform: Platform | None = None
) -> None:
    """Install packages of npm; no code of theirs is run.

    Args:
        purpose: what they are for, in messages.
        packages: the packages, as npm writes them.
        target: the folder that gets ``node_modules``.
        platform: the platform that they are for, with glibc; None for this machine's.

    Raises:
        FetchError: they cannot be installed.
    """
    words = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    if platform is not None:
        words += ["--os=linux", f"--cpu={npm_processor(platform)}", "--libc=glibc"]
    run_installer(purpose, "npm", *words, f"--prefix={target}", *packages)


def run_installer(purpose: str, *words: str) -> None:
    """Run pip or npm.

    Args:
        purpose: what it is run for, in the message.
        words: ``pip`` or ``npm``, and the arguments.

    Raises:
        FetchError: it is not installed, or failed; the message has its last lines.
    """
    program, *arguments = words
    line = [sys.executable, "-m", "pip", *arguments, _NO_PIP_CHECK]
    if program != "pip":
        executable = shutil.which(program)
        if executable is None:
            raise FetchError(f"{purpose}: {program} is needed, but is not on the PATH")
        line = [executable, *arguments]
    _run(f"{purpose}: {program} {arguments[0]}", line)


def _run(
    label: str, line: Sequence[str], *, timeout: float = _INSTALL_TIMEOUT, check: bool = True
) -> str:
    """Run a program without input, and return its output.

    Args:
        label: what error messages begin with.
        line: the words of its command line.
        timeout: seconds that it has.
        check: whether a status other than 0 is an error.

    Raises:
        FetchError: it cannot be run, takes too long, or failed.
    """
    try:
        result = subprocess.run(
            line, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{label} failed: {error}") from None
    if check and result.returncode:
        raise FetchError(f"{label} failed: {find_reason(result.stderr, result.stdout)}")
    return result.stdout


def find_reason(errors: str, output: str = "") -> str:
    """Return why pip or npm failed, in one line.

    Args:
        errors: what it wrote to its standard error.
        output: what it wrote to its standard output, where pip reports conflicts.
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
    """Write a script that every user may execute."""
    path.write_text(text, "utf-8")
    path.chmod(0o755)


def copy_python(target: Path, mount_path: str, programs: Iterable[Path] = ()) -> None:
    """Copy this process's Python: the interpreter and its standard library, without packages.

    Args:
        target: the folder to make; ``bin/python3`` starts it.
        mount_path: where a sandbox will see that folder.
        programs: further programs that are put into ``bin``, and find their libraries there.

    Raises:
        FetchError: it cannot be copied.
    """
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    part = _begin(target)
    program = Path(os.path.realpath(sys.executable))
    shutil.copy(program, part / "bin" / "python")
    library = part / "lib" / version
    ignored = shutil.ignore_patterns(*EXCLUDED, "config-*", "dist-packages")
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=ignored)
    (library / "site-packages").mkdir()
    dependents = [program, *library.rglob("*.so"), *programs]
    for path in programs:
        shutil.copy(path, part / "bin" / path.name)
    _copy_libraries(dependents, part, "Python")
    write_wrapper(part / "bin" / "python3", mount_path, "python")
    words = ("-q", "--invalidation-mode", "unchecked-hash", str(library))
    # Its status does not count: it is not 0 if a single module of the library cannot be compiled.
    _run("Python: compileall", [sys.executable, "-m", "compileall", *words], check=False)
    _end(part, target)


def copy_program(name: str, target: Path, mount_path: str, path: Path | None = None) -> None:
    """Copy a program of this machine.

    Args:
        name: what it is called.
        target: the folder to make; ``bin/NAME`` starts it.
        mount_path: where a sandbox will see that folder.
        path: the program; None for the one that the PATH knows by that name.

    Raises:
        FetchError: there is none, or it cannot be copied.
    """
    executable = path or shutil.which(name)
    if executable is None:
        raise FetchError(f"{name} is needed, but is not on the PATH")
    part = _begin(target)
    program = Path(os.path.realpath(executable))
    shutil.copy(program, part / "bin" / f".{name}")
    _copy_libraries([program], part, name)
    write_wrapper(part / "bin" / name, mount_path, f".{name}")
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


def write_wrapper(path: Path, mount_path: str, program: str) -> None:
    """Write a script that starts a copied program with its own loader at its mount path."""
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
        raise FetchError(f"this machine's {purpose} cannot be used elsewhere (no ldd)")


def _find_libraries(programs: Iterable[Path]) -> set[Path]:
    """Return the shared libraries of programs, and the libraries that these need.

    The result is empty if this machine does not have ``ldd``.
    """
    if shutil.which("ldd") is None:
        return set()
    libraries: set[Path] = set()
    for path in programs:  # ldd fails for one that needs no library
        output = _run(f"ldd {path}", ["ldd", str(path)], timeout=_LDD_TIMEOUT, check=False)
        libraries.update(map(Path, _LIBRARY.findall(output)))
    return libraries
