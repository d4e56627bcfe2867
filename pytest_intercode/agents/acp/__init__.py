"""The agent ``acp:CMDLINE``, and the client of the Agent Client Protocol that it is played by.

We are the client, as an editor is: https://agentclientprotocol.com, version 1. Only lines of JSON
are needed for that, so there is no dependency. The SDK for Python makes a task of each message,
without a limit, and skips lines that are not JSON.
"""
