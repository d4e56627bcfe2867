"""A server of the Model Context Protocol on standard input and output: tickets in a JSON file."""

import json
import sys
from pathlib import Path

STORE = Path(__file__).with_name("tickets.json")
TEXT = {"type": "string"}
TOOLS = [
    {
        "name": "create",
        "description": "Create a ticket.",
        "inputSchema": {"type": "object", "properties": {"title": TEXT}, "required": ["title"]},
    },
    {
        "name": "close",
        "description": "Close a ticket.",
        "inputSchema": {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        },
    },
]


def create(title):
    tickets = json.loads(STORE.read_text())
    tickets.append({"number": len(tickets) + 1, "title": title, "open": True})
    STORE.write_text(json.dumps(tickets))
    return f"created ticket {len(tickets)}"


def close(number):
    tickets = json.loads(STORE.read_text())
    tickets[number - 1]["open"] = False
    STORE.write_text(json.dumps(tickets))
    return f"closed ticket {number}"


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tickets", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        text = {"create": create, "close": close}[params["name"]](**params["arguments"])
        return {"content": [{"type": "text", "text": text}]}
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:  # the others are notifications
        result = answer(request["method"], request.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
