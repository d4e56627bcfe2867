"""Names whose values are secrets: keys, tokens, passwords."""

from __future__ import annotations

import re

__all__ = ["MIN_SECRET", "names_secret", "variable_names_secret"]

MIN_SECRET = 8
"""Minimum characters of a value that is hidden wherever it occurs; a shorter one may be part of
any word."""

_SECRET = re.compile(
    r"(?i)(?:key|secret|password|passwd|passphrase|token|credentials?|auth)[_-]?[0-9]*$"
)
_PART_OF_VARIABLE = re.compile(r"(?i)key|token|secret|passw|credential")


def names_secret(name: str) -> bool:
    """Whether an argument with this name holds a secret: ``api_key``, but not ``tokenizer``.

    Only the end of the name counts, because it names the content: the beginning names the owner.
    """
    return _SECRET.search(name) is not None


def variable_names_secret(name: str) -> bool:
    """Whether a variable of the environment with this name may hold a secret.

    This is wider than :func:`names_secret`. We do not choose the names of variables: programs add
    their own endings to a name (``SECRET_KEY_BASE``, ``TOKEN_PROD``). A value is only hidden where
    it occurs in a text, so hiding one by mistake does not hide a setting of a run, as it would for
    an argument.
    """
    return names_secret(name) or _PART_OF_VARIABLE.search(name) is not None
