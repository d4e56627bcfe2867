"""The page: a run, or two runs side by side, as one HTML file that needs nothing else.

Other modules call :func:`write`, and :func:`require` before a run. It needs the extra ``html``, and
imports it when a page is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system.extras import has_extra, need
from pytest_intercode.system.files import write_file

if TYPE_CHECKING:
    from pytest_intercode.results.gate import Conclusion

__all__ = ["require", "write"]


def require() -> None:
    """Check that the extra ``html`` is installed, without importing it: before a run, not after.

    Raises:
        ConfigurationError: it is not installed.
    """
    if not has_extra("html"):
        raise ConfigurationError(need("html", "the page"))


def write(
    run: Path | Iterable[EpisodeRecord],
    target: Path,
    title: str | None,
    *,
    other: Path | Iterable[EpisodeRecord] | None = None,
    names: tuple[str, str] = ("before", "after"),
    baseline: Path | None = None,
    notes: Sequence[str] = (),
    conclusion: Conclusion | None = None,
    warn: Callable[[str], None] | None = None,
    option: str = "",
) -> None:
    """Write the page of a run to a file, whole or not at all.

    Args:
        run: a results file, or its records.
        target: the HTML file; missing folders above it are made.
        title: the title of the page; None for the names of its runs.
        other: a second run, newer than the first, to be compared with it.
        names: the names of the runs on the page, if their records do not have them.
        baseline: instead of ``other``, the results file of an older run to compare the run with;
            only those of its tasks are shown that the run has.
        notes: lines at the head of the page, such as the judgements of the gate.
        conclusion: whether the run passed, for a page of one run; by default, from its records.
        warn: called with one line if a file's last line is truncated; that line is then left out.
            Without it, such a line is an error.
        option: the option that named the target, for messages.

    Raises:
        ConfigurationError: the extra ``html`` is missing, a results file is wrong or empty, or the
            target cannot be written.
    """
    from pytest_intercode.page.rendering import render
    from pytest_intercode.page.run import Run

    require()
    sources = [(run, names[0])] if other is None else [(run, names[0]), (other, names[1])]
    runs = [Run.of(source, name, warn) for source, name in sources]
    if baseline is not None:
        (newer,) = runs
        older = Run.of(baseline, names[0], warn).limited_to(newer)
        runs = [older, replace(newer, name=names[1])] if older.tries else runs
    if len({run.name for run in runs}) < len(runs):
        runs = [
            replace(run, name=name if run.name == name else f"{run.name} ({name})")
            for run, name in zip(runs, names, strict=True)
        ]
    if title is None:
        title = " and ".join(run.name for run in runs)
    write_file(target, render(runs, title, notes, conclusion), option=option)
