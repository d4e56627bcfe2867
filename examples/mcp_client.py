"""An agent that speaks MCP with the SDK's client, and gets the commands that solve its tasks.

    pytest --intercode-agent='mcp:python {here}/examples/mcp_client.py {config} "echo hello"'

With {config_http} in place of {config} it connects over HTTP. A coding agent would ask its model
which tool to call; this one runs the commands that it is given, and submits.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client


async def main(config: str, commands: list[str]) -> None:
    server = json.loads(Path(config).read_text())["mcpServers"]["intercode"]
    if server["type"] == "http":
        async with httpx2.AsyncClient(headers=server["headers"], timeout=600) as http:
            await play(Client(streamable_http_client(server["url"], http_client=http)), commands)
    else:
        words = StdioServerParameters(command=server["command"], args=server["args"])
        await play(Client(stdio_client(words)), commands)


async def play(client: Client, commands: list[str]) -> None:
    async with client:
        print("tools:", *(tool.name for tool in (await client.list_tools()).tools))
        for command in commands:
            result = await client.call_tool("execute", {"code": command})
            print(*(block.text for block in result.content if block.type == "text"))
        await client.call_tool("submit", {})


asyncio.run(main(sys.argv[1], sys.argv[2:]))
