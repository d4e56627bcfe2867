"""The command line of ``mcp:``: its words, its placeholders, and what is said of a wrong one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_intercode.agents.loader import load_agent
from pytest_intercode.agents.mcp.client import PLACEHOLDERS, CommandLine
from pytest_intercode.agents.program.process import check_value
from pytest_intercode.errors import AgentError, AgentLoadError

VALUES = {name: f"<{name}>" for name in PLACEHOLDERS}


def words(line: str, **values: str) -> list[str]:
    made = CommandLine(f"mcp:{line}", line, Path.cwd()).fill({**VALUES, **values})
    return made[1:]


def test_every_placeholder_is_filled_in() -> None:
    line = " ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    assert words(f"cat {line}") == [f"<{name}>" for name in PLACEHOLDERS]


def test_words_are_split_before_they_are_filled_in() -> None:
    query = """ it's "quoted" $(touch x) `y` \\ ; | & > < * ~ # \n\t{token} {{url}} \u00e9 --yes"""
    assert words("cat a{query}b '{query}' --q={query}", query=query) == [
        f"a{query}b",
        query,
        f"--q={query}",
    ]


def test_doubled_braces_are_braces() -> None:
    assert words("""cat '{{"url": "{url}"}}' {{query}} '{{{{'""") == [
        '{"url": "<url>"}',
        "{query}",
        "{{",
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cat {qery}", r"unknown placeholder \{qery\}; allowed are \{prompt\}.*mean 'query'"),
        ("cat {}", r"unknown placeholder \{\}"),
        ("cat {query", r"'\{query' has a single '\{'; write '\{\{'"),
        ("cat query}", r"has a single '\}'; write '\}\}'"),
        ("cat 'x", "cannot be split into words: No closing quotation"),
        ("''", "a command line is needed"),
        ("no-such-program-here x", "no program 'no-such-program-here' on the PATH"),
        ("./no/such", "the program .*/no/such does not exist"),
        ("{url} x", r"may contain no placeholder but \{here\}"),
    ],
)
def test_what_is_wrong_is_said_at_once(line: str, said: str) -> None:
    with pytest.raises(AgentLoadError, match=f"^--intercode-agent=mcp:.*{said}") as raised:
        load_agent(f"mcp:{line}")
    assert "\n" not in str(raised.value)


def test_a_program_is_found_from_where_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "agent"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(AgentLoadError, match="not executable"):
        CommandLine("mcp:bin/agent", "bin/agent", tmp_path)
    program.chmod(0o755)
    for line in ("bin/agent", "./bin/agent", "{here}/bin/agent", str(program)):
        found = CommandLine(f"mcp:{line}", line, tmp_path).fill(VALUES)
        assert Path(found[0]).samefile(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert CommandLine("mcp:agent", "agent", tmp_path).fill(VALUES) == [str(program)]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("a\0b", "the task's query has a NUL"),
        ("\ud800", "half a surrogate pair"),
        ("x" * 131072, "131072 bytes"),
    ],
)
def test_what_no_program_can_be_given(value: str, said: str) -> None:
    with pytest.raises(AgentError, match=said):
        check_value("query", value)
    assert check_value("query", "x" * 131000) == "x" * 131000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"foldr": "."}, "it takes folder, template, workspace, grace. Did you mean 'folder'"),
        ({"folder": "no/such"}, "there is no folder .*/no/such"),
        ({"grace": "soon"}, "a number of seconds"),
        ({"grace": "-1"}, "a number of seconds"),
        ({"grace": "inf"}, "a number of seconds"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, str], said: str) -> None:
    with pytest.raises(
        AgentLoadError, match=f"^--intercode-agent-arg {next(iter(arguments))}=.*{said}"
    ):
        load_agent("mcp:cat", arguments)


def test_the_extra_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(AgentLoadError) as raised:
        load_agent("mcp:cat {config}")
    assert str(raised.value) == (
        "--intercode-agent=mcp needs the MCP SDK: pip install 'pytest-intercode[mcp]'"
    )


def test_an_old_sdk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mcp-1.30.0.dist-info").mkdir()
    (tmp_path / "mcp-1.30.0.dist-info" / "METADATA").write_text("Name: mcp\nVersion: 1.30.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(AgentLoadError, match=r"needs version 2 of the MCP SDK, and 1\.30\.0 is"):
        load_agent("mcp:cat {config}")
