"""The checks of tasks as they are collected, from whatever format they come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_intercode.core.task import Task
from pytest_intercode.core.text import first_names
from pytest_intercode.environments.images import image_sources
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.linting.rules import Finding
from pytest_intercode.linting.texts import (
    find_line,
    find_loose_requirements,
    is_pinned,
    loose_images,
    run_requirements,
)
from pytest_intercode.system.files import bundled_folder
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["check_task", "split_place"]

_FETCHES = r"^[^#\n]*\b(?:curl|wget|uvx?|pip3? install|apt-get|apt)\s"
_MAX_NAMED = 5  # packages that are named in one message
_MAX_BYTES = 2**20  # bytes of a script that are read
_SCRIPTS = ("tests/test.sh", "run-tests.sh")


def split_place(text: str) -> tuple[str, int]:
    """Return the path and the line of ``path:line``; the line is 0 if there is none."""
    path, _, line = text.rpartition(":")
    return (path, int(line)) if path and line.isdigit() else (text, 0)


def check_task(task: Task, suite: Path, folder: SuitePath | None = None) -> Iterator[Finding]:
    """Yield the findings of rules in a task.

    Args:
        task: the task.
        suite: the suite that it was read from, for findings in a task that has no ``source``.
        folder: the task folder, if it is one.

    Raises:
        SuiteError: the script that grades it is not in its folder.
    """
    place = split_place(task.source or str(suite))

    def finding(rule: str, message: str, location: tuple[str, int] = place) -> Finding:
        return Finding(rule, task.id, *location, message)

    kind = kind_of(task.env)
    if task.skip:
        yield finding("cannot-run", task.skip)
        return
    if not task.gold:
        reason = f": {task.gold_skip}" if task.gold_skip else ""
        yield finding("no-solution", f"it has no solution{reason}")
    if kind.lacks_tests(task):
        yield finding("no-tests", "nothing grades it")
    for verification in dict.fromkeys(task.verifications):
        if verification.place != "fresh":
            message = f"tests run in the agent's own {_PLACES[verification.place]}"
            yield finding("shared-verifier", message)
        if verification.kit is not None:
            script_place = _fetching_place(folder) or place
            yield finding("verifier-downloads", "tests download what they need", script_place)
            loose = find_loose_requirements(verification.kit)
            if loose:
                message = f"tests install {first_names(loose, _MAX_NAMED)}, not in one version"
                yield finding("unpinned-package", message, script_place)
    yield from _check_images(task, place)


_PLACES = {"agents": "sandbox", "shell": "shell"}


def _check_images(task: Task, place: tuple[str, int]) -> Iterator[Finding]:
    own_folder = bundled_folder("dockerfiles").resolve()
    for source in image_sources(task):
        if source.image and not is_pinned(source.image):
            message = f"the image {source.image} is of no version"
            yield Finding("unpinned-image", task.id, *place, message)
        path = source.dockerfile
        if path is None or path.resolve().is_relative_to(own_folder):
            continue
        try:
            text = source.text or path.read_text("utf-8", "replace")
        except OSError:
            continue  # a build reports it
        for name, line in loose_images(text):
            message = f"the image {name} is of no version"
            yield Finding("unpinned-image", task.id, str(path), line, message)
        for names, line in run_requirements(text):
            message = f"installs {first_names(names, _MAX_NAMED)}, not in one version"
            yield Finding("unpinned-package", task.id, str(path), line, message)


def _fetching_place(folder: SuitePath | None) -> tuple[str, int] | None:
    """Return the script that grades a task folder, and its line that downloads something."""
    scripts = [folder / name for name in _SCRIPTS] if folder is not None else []
    script = next(filter(SuitePath.is_file, scripts), None)
    if script is None:
        return None
    return str(script), find_line(
        script.read_beginning(_MAX_BYTES).decode("utf-8", "replace"), _FETCHES
    )
