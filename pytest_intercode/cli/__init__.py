"""The command ``pytest-intercode``; each of its subcommands is a module.

Such a module has ``HELP``, ``add_arguments(parser)`` and ``run(options)``, which returns the exit
status; it is listed in ``_COMMANDS`` and imports heavy modules inside its functions. Exit status:
0 done, 1 failed, 2 wrong usage, 130 interrupted, 141 the reader of its output ended, as ``head``.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from pytest_intercode.cli.printing import note
from pytest_intercode.errors import IntercodeError

__all__ = ["main", "make_parser"]

_COMMANDS = (
    *("audit", "check", "comment", "compare", "convert", "doctor", "export"),
    *("fetch", "gate", "grade", "history", "images", "init", "kit"),
    *("lint", "merge", "prompts", "rescore", "top", "view"),
)
_FAILED, _INTERRUPTED, _PIPE_CLOSED = 1, 130, 141  # the last two as shells report SIGINT, SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    Args:
        arguments: the words after the command's own name; by default those of this process.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # like the standard error
    parser = make_parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        hint = getattr(options, "hint", "")  # set by the subcommand
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint and f'; {hint}'}")
    if not hasattr(options, "run"):
        parser.print_help()
        return 0
    try:
        status: int = options.run(options)
        print(end="", flush=True)  # raises here if the reader has ended
        return status
    except IntercodeError as error:
        note(str(error))
        return _FAILED
    except BrokenPipeError:
        # Discard what the interpreter still writes at its end.
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
            os.dup2(nowhere.fileno(), sys.stderr.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        note("interrupted")
        return _INTERRUPTED


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with all commands."""
    parser = argparse.ArgumentParser(
        prog="pytest-intercode",
        description="Commands that complement testing agents with pytest.",
    )
    parser.add_argument(
        "--version", action="version", version=f"pytest-intercode {version('pytest-intercode')}"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name in _COMMANDS:
        command = import_module(f"{__name__}.{name}")
        subparser = commands.add_parser(name, help=command.HELP, description=command.HELP)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser
