"""The table of extras is that of pyproject.toml, and messages name what is there."""

from __future__ import annotations

import re
from importlib.metadata import metadata, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import pytest_intercode
from pytest_intercode.system.extras import EXTRAS, describe_extras, has_extra, need

OURS = {"test", "lint", "site", "supply"}  # for those who change this package
_DISTRIBUTIONS = {"websocket": "websocket_client"}  # where they are not called as modules
PACKAGE = Path(pytest_intercode.__file__).parent


def test_it_has_every_extra() -> None:
    names = metadata("pytest-intercode").get_all("Provides-Extra") or []
    assert {*EXTRAS} == {*names} - OURS
    assert list(EXTRAS) == sorted(EXTRAS)


@pytest.mark.parametrize("name", EXTRAS)
def test_an_extra_installs_what_is_imported(name: str) -> None:
    requirements = map(Requirement, requires("pytest-intercode") or [])
    packages = {
        canonicalize_name(requirement.name).replace("-", "_")
        for requirement in requirements
        if requirement.marker is not None
        and requirement.marker.evaluate({"extra": name})
        and not requirement.marker.evaluate({"extra": ""})
    }
    modules = {module.replace(".", "_") for module in EXTRAS[name].modules}
    assert packages == {_DISTRIBUTIONS.get(module, module) for module in modules}


def test_no_message_has_a_command_of_its_own() -> None:
    named = re.compile(r"pip install '?pytest-intercode\[")
    modules = [path for path in PACKAGE.rglob("*.py") if named.search(path.read_text("utf-8"))]
    assert [path.relative_to(PACKAGE).as_posix() for path in modules] == ["system/extras.py"]


def test_messages() -> None:
    assert need("html", "the page") == "the page needs Jinja: pip install 'pytest-intercode[html]'"
    assert need("fetch", "fetching", "tqdm").startswith("fetching needs tqdm: pip install ")
    assert has_extra("html")
    missing = {name for name in EXTRAS if not has_extra(name)}
    facts = list(describe_extras({"ray"}))
    assert {fact.subject for fact in facts} == {"extras", *(f"extra {name}" for name in missing)}
    states = {fact.subject: fact.state for fact in facts}
    assert states.get("extra ray", "problem") == "problem"
