"""Which installed agents are available here, for ``pytest-intercode doctor``. Installs nothing."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_intercode.agents.installed.agent import read_recipe
from pytest_intercode.agents.installed.bundle import find_bundles, find_own_folder
from pytest_intercode.agents.installed.recipe import Recipe, load_recipe, recipe_names
from pytest_intercode.core.facts import Fact
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.system.extras import has_extra, need

__all__ = ["describe_agent", "describe_recipes", "find_key"]

# How to get the tool that installs a recipe's program.
_REMEDIES = {"npm": "install Node.js (nodejs.org)", "pip": "python -m ensurepip"}


def describe_agent(name: str, rest: str, arguments: Mapping[str, str], folder: Path) -> Fact:
    """Return whether the agent of a recipe is installed, or can be.

    Args:
        name: the agent, as the user named it.
        rest: the part of the name after ``installed:``.
        arguments: the agent's arguments.
        folder: where relative paths start.

    Raises:
        AgentLoadError: the recipe or an argument is wrong, or something is missing.
    """
    option = f"--intercode-agent={name}"
    short_name, recipe, recipe_folder, _, _ = read_recipe(name, rest, arguments, folder)
    if not has_extra("gateway"):
        raise AgentLoadError(f"{option}: {need('gateway', 'the gateway')}")
    own_folder = find_own_folder(recipe, recipe_folder, option)
    if own_folder is not None:
        return Fact("agent", f"{name}: its program is in {own_folder}")
    if find_bundles(short_name, recipe):
        return Fact("agent", f"{name}: is installed")
    if (tool := _find_missing_tool(recipe)) is not None:
        raise AgentLoadError(
            f"{option}: it is not installed yet, and its installation needs {_describe(tool)}"
        )
    return Fact("agent", f"{name}: the first run installs it")


def find_key(name: str, folder: Path) -> str:
    """Return the variable of an agent's key; empty if its recipe names none or is invalid.

    Args:
        name: the agent, as the user named it.
        folder: where relative paths start.
    """
    rest = name.removeprefix("installed:").strip()
    try:
        return load_recipe(rest, folder, f"--intercode-agent={name}")[1].key
    except AgentLoadError:
        return ""


def describe_recipes() -> Iterator[Fact]:
    """Yield facts about the agents of our recipes: which are installed and which can be."""
    recipes = {
        short_name: recipe
        for short_name, recipe, _ in (load_recipe(name, Path(), name) for name in recipe_names())
    }
    installed = [name for name, recipe in recipes.items() if find_bundles(name, recipe)]
    if installed:
        yield Fact("installed agents", f"here: {', '.join(installed)}")
    names_by_tool: dict[str | None, list[str]] = {}
    for name, recipe in recipes.items():
        if name not in installed:
            names_by_tool.setdefault(_find_missing_tool(recipe), []).append(name)
    for tool, names in names_by_tool.items():
        if tool is None:
            text = f"{', '.join(names)} can be installed: the first run with one does it"
            yield Fact("installed agents", text)
        else:
            text = f"{', '.join(names)} need {_describe(tool)}"
            yield Fact("installed agents", text, "note")


def _find_missing_tool(recipe: Recipe) -> str | None:
    """Return the tool that installs a recipe's program, if that tool is missing."""
    if recipe.npm:
        return None if shutil.which("npm") else "npm"
    return None if importlib.util.find_spec("pip") else "pip"


def _describe(tool: str) -> str:
    return f"{tool}, which is missing: {_REMEDIES[tool]}"
