"""Common parts of the two formats: instructions, solutions, variables, labels. Reads files."""

from __future__ import annotations

import base64
import errno
import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.permissions import Permissions
from pytest_intercode.core.task import Limits
from pytest_intercode.errors import MissingFile, SuiteError
from pytest_intercode.suites.harbor.bootstrap import requirements_of
from pytest_intercode.suites.harbor.config import HealthcheckConfig
from pytest_intercode.system.suite_folder import SuitePath

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "DEFAULT_ACTION_TIMEOUT",
    "LOGS",
    "LOG_FOLDERS",
    "MAX_TURNS",
    "MissingVariable",
    "find_requirements",
    "healthcheck_setup",
    "make_gold",
    "make_limits",
    "make_tags",
    "open_folder",
    "passed_variables",
    "read_text",
    "resolve_variables",
    "solution_files",
    "task_id",
    "without_canary",
]

LOGS = "/logs/verifier"
LOG_FOLDERS = ("/logs/agent", "/logs/artifacts", LOGS)
"""Folders that both formats have in every machine, open to all users."""

MAX_TURNS = 100
"""Maximum actions of an episode; the formats only limit its time."""

DEFAULT_ACTION_TIMEOUT = 600.0
"""Seconds for an action if the task has no time limit."""

_READ_SUFFIXES = (".py", ".txt", ".in")  # files that test scripts run or install from
_MAX_READ_BYTES = 2**20  # bytes of such a file that are read
_MAX_SOLUTION_BYTES = 16 * 1024**2  # bytes of a solution, which becomes a command
_HOST_VARIABLE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
_MEMORY = 2 * 1024**3  # bytes
_PROCESSES = 4096
_DISK = 10 * 1024**3  # maximum bytes of one file


class MissingVariable(MissingFile):
    """A task needs an environment variable of this machine that it does not get."""


def read_text(path: Path | SuitePath, label: str) -> str:
    """Return the text of a file of a task.

    Raises:
        MissingFile: the file does not exist.
        SuiteError: it cannot be read, or is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingFile(f"{path.parent}: {label} is missing: there is no {path.name}") from None
    except OSError as error:
        raise SuiteError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path}: cannot be read: {error}") from None


def find_requirements(
    folders: Sequence[SuitePath], scripts: Iterable[str] = ()
) -> tuple[str, ...] | None:
    """Return the requirements that tests install from the network; None if they fetch nothing.

    Args:
        folders: the folders of the tests. Any shell script in them may install packages.
        scripts: the texts of further shell scripts.
    """
    texts = [*scripts]
    files: dict[str, str] = {}
    for folder in filter(SuitePath.is_dir, folders):
        texts += [read_text(path, "a script") for path in folder.glob("*.sh")]
        for name, path in folder.files():
            if name.endswith(_READ_SUFFIXES):
                files[name] = path.read_beginning(_MAX_READ_BYTES).decode("utf-8", "replace")
    return requirements_of(texts, files)


def without_canary(text: str) -> str:
    """Return an instruction without the marks at its beginning that keep it out of training data.

    These are comments with the word canary; the blank lines after them are removed as well.
    """
    lines = text.split("\n")
    first = 0
    while first < len(lines) and _is_canary(lines[first].strip().lower()):
        first += 1
    while first < len(lines) and not lines[first].strip():
        first += 1
    return "\n".join(lines[first:])


def _is_canary(line: str) -> bool:
    is_comment = line.startswith("#") or (line.startswith("<!--") and line.endswith("-->"))
    return is_comment and "canary" in line


def resolve_variables(
    variables: Mapping[str, str], place: str, permissions: Permissions
) -> tuple[tuple[str, str], ...]:
    """Return environment variables, with references to variables of the host replaced.

    Only a value that consists of ``${NAME}`` or ``${NAME:-default}`` is a reference, and only to
    variables that the user passes on.

    Raises:
        MissingVariable: a variable is not set, or not passed on, and there is no default.
    """
    pairs = []
    for name, value in variables.items():
        match = _HOST_VARIABLE.fullmatch(value)
        if match is not None:
            environment = os.environ if match[1] in permissions.variables else {}
            default = environment.get(match[1], match[2])
            if default is None:
                reason = "is not set"
                if match[1] not in permissions.variables:
                    remedy = permissions.remedy("pass-env", match[1])
                    reason = f"of this machine is not passed on: {remedy} does so"
                raise MissingVariable(
                    f"{place}: {name} = {value!r}: the environment variable {match[1]} {reason}"
                )
            value = default
        pairs.append((name, value))
    return tuple(pairs)


def passed_variables(permissions: Permissions) -> dict[str, str]:
    """Return the environment variables of the host that the user passes on."""
    return {name: os.environ[name] for name in permissions.variables if name in os.environ}


def make_gold(
    files: Mapping[str, SuitePath],
    run: str,
    workdir: str,
    variables: Iterable[tuple[str, str]] = (),
) -> tuple[str, ...]:
    """Return a solution as commands that write its files and run its script.

    Args:
        files: its files, by their paths in the sandbox.
        run: the command that runs it.
        workdir: the directory of that command.
        variables: its environment variables.

    Raises:
        SuiteError: a file cannot be read, or they are too large for a command.
    """
    commands = []
    room = _MAX_SOLUTION_BYTES
    for target, path in files.items():
        try:
            data = path.read_bytes(room)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise SuiteError(
                    f"{path.parent}: a solution is larger than {_MAX_SOLUTION_BYTES // 2**20} MiB"
                ) from None
            raise SuiteError(f"{path}: cannot be read: {error.strerror}") from None
        room -= len(data)
        commands.append(_writing(target, data))
    folders = sorted({posixpath.dirname(target) for target in files})
    quoted_folders = " ".join(map(shlex.quote, folders))
    executables = " ".join(map(shlex.quote, (t for t in files if t.endswith(".sh"))))
    environment = {"DEBIAN_FRONTEND": "noninteractive", **dict(variables)}
    env = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    commands.insert(0, f"mkdir -p {quoted_folders}")
    if executables:
        commands.append(f"chmod +x {executables}")
    # bash itself runs the command, so that a script without a shebang is run by bash.
    commands.append(f"(cd {shlex.quote(workdir)} && export {env} && {run})")
    return ("\n".join(commands),)


def _writing(target: str, data: bytes) -> str:
    """Return a command that writes a file; it is readable if the file is text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    end = "END_OF_FILE"
    if "\0" in text or "\r" in text or end in text or not text.endswith("\n"):
        lines = base64.encodebytes(data).decode("ascii")
        return f"base64 -d >{shlex.quote(target)} <<'{end}'\n{lines}{end}"
    return f"cat >{shlex.quote(target)} <<'{end}'\n{text}{end}"


def solution_files(folder: SuitePath) -> dict[str, SuitePath]:
    """Return the files of a solution's folder, by their paths in ``/solution``."""
    if not folder.is_dir():
        return {}
    return {f"/solution/{name}": path for name, path in folder.files()}


def healthcheck_setup(check: HealthcheckConfig) -> str:
    """Return a command that waits until a health check exits with 0, and fails if it never does.

    Failures in its start period do not count.
    """
    command = f"timeout {check.timeout_sec:g} bash -c {shlex.quote(check.command)} >/dev/null 2>&1"
    message = shlex.quote(f"the health check failed {check.retries} times: {check.command}")
    return (
        f"failed=0; until {command}; do "
        f"if [ $SECONDS -lt {int(check.start_period_sec + 0.999)} ]; "
        f"then sleep {check.start_interval_sec:g}; "
        f"else failed=$((failed + 1)); [ $failed -lt {max(1, check.retries)} ] || "
        f"{{ echo {message}; exit 1; }}; sleep {check.interval_sec:g}; fi; done"
    )


def open_folder(path: str) -> str:
    """Return a command that creates a folder that every user may write to."""
    return f"mkdir -pm 777 {shlex.quote(path)}"


def task_id(name: str) -> str:
    """Return a name as the id of a task; characters that ids cannot have become hyphens."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-") or "task"


def make_tags(values: Iterable[Any]) -> tuple[str, ...]:
    """Return tags as the names of marks: "Data Processing" becomes data-processing.

    A mark may begin with a digit, but not with an underscore.
    """
    names = (re.sub(r"[^a-z0-9_]+", "-", str(value).lower()).strip("-_") for value in values)
    return tuple(dict.fromkeys(filter(None, names)))


def make_limits(cpus: float | None, memory: int | None, storage: int | None = None) -> Limits:
    """Return the limits of a machine, with our defaults for those that a format does not set.

    Args:
        cpus: processors.
        memory: bytes.
        storage: maximum bytes of one file.
    """
    return Limits(
        memory=memory or _MEMORY,
        cpus=float(cpus or 1.0),
        pids=_PROCESSES,
        file_size=min(storage or _DISK, _DISK),
    )
