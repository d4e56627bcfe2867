"""Mistakes of the user's, as a failing test shows them. Imported with the plugin."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

__all__ = ["MistakeFailure", "one_line_errors"]


if TYPE_CHECKING:

    class _Failure(Exception):  # pytest gives its own no type
        def __init__(self, message: str, pytrace: bool = True) -> None: ...

else:
    _Failure = pytest.fail.Exception


class MistakeFailure(_Failure):
    """A test failed by a mistake of the user's: no agent failed, and none was expected to."""

    __module__ = "builtins"  # as of pytest's own: a summary's short line begins with the message


@contextlib.contextmanager
def one_line_errors(session: pytest.Session | None = None) -> Iterator[None]:
    """Report a mistake of the user's as one line, without our traceback.

    Given a session that runs nothing but tasks, also end it: each would say the same again.
    """
    from pytest_intercode.core.text import escape_for_terminal, one_line
    from pytest_intercode.errors import ConfigurationError
    from pytest_intercode.plugin.hooks import HookError
    from pytest_intercode.plugin.run import task_of

    try:
        yield
    except ConfigurationError as error:
        of_all = session is not None and not isinstance(error, HookError)
        if session is not None and of_all and all(task_of(item) for item in session.items):
            session.shouldstop = one_line(str(error))
        raise MistakeFailure(escape_for_terminal(str(error)), pytrace=False) from None
