"""Whether the typed text is complete, so that Enter runs it, or continues on the next line.

The environment's kind decides. Text with an error is complete, as the sandbox reports the error.
"""

from __future__ import annotations

import re

from pytest_intercode.environments.registry import kind_of

__all__ = ["describe_missing", "is_command"]

_COMMAND = re.compile(r":[A-Za-z?][\w-]*\s*$")


def is_command(text: str) -> bool:
    """Whether a text is a command to the terminal itself, such as ``:help``.

    In no environment's language does an action start with a colon and a letter. The shell's
    ``: > file`` is not such a command.
    """
    return _COMMAND.match(text) is not None


def describe_missing(text: str, env: str, engine: str = "") -> str:
    """Return what a text still lacks, in a few words; the empty string if it can be run.

    Args:
        text: the text typed so far.
        env: the environment's name.
        engine: the engine of an sql task.
    """
    words = text.split(None, 1)
    if not words or words[0] == "submit" or is_command(text):
        return ""
    return kind_of(env).missing_input(text, engine)
