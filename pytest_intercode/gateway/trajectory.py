"""Reads an agent's turns from its exchanges with a model. Pure.

A tool call in an answer is a turn; the tool's result is in the following request. So requests for
a title or a summary, which have no tools, make no turn, and neither does a history that is sent
again.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pytest_intercode.core.usage import UNSPENT, Usage
from pytest_intercode.gateway.apis import objects
from pytest_intercode.gateway.blocks import as_messages
from pytest_intercode.gateway.command_status import CommandStatus, read_status
from pytest_intercode.gateway.exchange import Api, Exchange

__all__ = ["GatewayTurn", "count_calls", "final_message", "turns"]

_SHELL = re.compile(r"bash|shell|exec|terminal|command|cmd|run|powershell", re.I)
_COMMANDS = ("command", "cmd", "commands", "script")
_FILES = ("path", "file_path", "filename")  # an editor's commands are not shell commands
_HEAD = re.compile(
    r"(?:Chunk ID: .*\n)?Wall time: .*\n(?P<status>(?:Process .*\n)?)"
    r"(?:Original token count: .*\n)?Output:\n"
)
_DEFERRED = "tool_call"  # Qwen Code's tool that calls tools which requests do not always list
_FUNCTION = "function:{}"  # the id for OpenAI's older calls, whose results name the function
_WRAPPED = re.compile(r"(?:/\S*/)?(?:ba|z|da)?sh")


@dataclass(frozen=True)
class GatewayTurn:
    """One tool call.

    Attributes:
        action: a shell's command; for another tool its name and arguments, ``NAME({...})``.
        observation: the tool's result; empty if the agent ended before it sent the result.
        thought: the text next to the call; only with the first call of an answer.
        usage: the tokens and the cost of the exchange; only with the first call of an answer.
        tool: the tool's name, as the model called it.
        status: the exit status of a shell's command; None if that is not known.
        calls: the numbers of requests whose tokens were kept; only with the first call of an
            answer.
    """

    action: str
    observation: str
    thought: str = ""
    usage: Usage = UNSPENT
    tool: str = ""
    status: int | None = None
    calls: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Call:
    id: str
    name: str
    arguments: Any


class _Result(NamedTuple):
    """A tool's result, as its client sent it.

    Attributes:
        content: the content; for the responses API, the output.
        is_error: the field of that name in Anthropic's API; None without it.
    """

    content: Any
    is_error: object = None

    def text(self, api: Api) -> str:
        """Return the result's text for the trajectory."""
        return _output(self.content) if api == "responses" else _content(self.content)

    def status(self, command: str) -> CommandStatus:
        """Return the status of a command according to the result."""
        return read_status(_content(self.content), self.is_error, command)


def turns(exchanges: Sequence[Exchange]) -> list[GatewayTurn]:
    """Return the agent's turns, in order.

    A call whose result was never sent, although the conversation continued, was not made: the agent
    repeated its request after a failed answer.

    Args:
        exchanges: all exchanges of a session.
    """
    exchanges = as_messages(exchanges)
    results = [_results(exchange) for exchange in exchanges]
    last = max((n for n, exchange in enumerate(exchanges) if _has_tools(exchange)), default=-1)
    gateway_turns: list[GatewayTurn] = []
    sessions: dict[str, int] = {}  # positions of turns with Codex commands that kept running
    for number, exchange in enumerate(exchanges):
        calls = _calls(exchange)
        thought = _thought(exchange) if calls else ""
        usage = exchange.usage
        numbers = () if exchange.call is None else (exchange.call,)
        of_exchange: dict[str, int] = {}
        for call in calls:
            # An id may recur: some small servers count from 1 in each answer.
            earlier_results = len(results[number].get(call.id, ())) + of_exchange.get(call.id, 0)
            of_exchange[call.id] = of_exchange.get(call.id, 0) + 1
            result = _result(results[number + 1 :], call.id, earlier_results)
            if result is None and number < last:
                continue
            command = _command(call)
            status = CommandStatus() if result is None else result.status(command or "")
            if command is None and (turn_index := sessions.get(_session(call))) is not None:
                gateway_turns[turn_index] = replace(gateway_turns[turn_index], status=status.status)
            elif command is not None and status.session:
                sessions[status.session] = len(gateway_turns)
            gateway_turns.append(
                GatewayTurn(
                    action=_describe(call) if command is None else command,
                    observation="" if result is None else result.text(exchange.api),
                    thought=thought,
                    usage=usage,
                    tool=call.name,
                    status=None if command is None else status.status,
                    calls=numbers,
                )
            )
            thought, usage, numbers = "", UNSPENT, ()
    return gateway_turns


def final_message(exchanges: Sequence[Exchange]) -> str:
    """Return the text of the last answer; empty if it has a call, so that the agent was not done.

    Args:
        exchanges: all exchanges of a session; those without tools count only if none has tools.
    """
    answered = [exchange for exchange in exchanges if exchange.status == 200 and exchange.answer]
    good = as_messages(answered)
    with_tools = [exchange for exchange in good if _has_tools(exchange)]
    for exchange in reversed(with_tools or good):
        return "" if _calls(exchange) else _text(exchange)
    return ""


def count_calls(exchange: Exchange) -> int:
    """Return the number of tool calls in an answer."""
    return sum(len(_calls(translated)) for translated in as_messages([exchange]))


# -- answers


def _has_tools(exchange: Exchange) -> bool:
    request = exchange.request
    return bool(request.get("tools") or request.get("functions")) or bool(_calls(exchange))


def _calls(exchange: Exchange) -> list[_Call]:
    """Return the calls in an answer; none if it broke off, as the client cannot make them."""
    if exchange.status != 200 or not exchange.complete:
        return []
    answer = exchange.answer
    if exchange.api == "chat":
        return list(_chat_calls(_message(answer)))
    if exchange.api == "messages":
        return [
            _Call(str(block.get("id", "")), str(block.get("name", "")), block.get("input"))
            for block in objects(answer.get("content"))
            if block.get("type") == "tool_use"
        ]
    return [_responses_call(item) for item in objects(answer.get("output")) if _is_call(item)]


def _message(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = objects(answer.get("choices"))
    message = choices[0].get("message") if choices else None
    return message if isinstance(message, dict) else {}


def _chat_calls(message: Mapping[str, Any]) -> Iterator[_Call]:
    for call in objects(message.get("tool_calls")):
        function = call.get("function") or call.get("custom")
        if isinstance(function, dict):
            name = str(function.get("name", ""))
            arguments = _parse_json(function.get("arguments", function.get("input")))
            if name == _DEFERRED and isinstance(arguments, dict) and "name" in arguments:
                name, arguments = str(arguments["name"]), arguments.get("arguments", {})
            yield _Call(str(call.get("id", "")), name, arguments)
    function = message.get("function_call")  # some servers send this in addition to the same call
    if isinstance(function, dict) and function.get("name") and not message.get("tool_calls"):
        name = str(function["name"])
        yield _Call(_FUNCTION.format(name), name, _parse_json(function.get("arguments")))


def _is_call(item: Mapping[str, Any]) -> bool:
    kind = str(item.get("type"))
    return kind.endswith("_call") and isinstance(item.get("call_id"), str)


def _responses_call(item: Mapping[str, Any]) -> _Call:
    kind = str(item.get("type"))
    if kind == "function_call":
        arguments = _parse_json(item.get("arguments"))
    elif kind == "custom_tool_call":
        arguments = item.get("input")
    else:  # local_shell_call, shell_call, apply_patch_call
        arguments = item.get("action", item.get("operation", {}))
    name = str(item.get("name") or kind.removesuffix("_call"))
    namespace = item.get("namespace")  # of Codex's tools from MCP servers: mcp__SERVER
    if isinstance(namespace, str) and namespace:
        name = f"{namespace.rstrip('_')}__{name}"
    return _Call(str(item.get("call_id")), name, arguments)


def _parse_json(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _command(call: _Call) -> str | None:
    """Return the command of a shell tool's call; None for another tool."""
    arguments = call.arguments
    is_shell = _SHELL.search(call.name) is not None
    if is_shell and isinstance(arguments, dict) and not arguments.keys() & set(_FILES):
        for key in _COMMANDS:
            value = arguments.get(key)
            if isinstance(value, str):
                return value
            if isinstance(value, list) and value and all(isinstance(w, str) for w in value):
                return _join_command(value, key)
    return None


def _describe(call: _Call) -> str:
    return f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})"


def _session(call: _Call) -> str:
    """Return the session of the command that a Codex call asks about; empty for none."""
    arguments = call.arguments
    return str(arguments.get("session_id", "")) if isinstance(arguments, dict) else ""


def _join_command(words: list[str], key: str) -> str:
    """Return a list's command: the code for a shell, or the quoted words."""
    if key == "commands":
        return "\n".join(words)
    if len(words) == 3 and _WRAPPED.fullmatch(words[0]) and words[1] in ("-c", "-lc", "-ec"):
        return words[2]
    return shlex.join(words)


def _thought(exchange: Exchange) -> str:
    """Return the text next to the calls, or the model's reasoning if there is no text."""
    answer = exchange.answer
    text = _text(exchange)
    if text:
        return text
    if exchange.api == "chat":
        message = _message(answer)
        thoughts = (message.get(key) for key in ("reasoning_content", "reasoning"))
        return next((thought for thought in thoughts if isinstance(thought, str)), "")
    if exchange.api == "messages":
        return _join_texts(answer.get("content"), "thinking", "thinking")
    return _join_items(answer, "reasoning", "summary", "summary_text")


def _text(exchange: Exchange) -> str:
    """Return the text of an answer."""
    answer = exchange.answer
    if exchange.api == "chat":
        return _content(_message(answer).get("content"))
    if exchange.api == "messages":
        return _join_texts(answer.get("content"), "text")
    return _join_items(answer, "message", "content", "output_text")


def _join_items(answer: Mapping[str, Any], kind: str, key: str, part_kind: str) -> str:
    """Return the texts in an answer of the responses API, from its items of one kind."""
    items = (item for item in objects(answer.get("output")) if item.get("type") == kind)
    return "\n".join(filter(None, (_join_texts(item.get(key), part_kind) for item in items)))


def _join_texts(parts: Any, kind: str, key: str = "text") -> str:
    texts = (part.get(key) for part in objects(parts) if part.get("type") == kind)
    return "\n".join(text for text in texts if isinstance(text, str) and text)


# -- results in requests


def _results(exchange: Exchange) -> dict[str, list[_Result]]:
    """Return the tool results in a request, in order, by the ids of their calls."""
    results: dict[str, list[_Result]] = {}
    request = exchange.request
    if exchange.api == "responses":
        for item in objects(request.get("input")):
            if str(item.get("type")).endswith("_output") and "call_id" in item:
                result = _Result(item.get("output"))
                results.setdefault(str(item["call_id"]), []).append(result)
        return results
    for message in objects(request.get("messages")):
        if exchange.api == "chat" and message.get("role") == "tool":
            identity = str(message.get("tool_call_id", ""))
            results.setdefault(identity, []).append(_Result(message.get("content")))
        elif exchange.api == "chat" and message.get("role") == "function":
            identity = _FUNCTION.format(message.get("name", ""))
            results.setdefault(identity, []).append(_Result(message.get("content")))
        elif exchange.api == "messages":
            for block in objects(message.get("content")):
                if block.get("type") == "tool_result":
                    identity = str(block.get("tool_use_id", ""))
                    result = _Result(block.get("content"), block.get("is_error"))
                    results.setdefault(identity, []).append(result)
    return results


def _result(
    later: Sequence[Mapping[str, list[_Result]]], identity: str, earlier: int
) -> _Result | None:
    """Return the first result of a call in later requests, after skipping earlier results."""
    for results in later:
        of_call = results.get(identity, ())
        if len(of_call) > earlier:
            return of_call[earlier]
    return None


def _output(output: Any) -> str:
    """Return an output of the responses API, without the text that Codex adds to it.

    Older versions send an object in a string; newer ones begin with an id and a time, which are not
    part of the command's result.
    """
    if isinstance(output, str) and output.startswith("{"):
        document = _parse_json(output)
        if isinstance(document, dict) and isinstance(document.get("output"), str):
            return str(document["output"])
    text = _content(output)
    head = _HEAD.match(text)
    if head is None:
        return text
    status = "" if head["status"] in ("", "Process exited with code 0\n") else head["status"]
    return f"{status}{text[head.end() :]}"


def _content(content: Any) -> str:
    """Return the text of a content, which may consist of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False)
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            text = part.get("text")
            texts.append(text if isinstance(text, str) else f"[{part.get('type', 'part')}]")
    return "\n".join(texts)
