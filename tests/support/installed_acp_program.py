"""A coding agent in a sandbox that speaks ACP, with the standard library alone.

It asks the model for commands over the chat API, and runs them itself. The first word of a prompt
may make it fail; the model is shown how the session began.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

schema = {"type": "object", "properties": {"command": {"type": "string"}}}
tools = [{"type": "function", "function": {"name": "bash", "parameters": schema}}]
messages: list[dict[str, Any]] = []


def send(**message: Any) -> None:
    """Write a message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def update(**fields: Any) -> None:
    """Send a notification of the session."""
    send(method="session/update", params={"sessionId": "s", "update": fields})


def ask_model() -> dict[str, Any]:
    """Return the model's next message."""
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps({"model": sys.argv[1], "messages": messages, "tools": tools}).encode(),
        {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
        },
    )
    with urllib.request.urlopen(request) as answer:
        message: dict[str, Any] = json.load(answer)["choices"][0]["message"]
    return message


def work(prompt: str, number: int) -> None:
    """Do what a prompt asks for, and answer it."""
    if prompt.startswith("DIE"):
        print("out of luck", file=sys.stderr)
        sys.exit(3)
    messages.append({"role": "user", "content": prompt})
    while True:
        try:
            message = ask_model()
        except urllib.error.HTTPError as error:
            if prompt.startswith("DEAF"):
                time.sleep(600)
            text = error.read().decode()
            send(id=number, error={"code": -32603, "message": f"refused: {error.code} {text}"})
            return
        messages.append(message)
        for call in message.get("tool_calls") or []:
            command = json.loads(call["function"]["arguments"])["command"]
            update(sessionUpdate="tool_call", toolCallId=call["id"], title=command, kind="execute")
            process = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
            output = process.stdout + process.stderr
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
            update(sessionUpdate="tool_call_update", toolCallId=call["id"], status="completed")
        if not message.get("tool_calls"):
            content = {"type": "text", "text": message["content"]}
            update(sessionUpdate="agent_message_chunk", content=content)
            send(id=number, result={"stopReason": "end_turn"})
            return


for line in sys.stdin:
    request = json.loads(line)
    method, parameters = request["method"], request.get("params")
    if method == "initialize":
        messages.append({"role": "system", "content": json.dumps(parameters)})
        capabilities = {"mcpCapabilities": {"http": True}}
        send(id=request["id"], result={"protocolVersion": 1, "agentCapabilities": capabilities})
    elif method == "session/new":
        messages.append({"role": "system", "content": json.dumps(parameters)})
        send(id=request["id"], result={"sessionId": "s"})
    elif method == "session/set_mode":
        send(id=request["id"], result={})
    elif method == "session/prompt":
        work(parameters["prompt"][0]["text"], request["id"])
