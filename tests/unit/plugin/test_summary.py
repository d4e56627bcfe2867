"""What a run is called where nobody named it."""

from __future__ import annotations

import pytest

from pytest_intercode.plugin.summary import name_run


@pytest.mark.parametrize(
    ("agents", "suites", "name"),
    [
        (["oracle"], ["bash", "bash", "sql"], "oracle on bash, sql"),
        (["src/agents/my_agent.py:Agent"], ["notes"], "my_agent.py:Agent on notes"),
        (["replay:/tmp/results/old.jsonl"], [], "replay:old.jsonl"),
        (["command:python3 -u tools/agent.py --key=SECRET"], ["bash"], "command:agent.py on bash"),
        (["mcp:env A=1 npx -y @openai/codex exec"], ["bash"], "mcp:codex on bash"),
        (["mcp:/usr/local/bin/claude -p --mcp-config {config}"], ["a"], "mcp:claude on a"),
        (["command:bash"], [], "command:bash"),
        (["command:agent 'with a quote"], [], "command:agent"),
        (["command:"], ["a"], "command: on a"),
        (["x" * 100], [""], "x" * 57 + "..."),
        ([], list("abcd"), "pytest-intercode on 4 suites"),
        (["codex", "installed:claude"], ["a"], "codex, installed:claude on a"),
        (["codex:model=a", "codex:model=b", "claude", "qwen"], ["a"], "4 agents on a"),
    ],
)
def test_a_run_is_named_by_its_agent_and_its_suites(
    agents: list[str], suites: list[str], name: str
) -> None:
    assert name_run(agents, suites) == name
