"""The agent ``mcp:CMDLINE``: a coding agent of its own, with the environment as tools over MCP.

Only ``server`` imports the SDK.
"""

from __future__ import annotations

from pytest_intercode.agents.mcp.agent import make_factory

__all__ = ["make_factory"]
