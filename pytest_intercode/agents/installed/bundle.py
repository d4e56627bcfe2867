"""Bundles: the programs of installed agents, each installed once and read by sandboxes.

A bundle is a folder in the cache, named after a digest of what is installed in it. pip or npm
creates it, under a lock; it never changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from pytest_intercode.agents.installed.recipe import Recipe
from pytest_intercode.core.platforms import Platform
from pytest_intercode.errors import AgentLoadError, EngineUnavailable, FetchError
from pytest_intercode.sandboxes.choice import find_platform
from pytest_intercode.sandboxes.portable import (
    copy_program,
    copy_python,
    install_npm_packages,
    install_wheels,
    npm_processor,
    own_platform,
    run_installer,
)
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.sandboxes.workshop import Workshop
from pytest_intercode.system.files import cache_folder
from pytest_intercode.system.platform import lock

__all__ = ["BUNDLE_FOLDER", "find_bundle", "find_bundles", "find_own_folder", "find_program"]

BUNDLE_FOLDER = "/opt/intercode/agent"
"""Where sandboxes see a bundle."""

_VERSION = 1  # increase this when bundles are made differently
_PURPOSE = "the agent's packages"
_LEFT_OUT = (
    ": for another platform than this machine's, npm 10 or newer is needed, and the registry has "
    "to have the packages; npm leaves out those that it cannot get"
)
_NODE = "22.23.3"  # npm's Node.js, for other platforms and if this machine's is too old
_VERSION_TIMEOUT = 60.0  # seconds


def find_bundle(
    name: str,
    recipe: Recipe,
    folder: Path,
    option: str,
    progress: Callable[[str], None],
    sandbox: SandboxSettings,
) -> tuple[Path, Platform | None]:
    """Return the folder with a recipe's program and its platform; install it if necessary.

    The program is for the platform of the run's sandboxes, which may differ from this machine's.
    The returned platform is None for a folder of the user's own.

    Args:
        name: the recipe's name.
        recipe: the recipe.
        folder: where a relative path in it starts.
        option: what the user wrote, for messages.
        progress: called with a line before something slow.
        sandbox: where the sandboxes come from that the program runs in.

    Raises:
        AgentLoadError: it cannot be installed, or the platform of the sandboxes is not known.
    """
    own_folder = find_own_folder(recipe, folder, option)
    if own_folder is not None:
        return own_folder, None
    try:
        platform = find_platform(sandbox)
    except EngineUnavailable as error:
        raise AgentLoadError(
            f"{option}: the platform of the sandboxes, for which it is installed, is not known: "
            f"{error}"
        ) from None
    bundle = cache_folder() / "agents" / f"{name}-{_digest(recipe, platform)}"
    if _find_programs(bundle, recipe):
        return bundle, platform
    try:
        bundle.parent.mkdir(parents=True, exist_ok=True)
        with bundle.with_suffix(".lock").open("w") as lock_file:
            lock(lock_file.fileno())
            if not _find_programs(bundle, recipe):
                packages = ", ".join([*recipe.npm, *recipe.python])
                note = ", again, as its program is missing" if bundle.exists() else ", once"
                target = "" if platform == own_platform() else f" for {platform}"
                progress(
                    f"installing {packages} for the agent {name}{target}{note}; it may take minutes"
                )
                _install(recipe, bundle, platform, sandbox)
    except FetchError as error:
        raise AgentLoadError(f"{option}: {error}") from None
    except OSError as error:
        raise AgentLoadError(f"{option}: it cannot be installed: {error}") from None
    return bundle, platform


def find_own_folder(recipe: Recipe, folder: Path, option: str) -> Path | None:
    """Return the user's folder that a recipe names; None if its program has to be installed.

    Raises:
        AgentLoadError: the folder does not exist.
    """
    if not recipe.folder:
        return None
    program_folder = (folder / Path(recipe.folder).expanduser()).resolve()
    if not program_folder.is_dir():
        raise AgentLoadError(f"{option}: the recipe's folder {program_folder} does not exist")
    return program_folder


def find_bundles(name: str, recipe: Recipe) -> list[Path]:
    """Return the bundles of a recipe with this name, whatever their version."""
    folder = cache_folder() / "agents"
    return [path for path in folder.glob(f"{name}-*") if _find_programs(path, recipe)]


def find_program(bundle: Path, recipe: Recipe, option: str) -> str:
    """Return where a sandbox sees the recipe's program.

    Raises:
        AgentLoadError: the program is not in the bundle.
    """
    programs = _find_programs(bundle, recipe)
    if not programs:
        raise AgentLoadError(f"{option}: the bundle {bundle} has no program {recipe.program}")
    return f"{BUNDLE_FOLDER}/{programs[0].relative_to(bundle).as_posix()}"


def _find_programs(bundle: Path, recipe: Recipe) -> list[Path]:
    return sorted(path for path in bundle.glob(recipe.program) if path.is_file())


def _digest(recipe: Recipe, platform: Platform) -> str:
    ingredients = [_VERSION, recipe.npm, recipe.python, recipe.node, platform.machine]
    if recipe.python:  # it comes with this machine's Python, or with one of another platform
        ingredients += [sys.version_info[:3] if platform == own_platform() else "workshop"]
    elif recipe.node and platform != own_platform():
        ingredients += [_NODE]
    return hashlib.sha256(json.dumps(ingredients).encode()).hexdigest()[:12]


def _install(recipe: Recipe, bundle: Path, platform: Platform, sandbox: SandboxSettings) -> None:
    part = bundle.with_name(f"{bundle.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    is_own = platform == own_platform()
    with Workshop(sandbox, platform, _PURPOSE) as workshop:
        if recipe.npm:
            install_npm_packages(_PURPOSE, recipe.npm, part, None if is_own else platform)
        else:
            python, python_path = None, f"{BUNDLE_FOLDER}/python"
            if is_own:
                copy_python(part / "python", python_path)
            else:
                python = workshop.copy_python(part / "python", python_path)
            install_wheels(_PURPOSE, recipe.python, part / "site", python)
        if recipe.node:
            oldest = "" if recipe.node is True else recipe.node
            _copy_node(oldest, part, platform, workshop)
    for root, _, names in os.walk(part):  # a sandbox may run as another user
        for path in (Path(root), *(Path(root, name) for name in names)):
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(mode | 0o444 | (0o111 if path.is_dir() or mode & 0o100 else 0))
    if not _find_programs(part, recipe):  # npm omits packages that it cannot get for a platform
        shutil.rmtree(part)
        packages = ", ".join([*recipe.npm, *recipe.python])
        hint = "" if is_own or not recipe.npm else _LEFT_OUT
        raise FetchError(
            f"{packages} was installed, but has no program {recipe.program} for {platform}{hint}"
        )
    shutil.rmtree(bundle, ignore_errors=True)
    part.rename(bundle)


def _copy_node(oldest: str, part: Path, platform: Platform, workshop: Workshop) -> None:
    """Put Node.js into a bundle: this machine's if it is new enough, else npm's.

    It is fetched with ``npm pack``, as ``npm install`` of a named package is only possible for this
    machine's platform.

    Args:
        oldest: the oldest version that is new enough; empty for any.
        part: the bundle.
        platform: the platform that the bundle is for.
        workshop: where programs for another platform find their libraries.

    Raises:
        FetchError: no suitable Node.js is available.
    """
    target, place = part / "node", f"{BUNDLE_FOLDER}/node"
    is_own = platform == own_platform()
    if is_own and _numbers(oldest) <= _numbers(_own_node()):
        copy_program("node", target, place)
        return
    if _numbers(oldest) > _numbers(_NODE):
        remedy = "; put a newer one on the PATH" if is_own else ""
        raise FetchError(
            f"{_PURPOSE}: Node.js {oldest} or newer is needed for {platform}, but npm's is "
            f"{_NODE}{remedy}"
        )
    package = f"node-linux-{npm_processor(platform)}@{_NODE}"
    with tempfile.TemporaryDirectory(dir=part.parent) as folder:
        run_installer(_PURPOSE, "npm", "pack", f"--pack-destination={folder}", package)
        program = Path(folder, "node")
        [archive] = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as content:
            file = content.extractfile("package/bin/node")
            assert file is not None, "npm's package has it"
            program.write_bytes(file.read())
        program.chmod(0o755)
        if is_own:
            copy_program("node", target, place, program)
        else:
            workshop.copy_program(program, "node", target, place)


def _own_node() -> str:
    """Return the version of this machine's Node.js; empty if there is none."""
    words = ["node", "--version"]
    try:
        result = subprocess.run(words, capture_output=True, text=True, timeout=_VERSION_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout


def _numbers(version: str) -> list[int]:
    """Return the numbers of a version, for comparisons."""
    return [int(number) for number in re.findall(r"\d+", version)]
