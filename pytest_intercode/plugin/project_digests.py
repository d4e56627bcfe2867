"""Digests of the parts of a project test, to recognise results of a test that has since changed.

A record has a digest of each part, so that a test that runs again can say why. The code of tests,
helpers and fakes is digested as it was when this process first asked, because it has been imported
by then. What a run copies is digested as it was copied.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.plugin.project_cells import ProjectCell, mark_arguments
from pytest_intercode.plugin.run import run_of
from pytest_intercode.projects.copying import digest_project, digest_repository
from pytest_intercode.system.digest import file_digest, value_digest
from pytest_intercode.system.files import bundled_folder

__all__ = ["digest_item", "explain_changes", "hidden_paths", "name_project", "reads_elsewhere"]

_PROJECT = "project"
_MEANINGS = {
    "test": "its module or a conftest.py",
    "values": "its marks or parameters",
    "repository": "the files of the repository",
    "agent": "the agent's version",
    "sandbox": "what its sandboxes are made of",
    _PROJECT: "the project",
}
_DIGESTS = pytest.StashKey[dict[object, str]]()
_OPTIONS = ("profile", "base_images", "network", "allow_host", "platform", "rootfs", "runtime")


def digest_item(item: pytest.Item, cell: ProjectCell) -> dict[str, str]:
    """Return digests of the parts of an item, except for the projects of its runs.

    Args:
        item: a project test.
        cell: which try it is.

    Returns:
        The digests by the names of the parts; empty if one of them cannot be made, so that the
        test always runs.
    """
    run = run_of(item.config)
    options = [str(getattr(run.settings, name)) for name in _OPTIONS]
    callspec = getattr(item, "callspec", None)
    parameters = dict(callspec.params) if callspec is not None else {}
    parameters.pop("intercode_project", None)
    dockerfile = bundled_folder("dockerfiles") / "bash.Dockerfile"
    try:
        return {
            "test": _digest_code(item),
            "values": value_digest([mark_arguments(item), parameters]),
            "repository": _digest_repository(item),
            "agent": value_digest(run.composition.factory(cell.agent).version),
            "sandbox": value_digest(
                [run.composition.provider.choice.backend, file_digest(dockerfile), options]
            ),
        }
    except (ConfigurationError, OSError, TypeError, ValueError, RecursionError):
        return {}  # a mark or a parameter is not a plain value, or there is no repository


def name_project(project: str | os.PathLike[str] | None) -> str:
    """Return the name of the part that is the project of a run."""
    return _PROJECT if project is None else f"{_PROJECT} {os.fspath(project)}"


def explain_changes(
    item: pytest.Item, cell: ProjectCell, recorded_digests: Mapping[str, str]
) -> str:
    """Return why the recorded result of a test no longer holds; empty where it does.

    Args:
        item: the test.
        cell: which try it is.
        recorded_digests: the digests in the record of one of its runs.
    """
    digests = digest_item(item, cell)
    if not digests or not recorded_digests:
        return "it is not known what it was made of"
    for name in recorded_digests:
        kind, _, project = name.partition(" ")
        if kind == _PROJECT:
            digests[name] = _digest_project(item, cell, project or None)
    parts = dict.fromkeys((*digests, *recorded_digests))
    changed_parts = [part for part in parts if digests.get(part) != recorded_digests.get(part)]
    if not changed_parts:
        return ""
    return f"changed: {', '.join(_MEANINGS.get(part, part) for part in changed_parts)}"


def reads_elsewhere(item: pytest.Item, arguments: Mapping[str, Any]) -> bool:
    """Whether a run is given a Dockerfile or a script outside of ``rootdir``, which has no digest.

    Args:
        item: the test.
        arguments: what the run is given.
    """
    fakes = arguments.get("fake") or {}
    paths = [arguments.get("dockerfile"), *fakes.values()]
    root = item.config.rootpath.resolve()
    return any(
        not (item.path.parent / Path(path).expanduser()).resolve().is_relative_to(root)
        for path in paths
        if isinstance(path, (str, os.PathLike))
    )


def hidden_paths(item: pytest.Item, arguments: Mapping[str, Any]) -> list[Path]:
    """Return the paths that are hidden from a test's agent: what runs write, and treatments."""
    config = item.config
    hidden = list(run_of(config).settings.outputs)
    if junit := config.getoption("xmlpath", None):  # pytest's own, with the results of other tests
        path = Path(os.path.expandvars(junit)).expanduser()
        hidden.append(config.invocation_params.dir / path)
    if "treatments" in arguments:
        hidden.append(item.path.parent / arguments["treatments"])
    return hidden


def _digest_code(item: pytest.Item) -> str:
    """Return a digest of a test's module, and of each conftest.py above it."""
    root, module = item.config.rootpath, item.path

    def make() -> str:
        folders = [folder for folder in module.parents if folder.is_relative_to(root)]
        conftests = [path for folder in folders if (path := folder / "conftest.py").is_file()]
        return value_digest([file_digest(path) for path in (module, *conftests)])

    return _remembered(item, ("code", module), make)


def _digest_repository(item: pytest.Item) -> str:
    """Return a digest of a test's repository without other tests of agents."""
    config, hidden = item.config, hidden_paths(item, mark_arguments(item))
    test_files = [*config.getini("python_files"), "conftest.py"]
    return _remembered(
        item,
        ("repository", *hidden[-1:]),
        lambda: digest_repository(config.rootpath, hidden, test_files),
    )


def _digest_project(item: pytest.Item, cell: ProjectCell, project: str | None) -> str:
    """Return the digest of a copy of a project; empty where none can be made."""
    folder, hidden = item.path.parent, hidden_paths(item, mark_arguments(item))
    overlays = cell.treatment.overlays if cell.treatment is not None else ()

    def make() -> str:
        try:
            return digest_project(project, folder, item.config.rootpath, overlays, hidden)
        except ConfigurationError:  # the test reports it, if it still names this project
            return ""

    return _remembered(item, (project, folder, overlays, *hidden[-1:]), make)


def _remembered(item: pytest.Item, key: object, make: Callable[[], str]) -> str:
    """Return a digest that is made once in this process."""
    digests = item.config.stash.setdefault(_DIGESTS, {})
    if key not in digests:
        digests[key] = make()
    return digests[key]
