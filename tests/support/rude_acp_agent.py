"""An agent that breaks the rules of ACP, in the way that its first word names; stdlib alone.

It starts in milliseconds, so that it plays a few things that are allowed, too.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import sys
import time
from typing import Any

WAY = sys.argv[1]


def send(**message: Any) -> None:
    """Write a message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def update(**fields: Any) -> None:
    """Send a notification of the session."""
    send(method="session/update", params={"sessionId": "s", "update": fields})


def misbehave(number: int) -> None:
    """Do it, while the prompt of this id waits for its answer."""
    if WAY == "not-json":
        print("Loading models...", flush=True)
    elif WAY == "long-line":
        print("x" * (5 * 1024**2), flush=True)
    elif WAY == "dies":
        print("out of luck", file=sys.stderr)
        sys.exit(3)
    elif WAY == "silent":
        time.sleep(600)
    elif WAY == "flood":
        for count in itertools.count():
            update(
                sessionUpdate="agent_message_chunk", content={"type": "text", "text": str(count)}
            )
    elif WAY == "terminals":
        for count in itertools.count():
            send(id=count, method="terminal/create", params={"command": "true"})
            release = {"terminalId": f"terminal-{count + 1}"}
            send(id=f"release {count}", method="terminal/release", params=release)
    elif WAY.startswith("spends"):
        tokens = {"totalTokens": 120, "inputTokens": 100, "outputTokens": 20}
        if WAY != "spends":  # caches and thoughts, among those or next to them
            tokens |= {"cachedReadTokens": 60, "cachedWriteTokens": 30, "thoughtTokens": 15}
        if WAY == "spends-next-to-caches":
            tokens["totalTokens"] = 225
        send(id=number, result={"stopReason": "end_turn", "usage": tokens})
    elif WAY == "ignores-fs":
        pathlib.Path("x").write_text("hi\n")
        update(sessionUpdate="tool_call", toolCallId="1", kind="edit", status="completed")
        send(id=number, result={"stopReason": "end_turn"})
    elif WAY == "asks":
        kinds = ("reject_once", "allow_always", "allow_once", "reject_always")
        options = [{"optionId": kind, "name": kind, "kind": kind} for kind in kinds]
        send(id=1, method="session/request_permission", params={"options": options})
        reply = json.loads(sys.stdin.readline())
        send(id=2, method="terminal/create", params={"command": f"echo {reply['result']}"})
        send(id=number, result={"stopReason": "end_turn"})
    elif WAY == "kept-terminals":
        for count in range(200):
            send(id=count, method="terminal/create", params={"command": "true"})
    elif WAY == "same-id":
        for _ in range(2):
            send(id=1, method="fs/read_text_file", params={"path": "/etc/passwd"})
    elif WAY == "wrong-answer":
        send(id=77, result={"stopReason": "end_turn"})
    elif WAY == "twice":
        send(id=number - 1, result={"sessionId": "s"})
    elif WAY == "error":
        send(id=number, error={"code": -32603, "message": "no such\nmodel", "data": {"a": 1}})
    elif WAY == "list":
        send(id=number, result=[])
    elif WAY == "deep":
        print('{"jsonrpc": "2.0", "id": 1, "method": "x", "params": ' + "[" * 100_000, flush=True)
    elif WAY == "deep-list":
        depth = 900  # which can be read, and not always be written
        arguments = "[" * depth + "]" * depth
        fields = f'{{"sessionUpdate": "tool_call", "toolCallId": "1", "rawInput": {arguments}}}'
        params = f'{{"sessionId": "s", "update": {fields}}}'
        print(f'{{"method": "session/update", "params": {params}}}', flush=True)
        sys.exit(4)
    elif WAY == "long-id":
        send(id="x" * 1000, method="terminal/create", params={"command": "true"})
    elif WAY == "odd-id":
        send(id=None, method="terminal/create", params={})
    elif WAY == "open-calls":
        for count in itertools.count():
            update(sessionUpdate="tool_call", toolCallId=str(count), title="never ends")
    elif WAY == "nonsense":
        # None of it is a reason to end: each request is answered with an error.
        requests: list[tuple[str, Any]] = [
            ("fs/read_text_file", {"path": "relative"}),
            ("fs/read_text_file", {"path": "/etc/pass\0wd"}),
            ("fs/read_text_file", {"path": "/" + "x" * 5000}),
            ("fs/read_text_file", {"path": "/etc/passwd", "line": -1}),
            ("fs/write_text_file", {"path": "/w/x", "content": "\ud800"}),
            ("fs/write_text_file", {"path": "/w/x", "content": 7}),
            ("fs/write_text_file", {"path": "/proc/nothing/x", "content": ""}),
            ("terminal/create", {"command": "echo", "args": [1]}),
            ("terminal/create", {"command": "a\0b"}),
            ("terminal/create", {"command": "ls", "env": [{"name": "A B", "value": ""}]}),
            ("terminal/output", {"terminalId": "none"}),
            ("terminal/release", None),
            ("no/such", {}),
        ]
        for count, (method, params) in enumerate(requests):
            send(id=f"r{count}", method=method, params=params)
            reply = json.loads(sys.stdin.readline())
            assert reply["id"] == f"r{count}", reply
            assert isinstance(reply["error"]["code"], int), reply
        send(method="no/such/notification", params=[])
        send(method="session/update", params={"sessionId": "s", "update": 7})
        update(sessionUpdate="plan", entries=[7, {"content": {"a": 1}}])
        update(sessionUpdate="new_in_version_9", anything=[1])
        update(sessionUpdate="tool_call", toolCallId=7, kind="dance", rawInput=[1], status="failed")
        send(id=number, result={"stopReason": "refusal"})


for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if WAY == "never-answers":
        time.sleep(600)
    if method == "initialize":
        send(id=number, result={"protocolVersion": 9 if WAY == "version" else 1})
    elif method == "session/new" and WAY == "login":
        error = {"code": -32000, "message": "Authentication required"}
        send(id=number, error=error)
    elif method == "session/new":
        send(id=number, result={"sessionId": "s"} if WAY != "no-session" else {})
    elif method == "session/prompt":
        misbehave(number)
    elif method == "session/cancel":
        print("cancelled", file=sys.stderr)
