"""A task as the tests of MCP show it to an agent."""

from __future__ import annotations

from typing import Any

from pytest_intercode.core.task import TaskView


def view(env: str = "bash", query: str = "Say hello.", **more: Any) -> TaskView:
    return TaskView(
        **{
            "id": "t",
            "query": query,
            "env": env,
            "suite": "s",
            "dataset": "s",
            "hardness": "",
            "tags": (),
            "workdir": "/",
            "max_turns": 7,
            **more,
        }
    )
