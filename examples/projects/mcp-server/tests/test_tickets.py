"""The MCP server: an agent finds its tools, and calls the right one with the right arguments."""

from __future__ import annotations

import json

import pytest

from pytest_intercode import Project


@pytest.mark.intercode(mcp={"tickets": "python3 server.py"})
def test_closes_a_ticket(intercode_project: Project) -> None:
    run = intercode_project.run("The logo is sharp now. Close its ticket.")
    assert run.called("tickets.close", number=1)
    assert not run.called("tickets.create")
    assert json.loads(run.read("tickets.json"))[0]["open"] is False
