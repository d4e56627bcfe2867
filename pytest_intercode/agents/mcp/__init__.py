"""MCP: the environment as tools for a coding agent that is a program of its own.

Nothing here but ``serving`` and ``tools`` imports the SDK.
"""

from __future__ import annotations

from pytest_intercode.agents.mcp.agent import make_factory

__all__ = ["make_factory"]
