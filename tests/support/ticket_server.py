"""An MCP server over stdio, with the standard library alone: it counts tickets."""

import json
import sys

TOOL = {
    "name": "count_tickets",
    "description": "Count the open tickets.",
    "inputSchema": {"type": "object", "properties": {}},
}

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:  # a notification
        continue
    method = request["method"]
    if method == "initialize":
        result = {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tickets", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "41 tickets"}], "isError": False}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
