"""docs/reference/options.md: its tables are those of the code, and what it shows works."""

from __future__ import annotations

import re

import pytest

from pytest_intercode.plugin.settings import Settings
from tests.support.options_table import PAGE, with_tables

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_code() -> None:
    assert with_tables(TEXT) == TEXT, "run python -m tests.support.options_table"


def test_its_links_lead_to_pages() -> None:
    links = re.findall(r"\]\((.*?)\)", TEXT)
    assert len(links) > 10
    assert all((PAGE.parent / link).is_file() for link in links)


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="native TOML came with pytest 9")
def test_the_configuration_file_is_read(pytester: pytest.Pytester) -> None:
    [block] = re.findall(r"^```toml pyproject.toml\n(.*?)^```$", TEXT, re.M | re.S)
    pytester.makepyprojecttoml(block)
    settings = Settings.of(pytester.parseconfig("--strict-config"))
    [agent] = settings.agents
    assert (agent.name, agent.label) == ("my_agent.py:Agent", "Agent")
    assert agent.arguments == {"model": "MODEL", "temperature": "0"}
    assert (settings.concurrency, settings.timeout, settings.network) == (8, 120.0, False)


def test_the_node_id_is_played(pytester: pytest.Pytester, quick_sandbox: str) -> None:
    [command] = re.findall(r"^    pytest (.*) \"(.*)\"$", TEXT, re.M)
    result = pytester.runpytest(*command, quick_sandbox)
    result.assert_outcomes(passed=1)
    for expression, count in (("bash and not git", 1), ("intercode(hardness='hard')", 0)):
        words = ("--co", "-q", "-m", expression, "--intercode-env=bash", "--intercode-limit=1")
        lines = pytester.runpytest(*words).outlines
        assert sum("::test_solves[" in line for line in lines) == count, expression
