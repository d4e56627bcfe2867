"""User mistakes, as a failing test shows them. Imported with the plugin."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

__all__ = ["MistakeFailure", "one_line_errors"]


if TYPE_CHECKING:

    class _Failure(Exception):  # pytest does not annotate its own
        def __init__(self, message: str, pytrace: bool = True) -> None: ...

else:
    _Failure = pytest.fail.Exception


class MistakeFailure(_Failure):
    """A test failed because of a user mistake, which is neither an agent's failure nor expected."""

    __module__ = "builtins"  # like pytest's own, so that short summary lines begin with the message


@contextlib.contextmanager
def one_line_errors(session: pytest.Session | None = None) -> Iterator[None]:
    """Report a user mistake as one line, without our traceback.

    If the given session runs only tasks, also end it: each would report the same mistake.
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
