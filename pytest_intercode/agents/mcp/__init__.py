"""The agent ``mcp:CMDLINE``: a coding agent of its own, with the environment as tools over MCP.

Only ``server`` imports the SDK.
"""
