"""The agent of forms.py as a client of MCP, over both transports."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


async def play(client: Client, actions: list[str]) -> None:
    async with client:
        for action in actions:
            word, _, answer = action.partition(" ")
            if word == "submit":
                await client.call_tool("submit", {"answer": answer})
            else:
                await client.call_tool("execute", {"code": action})


async def main(task: str, config: str) -> None:
    actions = json.loads(Path(os.environ["PLAN"]).read_text())[task]
    server: dict[str, Any] = json.loads(Path(config).read_text())["mcpServers"]["intercode"]
    if server["type"] == "stdio":
        words = StdioServerParameters(command=server["command"], args=server["args"])
        await play(Client(words), actions)
        return
    async with httpx2.AsyncClient(headers=server["headers"], timeout=600) as http:
        await play(Client(streamable_http_client(server["url"], http_client=http)), actions)


asyncio.run(main(*sys.argv[1:]))
