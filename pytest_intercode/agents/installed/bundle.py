"""Bundles: the programs of installed agents, each installed once, which sandboxes read.

A bundle is a folder of the cache, named by a digest of what is in it. pip or npm make it, under
a lock; it is never changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from pytest_intercode.agents.installed.recipe import Recipe
from pytest_intercode.errors import AgentLoadError, FetchError
from pytest_intercode.sandboxes.portable import copy_program, copy_python, run_installer
from pytest_intercode.system.files import cache_folder
from pytest_intercode.system.platform import lock

__all__ = ["BUNDLE_FOLDER", "find_bundle", "find_bundles", "find_own_folder", "find_program"]

BUNDLE_FOLDER = "/opt/intercode/agent"
"""Where sandboxes see a bundle."""

_VERSION = 1  # to be counted up when what is installed changes


def find_bundle(
    name: str, recipe: Recipe, folder: Path, option: str, progress: Callable[[str], None]
) -> Path:
    """Return the folder with a recipe's program; install it if it is not there yet.

    Args:
        name: the recipe's name.
        recipe: the recipe.
        folder: where a relative path in it starts.
        option: what the user wrote, for messages.
        progress: called with a line before something slow.

    Raises:
        AgentLoadError: it cannot be had.
    """
    own_folder = find_own_folder(recipe, folder, option)
    if own_folder is not None:
        return own_folder
    bundle = cache_folder() / "agents" / f"{name}-{_digest(recipe)}"
    if _find_programs(bundle, recipe):
        return bundle
    try:
        bundle.parent.mkdir(parents=True, exist_ok=True)
        with bundle.with_suffix(".lock").open("w") as lock_file:
            lock(lock_file.fileno())
            if not _find_programs(bundle, recipe):
                packages = ", ".join([*recipe.npm, *recipe.python])
                note = ", again, as its program is gone" if bundle.exists() else ", once"
                progress(f"installing {packages} for the agent {name}{note}; it may take minutes")
                _install(recipe, bundle)
    except FetchError as error:
        raise AgentLoadError(f"{option}: {error}") from None
    except OSError as error:
        raise AgentLoadError(f"{option}: it cannot be installed: {error}") from None
    return bundle


def find_own_folder(recipe: Recipe, folder: Path, option: str) -> Path | None:
    """Return the folder of the user's that a recipe names; None for one that is installed.

    Raises:
        AgentLoadError: it does not exist.
    """
    if not recipe.folder:
        return None
    program_folder = (folder / Path(recipe.folder).expanduser()).resolve()
    if not program_folder.is_dir():
        raise AgentLoadError(f"{option}: the recipe's folder {program_folder} does not exist")
    return program_folder


def find_bundles(name: str, recipe: Recipe) -> list[Path]:
    """Return the bundles that were made for a recipe of this name, of whatever version."""
    folder = cache_folder() / "agents"
    return [path for path in folder.glob(f"{name}-*") if _find_programs(path, recipe)]


def find_program(bundle: Path, recipe: Recipe, option: str) -> str:
    """Return where a sandbox sees the recipe's program.

    Raises:
        AgentLoadError: it is not in the bundle.
    """
    programs = _find_programs(bundle, recipe)
    if not programs:
        raise AgentLoadError(f"{option}: the bundle {bundle} has no program {recipe.program}")
    return f"{BUNDLE_FOLDER}/{programs[0].relative_to(bundle).as_posix()}"


def _find_programs(bundle: Path, recipe: Recipe) -> list[Path]:
    return sorted(path for path in bundle.glob(recipe.program) if path.is_file())


def _digest(recipe: Recipe) -> str:
    ingredients = [_VERSION, recipe.npm, recipe.python, recipe.node, platform.machine()]
    ingredients += [sys.version_info[:3]] if recipe.python else []
    return hashlib.sha256(json.dumps(ingredients).encode()).hexdigest()[:12]


def _install(recipe: Recipe, bundle: Path) -> None:
    part = bundle.with_name(f"{bundle.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    if recipe.npm:
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        command = ["npm", "install", *quiet, f"--prefix={part}", *recipe.npm]
    else:
        copy_python(part / "python", f"{BUNDLE_FOLDER}/python")
        site = str(part / "site")
        command = ["pip", "install", "--only-binary=:all:", "--target", site, *recipe.python]
    run_installer("the agent's packages", *command)
    if recipe.node:
        copy_program("node", part / "node", f"{BUNDLE_FOLDER}/node")
    for root, _, names in os.walk(part):  # the user of a sandbox may be another one
        for path in (Path(root), *(Path(root, name) for name in names)):
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(mode | 0o444 | (0o111 if path.is_dir() or mode & 0o100 else 0))
    if not _find_programs(part, recipe):  # npm leaves out what it cannot have for this machine
        shutil.rmtree(part)
        packages = ", ".join([*recipe.npm, *recipe.python])
        raise FetchError(
            f"{packages} was installed, and has no program {recipe.program} for this machine "
            f"({platform.machine()})"
        )
    shutil.rmtree(bundle, ignore_errors=True)
    part.rename(bundle)
