r"""Whether what was typed is complete, so that Enter runs it, or continues in the next line.

- bash, ctf: ``bash -n`` decides, which runs nothing. Without bash on this machine, only a backslash
  at the end continues.
- sql: a statement ends with ``;``. An empty line ends it too.
- python: as at Python's own prompt, where an empty line ends a block.

Text with an error is complete: the sandbox reports the error.
"""

from __future__ import annotations

import codeop
import re
import shutil
import subprocess
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pytest_intercode.databases.scan import split

if TYPE_CHECKING:
    from pytest_intercode.databases.scan import Dialect

__all__ = ["describe_missing", "is_command"]

_BASH_TIMEOUT = 2.0  # seconds for bash to read a few lines
_COMMAND = re.compile(r":[A-Za-z?][\w-]*\s*$")


def is_command(text: str) -> bool:
    """Whether a text is a command to the terminal itself, such as ``:help``.

    A colon and a letter begin nothing in the languages; ``: > file`` in a shell is not a command.
    """
    return _COMMAND.match(text) is not None


def describe_missing(text: str, env: str, engine: str = "") -> str:
    """Return what a text still lacks, in a few words; the empty string if it can be run.

    Args:
        text: what was typed so far.
        env: the environment's name.
        engine: the engine of an sql task.
    """
    words = text.split(None, 1)
    if not words or words[0] == "submit" or is_command(text):
        return ""
    return _RULES[env](text, engine)


def _bash(text: str, _: str) -> str:
    if (len(text) - len(text.rstrip("\\"))) % 2:
        return "the line after the backslash"
    program = shutil.which("bash")
    if program is None:
        return ""
    try:
        errors = subprocess.run(
            [program, "--norc", "--noprofile", "-n"],
            input=(text + "\n").encode("utf-8", "replace"),
            capture_output=True,
            env={"LC_ALL": "C"},
            timeout=_BASH_TIMEOUT,
            check=False,
        ).stderr.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    for pattern, description in _BASH_ERRORS:
        match = re.search(pattern, errors)
        if match:
            return description.format(*match.groups())
    return ""


_BASH_ERRORS = (
    (r"delimited by end-of-file \(wanted `(.*)'\)", "the line {} that ends the here-document"),
    (r"unexpected EOF while looking for matching `(.*)'", "the closing {}"),
    (r"unexpected end of file", "the end of the command"),
)


def _sql(text: str, engine: str) -> str:
    if engine == "sqlite" and text.lstrip().startswith("."):
        return ""
    *earlier, last = text.split("\n")
    if not last.strip() and any(line.strip() for line in earlier):
        return ""
    # What follows a complete statement begins another.
    dialect = cast("Dialect", engine or "sqlite")
    if split(f"{text}\nx", dialect)[-1].text == "x" and split(text, dialect):
        return ""
    return "a ; at its end, or an empty line"


def _python(text: str, _: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = codeop.compile_command(text, symbol="exec")
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return ""
    if compiled is None:
        return "the end of the statement"
    last = text.rpartition("\n")[2]
    if last.strip() and last[0] in " \t":
        return "an empty line, which ends the block"
    return ""


_RULES: dict[str, Callable[[str, str], str]] = {
    "bash": _bash,
    "ctf": _bash,
    "swe": _bash,
    "sql": _sql,
    "python": _python,
}
