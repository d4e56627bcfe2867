"""A model on loopback that knows some tasks, behind the APIs that agent frameworks speak.

It speaks OpenAI's chat completions and responses, Anthropic's messages (plain and streamed) and
Gemini's ``generateContent``. What it says follows from the request alone: the task whose query is
in it, and how many results of tools it holds. So any number of episodes may ask at the same time::

    with ScriptedModel({query: ["SELECT 1"]}) as model:
        ...
    model.spent[query]  # what its requests came to
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

__all__ = ["ScriptedModel", "Spent"]

_THOUGHT = 0.02  # seconds that every answer takes
_JSON = "application/json"
_SSE = "text/event-stream"


@dataclass(frozen=True)
class Spent:
    """What requests came to, by the usage in the server's own answers."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
        )


@dataclass(frozen=True)
class Said:
    """One answer: a call of a tool, or a text where the name is empty."""

    name: str
    arguments: dict[str, str]
    number: int
    spent: Spent

    @property
    def id(self) -> str:
        return f"call_{self.number}"


class ScriptedModel:
    """The server; it runs between ``with`` and the end of the block.

    Args:
        actions: by query, what is executed before the submission.

    Attributes:
        url: where it is, without a path.
        spent: what was used up, by query; the empty one is for requests of no task.
        paths: the paths that were asked for.
        most: how many requests were answered at the same time, at most.
    """

    def __init__(self, actions: Mapping[str, Sequence[str]]) -> None:
        self.spent: dict[str, Spent] = {}
        self.paths: set[str] = set()
        self.most = 0
        self._now = 0
        self._actions = actions
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ScriptedModel:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, body: dict[str, Any], results: int) -> Said:
        """Return what is said to a request with so many results of tools in it."""
        text = "\n".join(_strings(body))
        query = max((each for each in self._actions if each in text), key=len, default="")
        spent = Spent(1, 100 + results, 10 + results)
        with self._lock:
            self.spent[query] = self.spent.get(query, Spent()) + spent
        names = {name.rpartition("__")[2]: name for name in _tools(body)}
        if not query or not names:
            return Said("", {}, results, spent)
        left = self._actions[query][results:]
        if "bash" in names:  # an agent that has this tool alone
            return Said(names["bash"], {"command": left[0] if left else "submit"}, results, spent)
        if left:
            return Said(names["execute"], {"code": left[0]}, results, spent)
        return Said(names["submit"], {"answer": ""}, results, spent)

    def enter(self, path: str, by: int) -> None:
        """Count the requests that are being answered."""
        with self._lock:
            self.paths.add(path)
            self._now += by
            self.most = max(self.most, self._now)


def _handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path = self.path.partition("?")[0]
            model.enter(path, 1)
            try:
                time.sleep(_THOUGHT)
                status, kind, data = _answer(model, path, body)
            finally:
                model.enter(path, -1)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _answer(model: ScriptedModel, path: str, body: dict[str, Any]) -> tuple[int, str, bytes]:
    if path == "/v1/chat/completions":
        # Of messages that ask for tools, as some clients send results in the user's name.
        results = sum(each["role"] == "assistant" for each in body["messages"])
        made = _completion(model.answer(body, results), body["model"])
    elif path == "/v1/responses":
        inputs = body["input"] if isinstance(body["input"], list) else []
        results = sum(each.get("type") == "function_call_output" for each in inputs)
        made = _response(model.answer(body, results), body)
    elif path == "/v1/messages":
        blocks = [
            b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]
        ]
        results = sum(block["type"] == "tool_result" for block in blocks)
        made = _message(model.answer(body, results), body["model"])
        if body.get("stream"):
            return 200, _SSE, "".join(_streamed(made)).encode()
    elif re.fullmatch(r"/v1beta/models/[\w.-]+:generateContent", path):
        parts = [part for each in body["contents"] for part in each["parts"]]
        results = sum("functionResponse" in part for part in parts)
        made = _generated(model.answer(body, results))
    else:
        return 404, _JSON, json.dumps({"error": {"message": f"no {path} here"}}).encode()
    return 200, _JSON, json.dumps(made).encode()


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _strings(each)


def _tools(body: dict[str, Any]) -> Iterator[str]:
    for tool in body.get("tools") or []:
        for each in tool.get("functionDeclarations", [tool.get("function", tool)]):
            yield each.get("name", "")


def _completion(said: Said, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None if said.name else "done"}
    if said.name:
        function = {"name": said.name, "arguments": json.dumps(said.arguments)}
        message["tool_calls"] = [{"id": said.id, "type": "function", "function": function}]
    used = said.spent
    return {
        **{"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": model},
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if said.name else "stop",
            }
        ],
        "usage": {
            "prompt_tokens": used.input_tokens,
            "completion_tokens": used.output_tokens,
            "total_tokens": used.input_tokens + used.output_tokens,
            "prompt_tokens_details": {"cached_tokens": 20},
        },
    }


def _response(said: Said, body: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "output_text", "text": "done", "annotations": []}
    output: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant"}
    output |= {"status": "completed", "content": [text]}
    if said.name:
        output = {"type": "function_call", "id": f"fc_{said.number}", "call_id": said.id}
        output |= {"name": said.name, "arguments": json.dumps(said.arguments)}
        output |= {"status": "completed"}
    used = said.spent
    return {
        **{"id": f"resp_{said.number}", "object": "response", "created_at": 0},
        **{"status": "completed", "model": body["model"], "output": [output]},
        **{"parallel_tool_calls": False, "tool_choice": "auto", "tools": body.get("tools", [])},
        "usage": {
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "total_tokens": used.input_tokens + used.output_tokens,
            "input_tokens_details": {"cached_tokens": 20},
            "output_tokens_details": {"reasoning_tokens": 5},
        },
    }


def _message(said: Said, model: str) -> dict[str, Any]:
    content: dict[str, Any] = {"type": "text", "text": "done"}
    if said.name:
        content = {"type": "tool_use", "id": f"toolu_{said.number}", "name": said.name}
        content |= {"input": said.arguments}
    return {
        **{"id": f"msg_{said.number}", "type": "message", "role": "assistant", "model": model},
        "content": [content],
        **{"stop_reason": "tool_use" if said.name else "end_turn", "stop_sequence": None},
        "usage": {  # what was read from a cache, or written to one, is not in the first number
            "input_tokens": said.spent.input_tokens - 30,
            "cache_read_input_tokens": 20,
            "cache_creation_input_tokens": 10,
            "output_tokens": said.spent.output_tokens,
        },
    }


def _streamed(message: dict[str, Any]) -> Iterator[str]:
    """Yield a message as events, of which the last one has the number of tokens that came out."""
    [block] = message["content"]
    start = {**message, "content": [], "stop_reason": None}
    start["usage"] = {**message["usage"], "output_tokens": 1}
    if block["type"] == "text":
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": message["usage"]},
        {"type": "message_stop"},
    ]
    yield from (f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)


def _generated(said: Said) -> dict[str, Any]:
    part: dict[str, Any] = {"text": "done"}
    if said.name:
        part = {"functionCall": {"name": said.name, "args": said.arguments}}
    used = said.spent
    return {
        "candidates": [
            {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {  # thoughts are not in the candidates' number
            "promptTokenCount": used.input_tokens,
            "candidatesTokenCount": used.output_tokens - 4,
            "thoughtsTokenCount": 4,
            "totalTokenCount": used.input_tokens + used.output_tokens,
        },
    }
