"""A real HTTP server on loopback that speaks the model APIs by a script.

OpenAI's two, also on Azure's paths, Anthropic's, also as Bedrock and Vertex AI have it,
Gemini's, also on the paths of Vertex AI, and Bedrock's Converse, plain and streamed.

::

    with ModelServer([Command("echo hi > out.txt"), "done"]) as server:
        ...  # OPENAI_BASE_URL=f"{server.url}/v1", ANTHROPIC_BASE_URL=server.url
    assert server.spent.input == 200

A script is a list of steps, or a callable that is given the request and returns a step. Of a list,
the step is chosen by how many results of tools the conversation holds, so that calls for a title,
retries and repeated histories do not use it up; behind its end the last step is repeated. A step is
a text, a :class:`Command` for whatever shell tool the client offers, or a :class:`Step`.

As a program it plays a list of commands and then a text, and prints its address::

    python -m tests.support.model_server 'echo hi' 'ls' --say done
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import re
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal
from urllib.parse import unquote

from aiohttp import web

from tests.support.token_ids import TokenServerKind, add_ids, add_ids_to_stream

__all__ = ["Command", "ModelServer", "Request", "Spent", "Step", "Tool"]

_SHELL = re.compile(r"bash|shell|exec|terminal|command", re.I)
_APIS = {
    "chat": re.compile(r"/(?:openai/)?v1/chat/completions"),
    "responses": re.compile(r"/(?:openai/)?(?:v1/)?responses"),
    "messages": re.compile(r"/v1/messages"),
    "gemini": re.compile(
        r"/v1(?:alpha|beta1?)?(?:/projects/[^/]+/locations/[^/]+/publishers/google)?"
        r"/models/(?P<model>[^/:]+):(?P<stream>streamG|g)enerateContent"
    ),
    "predict": re.compile(
        r"/v1/projects/[^/]+/locations/[^/]+/publishers/anthropic"
        r"/models/(?P<model>[^/:]+):(?:streamR|r)awPredict"
    ),
    "converse": re.compile(r"/model/(?P<model>[^/]+)/converse(?P<stream>-stream)?"),
    "invoke": re.compile(r"/model/(?P<model>[^/]+)/invoke(?P<stream>-with-response-stream)?"),
    "azure": re.compile(r"/openai/deployments/(?P<model>[^/]+)/chat/completions"),
}


@dataclass(frozen=True)
class Spent:
    """Tokens of a request, or of all; the input includes what came from caches."""

    input: int = 100
    output: int = 7
    cached: int = 40
    cache_write: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.cache_write + other.cache_write,
        )


@dataclass(frozen=True)
class Tool:
    """A call of a tool by its name, and by its namespace where the responses API has one."""

    name: str
    arguments: Mapping[str, Any]
    namespace: str = ""


@dataclass(frozen=True)
class Command:
    """A call of the client's shell, whatever it is called there."""

    command: str
    thought: str = ""


@dataclass(frozen=True)
class Step:
    """One answer.

    Attributes:
        text: its text.
        calls: its calls.
        spent: the usage that it reports; None for a server that reports none.
        status: an error if it is not 200.
        body: the whole body in place of an answer; of a stream, the text of all its events.
        content_type: of that body.
        headers: further headers.
        pause: seconds before each event of a stream, or before an answer in one piece.
        fault: ``stall`` sends the head of a stream and half of its events, then nothing more;
            ``drop`` closes the connection there; ``silent`` sends nothing at all.
        model: the model that the answer names; None for the request's.
    """

    text: str = ""
    calls: Sequence[Tool | Command] = ()
    spent: Spent | None = Spent()
    status: int = 200
    body: Any = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    pause: float = 0.0
    fault: Literal["", "stall", "drop", "silent"] = ""
    model: str | None = None


@dataclass(frozen=True)
class Request:
    """One request as the server got it; names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def api(self) -> str:
        """``chat``, ``responses``, ``messages``, ``gemini``, ``converse``; empty for others."""
        return {"azure": "chat", "invoke": "messages", "predict": "messages"}.get(
            self.route, self.route
        )

    @property
    def route(self) -> str:
        """The API, ``azure``, ``invoke`` or ``predict``."""
        return self._match[0]

    @property
    def model(self) -> str:
        """The model that is asked."""
        return unquote(str(self._match[1].get("model") or self.body.get("model")))

    @property
    def streams(self) -> bool:
        """Whether the answer is to be streamed."""
        return bool(self.body.get("stream")) or self._match[1].get("stream") not in (None, "g")

    @property
    def _match(self) -> tuple[str, dict[str, str]]:
        path = self.path.partition("?")[0]
        matches = ((name, pattern.fullmatch(path)) for name, pattern in _APIS.items())
        return next(((name, match.groupdict()) for name, match in matches if match), ("", {}))

    @property
    def functions(self) -> list[Mapping[str, Any]]:
        """The tools that the client offers, as each API describes one."""
        functions: list[Mapping[str, Any]] = []
        config = self.body.get("toolConfig") or {}
        for tool in config.get("tools", []) if self.api == "converse" else ():
            specification = tool["toolSpec"]
            functions.append({**specification, "parameters": specification["inputSchema"]["json"]})
        for tool in self.body.get("tools") or []:
            functions += tool.get("functionDeclarations") or [tool.get("function", tool)]
        return functions

    @property
    def results(self) -> list[str]:
        """What tools have returned so far."""
        outputs = []
        for item in self.body.get("input") or []:
            if isinstance(item, dict) and str(item.get("type")).endswith("_output"):
                outputs.append(_text(item.get("output")))
        for message in self.body.get("messages") or []:
            if message.get("role") == "tool":
                outputs.append(_text(message.get("content")))
            elif isinstance(message.get("content"), list):
                outputs += [
                    _text(block.get("content"))
                    for block in message["content"]
                    if block.get("type") == "tool_result"
                ]
                outputs += [
                    _text(block["toolResult"]["content"])
                    for block in message["content"]
                    if "toolResult" in block
                ]
        for content in self.body.get("contents") or []:
            for part in content["parts"]:
                if "functionResponse" in part:
                    outputs.append(json.dumps(part["functionResponse"]["response"]))
        return outputs

    @property
    def has_tools(self) -> bool:
        """Whether the client offers any tools."""
        return bool(self.functions)

    @property
    def text(self) -> str:
        """The whole body, to look for words in."""
        return json.dumps(self.body)


Script = Sequence["str | Command | Step"] | Callable[[Request], "str | Command | Step"]


class ModelServer:
    """The server; it runs between ``with`` and the end of the block.

    Args:
        script: what it answers.
        port: where it listens on 127.0.0.1; 0 for any free port.
        tokens: whose fields its chat completions have: token ids and log-probabilities where a
            request asks for them.
        together: it answers none before so many requests have come.

    Attributes:
        url: its address, without ``/v1``.
        requests: all requests so far.
        spent: the sum of the usage that it has reported, also where the client did not ask for it.
        stalled: is set when an answer has stalled.
    """

    def __init__(
        self,
        script: Script,
        *,
        port: int = 0,
        tokens: TokenServerKind | None = None,
        together: int = 0,
    ) -> None:
        self.requests: list[Request] = []
        self.spent = Spent(0, 0, 0)
        self.stalled = threading.Event()
        self.url = ""
        self._script = script
        self._tokens = tokens
        self._together = together
        self._wanted_port = port
        self._lock = threading.Lock()
        self._calls = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        # As one of ours by name, or it is taken for what an agent leaves behind.
        self._thread = threading.Thread(target=self._run, name="intercode-model", daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        assert self._ready.wait(10), "the server does not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def of(self, api: str) -> list[Request]:
        """Return the requests of one API."""
        return [request for request in list(self.requests) if request.api == api]

    # -- the server

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    async def _serve(self) -> None:
        runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self._wanted_port)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        data = await _whole(request)
        headers = {name.lower(): value for name, value in request.headers.items()}
        parsed = Request(request.method, request.raw_path, headers, json.loads(data or b"{}"))
        with self._lock:
            self.requests.append(parsed)
        path = parsed.path.partition("?")[0]
        if parsed.method == "GET" and path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})
        if path.endswith(":countTokens"):
            return web.json_response({"totalTokens": 100})
        if path == "/v1/messages/count_tokens":
            return web.json_response({"input_tokens": 100})
        if not parsed.api or parsed.method != "POST":
            return web.json_response({"error": {"message": f"no {path} here"}}, status=404)
        while len(self.requests) < self._together:
            await asyncio.sleep(0.01)
        return await self._answer(request, parsed, self._step(parsed))

    def _step(self, request: Request) -> Step:
        if callable(self._script):
            try:
                step = self._script(request)
            except Exception as error:
                step = Step(status=400, body={"error": {"message": f"the script: {error!r}"}})
        elif not request.has_tools and any(
            isinstance(candidate, Command) or (isinstance(candidate, Step) and candidate.calls)
            for candidate in self._script
        ):
            step = "a title"
        else:
            step = self._script[min(len(request.results), len(self._script) - 1)]
        if isinstance(step, Command):
            step = Step(step.thought, (step,))
        return Step(step) if isinstance(step, str) else step

    async def _answer(
        self, request: web.BaseRequest, got: Request, step: Step
    ) -> web.StreamResponse:
        if step.fault == "silent":
            self.stalled.set()
            await self._stop.wait()
        calls = []
        for call in step.calls:
            with self._lock:
                self._calls += 1
                number = self._calls
            calls.append((number, _tool(call, got)))
        if step.body is not None or step.status != 200:
            body = step.body
            text = body if isinstance(body, (str, bytes)) else json.dumps(body or _error(step))
            return web.Response(
                status=step.status,
                body=text if isinstance(text, bytes) else text.encode(),
                content_type=step.content_type,
                headers=dict(step.headers),
            )
        if step.spent is not None:
            with self._lock:
                self.spent += step.spent
        make = {"chat": _chat, "responses": _responses, "messages": _messages, "gemini": _gemini}
        make["converse"] = _converse
        whole = make[got.api](step, calls, step.model or got.model)
        if self._tokens is not None and got.api == "chat":
            whole = add_ids(self._tokens, got.body, whole)
        if not got.streams:
            await asyncio.sleep(step.pause)
            if step.fault:
                await self._fail(request, step)
            return web.json_response(whole, headers=dict(step.headers))
        kind = "text/event-stream; charset=utf-8"
        if got.route in ("converse", "invoke"):
            kind = "application/vnd.amazon.eventstream"
        response = web.StreamResponse(headers={"content-type": kind, **step.headers})
        await response.prepare(request)
        events = [event async for event in _events(got, step, whole)]
        for number, event in enumerate(events):
            if step.fault and number >= len(events) // 2:
                await self._fail(request, step)
            if step.pause:
                await asyncio.sleep(step.pause)
            await response.write(event)
        await response.write_eof()
        return response

    async def _fail(self, request: web.BaseRequest, step: Step) -> None:
        self.stalled.set()
        if step.fault == "stall":
            await self._stop.wait()
        assert request.transport is not None
        request.transport.abort()
        await self._stop.wait()


async def _whole(request: web.BaseRequest) -> bytes:
    """Return a body of any size."""
    data = bytearray()
    while piece := await request.content.readany():
        data += piece
    return bytes(data)


def _tool(call: Tool | Command, request: Request) -> Tool:
    """Return a call of a tool that the client offers."""
    if isinstance(call, Tool):
        return call
    for function in request.functions:
        keys = ("parameters", "input_schema", "parametersJsonSchema", "parameters_json_schema")
        schema: Mapping[str, Any] = next((function[key] for key in keys if function.get(key)), {})
        properties = schema.get("properties", {})
        own_keys = ("command", "cmd", "script", "commands")
        key = next((name for name in own_keys if name in properties), None)
        if key is None or not _SHELL.search(str(function.get("name"))):
            continue
        as_list = str(properties[key].get("type")).lower() == "array"
        words = [call.command] if key == "commands" else ["bash", "-lc", call.command]
        arguments: dict[str, Any] = {key: words if as_list else call.command}
        for name in schema.get("required", []):  # a description, for one
            if name not in arguments:
                arguments[name] = _some(properties.get(name, {}))
        return Tool(str(function["name"]), arguments)
    names = [str(function.get("name")) for function in request.functions]
    raise LookupError(f"the client offers no shell, only {names}")


def _some(schema: Mapping[str, Any]) -> Any:
    """Return some value of a type."""
    kinds: dict[str, Any] = {"boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}
    return kinds.get(str(schema.get("type")).lower(), "x")


def _error(step: Step) -> dict[str, Any]:
    return {"error": {"message": step.text or "an error of the script", "type": "script"}}


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


# -- answers in one piece

Calls = Sequence[tuple[int, Tool]]


def _chat(step: Step, calls: Calls, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": tool.name, "arguments": json.dumps(tool.arguments)},
            }
            for number, tool in calls
        ]
    completion: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if calls else "stop",
                "logprobs": None,
            }
        ],
    }
    if step.spent is not None:
        completion["usage"] = {
            "prompt_tokens": step.spent.input,
            "completion_tokens": step.spent.output,
            "total_tokens": step.spent.input + step.spent.output,
            "prompt_tokens_details": {"cached_tokens": step.spent.cached},
        }
    return completion


def _responses(step: Step, calls: Calls, model: str) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if step.text:
        part = {"type": "output_text", "text": step.text, "annotations": []}
        output.append(
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    output += [
        {
            "id": f"fc_{number}",
            "type": "function_call",
            "status": "completed",
            "call_id": f"call_{number}",
            "name": tool.name,
            "arguments": json.dumps(tool.arguments),
            **({"namespace": tool.namespace} if tool.namespace else {}),
        }
        for number, tool in calls
    ]
    response: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": model,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "output": output,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }
    if step.spent is not None:
        response["usage"] = {
            "input_tokens": step.spent.input,
            "input_tokens_details": {"cached_tokens": step.spent.cached},
            "output_tokens": step.spent.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": step.spent.input + step.spent.output,
        }
    return response


def _messages(step: Step, calls: Calls, model: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": step.text}] if step.text else []
    content += [
        {"type": "tool_use", "id": f"toolu_{number}", "name": tool.name, "input": tool.arguments}
        for number, tool in calls
    ]
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
    }
    if step.spent is not None:
        usage = step.spent
        message["usage"] = {
            "input_tokens": usage.input - usage.cached - usage.cache_write,
            "cache_creation_input_tokens": usage.cache_write,
            "cache_read_input_tokens": usage.cached,
            "output_tokens": usage.output,
        }
    return message


def _gemini(step: Step, calls: Calls, model: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": step.text}] if step.text else []
    parts += [{"functionCall": {"name": tool.name, "args": tool.arguments}} for _, tool in calls]
    content = {"role": "model", "parts": parts}
    response: dict[str, Any] = {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "modelVersion": model,
    }
    if step.spent is not None:
        thoughts = step.spent.output // 2  # which are not in the candidates' number
        response["usageMetadata"] = {
            "promptTokenCount": step.spent.input,
            "cachedContentTokenCount": step.spent.cached,
            "candidatesTokenCount": step.spent.output - thoughts,
            "thoughtsTokenCount": thoughts,
            "totalTokenCount": step.spent.input + step.spent.output,
        }
    return response


# -- the same as streams


async def _events(request: Request, step: Step, whole: Mapping[str, Any]) -> AsyncIterator[bytes]:
    if request.api == "chat":
        options = request.body.get("stream_options") or {}
        chunks = _chat_events(step, whole, bool(options.get("include_usage")))
        for chunk in add_ids_to_stream(whole, chunks):
            yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"
        return
    if request.api == "converse":
        for name, data in _converse_events(whole):
            yield _frame(name, {**data, "p": "abcdefghij"})
        return
    if request.api == "gemini":
        for chunk in _gemini_events(whole):
            yield b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n"
        return
    make = _responses_events if request.api == "responses" else _messages_events
    for number, event in enumerate(make(whole)):
        if request.api == "responses":
            event = {**event, "sequence_number": number}
        if request.route == "invoke":
            inner = base64.b64encode(json.dumps(event).encode()).decode()
            yield _frame("chunk", {"bytes": inner, "p": "abc"})
            continue
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _pieces(text: str) -> list[str]:
    """Return a text in a few pieces."""
    size = max(1, -(-len(text) // 3))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _chat_events(step: Step, whole: Mapping[str, Any], usage: bool) -> list[dict[str, Any]]:
    head = {key: whole[key] for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    choice = whole["choices"][0]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _pieces(step.text)]
    for index, call in enumerate(choice["message"].get("tool_calls", ())):
        function = {**call["function"], "arguments": ""}
        deltas.append({"tool_calls": [{**call, "index": index, "function": function}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in _pieces(call["function"]["arguments"])
        ]
    ends = [None] * len(deltas) + [choice["finish_reason"]]
    of_usage = {"usage": None} if usage else {}
    chunks = [
        {
            **head,
            "choices": [{"index": 0, "delta": delta, "finish_reason": end, "logprobs": None}],
            **of_usage,
        }
        for delta, end in zip([*deltas, {}], ends, strict=True)
    ]
    if usage and "usage" in whole:
        chunks.append({**head, "choices": [], "usage": whole["usage"]})
    return chunks


def _converse(step: Step, calls: Calls, model: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"text": step.text}] if step.text else []
    content += [
        {"toolUse": {"toolUseId": f"tooluse_{n}", "name": tool.name, "input": tool.arguments}}
        for n, tool in calls
    ]
    answer: dict[str, Any] = {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use" if calls else "end_turn",
        "metrics": {"latencyMs": 1},
    }
    if step.spent is not None:
        usage = step.spent
        answer["usage"] = {
            "inputTokens": usage.input - usage.cached - usage.cache_write,
            "outputTokens": usage.output,
            "totalTokens": usage.input + usage.output,
            "cacheReadInputTokens": usage.cached,
            "cacheWriteInputTokens": usage.cache_write,
        }
    return answer


def _converse_events(whole: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "messageStart", {"role": "assistant"}
    for index, block in enumerate(whole["output"]["message"]["content"]):
        place = {"contentBlockIndex": index}
        if "toolUse" in block:
            call = block["toolUse"]
            start = {key: call[key] for key in ("toolUseId", "name")}
            yield "contentBlockStart", {"start": {"toolUse": start}, **place}
            for piece in _pieces(json.dumps(call["input"])):
                yield "contentBlockDelta", {"delta": {"toolUse": {"input": piece}}, **place}
        else:
            for piece in _pieces(block["text"]):
                yield "contentBlockDelta", {"delta": {"text": piece}, **place}
        yield "contentBlockStop", place
    yield "messageStop", {"stopReason": whole["stopReason"]}
    last = {key: whole[key] for key in ("usage", "metrics") if key in whole}
    yield "metadata", last


def _frame(name: str, data: Mapping[str, Any]) -> bytes:
    """Return a frame of AWS's binary streams."""
    head = b""
    for key, value in (
        (":event-type", name),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ):
        head += bytes([len(key)]) + key.encode() + b"\x07" + len(value).to_bytes(2, "big")
        head += value.encode()
    payload = json.dumps(data).encode()
    prelude = (16 + len(head) + len(payload)).to_bytes(4, "big") + len(head).to_bytes(4, "big")
    frame = prelude + zlib.crc32(prelude).to_bytes(4, "big") + head + payload
    return frame + zlib.crc32(frame).to_bytes(4, "big")


def _gemini_events(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the chunks of a stream, of which each has the usage so far."""
    candidate, usage = whole["candidates"][0], whole.get("usageMetadata")
    parts: list[Any] = []
    for part in candidate["content"]["parts"]:
        parts += [{"text": piece} for piece in _pieces(part["text"])] if "text" in part else [part]
    chunks = []
    for number, part in enumerate(parts, 1):
        inner = {"index": 0, "content": {"role": "model", "parts": [part]}}
        chunk: dict[str, Any] = {"candidates": [inner], "modelVersion": whole["modelVersion"]}
        if usage is not None:
            chunk["usageMetadata"] = {**usage, "candidatesTokenCount": number}
        chunks.append(chunk)
    chunks[-1]["candidates"][0]["finishReason"] = "STOP"
    if usage is not None:
        chunks[-1]["usageMetadata"] = usage
    return chunks


def _responses_events(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    first = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": first},
        {"type": "response.in_progress", "response": first},
    ]
    for index, item in enumerate(whole["output"]):
        position = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            part = item["content"][0]
            empty = {**part, "text": ""}
            inner = [
                {
                    "type": "response.content_part.added",
                    "content_index": 0,
                    "part": empty,
                    **position,
                },
                *(
                    {
                        "type": "response.output_text.delta",
                        "content_index": 0,
                        "delta": piece,
                        "logprobs": [],
                        **position,
                    }
                    for piece in _pieces(part["text"])
                ),
                {
                    "type": "response.output_text.done",
                    "content_index": 0,
                    "text": part["text"],
                    "logprobs": [],
                    **position,
                },
                {
                    "type": "response.content_part.done",
                    "content_index": 0,
                    "part": part,
                    **position,
                },
            ]
            start = {**item, "status": "in_progress", "content": []}
        else:
            inner = [
                {"type": "response.function_call_arguments.delta", "delta": piece, **position}
                for piece in _pieces(item["arguments"])
            ]
            inner.append(
                {
                    "type": "response.function_call_arguments.done",
                    "arguments": item["arguments"],
                    "name": item["name"],
                    **position,
                }
            )
            start = {**item, "status": "in_progress", "arguments": ""}
        events.append({"type": "response.output_item.added", "output_index": index, "item": start})
        events += inner
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return [*events, {"type": "response.completed", "response": whole}]


def _messages_events(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    start = {**whole, "content": [], "stop_reason": None}
    usage = whole.get("usage")
    if usage is not None:
        start["usage"] = {**usage, "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        else:
            empty = {**block, "input": {}}
            deltas = [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in _pieces(json.dumps(block["input"]))
            ]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    last: dict[str, Any] = {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 0}}
    if usage is not None:
        last["usage"] = {"output_tokens": usage["output_tokens"]}
    return [*events, last, {"type": "message_stop"}]


def main() -> None:
    """Serve until the end of the standard input."""
    parser = argparse.ArgumentParser(description="a scripted server of the model APIs")
    parser.add_argument("command", nargs="*", help="what the model wants run, one by one")
    parser.add_argument("--say", default="done", help="its last answer")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    script = [*map(Command, options.command), options.say]
    with ModelServer(script, port=options.port) as server:
        print(server.url, flush=True)
        with open(0, encoding="utf-8") as waiting:
            waiting.read()
        print(json.dumps(vars(replace(server.spent))), flush=True)


if __name__ == "__main__":
    main()
