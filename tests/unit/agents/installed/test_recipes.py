"""Our recipes can be read, and ``--help`` names those that have a short name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_intercode.agents.installed.recipe import executables, load_recipe, recipe_names
from pytest_intercode.agents.loader import load_agent
from pytest_intercode.core.presets import PRESETS
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.gateway.vendors import VENDORS
from pytest_intercode.options.table import OPTIONS

_FOLDER = Path(__file__).parents[4]


@pytest.mark.parametrize("name", recipe_names())
def test_it_can_be_read_and_names_its_version(name: str) -> None:
    stem, recipe, _ = load_recipe(name, Path(), "")
    assert stem == PRESETS.get(name, name)
    assert recipe.about
    program = [*recipe.npm, *recipe.python][0]
    assert program.rpartition("@" if recipe.npm else "==")[0]


@pytest.mark.parametrize("name", recipe_names())
def test_its_key_is_one_that_the_gateway_reads(name: str) -> None:
    recipe = load_recipe(name, Path(), "")[1]
    keys = [key for vendor in VENDORS.values() for key in vendor.key_variables]
    assert recipe.key in ("", *keys)


def test_those_of_clients_that_people_have_are_proposed() -> None:
    proposed = executables()
    with_key = {"codex", "claude", "gemini", "qwen", "pi", "copilot"}
    assert proposed.keys() == with_key | {"opencode", "kimi", "cline"}
    # That of the others depends on their model.
    assert {name for name, recipe in proposed.items() if recipe.key} == with_key


def test_help_names_the_presets() -> None:
    [option] = (option for option in OPTIONS if option.form == "agent=AGENT")
    for name in PRESETS:
        assert f"`{name}`" in option.help


def test_the_docs_name_the_presets() -> None:
    page = (_FOLDER / "docs" / "installed.md").read_text()
    for name in PRESETS:
        assert f"\n| `{name}` | " in page


@pytest.mark.parametrize(
    ("name", "near"),
    [("claud", "claude"), ("gemni", "gemini"), ("copilott", "copilot"), ("kimmi", "kimi")],
)
def test_a_near_name_is_one_line_with_a_suggestion(tmp_path: Path, name: str, near: str) -> None:
    with pytest.raises(AgentLoadError) as caught:
        load_agent(name, folder=tmp_path)
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"--intercode-agent={name}: an agent is ")
    assert line.endswith(f" Did you mean {near!r}?")


@pytest.mark.parametrize(("node", "is_wrong"), [("22.19", False), ("22", False), (">=22", True)])
def test_the_oldest_node_is_a_version(tmp_path: Path, node: str, is_wrong: bool) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"npm: [mine@1]\nnode: '{node}'\nprogram: run.js\ncommand: [x]\n")
    if not is_wrong:
        assert load_recipe(str(path), tmp_path, "")[1].node == node
        return
    with pytest.raises(AgentLoadError) as caught:
        load_recipe(str(path), tmp_path, "--option")
    assert str(caught.value) == (
        f"--option: {path}: node: '>=22' is neither true nor a version such as '22.19'"
    )
