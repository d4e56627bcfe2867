"""The agent ``acp:CMDLINE``, and our client of the Agent Client Protocol.

We are the client, as an editor would be: https://agentclientprotocol.com, version 1. The protocol
needs only lines of JSON, so there is no dependency. The Python SDK creates a task for each message,
without a limit, and skips lines that are not JSON.
"""
