"""Whether what was typed is complete, so that Enter runs it, or continues in the next line.

The kind of the environment decides. Text with an error is complete: the sandbox reports the error.
"""

from __future__ import annotations

import re

from pytest_intercode.environments.registry import kind_of

__all__ = ["describe_missing", "is_command"]

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
    return kind_of(env).missing_input(text, engine)
