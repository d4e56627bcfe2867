"""Programs that run other programs: which of their words are the command that they run.

It is what their manuals say of their options; no program is asked. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

__all__ = ["SHELLS", "Script", "base_name", "begins_with", "read_shell_call", "readings"]

Text = TypeVar("Text", bound=str)

SHELLS = frozenset(("ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"))
"""Programs that take shell text: as an option, from a file or from the standard input."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_SHELL_OPTIONS = ("oO", ("--rcfile", "--init-file"))
_MAX_READINGS = 20


class _Wrapper(NamedTuple):
    """How a program takes the command that it runs.

    Attributes:
        letters: its options of one letter that take a value.
        names: its long options that take a value as a word of its own.
        operands: words of its own before the command.
        assignments: it takes ``NAME=VALUE`` before the command.
        queries: options with which it runs nothing.
    """

    letters: str = ""
    names: tuple[str, ...] = ()
    operands: int = 0
    assignments: bool = False
    queries: str = ""


_WRAPPERS = {
    "builtin": _Wrapper(),
    "busybox": _Wrapper(),
    "chroot": _Wrapper(operands=1),
    "command": _Wrapper(queries="vV"),
    "doas": _Wrapper("uC"),
    "env": _Wrapper("uCS", ("--unset", "--chdir", "--split-string"), assignments=True),
    "exec": _Wrapper("a"),
    "flock": _Wrapper("wEc", ("--timeout", "--wait", "--conflict-exit-code"), operands=1),
    "ionice": _Wrapper("cnpPu", ("--class", "--classdata")),
    "nice": _Wrapper("n", ("--adjustment",)),
    "nohup": _Wrapper(),
    "setsid": _Wrapper(),
    "stdbuf": _Wrapper("ioe", ("--input", "--output", "--error")),
    "sudo": _Wrapper(
        "ughpCrtTUDR",
        ("--user", "--group", "--host", "--prompt", "--chdir", "--chroot", "--other-user"),
        assignments=True,
        queries="lvKk",
    ),
    "time": _Wrapper("fo", ("--format", "--output")),
    "timeout": _Wrapper("sk", ("--signal", "--kill-after"), operands=1),
    "watch": _Wrapper("nq", ("--interval", "--equexit")),
    "xargs": _Wrapper(
        "adEILnPs",
        ("--arg-file", "--delimiter", "--max-lines", "--max-args", "--max-procs", "--max-chars"),
    ),
}
# Options before the subcommand that take a value: of one letter, and long ones.
_GLOBAL_OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cargo": ("CZ", ("--config", "--color")),
    "docker": ("Hlc", ("--context", "--host", "--config", "--log-level")),
    "gh": ("R", ("--repo",)),
    "git": ("Cc", ("--git-dir", "--work-tree", "--namespace", "--config-env")),
    "go": ("C", ()),
    "kubectl": ("ns", ("--namespace", "--context", "--kubeconfig", "--cluster", "--user")),
    "npm": ("Cw", ("--prefix", "--workspace", "--userconfig")),
    "pip": ("", ("--python", "--log", "--proxy", "--retries", "--timeout", "--cache-dir")),
    "pnpm": ("CF", ("--dir", "--filter")),
    "poetry": ("CP", ("--directory", "--project")),
    "uv": ("", ("--directory", "--project", "--config-file", "--cache-dir", "--color")),
    "yarn": ("", ("--cwd",)),
}
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")


class Script(NamedTuple):
    """What a shell is to run.

    Attributes:
        position: the position of the word that is shell text (``-c``); -1 for none.
        reads_input: it reads its commands from the standard input.
        stops: it ends after the first command that fails (``-e``).
    """

    position: int = -1
    reads_input: bool = False
    stops: bool = False


def base_name(program: str) -> str:
    """Return the name of a program without the folders of its path."""
    return program.rsplit("/", 1)[-1]


def readings(words: Sequence[Text]) -> Iterator[Sequence[Text]]:
    """Yield the words of a command, and those of the command that it runs, to the innermost.

    ``sudo env X=1 ls`` is ``sudo``, ``env`` and ``ls``.

    Args:
        words: the command's words without leading assignments.
    """
    for _ in range(_MAX_READINGS):
        if not words:
            return
        yield words
        program = base_name(words[0])
        wrapper = _WRAPPERS.get(program)
        if wrapper is not None:
            words = _wrapped(words, wrapper)
        elif program == "find":
            words = _found_command(words)
        else:
            return


def _wrapped(words: Sequence[Text], wrapper: _Wrapper) -> Sequence[Text]:
    start = find_operand(words, wrapper.letters, wrapper.names)
    options = (word for word in words[1:start] if word.startswith("-") and word[1:2] != "-")
    if any(letter in word for word in options for letter in wrapper.queries):
        return ()
    while wrapper.assignments and start < len(words) and _ASSIGNMENT.match(words[start]):
        start += 1
    return words[start + wrapper.operands :]


def _found_command(words: Sequence[Text]) -> Sequence[Text]:
    """Return what ``find`` runs for each file that it finds: the first such command."""
    for position, word in enumerate(words):
        if word in _FIND_RUNS:
            command = words[position + 1 :]
            ends = [index for index, word in enumerate(command) if word in (";", "+")]
            return command[: ends[0]] if ends else command
    return ()


def find_operand(words: Sequence[str], letters: str, names: Sequence[str] = ()) -> int:
    """Return the position of the first word that is not an option or the value of one.

    Args:
        words: a command.
        letters: its options of one letter that take a value.
        names: its long options that take a value as a word of its own.
    """
    position = 1
    while position < len(words) and _is_option(words[position]):
        if words[position] == "--":
            return position + 1
        position = _skip_option(words, position, letters, names)
    return min(position, len(words))


def begins_with(words: Sequence[str], beginning: Sequence[str]) -> bool:
    """Whether a command begins with these words.

    Its program is compared without its folders, unless the beginning has some. Options between the
    words are skipped: ``git -C app --no-pager add .`` begins with ``git add``.

    Args:
        words: the command.
        beginning: the words; an option among them is compared as any other.
    """
    if not words or not beginning:
        return False
    name = base_name(words[0])
    if beginning[0] != (words[0] if "/" in beginning[0] else name):
        return False
    position = 1
    for number, word in enumerate(beginning[1:]):
        letters, names = _GLOBAL_OPTIONS.get(name, ("", ())) if number == 0 else ("", ())
        while position < len(words) and words[position] != word and _is_option(words[position]):
            position = _skip_option(words, position, letters, names)
        if position >= len(words) or words[position] != word:
            return False
        position += 1
    return True


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] in "-+"


def _skip_option(words: Sequence[str], position: int, letters: str, names: Sequence[str]) -> int:
    """Return the position behind an option and its value."""
    word = words[position]
    if word.startswith("--"):
        return position + 1 + (word in names)
    valued = next((index for index, letter in enumerate(word) if index and letter in letters), 0)
    # A value may be in the same word: -n1.
    return position + 1 + (valued == len(word) - 1)


def read_shell_call(words: Sequence[str]) -> Script:
    """Return what a call of a shell is to run.

    Args:
        words: the call, with the shell itself as the first word.
    """
    operand = find_operand(words, *_SHELL_OPTIONS)
    clusters = [
        word[1:]
        for word in words[1:operand]
        if word.startswith("-") and not word.startswith("--") and len(word) > 1
    ]
    stops = any("e" in cluster for cluster in clusters)
    if any("c" in cluster for cluster in clusters):
        return Script(operand if operand < len(words) else -1, stops=stops)
    reads_input = operand >= len(words) or any("s" in cluster for cluster in clusters)
    return Script(-1, reads_input, stops)
