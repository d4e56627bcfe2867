"""Which names say that their value is a secret: a key, a token, a password."""

from __future__ import annotations

import re

__all__ = ["MIN_SECRET", "names_secret", "variable_names_secret"]

MIN_SECRET = 8
"""Characters of a value that is hidden wherever it stands; less may be a part of any word."""

_SECRET = re.compile(
    r"(?i)(?:key|secret|password|passwd|passphrase|token|credentials?|auth)[_-]?[0-9]*$"
)
_PART_OF_VARIABLE = re.compile(r"(?i)key|token|secret|passw|credential")


def names_secret(name: str) -> bool:
    """Whether an argument with this name holds a secret: ``api_key``, and not ``tokenizer``.

    The end of a name says what it holds, and what precedes it whose that is.
    """
    return _SECRET.search(name) is not None


def variable_names_secret(name: str) -> bool:
    """Whether a variable of the environment with this name may hold a secret.

    It is wider than :func:`names_secret`. Variables are not ours: programs add endings of their
    own to a name (``SECRET_KEY_BASE``, ``TOKEN_PROD``), and a value is hidden where it stands in a
    text, so that one hidden for nothing hides no setting of a run, as an argument would.
    """
    return names_secret(name) or _PART_OF_VARIABLE.search(name) is not None
