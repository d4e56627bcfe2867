"""Scripts that test a repository, as SWE-bench 4.1 makes them from a row and a test command.

This module only makes text; it runs nothing. A script prints markers around the output of the
tests, and then the tests' exit status. ``sealed_script`` adds a secret to each, so that what the
tests themselves print is never taken for a marker.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_intercode.core.patches import Change


__all__ = [
    "END",
    "EXIT_STATUS",
    "START",
    "TestPatch",
    "changed_tests",
    "common_script",
    "image_script",
    "parser_files",
    "python_script",
    "row_script",
    "sealed_script",
    "with_exit_status",
]

START = ">>>>> Start Test Output"
END = ">>>>> End Test Output"
EXIT_STATUS = ">>>>> Test Exit Code"

_VARIABLE = "SWEBENCH_TEST_EXIT_CODE"
_HEREDOC = "EOF_114329324912"
_NO_TESTS = (
    *(".json", ".png", "csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml"),
)


@dataclass(frozen=True)
class TestPatch:
    """The patch that adds the tests of a row to its repository.

    Attributes:
        folder: the repository's folder.
        commit: the commit that the tests' files are reset to.
        text: the patch.
        changes: the patch's changes, file by file.
    """

    __test__ = False

    folder: str
    commit: str
    text: str
    changes: Sequence[Change]

    @property
    def existing(self) -> list[str]:
        """The existing files that it changes, quoted for a shell."""
        return [shlex.quote(change.old) for change in self.changes if change.old is not None]

    @property
    def reset(self) -> str:
        """The command that resets these files."""
        return f"git checkout {self.commit} {' '.join(self.existing)}"

    @property
    def removal(self) -> list[str]:
        """The command that removes what is in the way of files that the patch creates, if any."""
        created = [
            shlex.quote(change.new) for change in self.changes if change.old is None and change.new
        ]
        return [f"rm -rf -- {' '.join(created)}"] if created else []

    def apply(self, options: str) -> str:
        """Return the command that applies the patch.

        Raises:
            PatchError: the patch cannot be written into a script.
        """
        if _HEREDOC in self.text:
            from pytest_intercode.core.patches import PatchError

            raise PatchError(f"the test patch holds {_HEREDOC!r}, which ends it in the script")
        return f"git apply {options} - <<'{_HEREDOC}'\n{self.text}\n{_HEREDOC}"


def python_script(
    tests: TestPatch,
    *,
    commands: Sequence[str],
    install: str = "",
    exports: Sequence[str] = (),
) -> str:
    """Return the script for a Python repository, which has a conda environment.

    Args:
        tests: the patch that adds the tests.
        commands: the test commands, including the names of tests.
        install: the command that installs the repository.
        exports: commands to run before anything else in the repository.

    Raises:
        PatchError: the patch cannot be written into a script.
    """
    folder = tests.folder
    activate = ["source /opt/miniconda3/bin/activate", "conda activate testbed"]
    return _script(
        *activate,
        f"cd {folder}",
        *exports,
        f"git config --global --add safe.directory {folder}",
        f"cd {folder}",
        "git status",
        "git show",
        f"git -c core.fileMode=false diff {tests.commit}",
        *activate,
        *([install] if install else []),
        *tests.removal,
        tests.reset,
        tests.apply("-v"),
        f": '{START}'",
        *commands,
        f": '{END}'",
        tests.reset,
    )


def common_script(tests: TestPatch, *, commands: Sequence[str], build: Sequence[str] = ()) -> str:
    """Return the script for a repository in another language; see :func:`python_script`.

    Args:
        tests: the patch that adds the tests.
        commands: the test commands.
        build: commands between the patch and the tests.
    """
    folder = tests.folder
    reset = tests.reset if tests.existing else _NOTHING
    return _script(
        f"cd {folder}",
        f"git config --global --add safe.directory {folder}",
        f"cd {folder}",
        *tests.removal,
        reset,
        tests.apply("--verbose --reject"),
        *build,
        f": '{START}'",
        *commands,
        f": '{END}'",
        reset,
    )


def row_script(
    tests: TestPatch,
    *,
    setup: Sequence[str],
    commands: Sequence[str],
    results: Sequence[str] = (),
    stop: bool = False,
    parser: str = "",
) -> str:
    """Return the script for a row's own commands, which expect a shell without options.

    Args:
        tests: the patch that adds the tests.
        setup: commands between the patch and the tests.
        commands: the test commands.
        results: commands that print the results; the output of the tests is then not read.
        stop: whether to stop at the first command that fails.
        parser: a Python program that reads the output; see :func:`parser_files`.

    Raises:
        PatchError: the patch cannot be written into a script.
    """
    folder = tests.folder
    apply_tests = [
        *([tests.reset] if tests.existing else []),
        tests.apply("--verbose --reject"),
    ]
    if stop:
        commands = ["(", "set -e", *commands, ")"]
    print_commands = [*commands] if not results else [*results]
    if parser:
        print_commands = [
            "{",
            *print_commands,
            f"}} > {_WORK}/log 2>&1",
            f"python3 {_WORK}/{_READER_NAME}",
        ]
    return _script(
        f"cd {folder}",
        f"git config --global --add safe.directory {folder}",
        *tests.removal,
        *(apply_tests if tests.changes else []),
        "set +xuo pipefail",
        *setup,
        *(commands if results else []),
        "set -x",
        f": '{START}'",
        "set +x",
        *print_commands,
        "set -x",
        f": '{END}'",
    )


def parser_files(parser: str) -> dict[str, str]:
    """Return the files, by path, that read a log with a Python program.

    Args:
        parser: a program with a function ``parser`` that takes a log and returns ``pass``, ``fail``
            or ``skip`` for each test, by its name.
    """
    return {f"{_WORK}/parser.py": parser, f"{_WORK}/{_READER_NAME}": _READER}


_WORK = "/workspace"
_READER_NAME = "read_log.py"
_READER = f"""\
import contextlib, io, json
words = {{"pass": "PASSED", "fail": "FAILED", "skip": "SKIPPED"}}
names = {{"__name__": "parser"}}
with open("{_WORK}/parser.py", encoding="utf-8") as file:
    program = file.read()
with open("{_WORK}/log", encoding="utf-8", errors="replace") as file:
    log = file.read()
with contextlib.redirect_stdout(io.StringIO()):
    exec(compile(program, "parser.py", "exec"), names)
    statuses = names["parser"](log) or {{}}
tests = [
    {{"name": str(name), "status": words.get(str(word).lower(), str(word).upper())}}
    for name, word in statuses.items()
]
print(json.dumps({{"tests": tests}}))
"""


def image_script(
    *,
    folder: str,
    files: Sequence[str],
    commands: Sequence[str],
    setup: Sequence[str] = (),
    conda: bool = True,
) -> str:
    """Return the script for a repository whose tests are in the image.

    Args:
        folder: the repository's folder.
        files: test files, which are reset to those of the image.
        commands: the test commands.
        setup: commands before the tests begin.
        conda: whether the repository has a conda environment.
    """
    names = " ".join(map(shlex.quote, files))
    return _script(
        *(["source /opt/miniconda3/bin/activate", "conda activate testbed"] if conda else []),
        f"cd {folder}",
        *([f"git checkout HEAD -- {names}"] if files else []),
        *setup,
        f": '{START}'",
        *commands,
        f": '{END}'",
    )


_NOTHING = 'echo "No test files to reset"'


def _script(*lines: str) -> str:
    return "\n".join(["#!/bin/bash", "set -uxo pipefail", *lines, ""])


def changed_tests(changes: Sequence[Change], *, modules: bool = False) -> list[str]:
    """Return the test files that a patch changes, as arguments for the test command.

    Args:
        changes: the patch's changes.
        modules: whether to return modules relative to ``tests/``, as Django's runner expects.
    """
    paths = [change.header for change in changes if not change.header.endswith(_NO_TESTS)]
    if not modules:
        return paths
    return [path.removesuffix(".py").removeprefix("tests/").replace("/", ".") for path in paths]


def with_exit_status(script: str) -> str:
    """Return a script that prints the exit status of its tests, and ends with it.

    A script that already does either of them does not do it twice. A script without an end marker
    is returned unchanged.
    """
    lines = script.split("\n")
    ends = [number for number, line in enumerate(lines) if END in line]
    if not ends:
        return script
    if f"{_VARIABLE}=$?" not in script:
        lines.insert(ends[0] + 1, f'echo "{EXIT_STATUS}: ${_VARIABLE}"')
        lines.insert(ends[0], f"{_VARIABLE}=$?")
    last = f"exit ${_VARIABLE}"
    if last not in lines:
        lines = [*(lines if lines[-1] else lines[:-1]), last, ""]
    return "\n".join(lines)


def sealed_script(script: str, seal: str) -> str:
    """Return the script with a secret after each of its markers."""
    for marker in (START, END, EXIT_STATUS):
        script = script.replace(marker, f"{marker}{seal}")
    return script
