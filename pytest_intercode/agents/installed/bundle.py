"""Bundles: the programs of installed agents, each installed once, which sandboxes read.

A bundle is a folder of the cache, named by a digest of what is in it. pip or npm make it, under
a lock; it is never changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from pytest_intercode.agents.installed.recipe import Recipe
from pytest_intercode.core.files import cache_folder
from pytest_intercode.errors import AgentLoadError, FetchError
from pytest_intercode.sandboxes.portable import copy_program, copy_python, run_installer

__all__ = ["AT", "find_bundle", "find_program"]

AT = "/opt/intercode/agent"
"""Where sandboxes see a bundle."""

_VERSION = 1  # to be counted up with what is made


def find_bundle(
    name: str, recipe: Recipe, folder: Path, asked: str, progress: Callable[[str], None]
) -> Path:
    """Return the folder with a recipe's program; install it if it is not there yet.

    Args:
        name: the recipe's name.
        recipe: the recipe.
        folder: where a relative path in it starts.
        asked: what the user wrote, for messages.
        progress: called with a line before something slow.

    Raises:
        AgentLoadError: it cannot be had.
    """
    if recipe.folder:
        given = (folder / Path(recipe.folder).expanduser()).resolve()
        if not given.is_dir():
            raise AgentLoadError(f"{asked}: the recipe's folder {given} does not exist")
        return given
    made = cache_folder() / "agents" / f"{name}-{_digest(recipe)}"
    if _programs(made, recipe):
        return made
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        with made.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _programs(made, recipe):
                packages = ", ".join([*recipe.npm, *recipe.python])
                note = ", again, as its program is gone" if made.exists() else ", once"
                progress(f"installing {packages} for the agent {name}{note}; it may take minutes")
                _install(recipe, made)
    except FetchError as error:
        raise AgentLoadError(f"{asked}: {error}") from None
    except OSError as error:
        raise AgentLoadError(f"{asked}: it cannot be installed: {error}") from None
    return made


def find_program(bundle: Path, recipe: Recipe, asked: str) -> str:
    """Return where a sandbox sees the recipe's program.

    Raises:
        AgentLoadError: it is not in the bundle.
    """
    programs = _programs(bundle, recipe)
    if not programs:
        raise AgentLoadError(f"{asked}: the bundle {bundle} has no program {recipe.program}")
    return f"{AT}/{programs[0].relative_to(bundle).as_posix()}"


def _programs(bundle: Path, recipe: Recipe) -> list[Path]:
    return sorted(path for path in bundle.glob(recipe.program) if path.is_file())


def _digest(recipe: Recipe) -> str:
    what = [_VERSION, recipe.npm, recipe.python, recipe.node, platform.machine()]
    what += [sys.version_info[:3]] if recipe.python else []
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]


def _install(recipe: Recipe, made: Path) -> None:
    part = made.with_name(f"{made.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    if recipe.npm:
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        run_installer(
            "the agent's packages", "npm", "install", *quiet, f"--prefix={part}", *recipe.npm
        )
    else:
        copy_python(part / "python", f"{AT}/python")
        only = "--only-binary=:all:"
        run_installer(
            "the agent's packages",
            "pip",
            "install",
            only,
            "--target",
            str(part / "site"),
            *recipe.python,
        )
    if recipe.node:
        copy_program("node", part / "node", f"{AT}/node")
    for root, _, names in os.walk(part):  # whoever acts in a sandbox may read it
        for path in (Path(root), *(Path(root, name) for name in names)):
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(mode | 0o444 | (0o111 if path.is_dir() or mode & 0o100 else 0))
    if not _programs(part, recipe):  # npm leaves out what it cannot have for this machine
        shutil.rmtree(part)
        packages = ", ".join([*recipe.npm, *recipe.python])
        raise FetchError(
            f"{packages} was installed, and has no program {recipe.program} for this machine "
            f"({platform.machine()})"
        )
    shutil.rmtree(made, ignore_errors=True)
    part.rename(made)
