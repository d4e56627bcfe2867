"""The page: a run, or two runs side by side, as one HTML file that needs nothing else.

:func:`write` is what others call, and :func:`require` early. Needs the extra ``html``; imports it
when a page is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_intercode.errors import ConfigurationError

__all__ = ["require", "write"]


def require() -> None:
    """See that the extra ``html`` is there, without importing it: before a run, not after it.

    Raises:
        ConfigurationError: it is not.
    """
    try:
        found = find_spec("jinja2")
    except ValueError:  # something that has no spec was put in its place
        found = None
    if found is None:
        raise ConfigurationError("the page needs Jinja: pip install 'pytest-intercode[html]'")


def write(
    rows: Path | Iterable[Mapping[str, Any]],
    target: Path,
    title: str,
    *,
    other: Path | Iterable[Mapping[str, Any]] | None = None,
    names: tuple[str, str] = ("before", "after"),
    torn: Callable[[str], None] | None = None,
) -> None:
    """Write the page of a run to a file.

    The file is whole or is not there: it is written beside its place and then moved there.

    Args:
        rows: the run: a results file, or its rows as that file has them.
        target: the HTML file; folders on the way to it are made.
        title: what the page is called.
        other: a second run, newer than the first, to be compared with it.
        names: what the two runs are called on the page, where there are two.
        torn: told, in one line, of a file's last line that is only begun; it is left out, then.
            Without it, such a line is an error.

    Raises:
        ConfigurationError: the extra ``html`` is missing, a results file is wrong or empty, or the
            target cannot be written.
    """
    from pytest_intercode.page.rendering import render
    from pytest_intercode.page.run import Run
    from pytest_intercode.page.writing import put

    require()
    given = [(rows, names[0])] if other is None else [(rows, names[0]), (other, names[1])]
    runs = [Run.of(each, name, torn) for each, name in given]
    put(target, render(runs, title))
