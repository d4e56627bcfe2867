"""Programs that run other programs: which of their words are the command that they run.

This follows what their manuals say about their options; no program is run. Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pytest_intercode.projects.shell_words import Word

__all__ = ["RESERVED_WORDS", "Script", "base_name", "begins_with", "read_script", "readings"]

# Programs that take shell text: as an option, from a file or from the standard input.
_SHELLS = frozenset(("ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"))

RESERVED_WORDS = frozenset(
    ("!", "coproc", "do", "elif", "else", "if", "then", "until", "while", "{")
)
"""Bash's words before a command that the grammar may take for a program: all of them after
``coproc`` and ``time``, most of them after ``!``."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_SHELL_NAMES = ("--rcfile", "--init-file")  # long options of shells that take a value
_SHELL_LETTERS = {"e": "errexit"}  # letters that stand for an option with a name
_MAX_READINGS = 20


class _Wrapper(NamedTuple):
    """How a program takes the command that it runs.

    Attributes:
        letters: its one-letter options that take a value.
        names: its long options that take a value as a separate word.
        operands: the number of its own words before the command.
        assignments: whether it takes ``NAME=VALUE`` before the command.
        queries: options with which it runs nothing.
    """

    letters: str = ""
    names: tuple[str, ...] = ()
    operands: int = 0
    assignments: bool = False
    queries: str = ""


_WRAPPERS = {
    **dict.fromkeys(RESERVED_WORDS, _Wrapper()),
    "builtin": _Wrapper(),
    "busybox": _Wrapper(),
    "chroot": _Wrapper(operands=1),
    "command": _Wrapper(queries="vV"),
    "doas": _Wrapper("uC"),
    "env": _Wrapper("uCS", ("--unset", "--chdir", "--split-string"), assignments=True),
    "exec": _Wrapper("a"),
    "flock": _Wrapper("wE", ("--timeout", "--wait", "--conflict-exit-code"), operands=1),
    "ionice": _Wrapper("cnpPu", ("--class", "--classdata")),
    "nice": _Wrapper("n", ("--adjustment",)),
    "nohup": _Wrapper(),
    "setsid": _Wrapper(),
    "stdbuf": _Wrapper("ioe", ("--input", "--output", "--error")),
    "sudo": _Wrapper(
        "ughpCrtTUDR",
        (
            *("--user", "--group", "--host", "--prompt", "--chdir", "--chroot", "--other-user"),
            *("--close-from", "--role", "--type", "--command-timeout"),
        ),
        assignments=True,
        queries="lvK",  # with -k, it asks for the password before it runs the command
    ),
    "time": _Wrapper("fo", ("--format", "--output")),
    "timeout": _Wrapper("sk", ("--signal", "--kill-after"), operands=1),
    "watch": _Wrapper("nq", ("--interval", "--equexit")),
    "xargs": _Wrapper(
        "adEILnPs",
        ("--arg-file", "--delimiter", "--max-lines", "--max-args", "--max-procs", "--max-chars"),
    ),
}
_SPLITTING = ("S", "split-string")  # options of env whose value contains words
_FLOCK_TEXT = ("-c", "--command")
_SU_TEXT = ("c", "command", "session-command")
# Options before the subcommand that take a value: one-letter options, and long ones.
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
# Options that take no value in any program that has them. For other options, this is not known.
_FLAGS = frozenset(
    (
        *("--", "-q", "-y", "--all", "--bare", "--dev", "--dry-run", "--force", "--global"),
        *("--help", "--offline", "--paginate", "--quiet", "--rm", "--silent", "--upgrade"),
        *("--verbose", "--version", "--yes"),
    )
)
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")


class Script(NamedTuple):
    """The shell text that a program runs.

    Attributes:
        text: the text (``-c``); None for none.
        source: the word that contains the text.
        reads_input: whether it reads its commands from the standard input.
        stops: whether it ends after the first command that fails (``-e``).
        pipefail: whether a pipeline fails if one of its commands does (``-o pipefail``).
    """

    text: str | None = None
    source: str = ""
    reads_input: bool = False
    stops: bool = False
    pipefail: bool = False


def base_name(program: str) -> str:
    """Return the name of a program without the folders of its path."""
    return program.rsplit("/", 1)[-1]


def readings(words: Sequence[Word]) -> Iterator[Sequence[Word]]:
    """Yield the words of a command, and those of the command that it runs, to the innermost.

    For ``sudo env X=1 ls``, these are the commands ``sudo``, ``env`` and ``ls``.

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


def _wrapped(words: Sequence[Word], wrapper: _Wrapper) -> Sequence[Word]:
    program = base_name(words[0])
    if program == "env":
        words = _split_words(words, wrapper)
    start = find_operand(words, wrapper.letters, wrapper.names)
    if any(_has_letter(word, wrapper) for word in words[1:start]):
        return ()
    if start < len(words) and words[start] == "-":  # the -i of env
        start += 1
    while wrapper.assignments and start < len(words) and _ASSIGNMENT.match(words[start]):
        start += 1
    command = words[start + wrapper.operands :]
    if program == "coproc":
        group = next((n for n, word in enumerate(command[:2]) if word in RESERVED_WORDS), -1)
        return command[group + 1 :]
    # ``flock FILE -c TEXT`` runs a text, see read_script().
    runs_text = program == "flock" and command and command[0] in _FLOCK_TEXT
    return () if runs_text else command


def _has_letter(word: str, wrapper: _Wrapper) -> bool:
    """Whether a word is a cluster of options with a query; an option's value ends the cluster."""
    if word.startswith("--") or not _is_option(word):
        return False
    for letter in word[1:]:
        if letter in wrapper.queries:
            return True
        if letter in wrapper.letters:
            return False
    return False


def _split_words(words: Sequence[Word], wrapper: _Wrapper) -> Sequence[Word]:
    """Return a call of ``env`` in which the value of ``-S`` is split into words."""
    start = find_operand(words, wrapper.letters, wrapper.names)
    values = _option_values(words[:start], wrapper.letters, _SPLITTING)
    text, position = next(values, ("", 0))  # the words after the first value are parsed again
    if not position:
        return words
    try:
        parts = shlex.split(text)
    except ValueError:  # a quote without its end
        parts = text.split()
    return [words[0], *map(Word, parts), *words[position + 1 :]]


def _option_values(
    words: Sequence[str], letters: str, options: Sequence[str]
) -> Iterator[tuple[str, int]]:
    """Yield the values of an option, each with the position of the word that contains it.

    Args:
        words: a command.
        letters: its one-letter options that take a value.
        options: the names of the option.
    """
    position = 1
    while position < len(words):
        word = words[position]
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        else:
            index = next((n for n, letter in enumerate(word) if n and letter in letters), 0)
            name, value = (word[index], word[index + 1 :]) if index and word[0] == "-" else ("", "")
            equals = value
        if name in options and (equals or position + 1 < len(words)):
            position += not equals
            yield value if equals else words[position], position
        position += 1


def _found_command(words: Sequence[Word]) -> Sequence[Word]:
    """Return the first command that ``find`` runs for each file that it finds."""
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
        letters: its one-letter options that take a value.
        names: its long options that take a value as a separate word.
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
    words are skipped: ``git -C app --no-pager add .`` begins with ``git add``. If it is not known
    whether an option takes a value, the word after it may be one: ``uv run --with x pytest`` begins
    with ``uv run pytest``.

    Args:
        words: the command.
        beginning: the words; an option among them is compared like any other word.
    """
    if not words or not beginning:
        return False
    name = base_name(words[0])
    if beginning[0] != (words[0] if "/" in beginning[0] else name):
        return False
    ends = {1}
    for number, word in enumerate(beginning[1:]):
        letters, names = _GLOBAL_OPTIONS.get(name, ("", ())) if number == 0 else ("", ())
        positions = _skip_options(words, ends, letters, names)
        ends = {position + 1 for position in positions if words[position] == word}
    return bool(ends)


def _skip_options(
    words: Sequence[str], starts: Iterable[int], letters: str, names: Sequence[str]
) -> set[int]:
    """Return the positions that have nothing but options between them and a start."""
    positions: set[int] = set()
    pending = list(starts)
    while pending:
        position = pending.pop()
        if position >= len(words) or position in positions:
            continue
        positions.add(position)
        word = words[position]
        if _is_option(word):
            following = _skip_option(words, position, letters, names)
            pending.append(following)
            if following == position + 1 and _may_take_value(word):
                pending.append(position + 2)
    return positions


def _may_take_value(word: str) -> bool:
    """Whether the word after an unknown option may be its value."""
    if "=" in word or word[0] == "+" or word in _FLAGS or word.startswith("--no-"):
        return False
    return word[-1].isalpha()  # -n1 has its value


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] in "-+"


def _skip_option(words: Sequence[str], position: int, letters: str, names: Sequence[str]) -> int:
    """Return the position after an option and its value."""
    word = words[position]
    if word.startswith("--"):
        return position + 1 + (word in names)
    valued = next((index for index, letter in enumerate(word) if index and letter in letters), 0)
    # A value may be in the same word: -n1.
    return position + 1 + (valued == len(word) - 1)


def read_script(words: Sequence[str]) -> Script:
    """Return the shell text that a command runs, as shells, ``su`` and ``flock`` do.

    Args:
        words: the innermost command.
    """
    program = base_name(words[0])
    if program in _SHELLS:
        return _read_shell_call(words)
    if program == "su":
        values = list(_option_values(words, "cCgGsTw", _SU_TEXT))
        text, position = values[-1] if values else (None, 0)  # it runs the last one
        return Script(text, words[position], reads_input=text is None)
    if program == "flock":
        start = find_operand(words, _WRAPPERS["flock"].letters, _WRAPPERS["flock"].names) + 1
        if len(words) > start + 1 and words[start] in _FLOCK_TEXT:
            return Script(words[start + 1], words[start + 1])
    return Script()


def _read_shell_call(words: Sequence[str]) -> Script:
    position = 1
    enabled_options: set[str] = set()
    while position < len(words) and words[position][:1] in ("-", "+"):
        word = words[position]
        position += 1
        if word in ("-", "--"):
            break
        if word.startswith("--"):
            position += word in _SHELL_NAMES
            continue
        for letter in word[1:]:
            option = letter
            # Their values are the next words, wherever they are in a cluster: -oe pipefail.
            if letter in "oO" and position < len(words):
                option = words[position]
                position += 1
            option = _SHELL_LETTERS.get(option, option)
            if word[0] == "-":
                enabled_options.add(option)
            else:
                enabled_options.discard(option)
    stops, pipefail = "errexit" in enabled_options, "pipefail" in enabled_options
    if "c" in enabled_options:
        text = words[position] if position < len(words) else None
        return Script(text, text or "", stops=stops, pipefail=pipefail)
    reads_input = position >= len(words) or "s" in enabled_options
    return Script(None, "", reads_input, stops, pipefail)
