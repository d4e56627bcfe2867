"""``pytest-intercode prompts``: copies the chat agents' templates into a folder, for changes."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_intercode.agents.chat.templates import PLACEHOLDERS, builtin_text
from pytest_intercode.cli.printing import say
from pytest_intercode.core.text import pluralize
from pytest_intercode.errors import ConfigurationError, suggestion

__all__ = ["HELP", "add_arguments", "run"]

HELP = "copy the prompts of the chat agents into a folder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="where to copy them to")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which ones (default: all): {', '.join(PLACEHOLDERS)}",
    )


def run(options: argparse.Namespace) -> int:
    """Copy the requested templates; nothing is overwritten.

    Raises:
        ConfigurationError: there is no such template, or the folder cannot be written.
    """
    folder: Path = options.folder.expanduser()
    names = options.names or list(PLACEHOLDERS)
    for name in names:
        if name not in PLACEHOLDERS:
            raise ConfigurationError(
                f"there is no template {name!r}. Allowed: {', '.join(PLACEHOLDERS)}."
                + suggestion(name, PLACEHOLDERS)
            )
        if (folder / f"{name}.txt").exists():
            raise ConfigurationError(f"{folder / name}.txt already exists, and is left unchanged")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / f"{name}.txt").write_text(builtin_text(name), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{folder}: {error.strerror or error}") from None
    say(f"{pluralize(len(names), 'template')} in {folder}; keep those that you change")
    say(f"use them: --intercode-agent-arg prompts={folder}")
    return 0
