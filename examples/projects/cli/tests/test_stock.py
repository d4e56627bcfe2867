"""The command-line tool and its AGENTS.md: an agent uses the tool, and leaves the file alone."""

from __future__ import annotations

from pytest_intercode import Project


def test_uses_the_tool(intercode_project: Project) -> None:
    run = intercode_project.run("We got 40 nuts.")
    assert run.ran("stock add", ok=True)
    assert run.unchanged("stock")
    assert run.check("./stock list").output.endswith("nut,40\n")
    assert not run.ran("sed")
