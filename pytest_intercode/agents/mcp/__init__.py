"""The agent ``mcp:CMDLINE``: an external coding agent that gets the environment's tools over MCP.

Only ``server`` imports the SDK.
"""
