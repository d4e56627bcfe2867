"""Check in the agent's sandbox that the MCP servers of a task start or can be reached.

The agent itself starts them or connects to them. A server that does not answer would look like a
failure of the agent. So each server is tried once beforehand, and has to answer the first request
of the protocol.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pytest_intercode.core.servers import ServerAddress, address_of
from pytest_intercode.core.text import one_line
from pytest_intercode.core.turn import Command
from pytest_intercode.environments.shell import ShellEnvironment, is_cut
from pytest_intercode.errors import TaskError

__all__ = ["start_servers"]

_START_TIMEOUT = 30  # seconds for the answer to the first request
_MAX_LINE_BYTES = 1_000_000
_MAX_SHOWN = 200  # characters of what a server printed
_VERSION = "2025-06-18"  # of the protocol; a server may answer with another one that it supports
_REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": _VERSION,
        "capabilities": {},
        "clientInfo": {"name": "pytest-intercode", "version": "1"},
    },
}
# This prints how the reading ended (`line`, `timeout`, or `end`) with the server's status, then the
# line that was read, then what the server wrote to its standard error. It skips notifications that
# come before the answer. With `set -m`, the server has a process group of its own, which ends as a
# whole: when its input ends, as MCP says, or by a signal if that does not help. The process ID is
# taken from `$!`, because bash unsets `SERVER_PID` as soon as the server has ended. It then closes
# the pipes, too, so the server first waits for a line, until the pipes have been duplicated.
_SCRIPT = """\
set -m
exec {{report}}>&1 >/dev/null 2>&1 </dev/null
errors=$(mktemp)
coproc SERVER {{ read -r; exec sh -c {command} 2>"$errors"; }}
server=$!
exec {{input}}>&"${{SERVER[1]}}" {{output}}<&"${{SERVER[0]}}"
eval "exec ${{SERVER[1]}}>&- ${{SERVER[0]}}<&-"
trap '' PIPE
printf '\\n%s\\n' {request} >&"$input"
deadline=$((SECONDS + {timeout}))
ending=timeout
while remaining=$((deadline - SECONDS)); [ $remaining -gt 0 ]; do
  line=
  IFS= read -r -n {max_bytes} -t "$remaining" line <&"$output"
  status=$?
  if [ $status -gt 128 ]; then break; fi
  if [ $status -ne 0 ] && [ -z "$line" ]; then ending=end; break; fi
  case $line in
    '' | *'"method"'*) continue ;;
  esac
  ending=line
  break
done
exec {{input}}>&-
for signal in 0 0 0 0 TERM 0 0 0 KILL; do
  kill -$signal -- "-$server" || break
  sleep 0.05
done
wait "$server"
code=$?
printf '%s %s\\n%s\\n' "$ending" "$code" "$line" >&"$report"
tail -c 2000 "$errors" >&"$report"
rm -f "$errors"
"""

# For a server with an address. This prints how the reading ended (`unreached`, `end` of what the
# server sends, or `timeout`), and the raw answer. Bash itself connects, because an image may lack a
# program that does. A service may run but not listen yet, so connecting is retried until the time
# is up. A server may keep its connection open: reading ends with the line of an event that answers,
# or, if the answer does not end with a newline, when nothing has come for a second. The session is
# ended, because a server may allow only one at a time.
_ADDRESS_SCRIPT = """\
exec {{report}}>&1 >/dev/null 2>&1 </dev/null
trap '' PIPE
deadline=$((SECONDS + {timeout}))
ending=timeout answer= session= complete=
until exec {{server}}<>/dev/tcp/{host}/{port}; do
  if [ $SECONDS -ge $deadline ]; then
    printf 'unreached\n' >&"$report"
    exit
  fi
  sleep 0.2
done
printf %s {request} >&"$server"
while [ $SECONDS -lt $deadline ] && [ ${{#answer}} -lt {max_bytes} ]; do
  line=
  IFS= read -r -n {max_bytes} -t 1 line <&"$server"
  code=$?
  answer+=$line
  case $line in
    *'"method"'*) ;;
    *'"result"'* | *'"error"'*) complete=yes ;;
    [Mm][Cc][Pp]-[Ss][Ee][Ss][Ss][Ii][Oo][Nn]-[Ii][Dd]:*) session=${{line#*:}} ;;
  esac
  if [ $code -gt 128 ]; then
    if [ "$complete" ]; then ending=end; break; fi
    continue
  fi
  if [ $code -ne 0 ]; then ending=end; break; fi
  answer+=$'\n'
  case $complete:$line in
    {last_line}) ending=end; break ;;
  esac
done
exec {{server}}>&-
session=${{session%$'\r'}}
if [ "$session" ] && exec {{server}}<>/dev/tcp/{host}/{port}; then
  printf '%s%s\r\n\r\n' {end} "${{session# }}" >&"$server"
  read -r -t 1 <&"$server"
fi
printf '%s\n%s' "$ending" "$answer" >&"$report"
"""
# In the older transport, the first event names the address for messages; that is enough.
_LAST_LINES = {"http": "yes:data:*", "sse": ":data:*[![:space:]]*"}

_BLANK_LINE = re.compile(r"\r?\n\r?\n")
_STATUS = re.compile(r"HTTP/\S+ (\d{3})\b")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[^\r\n]*\r?\n")


def start_servers(environment: ShellEnvironment, servers: Mapping[str, str]) -> None:
    """Try each server once in the agent's sandbox, in the task's directory, and end it again.

    A server behind TLS is not tried, because not every image has a program that speaks TLS.

    Args:
        environment: the environment, with its sandbox prepared, before the agent acts.
        servers: the command lines or addresses, by name.

    Raises:
        TaskError: a server does not answer in 30 seconds, ends, or its answer is not MCP.
        InfrastructureError: the sandbox broke.
    """
    for name, server in servers.items():
        address = address_of(server)
        if address is not None and address.url.startswith("https:"):
            continue
        script = _start_script(server) if address is None else _address_script(address)
        request = Command(script, "", _START_TIMEOUT + 10.0, "", False)
        _, output = environment.run_command(request)
        if is_cut(output) and '"result"' in output:
            continue  # an answer that is longer than an output of this task may be
        problem = (
            _find_problem(output)
            if address is None
            else _find_problem_of_address(output, address.transport)
        )
        if problem:
            raise TaskError(f"mcp: the server {name!r} ({one_line(server):.80}) {problem}")
    environment.episode.action = ""  # the agent did not run these commands


def _start_script(command: str) -> str:
    return _SCRIPT.format(
        command=shlex.quote(command),
        request=shlex.quote(json.dumps(_REQUEST)),
        timeout=_START_TIMEOUT,
        max_bytes=_MAX_LINE_BYTES,
    )


def _address_script(address: ServerAddress) -> str:
    """Return the script that tries a server at an address of ``http:``."""
    url = urlsplit(address.url)
    target = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
    headers = f"Host: {url.netloc}\r\nAccept: application/json, text/event-stream\r\n"
    end = f"DELETE {target} HTTP/1.1\r\n{headers}Connection: close\r\nMcp-Session-Id: "
    if address.transport == "sse":
        request = f"GET {target} HTTP/1.1\r\n{headers}\r\n"
    else:
        body = json.dumps(_REQUEST)
        headers += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        request = f"POST {target} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n{body}"
    return _ADDRESS_SCRIPT.format(
        timeout=_START_TIMEOUT,
        host=shlex.quote(url.hostname or ""),
        port=url.port or 80,
        request=shlex.quote(request),
        max_bytes=_MAX_LINE_BYTES,
        last_line=_LAST_LINES[address.transport],
        end=shlex.quote(end),
    )


def _find_problem_of_address(output: str, transport: str) -> str:
    """Return why a server at an address cannot be used; empty if it can.

    Args:
        output: what the script printed.
        transport: the server's transport.
    """
    ending, _, answer = output.partition("\n")
    if ending in ("unreached", ""):  # nothing is printed if the network drops packets silently
        return f"cannot be reached from the agent's sandbox in {_START_TIMEOUT} s"
    if ending not in ("end", "timeout"):
        return f"could not be tried in this sandbox: {one_line(output):.200}"
    status, body = _read_response(answer)
    if status.startswith("3"):
        return ""  # clients follow a redirect
    if status not in ("", "200"):
        return f"answers with HTTP status {status}"
    if transport == "sse" and any(_events(body)):
        return ""
    if body.strip() and transport == "http":
        return _problem_of_answer([body, *_events(body)], "an answer is a message of MCP")
    if ending == "timeout":
        return f"did not answer in {_START_TIMEOUT} s"
    return "ended the connection before it answered"


def _read_response(answer: str) -> tuple[str, str]:
    """Return the status and the body of an HTTP response; an empty status if it is not one."""
    while True:
        head, *rest = _BLANK_LINE.split(answer, maxsplit=1)
        match = _STATUS.match(head)
        if match is None:
            return "", answer
        answer = "".join(rest)
        if not match[1].startswith("1"):  # the final response follows an informational one
            break
    if re.search(r"^transfer-encoding:.*\bchunked\b", head, re.IGNORECASE | re.MULTILINE):
        answer = _join_chunks(answer.encode()).decode("utf-8", "replace")
    return match[1], answer


def _join_chunks(body: bytes) -> bytes:
    chunks, start = [], 0
    while match := _CHUNK.match(body, start):
        end = match.end() + int(match[1], 16)
        chunks.append(body[match.end() : end])
        start = end + (2 if body.startswith(b"\r\n", end) else 0)
    return b"".join(chunks)


def _events(body: str) -> list[str]:
    """Return the data of the events in a stream."""
    blocks = _BLANK_LINE.split(body)
    return [
        "\n".join(line[5:].strip() for line in block.splitlines() if line.startswith("data:"))
        for block in blocks
    ]


def _find_problem(output: str) -> str:
    """Return why a server cannot be used, from what the script printed; empty if it can."""
    head, _, rest = output.partition("\n")
    line, _, errors = rest.partition("\n")
    ending, _, code = head.partition(" ")
    words = one_line(errors.strip())[-_MAX_SHOWN:]
    detail = f"; its last output: {words}" if words else ""
    if ending == "timeout":
        return f"did not answer `initialize` in {_START_TIMEOUT} s{detail}"
    if ending == "end":
        return f"ended with status {code} before it answered `initialize`{detail}"
    if ending != "line":
        return f"could not be tried in this sandbox: {one_line(output):.200}"
    hint = f"its standard output is for messages of MCP alone{detail}"
    return _problem_of_answer([line], hint)


def _problem_of_answer(texts: list[str], hint: str) -> str:
    """Return why texts do not answer `initialize`; empty if one of them does."""
    for text in texts:
        try:
            message: Any = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(message, dict) and message.get("id") == 1 and "method" not in message:
            if "result" in message:
                return ""
            return f"refused `initialize`: {one_line(json.dumps(message.get('error'))):.200}"
    excerpt = one_line(texts[0].strip())[:_MAX_SHOWN]
    return f"printed {excerpt!r}, which is not an answer to `initialize`: {hint}"
