"""Recorded episodes in other tools' formats: ATIF, inspect_ai's log, chat messages for training.

What is written holds what the agent was asked, did, saw and got; never gold, and no end state. Of a
try that was run again, the record that counts is written. None of the other tools is needed.
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
        suffix: how the name of the default output ends.
        help: what it is, in a few words.
        module: the module that writes it, by ``write(source, output)``.
        folder: the output is a folder, with a file for each episode.
    """

    name: str
    suffix: str
    help: str
    module: str
    folder: bool = False


FORMATS: Mapping[str, Format] = {
    entry.name: entry
    for entry in (
        Format("atif", ".atif", "a folder of trajectories (ATIF 1.7)", "atif", folder=True),
        Format("inspect", ".eval", "inspect_ai's log, .eval or .json", "inspect_log"),
        Format("jsonl", ".chat.jsonl", "chat messages and the reward, a line an episode", "chat"),
    )
}


def format_of(name: str) -> Format:
    """Return the format of a name.

    Raises:
        ConfigurationError: there is none.
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
        output: the file, or the folder, to write; what is there is replaced.
        warn: called with one line if the file's last line is truncated; it is left out, then.

    Returns:
        How many episodes were written.

    Raises:
        ConfigurationError: the format is not known, the file is not a results file or holds no
            episode, or the output cannot be written.
    """
    from pytest_intercode.export.source import Source

    module = import_module(f"{__name__}.{format_of(format_name).module}")
    source = Source(results, warn)
    module.write(source, output)
    return len(source)
