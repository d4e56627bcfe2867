"""Recorded episodes in other tools' formats: ATIF, inspect_ai's log, chat messages for training.

An export has what the agent was asked, did, saw and earned, but never gold or an end state. If a
try was run again, only the record that counts is written. The other tools need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from pytest_intercode.errors import ConfigurationError, suggestion

__all__ = ["FORMATS", "Format", "export", "format_of"]


class Format(NamedTuple):
    """A format.

    Attributes:
        name: its name.
        suffix: the suffix of the default output's name.
        help: what it is, in a few words.
        module: the module that writes it, with ``write(source, output)``.
        folder: whether the output is a folder, with a file for each episode.
        has_tools: whether actions are exported as tool calls.
    """

    name: str
    suffix: str
    help: str
    module: str
    folder: bool = False
    has_tools: bool = True


FORMATS: Mapping[str, Format] = {
    entry.name: entry
    for entry in (
        Format("atif", ".atif", "a folder of trajectories (ATIF 1.7)", "atif", folder=True),
        Format("inspect", ".eval", "inspect_ai's log, .eval or .json", "inspect_log"),
        Format(
            "jsonl",
            ".chat.jsonl",
            "chat messages and the reward, a line an episode",
            "chat",
            has_tools=False,
        ),
    )
}


def format_of(name: str) -> Format:
    """Return the format with a name.

    Raises:
        ConfigurationError: there is no such format.
    """
    if name not in FORMATS:
        raise ConfigurationError(
            f"--format={name}: there is no such format; allowed are {', '.join(FORMATS)}."
            f"{suggestion(name, FORMATS)}"
        )
    return FORMATS[name]


def export(
    results: Path, format_name: str, output: Path, warn: Callable[[str], None] | None = None
) -> int:
    """Write the episodes of a results file in another format, whole or not at all.

    Args:
        results: the results file, ours or InterCode's.
        format_name: one of :data:`FORMATS`.
        output: the file, or the folder, to write; existing files are replaced.
        warn: called with one line if the file's last line is truncated, which is then left out, and
            for each environment whose tool is not known here.

    Returns:
        How many episodes were written.

    Raises:
        ConfigurationError: the format is not known, the file is not a results file or has no
            episode, or the output cannot be written.
    """
    from pytest_intercode.environments.registry import is_builtin, is_environment
    from pytest_intercode.export.source import Source

    export_format = format_of(format_name)
    module = import_module(f"{__name__}.{export_format.module}")
    source = Source(results, warn)
    if warn is not None and export_format.has_tools:
        for name in source.environments:
            if name and not (is_builtin(name) or is_environment(name)):  # old files name none
                warn(
                    f"{results}: the environment {name!r} is not known to commands, which read no "
                    "conftest.py; its actions are exported as calls of the tool execute"
                )
    module.write(source, output)
    return len(source)
